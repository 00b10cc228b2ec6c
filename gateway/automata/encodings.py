"""How letters may be written with other characters: escapes, codes and spellings, read one character at a time.

An encoding is a small nondeterministic transducer from characters to letters. Its state is a short ASCII string, and a
reading of a character is either letters that are complete with it or a state from which more is needed. Several
readings may be possible at once; all are followed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

# Behind a letter: the next one may need a separator before it.
_NEXT = "\x1f"
# What is written for a sign of Morse's code, or as a dash, besides ASCII's.
_AS_ASCII = str.maketrans(dict.fromkeys("·•∙⋅․●", ".") | dict.fromkeys("‐‑‒–—―−▬", "-"))
ESCAPE = "\x1b"
# What terminals read as the beginning or the end of a control sequence, besides ESCAPE; each as it is in ASCII.
CONTROLS = {"\x07": "\x07"} | {chr(ord(char) + 0x40): ESCAPE + char for char in "[]\\PX^_"}
_OTHER_SIGN = ","  # stands for what is neither ASCII nor a letter
HEX_DIGIT = "[0-9a-f]"
MAX_TAG = 256  # characters of a tag, or of a link's address, within a word


class Reading(NamedTuple):
    """What a character comes to: `letters` that are complete with it (None: not yet), and the state behind it."""

    letters: str | None
    state: str


class Encoding(Protocol):
    def start(self, char: str) -> Iterable[Reading]:
        """The readings of an ASCII character at which a letter begins."""
        ...

    def step(self, state: str, char: str) -> Iterable[Reading]:
        """The readings of an ASCII character in a state."""
        ...

    def outcomes(self, state: str) -> str | None:
        """The letters of which one may come next; None for any."""
        ...


class AnyLetter:
    """What is begun is held until it is complete: which letters it may become is not looked up."""

    def outcomes(self, state: str) -> str | None:
        return None


def ascii_form(char: str) -> str:
    """The character as encodings see it: one of ASCII, or two of a control sequence; empty if it is in none."""
    if char.isascii():
        return char
    if char in CONTROLS:
        return CONTROLS[char]
    char = unicodedata.normalize("NFKC", char.translate(_AS_ASCII))
    if len(char) == 1 and char.isascii():
        return char
    return "" if char.isalnum() else _OTHER_SIGN


class TextEncoding(AnyLetter):
    """Letters written as texts: `unit` is the regular expression of one, `prefix` of everything that may become one,
    `separator` of what may stand between two. `decode` returns the letters of a text that matches `unit`, None for
    none. Where `separator` is None, a letter ends the encoding (its state is empty). `abridged` is the same for texts
    that are begun and of which the same can come."""

    def __init__(
        self,
        unit: str,
        prefix: str,
        decode: Callable[[str], str | None],
        separator: tuple[str, str] | None = None,
        abridged: Callable[[str], str] = str,
    ) -> None:
        self._decode, self._abridged = decode, abridged
        self._unit = re.compile(unit, re.I | re.A)
        self._after = ""
        if separator is not None:
            between, begun = separator
            self._after = _NEXT
            self._separator = re.compile(_NEXT + between, re.I | re.A)
            prefix = f"{_NEXT}(?:{begun})|(?:{_NEXT}{between})?(?:{prefix})"
        self._prefix = re.compile(prefix, re.I | re.A)

    def start(self, char: str) -> Iterator[Reading]:
        return self.step("", char)

    def step(self, state: str, char: str) -> Iterator[Reading]:
        text = state + char
        for begin in range(1, len(text)) if text[0] == _NEXT else (0,):
            # A separator may end at several places, as it does in `0x0x73`.
            if self._unit.fullmatch(text, begin) and (not begin or self._separator.fullmatch(text, 0, begin)):
                letters = self._decode(text[begin:])
                if letters is not None:
                    yield Reading(letters, self._after)
        if self._prefix.fullmatch(text):
            yield Reading(None, self._abridged(text))


# What stands within Base64 as people and programs write it.
_PASSED = frozenset(" \t\r\n\"'`,>|-+\\.:;*#()[]/_")
_PADDING = "="


class BitEncoding(AnyLetter):
    """Bytes in groups of `width` bits a character (RFC 4648), from any bit offset. A letter is a byte, as in Latin-1.
    White space within it, quotation marks and the like do not count."""

    def __init__(self, width: int, values: dict[str, int]) -> None:
        self._width, self._values = width, values
        self._skips = sorted({8 * byte % width for byte in range(width)})

    def start(self, char: str) -> Iterator[Reading]:
        if char in self._values:
            for skip in self._skips:
                count = self._width - skip
                yield Reading(None, f"{count},{self._values[char] & ((1 << count) - 1)}")

    def step(self, state: str, char: str) -> Iterator[Reading]:
        if char in _PASSED:  # also where it is a digit of the code: between pieces it is none
            yield Reading(None, state)
        elif char == _PADDING:  # the next piece begins with a byte
            yield Reading(None, "0,0")
        if char in self._values:
            before, _, begun = state.partition(",")
            count, value = int(before), int(begun)
            count, value = count + self._width, value << self._width | self._values[char]
            letter = None
            if count >= 8:
                count -= 8
                letter = chr(value >> count)
            yield Reading(letter, f"{count},{value & ((1 << count) - 1)}")


_UNFINISHED = frozenset({"unexpected end of data", "truncated data"})


class Decoded(AnyLetter):
    """Letters of an encoding of bytes: UTF-8, and ASCII in UTF-16, whose other bytes are 0; or of another charset."""

    def __init__(self, encoded: Encoding, charset: str = "utf-8") -> None:
        self._encoded, self._charset = encoded, charset
        self._passes_zero = charset == "utf-8"

    def start(self, char: str) -> Iterator[Reading]:
        return self._decoded("", self._encoded.start(char))

    def step(self, state: str, char: str) -> Iterator[Reading]:
        begun, _, inner = state.partition(":")
        return self._decoded(begun, self._encoded.step(inner, char))

    def _decoded(self, begun: str, readings: Iterable[Reading]) -> Iterator[Reading]:
        for letters, inner in readings:
            if letters is None or (self._passes_zero and letters == "\0"):
                yield Reading(None, f"{begun}:{inner}")
                continue
            data = bytes.fromhex(begun) + letters.encode("latin-1", "replace")
            try:
                yield Reading(data.decode(self._charset), f":{inner}")
            except UnicodeDecodeError as error:
                if len(data) < 4 and error.reason in _UNFINISHED:
                    yield Reading(None, f"{data.hex()}:{inner}")


class AnyOf(AnyLetter):
    """One of several encodings, the same for all letters of a word."""

    def __init__(self, *encodings: Encoding) -> None:
        self._encodings = encodings

    def start(self, char: str) -> Iterator[Reading]:
        for number, encoding in enumerate(self._encodings):
            for letters, state in encoding.start(char):
                yield Reading(letters, f"{number}{state}")

    def step(self, state: str, char: str) -> Iterator[Reading]:
        for letters, rest in self._encodings[int(state[0])].step(state[1:], char):
            yield Reading(letters, state[0] + rest)


class Stacked(AnyLetter):
    """An encoding of what is encoded already: the letters of the `outer` are read by the `inner`."""

    def __init__(self, outer: Encoding, inner: Encoding) -> None:
        self._outer, self._inner = outer, inner

    def start(self, char: str) -> Iterator[Reading]:
        return self._read("", self._outer.start(char))

    def step(self, state: str, char: str) -> Iterator[Reading]:
        outer, _, inner = state.partition("\0")
        return self._read(inner, self._outer.step(outer, char))

    def _read(self, inner: str, readings: Iterable[Reading]) -> Iterator[Reading]:
        for letters, outer in readings:
            if letters is None:
                yield Reading(None, f"{outer}\0{inner}")
                continue
            for found, rest in self._inner.step(inner, letters) if inner else self._inner.start(letters):
                yield Reading(found, f"{outer}\0{rest}")


class Spellings:
    """Letters that several characters draw or name, such as `|-|`."""

    def __init__(self, table: dict[str, str]) -> None:
        self._table = table
        self._begun: dict[str, str] = {}  # with the letters that may come of it
        for text, letters in table.items():
            for end in range(1, len(text)):
                self._begun[text[:end]] = self._begun.get(text[:end], "") + letters

    def start(self, char: str) -> Iterator[Reading]:
        return self.step("", char)

    def step(self, state: str, char: str) -> Iterator[Reading]:
        text = state + char.lower()
        for letter in self._table.get(text, ""):
            yield Reading(letter, "")
        if text in self._begun:
            yield Reading(None, text)

    def outcomes(self, state: str) -> str:
        return self._begun[state]


def character(digits: str, base: int = 16) -> str | None:
    """The one with this number, if there is one."""
    code = int(digits, base)
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else None


# One character each; what several letters look like is all of them.
LEET = {
    "0": "o", "1": "il", "2": "z", "3": "e", "4": "a", "5": "s", "6": "gb", "7": "t", "8": "b", "9": "g",
    "@": "a", "$": "s", "!": "il", "|": "il", "+": "t", "(": "c", "<": "c", "{": "c", "#": "h", "€": "e", "£": "l",
    "¢": "c", "¥": "y", "\u00a7": "s", "†": "t", "°": "o", "µ": "u", "^": "a", "*": "aeiou",
}  # fmt: skip
MASK = "*"  # for a vowel
# Of these, which are punctuation where a word begins or ends.
PUNCTUATION = frozenset("!|+(<{#^*\u00b0")
# Several characters that draw one.
DRAWN = {
    "/\\": "a", "/-\\": "a", "|3": "b", "13": "b", "|)": "d", "|>": "dp", "[)": "d", "|=": "f", "ph": "f",
    "|-|": "h", "}{": "h", "]-[": "h", "_|": "j", "|<": "k", "|{": "k", "|_": "l", "1_": "l", "|\\/|": "m",
    "/\\/\\": "m", "(v)": "m", "|\\|": "n", "/\\/": "n", "()": "o", "[]": "o", "|*": "p", "|2": "r", "|?": "r",
    "|_|": "u", "(_)": "u", "\\/": "v", "\\/\\/": "w", "vv": "w", "uu": "w", "\\^/": "w", "><": "x", "`/": "y",
    "'/": "y",
}  # fmt: skip

# Whole words in a code.
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


def _byte(digits: str) -> str:
    return chr(int(digits, 16))


def _prefixes(texts: Iterable[str]) -> str:
    begun = {text[:end] for text in texts for end in range(1, len(text))}
    return "|".join(map(re.escape, sorted(begun, key=len, reverse=True)))


_SIGN = "[^0-9a-z]"
# Between two codes may also be the number of a list.
_ITEM, _ITEM_BEGUN = r"|\n[0-9]{1,2}[.)] ", r"|\n(?:[0-9]{1,2}[.)]? ?)?"
# Or how many bytes a dump has shown, where a line of it begins.
_OFFSET, _OFFSET_BEGUN = rf"|\n{HEX_DIGIT}{{7,8}}:? {{1,2}}", rf"|\n{HEX_DIGIT}{{0,8}}|\n{HEX_DIGIT}{{7,8}}:? {{0,2}}"
_HEX_INTRO = r"(?:0x|x|h|u00|u\+00)?"
_HEX_INTRO_BEGUN = r"(?:0x?|x|h|u0{0,2}|u\+0{0,2})?"
_CALLS = ("chr(", "char(", "chrw(", "unichr(", "string.fromcharcode(")
_CALL, _CALL_BEGUN = "|".join(map(re.escape, _CALLS)), _prefixes(_CALLS)
_HEX = TextEncoding(
    f"{HEX_DIGIT}{{2}}",
    HEX_DIGIT,
    _byte,
    (
        rf"(?:h?{_SIGN}{{0,6}}{_HEX_INTRO}|{_SIGN}{{1,6}}(?:{_CALL})(?:0x)?{_ITEM}{_OFFSET})",
        rf"h?{_SIGN}{{0,6}}{_HEX_INTRO_BEGUN}|{_SIGN}{{1,6}}(?:{_CALL_BEGUN}|(?:{_CALL})(?:0x?)?){_ITEM_BEGUN}{_OFFSET_BEGUN}",
    ),
)
_HEX_UNITS = TextEncoding(
    f"{HEX_DIGIT}{{4}}",
    f"{HEX_DIGIT}{{1,3}}",
    character,
    (rf"{_SIGN}{{0,6}}(?:0x|u\+?)?", rf"{_SIGN}{{0,6}}(?:0x?|u\+?)?"),
)
_BETWEEN_CODES = (
    rf"(?:{_SIGN}{{1,6}}(?:{_CALL})?{_ITEM})",
    rf"{_SIGN}{{0,6}}|{_SIGN}{{1,6}}(?:{_CALL_BEGUN}|{_CALL}){_ITEM_BEGUN}",
)
_OCTAL_BETWEEN = rf"(?:{_SIGN}{{1,6}}(?:0o?)?{_ITEM})", rf"{_SIGN}{{0,6}}|{_SIGN}{{1,6}}0o?{_ITEM_BEGUN}"
_BINARY_BETWEEN = rf"(?:{_SIGN}{{0,4}}(?:0b)?{_ITEM})", rf"{_SIGN}{{0,4}}(?:0b?)?{_ITEM_BEGUN}"
_BITS_BETWEEN = rf"{_SIGN}{{1,4}}(?:0b)?", rf"{_SIGN}{{0,4}}|{_SIGN}{{1,4}}0b?"
_MORSE_SIGN, _MORSE_BETWEEN = "[._*-]", "[^0-9a-z._*-]"
_MORSE_SIGNS = str.maketrans("*_", ".-")
_AS = ("as in", "for", "is", "like")  # between a letter and its name
_BASE64_BYTES = BitEncoding(6, {char: at for at, char in enumerate(_BASE64)} | {"-": 62, "_": 63})
VARIANTS: dict[str, Encoding] = {
    "base64": Decoded(_BASE64_BYTES),
    "base32": Decoded(BitEncoding(5, {form: at for at, char in enumerate(_BASE32) for form in (char, char.lower())})),
    "hex": AnyOf(Decoded(_HEX), _HEX_UNITS),
    "decimal": AnyOf(
        TextEncoding("[0-9]{2,6}", "[0-9]{1,5}", lambda text: character(text, 10), _BETWEEN_CODES),
        Decoded(TextEncoding("[0-9]{2,3}", "[0-9]{1,2}", lambda text: character(text, 10), _BETWEEN_CODES)),
        Decoded(TextEncoding("[0-3]?[0-7]{2}", "[0-7]{1,2}", lambda text: character(text, 8), _OCTAL_BETWEEN)),
        Decoded(
            TextEncoding(
                "[01]{4}[ _.]?[01]{4}",
                "[01]{1,4}|[01]{4}[ _.]|[01]{4}[ _.]?[01]{1,3}",
                lambda text: character(re.sub("[ _.]", "", text), 2),
                _BINARY_BETWEEN,
            )
        ),
        TextEncoding("[01]{7}", "[01]{1,6}", lambda text: character(text, 2), _BITS_BETWEEN),
    ),
    # A number or the letter itself may stand before a name: `2. Bravo`, `B as in Bravo`.
    "nato": TextEncoding(
        "|".join(_NATO_LETTERS),
        _prefixes(_NATO_LETTERS),
        lambda text: _NATO_LETTERS[text.lower()],
        (
            rf"{_SIGN}{{0,8}}(?:[0-9a-z]{{1,2}}(?: {'| '.join(_AS)})?{_SIGN}{{1,4}})?",
            rf"{_SIGN}{{0,8}}(?:[0-9a-z]{{1,2}}(?: (?:{_prefixes(_AS)}|{'|'.join(_AS)}))?{_SIGN}{{0,4}})?",
        ),
    ),
    "morse": TextEncoding(
        f"{_MORSE_SIGN}{{1,5}}",
        f"{_MORSE_SIGN}{{1,4}}",
        lambda text: _MORSE_LETTERS.get(text.translate(_MORSE_SIGNS)),
        (
            rf"(?:{_MORSE_BETWEEN}{{1,6}}|\n[-*] {_ITEM})",
            rf"{_MORSE_BETWEEN}{{0,6}}|\n[-*] ?{_ITEM_BEGUN}",
        ),
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
)
_NUMBER, _NUMBER_BEGUN = rf"0x|u\+|(?:{_CALL})(?:0x)?", rf"0x?|u\+?|{_CALL_BEGUN}|(?:{_CALL})(?:0x?)?"
_HEX_NUMBERS = TextEncoding(
    f"{HEX_DIGIT}{{2,5}}",
    f"{HEX_DIGIT}{{1,4}}",
    character,
    (rf"{_SIGN}{{1,6}}(?:{_NUMBER})?", rf"{_SIGN}{{0,6}}|{_SIGN}{{1,6}}(?:{_NUMBER_BEGUN})"),
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


def _abridge_control(begun: str) -> str:
    """Of a sequence, only the kinds of its characters matter."""
    kinds = ("0" if char >= "0" else char if char == "\x1b" else " " for char in begun[2:])
    return begun[:2] + "".join(kinds)


# Terminal control sequences (ECMA-48), of colours and the like.
CONTROL_SEQUENCES = TextEncoding(
    rf"\x1b\[[0-?]{{0,16}}[ -/]{{0,2}}[@-~]|\x1b[\]PX^_][^\x07\x1b]{{0,{MAX_TAG}}}(?:\x07|\x1b\\)"
    r"|\x1b[ -/]{1,2}[0-~]|\x1b[0-OQ-WYZ\\`-~]",
    rf"\x1b(?:\[[0-?]{{0,16}}[ -/]{{0,2}}|[\]PX^_][^\x07\x1b]{{0,{MAX_TAG}}}\x1b?|[ -/]{{1,2}})?",
    lambda text: "",
    abridged=_abridge_control,
)
