"""Families beside those of `written` and `coded`: the same ways to hide a value, as others write them."""

from __future__ import annotations

import base64
import codecs
from random import Random

from tests.evasion.coded import MORSE, NATO
from tests.evasion.family import Family, Hide, between, each_as, mapped, placed, zipped
from tests.evasion.written import BRAILLE, LOWER

_VOWELS = "aeiouAEIOU"
_SAID = {" ": "space", "-": "dash", "'": "space"}
_DIGITS = zipped("1234567890", "⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚")
_ROT5 = str.maketrans("0123456789", "5678901234")
_KEYS = "qwertyuiop[]asdfghjkl;'zxcvbnm,./"
_TAPPED = "abcdefghijlmnopqrstuvwxyz"
_ALPHABETS = (
    "ልጌርዕቿቻኗዘጎጋጕረጮክዐየዒዪነፕሁሀሠሸሃጊ",
    "აბცძეფგჰიჯკლმნოპყრსტუვწხყზ",
    "ᗩᗷᑢᗞᘿᖴᘜᕼᓰᒚKᒪᘻᘉᓍᕵᕴᖇSᖶᑘᐺᘺ᙭ᖻᗱ",
)


def _alphabet(value: str, chance: Random) -> str | None:
    """Of which one letter, the first, stands as it is: Georgian and Ethiopic are scripts of ordinary text."""
    hidden = mapped(zipped(LOWER, chance.choice(_ALPHABETS)))(value, chance)
    return None if hidden is None else value[0] + hidden[1:]


def _all_vowels(signs: str, least: int = 0) -> Hide:
    """Each vowel under the sign; edges too, where there is another one within."""

    def hide(value: str, chance: Random) -> str | None:
        if not value.isascii() or sum(char in _VOWELS for char in value[1:-1]) < least:
            return None
        sign = chance.choice(signs)
        return "".join(sign if char in _VOWELS else char for char in value)

    return hide


def _braille(value: str, chance: Random) -> str | None:
    """With the signs for capitals and numbers."""
    if not value.isascii():
        return None
    found = ""
    for char in value:
        found += "⠠" * char.isupper() + BRAILLE.get(char.lower(), "⠼" + _DIGITS[char] if char in _DIGITS else char)
    return found


def _pretty(form: str, indent: str, least: str = "") -> Hide:
    """A list as programs print it."""

    def hide(value: str, chance: Random) -> str:
        codes = [f'"{byte:{form}}"' if least else f"{byte:{form}}" for byte in value.encode()]
        return placed(f"[\n{indent}", f",\n{indent}".join(codes), "\n]")

    return hide


def _rows(mark: str) -> Hide:
    """Codes with their numbers."""

    def hide(value: str, chance: Random) -> str:
        first, *rest = (mark.format(n, ord(char)) for n, char in enumerate(value, 1))
        begin = first.index(f"{ord(value[0]):x}", 3)
        return placed(first[:begin], "\n".join([first[begin:], *rest]), "")

    return hide


def _spelled(form: str, joined: str, *, digits: bool = True, said: bool = False) -> Hide:
    """NATO's names, with numbers, letters or what else is said beside them."""

    def hide(value: str, chance: Random) -> str | None:
        found: list[str] = []
        for number, char in enumerate((char for char in value if said or char not in _SAID), 1):
            if char.lower() not in NATO:
                if char not in _SAID:
                    return None
                found.append(_SAID[char])
                continue
            name = char if char.isdigit() and not digits else NATO[char.lower()]
            found.append(form.format(n=number, x=char.upper(), name=name))
        return joined.join(found)

    return hide


def _morse(value: str, chance: Random) -> str | None:
    """As the standard has it: seven blanks between words, and a code for the hyphen."""
    codes = {**MORSE, "-": "-....-", "'": ".----."}
    if not all(char in codes or char == " " for char in value.lower()):
        return None
    return (" " * 7).join("   ".join(codes[char] for char in word) for word in value.lower().split(" "))


def _half_quoted(value: str, chance: Random) -> str | None:
    """As e-mail has it: what is not ASCII, and other characters, as bytes; and a line break that is none."""
    hidden = [
        char if char.isascii() and chance.random() < 0.4 else "".join(f"={byte:02X}" for byte in char.encode())
        for char in value
    ]
    hidden.insert(chance.randrange(1, len(hidden)), "=\n")
    return "".join(hidden)


