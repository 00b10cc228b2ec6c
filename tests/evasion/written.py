"""Families that write the same letters: other code points, other marks between them, other forms of them."""

from __future__ import annotations

import unicodedata
from random import Random

from tests.evasion.family import Family, Hide, between, blanks, inserted, mapped, placed, shifted, zipped

LOWER = "abcdefghijklmnopqrstuvwxyz"
UPPER = LOWER.upper()
DIGITS = "0123456789"


def _decomposed(value: str, chance: Random) -> str:
    return unicodedata.normalize("NFD", value)


def _composed(value: str, chance: Random) -> str | None:
    return None if unicodedata.is_normalized("NFD", value) else value


def _half_width_kana(value: str, chance: Random) -> str:
    narrow = {unicodedata.normalize("NFKC", chr(code)): chr(code) for code in range(0xFF66, 0xFFA0)}
    decomposed = unicodedata.normalize("NFD", value) if any("ァ" <= char <= "ヺ" for char in value) else value
    return "".join(narrow.get(char, char) for char in decomposed)


def _wrapped(*prefixes: str) -> Hide:
    """A line break in place of a blank, and what a quotation or list has at its beginning."""

    def hide(value: str, chance: Random) -> str:
        return value.replace(" ", "\n" + chance.choice(prefixes), 1)

    return hide


def _tags(value: str, chance: Random) -> str:
    """Invisible copies of other letters (Unicode's tags) inside the value."""
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "benign")
    at = chance.randrange(1, len(value))
    return value[:at] + hidden + value[at:]


