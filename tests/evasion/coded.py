"""Families that write markup, escapes and codes of the letters."""

from __future__ import annotations

import base64
import codecs
import html.entities
import tomllib
from pathlib import Path
from random import Random
from urllib.parse import quote

from tests.evasion.family import Family, Hide, between, each_as, placed

_ALPHABETS = tomllib.loads(Path(__file__).with_name("alphabets.toml").read_text("utf-8"))
_SIGNS = "abcdefghijklmnopqrstuvwxyz0123456789"
NATO, MORSE, BRAILLE = (
    dict(zip(_SIGNS, _ALPHABETS[name].split(" "), strict=True)) for name in ("nato", "morse", "braille")
)


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


MARKUP = (
    Family("HTML tags within", "markup", "sword<b>fish</b>", _tagged),
    Family("HTML tags between all letters", "markup", "s<i></i>w<i></i>o", between("<b></b>", "<wbr>", "<!-- -->")),
    Family("HTML entities, decimal", "markup", "&#115;&#119;&#111;", _numeric("d")),
    Family("HTML entities, hexadecimal", "markup", "&#x73;&#x77;&#x6f;", _numeric("x")),
    Family("HTML entities without semicolons", "markup", "&#115&#119&#111", _numeric("d", "")),
    Family("HTML entities by name", "markup", "&lowbar;", _named),
    Family("string escapes, \\u", "markup", "\\u0073\\u0077", each_as(_backslash_u)),
    Family("string escapes, \\x", "markup", "\\x73\\x77", lambda v, c: "".join(f"\\x{b:02x}" for b in v.encode())),
    Family("string escapes, \\u{}", "markup", "\\u{73}\\u{77}", each_as(lambda char: f"\\u{{{ord(char):x}}}")),
    Family("string escapes, octal", "markup", "\\163\\167", lambda v, c: "".join(f"\\{b:03o}" for b in v.encode())),
    Family("Markdown escapes", "markup", "don\\'t\\-tell", _escaped),
    Family("percent, all", "url", "%73%77%6F", lambda v, c: "".join(f"%{byte:02X}" for byte in v.encode())),
    Family("percent, where needed", "url", "for%C3%AAt", lambda v, c: quote(v)),
    Family("percent, twice", "url", "%2573%2577", lambda v, c: "".join(f"%25{byte:02x}" for byte in v.encode())),
    Family("plus for blank", "url", "Project+Heron", lambda v, c: v.replace(" ", "+")),
)
CODES = (
    Family("reversed", "reverse", "hsifdrows", lambda v, c: v[::-1]),
    Family("reversed, spaced", "reverse", "h s i f d r o w s", lambda v, c: " ".join(v[::-1])),
    Family("ROT13", "rot13", "fjbeqsvfu", _rot),
    Family("Base64", "base64", "c3dvcmRmaXNo", lambda v, c: _base64(v.encode())),
    Family("Base64 within longer, aligned", "base64", "…c3dvcmRmaXNo…", _aligned(0)),
    Family("Base64 within longer, one byte on", "base64", "…N3b3JkZmlza…", _aligned(1)),
    Family("Base64 within longer, two bytes on", "base64", "…zd29yZGZpc2…", _aligned(2)),
    Family("Base64 for URLs", "base64", "c3dvcmRmaXNo", _aligned(1, b"-_")),
    Family("Base64 in lines", "base64", "c3dvcmRm⏎aXNo", _lines),
    Family("data URL", "base64", "data:text/plain;base64,…", _data_url),
    Family("Base64 of UTF-16", "base64", "cwB3AG8AcgBk…", lambda v, c: _base64(v.encode("utf-16-le"))),
    Family("Base64 twice", "base64", "YzNkdmNtUm…", lambda v, c: _base64(_base64(v.encode()).encode())),
    Family("Base32", "base32", "ON3W64TEMZUXG2A", _base32),
    Family("hexadecimal, lower case", "hex", "73776f7264", _bytes_as("02x")),
    Family("hexadecimal, upper case", "hex", "73776F7264", _bytes_as("02X")),
    Family("hexadecimal, spaced", "hex", "73 77 6f 72 64", _bytes_as("02x", " ")),
    Family("hexadecimal, 0x", "hex", "0x73 0x77 0x6f", lambda v, c: " ".join(f"0x{byte:02x}" for byte in v.encode())),
    Family("decimal codes", "decimal", "115 119 111", each_as(lambda char: str(ord(char)), " ")),
    Family("decimal codes in a list", "decimal", "[115, 119, 111]", each_as(lambda char: str(ord(char)), ", ")),
    Family("binary codes", "decimal", "01110011 01110111", _bytes_as("08b", " ")),
    Family("octal codes", "decimal", "163 167 157", _bytes_as("03o", " ")),
    Family("NATO alphabet", "nato", "Sierra Whiskey Oscar", _words_for(NATO, " ")),
    Family("NATO alphabet, hyphens", "nato", "Sierra-Whiskey-Oscar", _words_for(NATO, "-")),
    Family("Morse code", "morse", "... .-- ---", _words_for(MORSE, " ")),
    Family("Morse code with slashes", "morse", ".../.--/---", _words_for(MORSE, "/")),
    Family("Caesar's cipher", "other codes", "vzruglvk", _caesar),
    Family("Base85", "other codes", "b9Hx9…", lambda v, c: base64.b85encode(v.encode()).decode()),
    Family("Braille", "other codes", "⠎⠺⠕⠗⠙⠋⠊⠎⠓", _words_for(BRAILLE, "")),
)
