"""Codes that whole words are written in: Base64, hexadecimal, spelling alphabets and the like."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gateway.automata.encodings import (
    HEX_DIGIT,
    NEXT,
    OTHER_LETTER,
    AnyOf,
    BitEncoding,
    Decoded,
    Encoding,
    Stacked,
    TextEncoding,
    character,
)

_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_NATO = (
    "alpha alfa bravo charlie delta echo foxtrot golf hotel india juliet juliett kilo lima mike november oscar papa "
    "quebec romeo sierra tango uniform victor whiskey whisky x-ray xray yankee zulu"
)
_NATO_DIGITS = "zero one two three four five six seven eight nine"
_NATO_LETTERS = {name: name[0] for name in _NATO.split()} | {
    name: str(digit) for digit, name in enumerate(_NATO_DIGITS.split())
}
_NATO_LETTERS |= {"tree": "3", "fower": "4", "fife": "5", "niner": "9"}
_MORSE = (
    "a.- b-... c-.-. d-.. e. f..-. g--. h.... i.. j.--- k-.- l.-.. m-- n-. o--- p.--. q--.- r.-. s... t- u..- v...- "
    "w.-- x-..- y-.-- z--.. 0----- 1.---- 2..--- 3...-- 4....- 5..... 6-.... 7--... 8---.. 9----."
)
_MORSE_LETTERS = {signs[1:]: signs[0] for signs in _MORSE.split()}
_MORSE_MARKS = "-....- .----. .-.-.- --..-- -..-. ..--.- .--.-. -...- ---... ..--.. -.-.--"  # of punctuation
_MORSE_LETTERS |= dict.fromkeys(_MORSE_MARKS.split(" "), "")


def _byte(digits: str) -> str:
    return chr(int(digits, 16))


def _prefixes(texts: Iterable[str]) -> str:
    begun = {text[:end] for text in texts for end in range(1, len(text))}
    return "|".join(map(re.escape, sorted(begun, key=len, reverse=True)))


_SIGN, _LINE_SIGN = "[^0-9a-z]", "[^0-9a-z\n]"
# Between two codes may also be the number of a list, or of a table's row.
_ITEM = rf"{_SIGN}{{0,3}}\n(?:\| ?)?[0-9]{{1,2}}(?:[.):]| ?\|) ?{_LINE_SIGN}{{0,2}}"
_ITEM_BEGUN = rf"{_SIGN}{{0,3}}\n\|? ?(?:[0-9]{{1,2}} ?[.):|]? ?{_LINE_SIGN}{{0,2}})?"
# Or a word that goes on, and the letter itself that has the code; or a line break as programs write it.
_AND = ("and", "then")
_NAMED = (
    rf"(?:{_SIGN}{{1,6}}(?:(?:{'|'.join(_AND)}){_SIGN}{{1,4}})?(?:[0-9a-z]{_SIGN}{{1,4}})?"
    rf"|{_SIGN}{{0,4}}\n{_SIGN}{{1,7}}|{_SIGN}{{1,4}}[nr]{_SIGN}{{0,3}})"
)
_NAMED_BEGUN = (
    rf"{_SIGN}{{1,6}}(?:{_prefixes(_AND)}|(?:(?:{'|'.join(_AND)}){_SIGN}{{0,4}}|(?:(?:{'|'.join(_AND)}){_SIGN}{{1,4}})?"
    rf"[0-9a-z]{_SIGN}{{0,4}})|{_SIGN}{{0,4}}\n{_SIGN}{{1,7}})"
)
# Or how many bytes a dump has shown, where a line of it begins.
_OFFSET, _OFFSET_BEGUN = rf"\n{HEX_DIGIT}{{7,8}}:? ", rf"\n(?:{HEX_DIGIT}{{0,8}}|{HEX_DIGIT}{{7,8}}:? ?)"
_HEX_INTRO = r"(?:0x|x|h|u00|u\+00)?"
_HEX_INTRO_BEGUN = r"(?:0x?|x|h|u0{0,2}|u\+0{0,2})?"
_CALLS = (
    "chr(", "char(", "chrw(", "unichr(", "string.fromcharcode(", "string.fromcodepoint(", "(char)", "(char) ", "[char]",
    "alt+", "alt+0", "print(chr(", "putchar(",
)  # fmt: skip
_CALL, _CALL_BEGUN = "|".join(map(re.escape, _CALLS)), _prefixes(_CALLS)
# Of what is between two codes, only the kinds of its signs matter, and of blanks whether there is one.
_AS_ONE = str.maketrans(dict.fromkeys(";/~\"'`<>{}!?#$%&=@^\\" + OTHER_LETTER, ",") | {"\t": " "})
_BLANKS, _LETTER = re.compile(" {2,}"), re.compile(rf"(?<=[^0-9a-z{NEXT}])(?!u\+|x-)[a-z](?=[^0-9a-z])", re.I)


def _abridged(begun: str) -> str:
    return _LETTER.sub("y", _BLANKS.sub(" ", begun.translate(_AS_ONE)))


_HEX = TextEncoding(
    f"{HEX_DIGIT}{{2}}",
    HEX_DIGIT,
    _byte,
    (
        rf"(?:h?{_SIGN}{{0,6}}{_HEX_INTRO}|(?:{_SIGN}{{1,6}}(?:{_CALL})|{_ITEM}|{_NAMED})(?:0x)?|{_OFFSET})",
        rf"h?{_SIGN}{{0,6}}{_HEX_INTRO_BEGUN}|{_SIGN}{{1,6}}(?:{_CALL_BEGUN}|(?:{_CALL})(?:0x?)?)|{_ITEM_BEGUN}(?:0x?)?"
        rf"|{_NAMED_BEGUN}|{_NAMED}(?:0x?)?|{_OFFSET_BEGUN}",
    ),
    _abridged,
)
_HEX_UNITS = TextEncoding(
    f"{HEX_DIGIT}{{4}}",
    f"{HEX_DIGIT}{{1,3}}",
    character,
    (rf"{_SIGN}{{0,6}}(?:0x|u\+?)?", rf"{_SIGN}{{0,6}}(?:0x?|u\+?)?"),
    _abridged,
)
_BETWEEN_CODES = (
    rf"(?:{_SIGN}{{1,6}}(?:{_CALL})?|{_ITEM}|{_NAMED})",
    rf"{_SIGN}{{0,6}}|{_SIGN}{{1,6}}(?:{_CALL_BEGUN}|{_CALL})|{_ITEM_BEGUN}|{_NAMED_BEGUN}",
)
_OCTAL_BETWEEN = rf"(?:{_SIGN}{{1,6}}(?:0o?)?|{_ITEM})", rf"{_SIGN}{{0,6}}|{_SIGN}{{1,6}}0o?|{_ITEM_BEGUN}"
_BINARY_BETWEEN = rf"(?:{_SIGN}{{0,6}}(?:0b)?|{_ITEM})", rf"{_SIGN}{{0,6}}(?:0b?)?|{_ITEM_BEGUN}"
_BITS_BETWEEN = rf"{_SIGN}{{1,6}}(?:0b)?", rf"{_SIGN}{{0,6}}|{_SIGN}{{1,6}}0b?"
_MORSE_SIGN, _MORSE_BETWEEN = "[._*-]", "[^0-9a-z._*-]"
_MORSE_NAMED = rf"{_MORSE_BETWEEN}{{1,6}}[0-9a-z]{_MORSE_BETWEEN}{{1,4}}"  # with the letter itself
_MORSE_LINE = rf"{_MORSE_BETWEEN}{{0,2}}\n[-*]"
_MORSE_SIGNS = str.maketrans("*_", ".-")
_AS = ("as", "as in", "for", "is", "is for", "like", "like in")  # between a letter and its name
_SAID = ("and", "then", "capital", "dash", "hyphen", "space", "number")  # what is no letter, or how one is written
# The letter itself may stand behind a name, and a sign may be said; then its number and the letter may stand before the
# name: `2. B as in Bravo`.
_NATO_SAID, _NATO_AS, _FOR = "|".join(_SAID), "|".join(_AS), rf"(?:{_SIGN}{{0,2}}for [0-9a-z](?=[^0-9a-z]))?"
_NATO_BETWEEN = (
    rf"{_FOR}{_SIGN}{{0,8}}(?:(?:{_NATO_SAID}){_SIGN}{{1,4}})?(?:[0-9]{{1,2}}[.):]{_SIGN}{{1,4}})?"
    rf"(?:[0-9a-z]{{1,2}}(?:{_SIGN}{{0,2}} (?:{_NATO_AS}))?{_SIGN}{{1,6}})?",
    rf"{_SIGN}{{0,2}}(?:f|fo|for|for [0-9a-z]?)|{_FOR}{_SIGN}{{0,8}}"
    rf"(?:{_prefixes(_SAID)}|(?:(?:{_NATO_SAID}){_SIGN}{{0,4}})?(?:[0-9]{{1,2}}[.):]{_SIGN}{{0,4}})?"
    rf"(?:[0-9a-z]{{1,2}}(?:{_SIGN}{{0,2}} (?:{_prefixes(_AS)}|{_NATO_AS}))?{_SIGN}{{0,6}})?)",
)
_BASE64_BYTES = BitEncoding(6, {char: at for at, char in enumerate(_BASE64)} | {"-": 62, "_": 63})
VARIANTS: dict[str, Encoding] = {
    "base64": Decoded(_BASE64_BYTES),
    "base32": Decoded(BitEncoding(5, {form: at for at, char in enumerate(_BASE32) for form in (char, char.lower())})),
    "hex": AnyOf(Decoded(_HEX), _HEX_UNITS),
    "decimal": AnyOf(
        TextEncoding("[0-9]{2,6}", "[0-9]{1,5}", lambda text: character(text, 10), _BETWEEN_CODES, _abridged),
        Decoded(TextEncoding("[0-9]{2,3}", "[0-9]{1,2}", lambda text: character(text, 10), _BETWEEN_CODES, _abridged)),
        Decoded(
            TextEncoding("[0-3]?[0-7]{2}", "[0-7]{1,2}", lambda text: character(text, 8), _OCTAL_BETWEEN, _abridged)
        ),
        Decoded(
            TextEncoding(
                "[01]{4}[ _.]?[01]{4}",
                "[01]{1,4}|[01]{4}[ _.]|[01]{4}[ _.]?[01]{1,3}",
                lambda text: character(re.sub("[ _.]", "", text), 2),
                _BINARY_BETWEEN,
                _abridged,
            )
        ),
        TextEncoding("[01]{6,16}", "[01]{1,15}", lambda text: character(text, 2), _BITS_BETWEEN, _abridged),
    ),
    "nato": TextEncoding(
        f"{'|'.join(_NATO_LETTERS)}|[0-9]",
        _prefixes(_NATO_LETTERS),
        lambda text: _NATO_LETTERS.get(text.lower(), text),
        _NATO_BETWEEN,
        _abridged,
    ),
    "morse": TextEncoding(
        f"{_MORSE_SIGN}{{1,6}}",
        f"{_MORSE_SIGN}{{1,5}}",
        lambda text: _MORSE_LETTERS.get(text.translate(_MORSE_SIGNS)),
        (
            rf"(?:{_MORSE_BETWEEN}{{1,6}}|{_MORSE_LINE} {_MORSE_BETWEEN}{{0,2}}|{_ITEM}|{_MORSE_NAMED}"
            rf"|\*\*{_MORSE_BETWEEN}{{1,3}}\*\*)",
            rf"{_MORSE_BETWEEN}{{0,6}}|{_MORSE_LINE} ?{_MORSE_BETWEEN}{{0,2}}|{_ITEM_BEGUN}"
            rf"|{_MORSE_BETWEEN}{{1,6}}[0-9a-z]{_MORSE_BETWEEN}{{0,4}}|\*\*?|\*\*{_MORSE_BETWEEN}{{1,3}}\*{{0,2}}",
        ),
        _abridged,
    ),
}
# The same for words with letters that these charsets write in other bytes. Base32 is left out: prose is Base32.
_CHARSETS = ("latin-1", "utf-16-le", "utf-16-be")
# Units of UTF-16 and UTF-32, and code points with what is between them.
_HEX_POINTS = TextEncoding(
    rf"{HEX_DIGIT}{{4}}|1{HEX_DIGIT}{{4}}|d[89ab]{HEX_DIGIT}{{2}} ?d[c-f]{HEX_DIGIT}{{2}}",
    rf"{HEX_DIGIT}{{1,3}}|1{HEX_DIGIT}{{3}}|d[89ab]{HEX_DIGIT}{{2}} ?(?:d(?:[c-f]{HEX_DIGIT}?)?)?",
    lambda text: character(text) if len(text) < 8 else bytes.fromhex(text).decode("utf-16-be"),
    (rf"{_SIGN}{{0,6}}(?:0x|u\+?)?0{{0,4}}", rf"{_SIGN}{{0,6}}(?:0x?|u\+?)?0{{0,4}}"),
    _abridged,
)
_NUMBER, _NUMBER_BEGUN = rf"0x|u\+|(?:{_CALL})(?:0x)?", rf"0x?|u\+?|{_CALL_BEGUN}|(?:{_CALL})(?:0x?)?"
_HEX_NUMBERS = TextEncoding(
    f"{HEX_DIGIT}{{2,5}}",
    f"{HEX_DIGIT}{{1,4}}",
    character,
    (
        rf"(?:{_SIGN}{{1,6}}(?:{_NUMBER})?|{_ITEM}(?:0x)?)",
        rf"{_SIGN}{{0,6}}|{_SIGN}{{1,6}}(?:{_NUMBER_BEGUN})|{_ITEM_BEGUN}(?:0x?)?",
    ),
    _abridged,
)
OTHER_CHARSETS: dict[str, Encoding] = {
    "base64": AnyOf(VARIANTS["base64"], *(Decoded(_BASE64_BYTES, charset) for charset in _CHARSETS)),
    "hex": AnyOf(Decoded(_HEX), _HEX_POINTS, _HEX_NUMBERS, *(Decoded(_HEX, charset) for charset in _CHARSETS[:2])),
}
# A code of what is in a code: the names of both, the outer first. Others would cost twice as much as all of these.
STACKED: dict[str, Encoding] = {
    "base64 base64": Stacked(_BASE64_BYTES, VARIANTS["base64"]),
    "base64 hex": Stacked(_BASE64_BYTES, VARIANTS["hex"]),
    "hex base64": Stacked(_HEX, VARIANTS["base64"]),
}