def _each_word(value: str, chance: Random) -> str | None:
    words = value.split(" ")
    coded = [base64.b64encode(word.encode()).decode() for word in words]
    return " ".join(coded).rstrip("=") if len(words) > 1 and all(len(word) > 2 for word in words) else None


def _keyboard(value: str, chance: Random) -> str | None:
    return value.lower().translate(str.maketrans(_KEYS[:-1], _KEYS[1:])) if value.isascii() else None


def _tap(value: str, chance: Random) -> str | None:
    places = [_TAPPED.find(char.lower().replace("k", "c")) for char in value]
    return " ".join("." * (at // 5 + 1) + " " + "." * (at % 5 + 1) for at in places) if min(places) >= 0 else None


def _pig_latin(value: str, chance: Random) -> str | None:
    return " ".join(f"{word[1:]}{word[0]}ay" for word in value.split(" ")) if value.isascii() else None


def _tagged_base64(value: str, chance: Random) -> str:
    coded = base64.b64encode(value.encode()).decode()
    return f"{coded[:5]}<b>{coded[5:]}"


def _cast(value: str, chance: Random) -> str:
    cast = chance.choice(("(char)", "(char) ", "[char]", "Alt+"))
    return placed(cast, (" + " + cast).join(str(ord(char)) for char in value), "")


def _rtf(value: str, chance: Random) -> str | None:
    return "".join(f"\\'{ord(char):02x}" for char in value) if value.isascii() else None


def _base32hex(value: str, chance: Random) -> str:
    return base64.b32hexencode(value.encode()).decode().rstrip("=")


def _punycode(value: str, chance: Random) -> str | None:
    return None if value.isascii() else value.encode("punycode").decode()


def _seven(value: str, chance: Random) -> str | None:
    return "".join(f"{byte:07b}" for byte in value.encode()) if value.isascii() else None


def _ones(value: str, chance: Random) -> str | None:
    written = _morse(value, chance)
    return None if written is None else " ".join(written.split()).translate(str.maketrans(".-", "01"))


def _reordered(value: str, chance: Random) -> str | None:
    return " ".join(reversed(value.split(" "))) if " " in value else None


def _with_letters(form: str, joined: str) -> Hide:
    """Codes, each behind its letter."""

    def hide(value: str, chance: Random) -> str:
        shown = joined.join(form.format(x=char, code=ord(char)) for char in value)
        begin = form.index("{code") - 2  # behind the first letter
        return placed(shown[:begin], shown[begin:], "")

    return hide


def _escaped_breaks(coded: str) -> str:
    return "\\n".join(coded[at : at + 8] for at in range(0, len(coded), 8))


def _lettered_morse(value: str, chance: Random) -> str | None:
    letters = [char for char in value.lower() if char not in _SAID]
    return ", ".join(f"{char.upper()} = {MORSE[char]}" for char in letters) if all(map(MORSE.get, letters)) else None


def _counted(value: str, chance: Random) -> str:
    return placed("(1) ", "\n".join(f"({n}) {char}" for n, char in enumerate(value, 1))[4:], "")


FORMS = (
    Family("further alphabets, but for a letter", "leet", "sპეაყ", _alphabet),
    Family("vowels under other signs", "leet", "sw_rdf_sh", _all_vowels("_•█", 2)),
    Family("vowels as asterisks, edges too", "leet", "*z*l**", _all_vowels("*", 2)),
    Family("Braille with its signs", "confusables", "⠠⠎⠼⠁", _braille),
    Family("vowels as hyphens, points", "other forms", "sw-rdf-sh", _all_vowels("-.?", 2)),
    Family("z for s", "other forms", "zwordfizh", mapped({"s": "zz", "S": "ZZ"}, 0)),
)
SPACED = (
    Family("hyphens and apostrophes left out", "spacing", "donttell", lambda v, c: v.translate({39: "", 45: ""})),
    Family("letters as a list, numbers in brackets", "spacing", "(1) s⏎(2) w", _counted),
)
MARKUP = (
    Family("blanks of LaTeX", "markup", "s\\quad w\\quad o", between("\\quad ", " \\hspace{1em}", "\\color{red}")),
    Family("tags of forums", "markup", "sword[b]fish", between("[b]", "[/i]", "[color=red]")),
    Family("comments with signs of tags", "markup", "sword<!-- > -->fish", between("<!-- a > b -->", "<!--\n-->")),
    Family("string escapes, \\o{}", "markup", "\\o{163}\\o{167}", each_as(lambda char: f"\\o{{{ord(char):o}}}")),
    Family("bytes of RTF", "markup", "\\'73\\'77", _rtf),
    Family("quoted-printable, in part", "url", "=73w=6F=⏎rd", _half_quoted),
    Family("reference links", "other marks", "[s][1][w][1]", lambda v, c: "".join(f"[{x}][1]" for x in v)),
    Family("numbers of characters in TeX", "other marks", "\\char115 \\char119", each_as(lambda x: f"\\char{ord(x)} ")),
)  # fmt: skip
CODES = (
    Family("hexadecimal in a numbered list", "hex", "1. 0x73⏎2. 0x77", _rows("{}. 0x{:x}")),
    Family("hexadecimal in a numbered table", "hex", "| 2 | 77 |", _rows("| {} | {:x} |")),
    Family("decimal codes, indented", "decimal", "[⏎        115,", _pretty("d", " " * 8)),
    Family("binary codes, indented", "decimal", '"01110011",⏎  "01110111"', _pretty("08b", "    ", '"')),
    Family("binary codes as programs print them", "decimal", "0b1110011", each_as(lambda x: bin(ord(x)), " ")),
    Family("casts to characters", "decimal", "(char)115 + (char)119", _cast),
    Family("NATO alphabet in a table", "nato", "| **S** | Sierra |", _spelled("| **{x}** | {name} |", "\n")),
    Family("NATO alphabet, numbers and letters", "nato", "1. **S** - Sierra", _spelled("{n}. **{x}** - {name}", "\n")),
    Family("NATO alphabet with quotation marks", "nato", '"S" as in "Sierra"', _spelled('"{x}" as in "{name}"', ", ")),
    Family("NATO alphabet, digits as they are", "nato", "Zulu 7 7", _spelled("{name}", " ", digits=False)),
    Family("NATO alphabet with dash and space", "nato", "Sierra dash Tango", _spelled("{name}", " ", said=True)),
    Family("Morse code as the standard has it", "morse", "...   .--   ---", _morse),
    Family("ROT13 with ROT5", "rot13", "Mnamvone22", lambda v, c: codecs.encode(v, "rot13").translate(_ROT5)),
    Family("Base64, word by word", "base64", "UHJvamVjdA== SGVyb24=", _each_word),
    Family("decimal codes with their letters", "decimal", "s=115, w=119", _with_letters("{x}={code}", ", ")),
    Family("decimal codes joined by words", "decimal", "115 and 119", each_as(lambda x: str(ord(x)), " and ")),
    Family("hexadecimal with its letters", "hex", "s: 0x73⏎w: 0x77", _with_letters("{x}: 0x{code:x}", "\n")),
    Family("hexadecimal, breaks as escapes", "hex", "73776f72\\n6466", lambda v, c: _escaped_breaks(v.encode().hex())),
    Family("NATO alphabet, S is for Sierra", "nato", "S is for Sierra", _spelled("{x} is for {name}", ", ")),
    Family("NATO alphabet, Sierra for S", "nato", "Sierra for S", _spelled("{name} for {x}", ", ")),
    Family("Morse code with its letters", "morse", "S = ..., W = .--", _lettered_morse),
    Family(
        "Base64, breaks as escapes",
        "base64",
        "c3dvcmRm\\naXNo",
        lambda v, c: _escaped_breaks(base64.b64encode(v.encode()).decode()),
    ),
    Family("Base64 with tags within", "other codes", "c3dvc<b>mRmaXNo", _tagged_base64),
    Family("Base32hex", "other codes", "EDRNMSJ4CPKN6Q0", _base32hex),
    Family("Punycode", "other codes", "Grnewaldstrae-96a5d", _punycode),
    Family("tap code", "other codes", ".... ... .... ..", _tap),
    Family("next key of the keyboard", "other codes", "deptfgodj", _keyboard),
    Family("Pig Latin", "other codes", "wordfishsay", _pig_latin),
    Family("binary codes of 7 bits without a sign", "other codes", "11100111110111", _seven),
    Family("Morse code in zeros and ones", "other codes", "000 011 111", _ones),
    Family("words in another order", "other codes", "Heron Project", _reordered),
)  # fmt: skip
