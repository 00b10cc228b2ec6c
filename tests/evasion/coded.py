"""Families that write markup, escapes and codes of the letters."""

from __future__ import annotations

import base64
import binascii
import codecs
import html.entities
import tomllib
import unicodedata
import zlib
from pathlib import Path
from random import Random
from urllib.parse import quote

from tests.evasion.family import Family, Hide, between, each_as, placed

_ALPHABETS = tomllib.loads(Path(__file__).with_name("alphabets.toml").read_text("utf-8"))
GERMAN = dict(zip("abcdefghijklmnopqrstuvwxyz", _ALPHABETS["german"].split(" "), strict=True))
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_SIGNS = "abcdefghijklmnopqrstuvwxyz0123456789"
NATO, MORSE = (dict(zip(_SIGNS, _ALPHABETS[name].split(" "), strict=True)) for name in ("nato", "morse"))


def _words_for(table: dict[str, str], joined: str) -> Hide:
    def hide(value: str, chance: Random) -> str | None:
        letters = [char for char in value.lower() if char not in " '-"]
        return joined.join(table[char] for char in letters) if all(char in table for char in letters) else None

    return hide


def _tagged(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    tag = chance.choice(("b", "i", "span"))
    return f"{value[:at]}<{tag}>{value[at:]}</{tag}>".removesuffix(f"</{tag}>")


def _numeric(form: str, ended: str = ";") -> Hide:
    return each_as(
        lambda char: f"&#{format(ord(char), form)}{ended}" if form == "d" else f"&#x{ord(char):{form}}{ended}"
    )


def _named(value: str, chance: Random) -> str:
    names = {char: name.rstrip(";") for name, char in html.entities.html5.items() if len(char) == 1 and ";" in name}
    return "".join(f"&{names[char]};" if char in names else f"&#{ord(char)};" for char in value)


def _units(char: str) -> list[int]:
    coded = char.encode("utf-16-be")
    return [int.from_bytes(coded[at : at + 2], "big") for at in range(0, len(coded), 2)]


def _backslash_u(char: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in _units(char))


def _bytes_as(form: str, joined: str = "") -> Hide:
    return lambda value, chance: joined.join(format(byte, form) for byte in value.encode())


def _aligned(offset: int, altchars: bytes = b"+/") -> Hide:
    """Within longer Base64, so many bytes from a boundary of three; what carries a bit of the value is marked."""

    def hide(value: str, chance: Random) -> str:
        before = bytes(chance.choice(b"abcdefgh ") for _ in range(offset + 3 * chance.randint(0, 2)))
        after = b" and so on"
        coded = base64.b64encode(before + value.encode() + after, altchars).decode()
        first, last = len(before) * 8 // 6, -(-(len(before) + len(value.encode())) * 8 // 6)
        return placed(coded[:first], coded[first:last], coded[last:])

    return hide


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _escaped(value: str, chance: Random) -> str:
    return "".join(f"\\{char}" if char in "-'" else char for char in value)


def _base32(value: str, chance: Random) -> str:
    return base64.b32encode(value.encode()).decode().rstrip("=")


def _rot(value: str, chance: Random) -> str:
    return codecs.encode(value, "rot13")


def _caesar(value: str, chance: Random) -> str:
    shift = chance.choice((1, 3, 25))
    return "".join(
        chr((ord(char) - base + shift) % 26 + base)
        if char.isascii() and char.isalpha() and (base := ord("A") if char.isupper() else ord("a"))
        else char
        for char in value
    )


def _data_url(value: str, chance: Random) -> str:
    return placed("data:text/plain;base64,", base64.b64encode(value.encode()).decode(), "")


def _lines(value: str, chance: Random) -> str:
    """Base64 as e-mail has it, in short lines."""
    coded = base64.b64encode(value.encode()).decode()
    return "\n".join(coded[at : at + 8] for at in range(0, len(coded), 8))


def _long_tag(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    tag = '<b style="color: red; font-weight: bold; text-decoration: underline; margin: 0; padding: 0">'
    return f"{value[:at]}{tag}{value[at:]}"


def _latex(value: str, chance: Random) -> str:
    return placed("\\text{", "}\\text{".join(value), "}")


def _leet_entities(value: str, chance: Random) -> str | None:
    return _numeric("d")(_leet(value), chance) if _leet(value) else None


def _bits(value: str, chance: Random) -> str | None:
    return _bytes_as("07b", " ")(value, chance) if value.isascii() else None


def _other_morse(value: str, chance: Random) -> str | None:
    return _signs(value, chance, chance.choice(("·−", "•–", "*_")))


def _link(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    return placed("[", f"{value[:at]}](https://example.com/a?b=c){value[at:]}", "")


def _note(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    return f"{value[:at]}[^{chance.randint(1, 99)}]{value[at:]}"


def _leet(value: str) -> str:
    """Empty if no letter of it is in the table."""
    found = value.translate(str.maketrans("aeiostAEIOST", "431057431057"))
    return found if found != value and sum(map(str.isalpha, found)) > 1 else ""


def _wide(text: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) for char in text)


def _pieces(value: str, chance: Random) -> str:
    coded = base64.b64encode(value.encode()).decode().rstrip("=")
    return " ".join(coded[at : at + 4] for at in range(0, len(coded), 4))


def _joined_strings(value: str, chance: Random) -> str:
    coded = _base64(value.encode()).rstrip("=")
    return chance.choice(("' + '", '" + "')).join(coded[at : at + 4] for at in range(0, len(coded), 4))


def _each_reversed(value: str, chance: Random) -> str | None:
    return " ".join(word[::-1] for word in value.split(" ")) if " " in value else None


def _numbered_codes(value: str, chance: Random) -> str:
    listed = "\n".join(f"{number}. {ord(char)}" for number, char in enumerate(value, 1))
    return placed("1. ", listed.removeprefix("1. "), "")


def _like(value: str, chance: Random) -> str | None:
    said = _as_in(value, chance)
    return None if said is None else said.replace(" as in ", " like ").replace(" for ", " like ")


def _calls(value: str, chance: Random) -> str:
    call = chance.choice(("chr(", "String.fromCharCode("))
    joined = chance.choice((")+", ") + ", ") . "))
    return placed(call, (joined + call).join(str(ord(char)) for char in value), ")")


def _hex_calls(value: str, chance: Random) -> str:
    return placed("chr(0x", ")+chr(0x".join(f"{ord(char):x}" for char in value), ")")


def _base58(value: str, chance: Random) -> str:
    number, found = int.from_bytes(value.encode(), "big"), ""
    while number:
        number, digit = divmod(number, len(_BASE58))
        found = _BASE58[digit] + found
    return found


def _halves(value: str, chance: Random) -> str:
    return " ".join(half for byte in value.encode() for half in (f"{byte >> 4:04b}", f"{byte & 15:04b}"))


def _each_by_itself(value: str, chance: Random) -> str:
    return placed("", " ".join(_base64(char.encode()) for char in value).rstrip("="), "")


def _dump(value: str, chance: Random, column: str = "") -> str:
    """As programs show bytes, in lines of eight; `column` stands for what they show beside."""
    data = value.encode()
    lines = [data[at : at + 8] for at in range(0, len(data), 8)]
    shown = [" ".join(f"{byte:02x}" for byte in line) + column.format(_printed(line)) for line in lines]
    return placed("00000000: ", "\n".join([shown[0], *(f"{8 * n:08x}: {s}" for n, s in enumerate(shown[1:], 1))]), "")


def _printed(line: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)


def _as_in(value: str, chance: Random) -> str | None:
    letters = [char for char in value.lower() if char not in " '-"]
    if not all(char in NATO for char in letters):
        return None
    how = chance.choice(("as in", "for"))
    return ", ".join(f"{char.upper()} {how} {NATO[char]}" for char in letters)


def _signs(value: str, chance: Random, signs: str | tuple[str, str]) -> str | None:
    written = _words_for(MORSE, " ")(value, chance)
    if written is None:
        return None
    return " ".join("".join(signs[sign == "-"] for sign in letter) for letter in written.split(" "))


def _atbash(value: str, chance: Random) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return value.translate(str.maketrans(letters + letters.upper(), letters[::-1] + letters[::-1].upper()))


def _letter_numbers(value: str, chance: Random) -> str | None:
    letters = [char for char in value.lower() if char != " "]
    return "-".join(str(ord(char) - 96) for char in letters) if all("a" <= char <= "z" for char in letters) else None


def _rot47(value: str, chance: Random) -> str | None:
    return "".join(chr(33 + (ord(char) + 14) % 94) for char in value) if value.isascii() else None


def _named_escape(char: str) -> str:
    return f"\\N{{{unicodedata.name(char)}}}"


_UNSEEN = "&zwnj;", "&shy;", "&#8203;", "\\u200b"
MARKUP = (
    Family("HTML tags within", "markup", "sword<b>fish</b>", _tagged),
    Family("HTML tags between all letters", "markup", "s<i></i>w<i></i>o", between("<b></b>", "<wbr>", "<!-- -->")),
    Family("an HTML tag with long attributes", "markup", 'sword<b style="…">fish', _long_tag),
    Family("addresses of links within", "markup", "[sword](http://a)fish", _link),
    Family("footnotes within", "markup", "sword[^1]fish", _note),
    Family("commands of LaTeX", "markup", "\\text{s}\\text{w}", _latex),
    Family("invisible characters as escapes", "markup", "s&zwnj;w&shy;o", between(*_UNSEEN)),
    Family("blanks as entities", "markup", "s&nbsp;w&nbsp;o", between("&nbsp;", "&#32;")),
    Family("leet as entities", "markup", "&#53;&#119;&#48;", _leet_entities),
    Family("HTML entities, decimal", "markup", "&#115;&#119;&#111;", _numeric("d")),
    Family("HTML entities, hexadecimal", "markup", "&#x73;&#x77;&#x6f;", _numeric("x")),
    Family("HTML entities without semicolons", "markup", "&#115&#119&#111", _numeric("d", "")),
    Family("HTML entities by name", "markup", "&lowbar;", _named),
    Family("string escapes, \\u", "markup", "\\u0073\\u0077", each_as(_backslash_u)),
    Family("string escapes, \\x", "markup", "\\x73\\x77", lambda v, c: "".join(f"\\x{b:02x}" for b in v.encode())),
    Family("string escapes, \\u{}", "markup", "\\u{73}\\u{77}", each_as(lambda char: f"\\u{{{ord(char):x}}}")),
    Family("string escapes, \\x{}", "markup", "\\x{73}\\x{77}", each_as(lambda char: f"\\x{{{ord(char):x}}}")),
    Family(
        "string escapes, names",
        "markup",
        "\\N{LATIN SMALL LETTER S}",
        each_as(_named_escape),
    ),
    Family("escapes of CSS", "markup", "\\73 \\77 \\6f", each_as(lambda char: f"\\{ord(char):x} ")),
    Family("colours as escapes", "markup", "\\x1b[31ms", lambda v, c: "\\x1b[31m".join(v)),
    Family("string escapes, octal", "markup", "\\163\\167", lambda v, c: "".join(f"\\{b:03o}" for b in v.encode())),
    Family("Markdown escapes", "markup", "don\\'t\\-tell", _escaped),
    Family("percent, all", "url", "%73%77%6F", lambda v, c: "".join(f"%{byte:02X}" for byte in v.encode())),
    Family("percent, where needed", "url", "for%C3%AAt", lambda v, c: quote(v)),
    Family("percent, twice", "url", "%2573%2577", lambda v, c: "".join(f"%25{byte:02x}" for byte in v.encode())),
    Family("percent, three times", "url", "%252573", lambda v, c: "".join(f"%2525{byte:02x}" for byte in v.encode())),
    Family("percent, code points", "url", "%u0073%u0077", each_as(lambda x: "".join(f"%u{u:04x}" for u in _units(x)))),
    Family("plus for blank", "url", "Project+Heron", lambda v, c: v.replace(" ", "+")),
)
CODES = (
    Family("reversed", "reverse", "hsifdrows", lambda v, c: v[::-1]),
    Family("each word reversed", "reverse", "tcejorP noreH", _each_reversed),
    Family("reversed, spaced", "reverse", "h s i f d r o w s", lambda v, c: " ".join(v[::-1])),
    Family("ROT13", "rot13", "fjbeqsvfu", _rot),
    Family("Base64", "base64", "c3dvcmRmaXNo", lambda v, c: _base64(v.encode())),
    Family("Base64 within longer, aligned", "base64", "…c3dvcmRmaXNo…", _aligned(0)),
    Family("Base64 within longer, one byte on", "base64", "…N3b3JkZmlza…", _aligned(1)),
    Family("Base64 within longer, two bytes on", "base64", "…zd29yZGZpc2…", _aligned(2)),
    Family("Base64 for URLs", "base64", "c3dvcmRmaXNo", _aligned(1, b"-_")),
    Family("Base64 in lines", "base64", "c3dvcmRm⏎aXNo", _lines),
    Family("data URL", "base64", "data:text/plain;base64,…", _data_url),
    Family("Base64 in pieces", "base64", "c3dv cmRm aXNo", _pieces),
    Family("Base64 in a quotation", "base64", "> c3dvcmRm⏎> aXNo", lambda v, c: _lines(v, c).replace("\n", "\n> ")),
    Family("Base64 in full width", "base64", "ｃ３ｄｖ", lambda v, c: _wide(_base64(v.encode()))),
    Family("Base64, letter by letter", "base64", "cw== dw== bw==", _each_by_itself),
    Family("Base64 in pieces with points", "base64", "c3dv.cmRm.aXNo", lambda v, c: _pieces(v, c).replace(" ", ".")),
    Family("Base64 in ROT13", "other codes", "p3qipzEz", lambda v, c: codecs.encode(_base64(v.encode()), "rot13")),
    Family(
        "Base64 three times",
        "other codes",
        "WXpOa2Rt…",
        lambda v, c: _base64(_base64(_base64(v.encode()).encode()).encode()),
    ),
    Family(
        "Base64 as decimal codes",
        "other codes",
        "99 51 100 118",
        lambda v, c: " ".join(str(ord(x)) for x in _base64(v.encode())),
    ),
    Family(
        "Base64 of UTF-32",
        "base64",
        "cwAAAHcAAAA…",
        lambda v, c: None if v.isascii() else _base64(v.encode("utf-32-be")),
    ),
    Family(
        "Base64 of what was compressed", "other codes", "H4sIAAAA…", lambda v, c: _base64(zlib.compress(v.encode()))
    ),
    Family("Base58", "other codes", "2NEpo7TZ…", _base58),
    Family("uuencoded", "other codes", ")<W=O<F1F", lambda v, c: binascii.b2a_uu(v.encode()[:45]).decode()[1:].strip()),
    Family("Base64 of leet", "other codes", "NXcwcmRm", lambda v, c: _base64(_leet(v).encode()) if _leet(v) else None),
    Family("Base64 of spaced letters", "other codes", "cyB3IG8g", lambda v, c: _base64(" ".join(v).encode())),
    Family("Base64, reversed", "other codes", "oNXamRmc", lambda v, c: _base64(v.encode())[::-1]),
    Family("hexadecimal of Base64", "hex", "63336476", lambda v, c: _base64(v.encode()).encode().hex()),
    Family("Base64 of UTF-16", "base64", "cwB3AG8AcgBk…", lambda v, c: _base64(v.encode("utf-16-le"))),
    Family("Base64 twice", "base64", "YzNkdmNtUm…", lambda v, c: _base64(_base64(v.encode()).encode())),
    Family("Base32", "base32", "ON3W64TEMZUXG2A", _base32),
    Family("hexadecimal, lower case", "hex", "73776f7264", _bytes_as("02x")),
    Family("hexadecimal, upper case", "hex", "73776F7264", _bytes_as("02X")),
    Family("hexadecimal, spaced", "hex", "73 77 6f 72 64", _bytes_as("02x", " ")),
    Family("hexadecimal, 0x", "hex", "0x73 0x77 0x6f", lambda v, c: " ".join(f"0x{byte:02x}" for byte in v.encode())),
    Family("hexadecimal in a table", "hex", "73 | 77 | 6f", _bytes_as("02x", " | ")),
    Family("hexadecimal in code spans", "hex", "`73` `77`", lambda v, c: "`" + _bytes_as("02x", "` `")(v, c) + "`"),
    Family("hexadecimal with h", "hex", "73h 77h 6fh", lambda v, c: _bytes_as("02x", "h ")(v, c) + "h"),
    Family("hexadecimal in calls of chr", "hex", "chr(0x73)+chr(0x77)", _hex_calls),
    Family("hexadecimal in a dump", "hex", "00000008: 73 77", _dump),
    Family(
        "hexadecimal in a dump with its letters",
        "other codes",
        "73 77  sw",
        lambda v, c: _dump(v, c, "  |{:8}|") if len(v.encode()) > 8 else None,
    ),
    Family("hexadecimal of UTF-32", "hex", "0000007300000077", lambda v, c: v.encode("utf-32-be").hex()),
    Family("hexadecimal, digit by digit", "other codes", "7 3 7 7 6 f", lambda v, c: " ".join(v.encode().hex())),
    Family("hexadecimal, twice", "other codes", "3733373736", lambda v, c: v.encode().hex().encode().hex()),
    Family("binary codes of 16 bits", "decimal", "0000000001110011", each_as(lambda x: f"{ord(x):016b}", " ")),
    Family("code points", "hex", "U+0073 U+0077", each_as(lambda char: f"U+{ord(char):04X}", " ")),
    Family("hexadecimal of UTF-16", "hex", "007300770", lambda v, c: v.encode("utf-16-be").hex()),
    Family("decimal codes in a numbered list", "decimal", "1. 115⏎2. 119", _numbered_codes),
    Family("decimal codes of bytes", "decimal", "115 119 111", _bytes_as("d", " ")),
    Family("decimal codes with signs", "decimal", "115 + 119", each_as(lambda char: str(ord(char)), " + ")),
    Family("decimal codes without a sign", "other codes", "115119111", _bytes_as("03d")),
    Family("calls of chr", "decimal", "chr(115)+chr(119)", _calls),
    Family("binary codes in a list", "decimal", "01110011, 0111", _bytes_as("08b", ", ")),
    Family("binary codes with 0b", "decimal", "0b1110011 0b1", lambda v, c: "0b" + _bytes_as("08b", " 0b")(v, c)),
    Family("binary codes in halves", "decimal", "0111 0011 0111", _halves),
    Family(
        "binary codes of 7 bits",
        "decimal",
        "1110011 1110111",
        _bits,
    ),
    Family("octal codes with 0o", "decimal", "0o163 0o167", lambda v, c: "0o" + _bytes_as("03o", " 0o")(v, c)),
    Family("decimal codes", "decimal", "115 119 111", each_as(lambda char: str(ord(char)), " ")),
    Family("decimal codes in a list", "decimal", "[115, 119, 111]", each_as(lambda char: str(ord(char)), ", ")),
    Family("binary codes", "decimal", "01110011 01110111", _bytes_as("08b", " ")),
    Family("octal codes", "decimal", "163 167 157", _bytes_as("03o", " ")),
    Family("NATO alphabet", "nato", "Sierra Whiskey Oscar", _words_for(NATO, " ")),
    Family("NATO alphabet, S like Sierra", "nato", "S like Sierra, W …", _like),
    Family("NATO alphabet, hyphens", "nato", "Sierra-Whiskey-Oscar", _words_for(NATO, "-")),
    Family("NATO alphabet in a list", "nato", "* Sierra⏎* Whiskey", _words_for(NATO, "\n* ")),
    Family("NATO alphabet in strings", "nato", '"Sierra", "Whiskey"', _words_for(NATO, '", "')),
    Family("NATO alphabet with arrows", "nato", "Sierra → Whiskey", _words_for(NATO, " → ")),
    Family("NATO alphabet in one word", "nato", "SierraWhiskey", _words_for(NATO, "")),
    Family("NATO alphabet with letters", "nato", "S as in Sierra, W …", _as_in),
    Family("Morse code with other signs", "morse", "··· ·−− −−−", _other_morse),
    Family("Morse code in code spans", "morse", "`...` `.--`", _words_for(MORSE, "` `")),
    Family("Morse code in words", "other codes", "dit dit dit", lambda v, c: _signs(v, c, ("dit ", "dah "))),
    Family("Morse code", "morse", "... .-- ---", _words_for(MORSE, " ")),
    Family("Morse code in a list", "morse", "- ...⏎- .--⏎- ---", _words_for(MORSE, "\n- ")),
    Family("Morse code with slashes", "morse", ".../.--/---", _words_for(MORSE, "/")),
    Family("Caesar's cipher", "other codes", "vzruglvk", _caesar),
    Family("Base85", "other codes", "b9Hx9…", lambda v, c: base64.b85encode(v.encode()).decode()),
    Family("mirrored alphabet (Atbash)", "other codes", "hdliwurhs", _atbash),
    Family("numbers of the letters", "other codes", "19-23-15", _letter_numbers),
    Family("ROT13, reversed", "rot13", "usvfqebjf", lambda v, c: _rot(v, c)[::-1]),
    Family("ROT47", "other codes", "DH@C57:D9", _rot47),
    Family("UTF-7", "other codes", "for+AOo-t", lambda v, c: v.encode("utf-7").decode()),
    Family("quoted-printable", "url", "=73=77=6F", lambda v, c: "".join(f"={byte:02X}" for byte in v.encode())),
    Family("spelled in another language", "other codes", "Samuel Wilhelm Otto", _words_for(GERMAN, " ")),
)