def _ansi(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    return f"{value[:at]}\x1b[1;3{chance.randrange(8)}m{value[at:]}\x1b[0m".removesuffix("\x1b[0m")


def _one_character(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    return value[:at] + chance.choice(("\x9b31m", "\x9d0;t\x07")) + value[at:]


def _other_escape(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    return value[:at] + chance.choice(("\x1b7", "\x1b=", "\x1b(B", "\x1bPq\x1b\\", "\x1b_k\x1b\\")) + value[at:]


def _ansi_each(value: str, chance: Random) -> str:
    return placed("", "".join(f"\x1b[3{chance.randrange(8)}m{char}" for char in value), "\x1b[0m")


def _terminal_link(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    return f"{value[:at]}\x1b]8;;http://a\x1b\\{value[at:]}"


def _counted(value: str, chance: Random) -> str:
    return "".join(f"{char}({number})" for number, char in enumerate(value))


def _numbered(mark: str) -> Hide:
    """A list or table of the letters, with their numbers."""

    def hide(value: str, chance: Random) -> str:
        first, *rest = (mark.format(number, char) for number, char in enumerate(value, 1))
        begin = first.index(value[0], len(first) - len(value[0]) - mark[::-1].index("}"))
        return placed(first[:begin], "\n".join([first[begin:], *rest]), "")

    return hide


def _stacked_marks(value: str, chance: Random) -> str:
    return "".join(
        char + "".join(chr(chance.randrange(0x300, 0x330)) for _ in range(2)) if char.isalnum() else char
        for char in value
    )


def _emphasis(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    mark = chance.choice(("*", "**", "~~"))
    return placed("", f"{value[:at]}{mark}{value[at:]}", mark if chance.random() < 0.5 else "")


def _coloured(value: str, chance: Random) -> str:
    spaced = " ".join(f"\x1b[3{chance.randrange(8)}m{char}\x1b[0m" for char in value)
    return placed(spaced[:5], spaced[5:-4], spaced[-4:])


def _fancy(value: str, chance: Random) -> str | None:
    """One of the alphabets that converters have."""
    alphabet = chance.choice(MANY_SCRIPTS)
    return mapped(zipped(LOWER, alphabet) | zipped(UPPER, alphabet))(value, chance)


def _json_list(value: str, chance: Random) -> str:
    between_letters = '",\n' + " " * chance.choice((2, 4, 8)) + '"'
    return '"' + between_letters.join(value) + '"'


def _spaced_alike(value: str, chance: Random) -> str | None:
    alike = _some(CYRILLIC)(value, chance)
    return None if alike is None else chance.choice(" .-").join(alike)


def _spaced_leet(value: str, chance: Random) -> str | None:
    table = {**zipped("aeiost", "431057"), **zipped("AEIOST", "431057")}
    found = "-".join(table.get(char, char) for char in value)
    return found if found != "-".join(value) and sum(map(str.isalpha, found)) > 1 else None


def _repeated(value: str, chance: Random) -> str | None:
    places = [at for at in range(1, len(value) - 1) if value[at].isalpha() and value[at] != value[at + 1]]
    if not places:
        return None
    at = chance.choice(places)
    return value[:at] + value[at] * chance.randint(2, 5) + value[at + 1 :]


def _some(table: dict[str, str]) -> Hide:
    """Letters of another script here and there: one at least."""

    def hide(value: str, chance: Random) -> str | None:
        places = [at for at, char in enumerate(value) if char in table]
        if not places:
            return None
        chosen = set(chance.sample(places, chance.randint(1, len(places))))
        return "".join(table[char] if at in chosen else char for at, char in enumerate(value))

    return hide


def _masked(value: str, chance: Random) -> str | None:
    """Asterisks for the vowels inside, where other letters of ASCII are left."""
    inner = "".join("*" if char in "aeiou" else char for char in value[1:-1])
    return value[0] + inner + value[-1] if "*" in inner and len(value) > 5 else None


def _two_for_one(value: str, chance: Random) -> str | None:
    """In words of a length in which no other word comes of it."""
    return value.replace("m", "rn").replace("d", "cl") if len(value) > 6 else None


CYRILLIC = zipped("acdehijopqsxyABCEHIKMOPSTXY", "асԁеһіјорԛѕхуАВСЕНІКМОРЅТХУ")
GREEK = zipped("aceikmnoprtuvxyABEHIKMNOPTXYZ", "αϲεικмηορгτυνχγΑΒΕΗΙΚΜΝΟΡΤΧΥΖ")
SMALL_CAPITALS = zipped("abcdefghijklmnoprstuvwyz", "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ")
SUPERSCRIPT = zipped("abcdefghijklmnoprstuvwxyz0123456789", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ⁰¹²³⁴⁵⁶⁷⁸⁹")
PARENTHESISED = {**shifted(0x249C, LOWER), **shifted(0x1F110, UPPER), **shifted(0x2474, "123456789")}
BRAILLE = zipped(LOWER, "⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵")
FANCY = zipped("abcdefghijklmnopqrstuvwxyz", "αвc∂єfgнιjкℓмησρqяѕтυνωχуz")
UPSIDE_DOWN = zipped(LOWER, "ɐqɔpǝɟƃɥᴉɾʞlɯuodbɹsʇnʌʍxʎz")


MANY_SCRIPTS = (
    "₳฿₵ĐɆ₣₲ⱧłJ₭Ⱡ₥₦Ø₱QⱤ₴₮ɄV₩ӾɎⱫ",
    "卂乃匚ᗪ乇千Ꮆ卄丨ﾌҜㄥ爪几ㄖ卩Ɋ尺丂ㄒㄩᐯ山乂ㄚ乙",
    "ᏗᏰፈᎴᏋᎦᎶᏂᎥᏠᏦᏝᎷᏁᎧᎮᎤᏒᏕᏖᏬᏉᏇጀᎩፚ",
    "ᗩᗷᑕᗪEᖴGᕼIᒍKᒪᗰᑎOᑭᑫᖇᔕTᑌᐯᗯ᙭Yᘔ",
    "дбҁԁёғgнїjкlмиoрqяѕтцѵшхчz",
)


def _math(lower: int, upper: int, digits: int) -> dict[str, str]:
    return {**shifted(lower, LOWER), **shifted(upper, UPPER), **shifted(digits, DIGITS)}


LEET = {**zipped("aeiostbgl", "431057891"), **zipped("AEIOSTBGL", "431057891")}
LEET_LONG = zipped("abdhkmnvwx", ("/\\", "|3", "|)", "|-|", "|<", "/\\/\\", "|\\|", "\\/", "\\/\\/", "><"))

ORDINARY = (
    Family("composed, where the list is not", "canonical", "é as one character", _composed, listed="NFD"),
    Family("decomposed (NFD)", "canonical", "é as e and a mark", _decomposed),
    Family("Hangul letters", "canonical", "한 as ㅎ, ㅏ, ㄴ", _decomposed),
    Family("half-width kana", "canonical", "ｶﾞﾗｽ", _half_width_kana),
    Family("no-break and other spaces", "space", "Project\u00a0Heron", blanks("\u00a0", "\u2009", "\u202f", "\u3000")),
    Family("several spaces", "space", "Project   Heron", blanks("  ", "    ", " \t ")),
    Family("wrapped line", "space", "Project ⏎ Heron", _wrapped("", "  ", "\t")),
    Family("wrapped line in a quotation or list", "space", "Project ⏎ > Heron", _wrapped("> ", "- ", "* ", "  > ")),
    Family("typographic apostrophes", "punctuation", "don’t", lambda v, c: v.replace("'", c.choice("’‘ʼ′"))),
    Family("typographic hyphens", "punctuation", "don't‑tell", lambda v, c: v.replace("-", c.choice("‐‑–−"))),
)
INVISIBLE = (
    Family("zero-width characters", "invisible", "sword␣fish", inserted("\u200b", "\u200c", "\u200d", "\u2060")),
    Family("bidirectional controls", "invisible", "sword␣fish", inserted("\u202d", "\u2066", "\u200e", "\u061c")),
    Family("soft hyphens", "invisible", "sword\u2027fish", inserted("\u00ad")),
    Family("tag characters", "invisible", "sword…fish", _tags),
    Family("variation selectors", "invisible", "sword…fish", inserted("\ufe0f", "\ufe00", "\U000e0101")),
    Family("combining grapheme joiner", "invisible", "sword…fish", inserted("\u034f")),
    Family("control characters", "invisible", "sword\\x01fish", inserted("\x00", "\x01", "\x08", "\x7f")),
    Family("noncharacters, annotations", "invisible", "sword…fish", inserted("\ufdd0", "\ufff9", "\ufffb")),
    Family("ANSI colours", "invisible", "sword␛[1;31mfish", _ansi),
    Family("ANSI colours of each letter", "invisible", "␛[31ms␛[32mw", _ansi_each),
    Family("ANSI colours in one character", "invisible", "sword\\x9b31mfish", _one_character),
    Family("links of terminals", "invisible", "sword␛]8;;http://a␛\\\\fish", _terminal_link),
    Family("a pad of 1,100", "invisible", "sword…fish", inserted("\u200b" * 1100, "\u200d\u2060" * 550)),
    Family("other escapes of terminals", "invisible", "sword␛7fish", _other_escape),
    Family("stacked marks", "accents", "s̷͝w̴̾o̶͌r̵̒d̴̕", _stacked_marks),
    Family("struck through with marks", "accents", "s̶w̶o̶r̶d̶", lambda v, c: "".join(x + "\u0336" for x in v)),
)
FORMS = (
    Family("full width", "width", "ｓｗｏｒｄ", mapped(shifted(0xFF01, "".join(map(chr, range(0x21, 0x7F)))))),
    Family("mathematical letters", "width", "𝐬𝐰𝐨𝐫𝐝", mapped(_math(0x1D41A, 0x1D400, 0x1D7CE))),
    Family("mathematical sans-serif", "width", "𝘀𝘄𝗼𝗿𝗱", mapped(_math(0x1D5EE, 0x1D5D4, 0x1D7EC))),
    Family("circled", "width", "ⓢⓦⓞⓡⓓ", mapped({**shifted(0x24D0, LOWER), **shifted(0x24B6, UPPER)})),
    Family("superscripts", "width", "ˢʷᵒʳᵈ", mapped(SUPERSCRIPT)),
    Family("Cyrillic look-alikes", "confusables", "ѕwоrdfіѕh", _some(CYRILLIC)),
    Family("Greek look-alikes", "confusables", "swοrdfιsh", _some(GREEK)),
    Family("small capitals", "confusables", "ꜱᴡᴏʀᴅꜰɪꜱʜ", mapped(SMALL_CAPITALS)),
    Family("parenthesised", "confusables", "⒮⒲⒪⒭⒟", mapped(PARENTHESISED)),
    Family("Braille", "confusables", "⠎⠺⠕⠗⠙", mapped(BRAILLE)),
    Family("letters of fancy alphabets", "confusables", "ѕωσя∂ƒιѕн", mapped(FANCY)),
    Family("letters of many scripts", "leet", "₴₩ØⱤĐ", _fancy),
    Family("l for I, and I for l", "leet", "swordflsh", mapped({"l": "I", "i": "l", "I": "l"}, 0)),
    Family("letters for digits", "leet", "73O55I8", mapped(zipped("01358", "OIESB"), 0)),
    Family("two letters for one", "leet", "mernorandum", _two_for_one),
    Family(
        "letters with hooks and strokes",
        "confusables",
        "ʂwøɽɖƒɨʂɦ",
        mapped(zipped("bcdefghiklnoprstuz", "ɓɕɖɇƒɠɦɨƙɭɲøƥɽʂŧʉʐ")),
    ),
    Family("negative circled", "confusables", "🅢🅦🅞🅡🅓", mapped(shifted(0x1F150, UPPER) | shifted(0x1F150, LOWER))),
    Family("squared", "confusables", "🄰🄱🄲", mapped(shifted(0x1F130, UPPER) | shifted(0x1F130, LOWER))),
    Family("negative squared", "confusables", "🆂🆆🅾🆁🅳", mapped(shifted(0x1F170, UPPER) | shifted(0x1F170, LOWER))),
    Family("regional indicators", "confusables", "🇸 🇼 🇴", mapped(shifted(0x1F1E6, UPPER) | shifted(0x1F1E6, LOWER))),
    Family("digits of other scripts", "confusables", "٧٣٠٥٥١٨", mapped(shifted(0x660, DIGITS), 0.1)),
    Family("digits of other scripts, Indic", "confusables", "७३०५५१८", mapped(shifted(0x966, DIGITS), 0.1)),
    Family("keycaps", "confusables", "7️⃣3️⃣0️⃣", mapped({char: f"{char}\ufe0f\u20e3" for char in DIGITS}, 0.1)),
    Family("leet, one character each", "leet", "sw0rdf1sh", mapped(LEET, 0)),
    Family("leet, several characters each", "leet", "s\\/\\/ord", mapped(LEET_LONG, 0)),
    Family("letters repeated", "repeats", "swoooordfish", _repeated),
    Family("vowels as asterisks", "leet", "sw*rdf*sh", _masked),
    Family("all letters twice", "repeats", "sswwoorrdd", lambda v, c: "".join(x * 2 for x in v)),
)
SPACED = (
    Family("spaced by blanks", "spacing", "s w o r d", between(" ")),
    Family("spaced by several blanks", "spacing", "s  w  o", between("  ", "   ")),
    Family("spaced by no-break spaces", "spacing", "s w o r d", between("\u00a0", "\u2009")),
    Family("spaced by dots", "spacing", "s.w.o.r.d", between(".", "·", "•")),
    Family("spaced by hyphens", "spacing", "s-w-o-r-d", between("-", "–", " - ")),
    Family("spaced by underscores", "spacing", "s_w_o_r_d", between("_")),
    Family("spaced by slashes", "spacing", "s/w/o/r/d", between("/", "|", "\\")),
    Family("spaced by commas", "spacing", "s, w, o, r, d", between(", ", ",", "; ")),
    Family("spaced by Markdown marks", "spacing", "s*w*o*r*d", between("*", "**", "~", "`")),
    Family("spaced by line breaks", "spacing", "s⏎w⏎o", between("\n", "\n\n")),
    Family("a list of letters", "spacing", "- s⏎- w⏎- o", lambda v, c: "- " + "\n- ".join(v)),
    Family("letters in quotation marks", "spacing", '"s", "w", "o"', lambda v, c: '"' + '", "'.join(v) + '"'),
    Family("letters in brackets", "spacing", "[s][w][o]", lambda v, c: "".join(f"[{x}]" for x in v)),
    Family("spaced by emoji", "spacing", "s🐟w🐟o", between("🐟", "👏", " 🐟 ")),
    Family("letters as a list in JSON", "spacing", '"s",⏎  "w"', _json_list),
    Family("letters as a numbered list", "spacing", "1. s⏎2. w", _numbered("{}. {}")),
    Family("letters in a numbered table", "spacing", "1 · s⏎2 · w", _numbered("| {} | {} |")),
    Family("spaced by wide gaps", "spacing", "s          w", between(" " * 10, "\n\n    ")),
    Family("letters in strings that are joined", "spacing", "'s' + 'w'", lambda v, c: "'" + "' + '".join(v) + "'"),
    Family("spaced and look-alikes", "spacing", "ѕ w о r d", _spaced_alike),
    Family("spaced leet", "spacing", "5-w-0-r-d", _spaced_leet),
    Family("spaced and coloured", "spacing", "␛[31ms␛[0m ␛[32mw", _coloured),
    Family("sign and count between", "other marks", "s(1)w(2)", _counted),
    Family("words between", "other marks", "s then w then o", between(" then ", " and ", " [space] ")),
    Family("emphasis within", "spacing", "sword**fish**", _emphasis),
    Family("one blank within", "spacing", "sword fish", inserted(" ")),
)
