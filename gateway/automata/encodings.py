"""How letters may be written with other characters: escapes, codes and spellings, read one character at a time.

An encoding is a small nondeterministic transducer from characters to letters. Its state is a short ASCII string, and a
reading of a character is either letters that are complete with it or a state from which more is needed. Several
readings may be possible at once; all are followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from html.entities import html5
from typing import NamedTuple, Protocol

# Behind a letter: the next one may need a separator before it.
_NEXT = "\x1f"
# What is written for a sign of Morse's code, or as a dash, besides ASCII's.
_AS_ASCII = str.maketrans(dict.fromkeys("·•∙⋅․", ".") | dict.fromkeys("‐‑‒–—―−", "-"))
MAX_TAG = 64  # characters of an HTML tag within a word


class Reading(NamedTuple):
    """What a character comes to: `letters` that are complete with it (None: not yet), and the state behind it."""

    letters: str | None
    state: str


class Encoding(Protocol):
    def begin(self, char: str) -> Iterable[Reading]:
        """The readings of an ASCII character at which a letter begins."""
        ...

    def go_on(self, state: str, char: str) -> Iterable[Reading]:
        """The readings of an ASCII character in a state."""
        ...

    def outcomes(self, state: str) -> str | None:
        """The letters of which one may come next; None for any."""
        ...


class _AnyLetter:
    """What is begun is held until it is complete: which letters it may become is not looked up."""

    def outcomes(self, state: str) -> str | None:
        return None


def ascii_form(char: str) -> str:
    """The character as encodings see it; empty if it is in none."""
    char = char.translate(_AS_ASCII)
    return char if char.isascii() else ""


class TextEncoding(_AnyLetter):
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
            prefix = f"{_NEXT}{begun}|(?:{_NEXT}{between})?(?:{prefix})"
        self._prefix = re.compile(prefix, re.I | re.A)

    def begin(self, char: str) -> Iterator[Reading]:
        return self.go_on("", char)

    def go_on(self, state: str, char: str) -> Iterator[Reading]:
        text = state + char
        for begin in range(1, len(text)) if text[0] == _NEXT else (0,):
            # A separator may end at several places, as it does in `0x0x73`.
            if self._unit.fullmatch(text, begin) and (not begin or self._separator.fullmatch(text, 0, begin)):
                letters = self._decode(text[begin:])
                if letters is not None:
                    yield Reading(letters, self._after)
        if self._prefix.fullmatch(text):
            yield Reading(None, self._abridged(text))


class TwoLevels(_AnyLetter):
    """An encoding of which each character may be written in it once more, as `&amp;#115;` or `%2573`."""

    def __init__(self, single: TextEncoding) -> None:
        self._single = single

    def begin(self, char: str) -> Iterator[Reading]:
        for reading in self._single.begin(char):
            yield reading if reading.letters is not None else Reading(None, reading.state + "\0")
            if reading.letters is None:
                yield Reading(None, "\0" + reading.state)

    def go_on(self, state: str, char: str) -> Iterator[Reading]:
        outer, inner = state.split("\0")
        if inner:
            for letters, rest in self._single.go_on(inner, char):
                if letters is None:
                    yield Reading(None, f"{outer}\0{rest}")
                elif len(letters) == 1 and letters.isascii():
                    yield from self._outer(outer, letters)
            return
        yield from self._outer(outer, char)
        for _, begun in self._single.begin(char):
            yield Reading(None, f"{outer}\0{begun}")

    def _outer(self, outer: str, char: str) -> Iterator[Reading]:
        for letters, rest in self._single.go_on(outer, char):
            yield Reading(None, rest + "\0") if letters is None else Reading(letters, "")


class BitEncoding(_AnyLetter):
    """Bytes in groups of `width` bits a character (RFC 4648), from any bit offset. A letter is a byte, as in Latin-1.
    Line ends within it do not count."""

    def __init__(self, width: int, values: dict[str, int]) -> None:
        self._width, self._values = width, values
        self._skips = sorted({8 * byte % width for byte in range(width)})

    def begin(self, char: str) -> Iterator[Reading]:
        if char in self._values:
            for skip in self._skips:
                count = self._width - skip
                yield Reading(None, f"{count},{self._values[char] & ((1 << count) - 1)}")

    def go_on(self, state: str, char: str) -> Iterator[Reading]:
        if char in ("\r", "\n"):
            yield Reading(None, state)
        if char in self._values:
            before, _, begun = state.partition(",")
            count, value = int(before), int(begun)
            count, value = count + self._width, value << self._width | self._values[char]
            letter = None
            if count >= 8:
                count -= 8
                letter = chr(value >> count)
            yield Reading(letter, f"{count},{value & ((1 << count) - 1)}")


class Decoded(_AnyLetter):
    """Letters of an encoding of bytes: UTF-8, and ASCII in UTF-16, whose other bytes are 0."""

    def __init__(self, encoded: Encoding) -> None:
        self._encoded = encoded

    def begin(self, char: str) -> Iterator[Reading]:
        return self._decoded("", self._encoded.begin(char))

    def go_on(self, state: str, char: str) -> Iterator[Reading]:
        begun, _, inner = state.partition(":")
        return self._decoded(begun, self._encoded.go_on(inner, char))

    def _decoded(self, begun: str, readings: Iterable[Reading]) -> Iterator[Reading]:
        for letters, inner in readings:
            if letters is None or letters == "\0":
                yield Reading(None, f"{begun}:{inner}")
                continue
            if not begun and letters < "\x80":
                yield Reading(letters, f":{inner}")
                continue
            data = bytes.fromhex(begun) + letters.encode("latin-1", "replace")
            try:
                yield Reading(data.decode(), f":{inner}")
            except UnicodeDecodeError as error:
                if len(data) < 4 and error.reason == "unexpected end of data":
                    yield Reading(None, f"{data.hex()}:{inner}")


class AnyOf(_AnyLetter):
    """One of several encodings, the same for all letters of a word."""

    def __init__(self, *encodings: Encoding) -> None:
        self._encodings = encodings

    def begin(self, char: str) -> Iterator[Reading]:
        for number, encoding in enumerate(self._encodings):
            for letters, state in encoding.begin(char):
                yield Reading(letters, f"{number}{state}")

    def go_on(self, state: str, char: str) -> Iterator[Reading]:
        for letters, rest in self._encodings[int(state[0])].go_on(state[1:], char):
            yield Reading(letters, state[0] + rest)


class Spellings:
    """Letters that several characters draw or name, such as `|-|`."""

    def __init__(self, table: dict[str, str]) -> None:
        self._table = table
        self._begun: dict[str, str] = {}  # with the letters that may come of it
        for text, letters in table.items():
            for end in range(1, len(text)):
                self._begun[text[:end]] = self._begun.get(text[:end], "") + letters

    def begin(self, char: str) -> Iterator[Reading]:
        return self.go_on("", char)

    def go_on(self, state: str, char: str) -> Iterator[Reading]:
        text = state + char.lower()
        for letter in self._table.get(text, ""):
            yield Reading(letter, "")
        if text in self._begun:
            yield Reading(None, text)

    def outcomes(self, state: str) -> str:
        return self._begun[state]


def _character(digits: str, base: int = 16) -> str | None:
    code = int(digits, base)
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else None


# -- escapes within a text ---------------------------------------------------------------------------------------------

_H = "[0-9a-f]"
_ENTITIES = {name: chars for name, chars in html5.items() if name.endswith(";")}
_MARKUP_UNIT = (
    rf"&\#[0-9]{{1,8}};?|&\#x{_H}{{1,6}};?|&[a-z0-9]{{2,31}};"
    rf"|<[/!?a-z][^<>]{{0,{MAX_TAG}}}>"
    rf"|(?:\\x[c-f]{_H}(?:\\x[89ab]{_H}){{1,3}})|(?:\\3[0-7]{{2}}(?:\\2[0-7]{{2}}){{1,3}})"
    rf"|\\u{_H}{{4}}|\\ud[89ab]{_H}{{2}}\\ud[c-f]{_H}{{2}}|\\u\{{{_H}{{1,6}}\}}|\\x{_H}{{2}}|\\U{_H}{{8}}|\\[0-7]{{3}}"
    r"|\\[nrt!-/:-@\[-`{-~]"
)
_MARKUP_PREFIX = (
    rf"&(?:\#(?:[0-9]{{0,8}}|x{_H}{{0,6}})|[a-z0-9]{{0,31}})"
    rf"|<(?:[/!?a-z][^<>]{{0,{MAX_TAG}}})?"
    rf"|\\x[c-f]{_H}(?:\\x[89ab]{_H}){{0,2}}(?:\\(?:x(?:[89ab]{_H}?)?)?)?"
    rf"|\\3[0-7]{{2}}(?:\\2[0-7]{{2}}){{0,2}}(?:\\(?:2[0-7]{{0,2}})?)?"
    rf"|\\(?:u{_H}{{0,3}}|ud[89ab]{_H}{{2}}(?:\\(?:u(?:d(?:[c-f]{_H}?)?)?)?)?|u\{{{_H}{{0,6}}|x{_H}?|U{_H}{{0,7}}|[0-7]{{0,2}})?"
)
# Bytes of UTF-8: how many there are is known from the first.
_C = f"%[89ab]{_H}"
_URL_UNIT = rf"%[0-7]{_H}|%[cd]{_H}{_C}|%e{_H}{_C}{_C}|%f{_H}{_C}{_C}{_C}|\+"
_URL_PREFIX = (
    rf"%{_H}?|%[cd]{_H}(?:%[89ab]?)?|%e{_H}(?:{_C})?(?:%[89ab]?)?|%f{_H}(?:{_C}){{0,2}}(?:%[89ab]?)?"
)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}


def _unescape(text: str) -> str | None:
    if text[0] == "%":
        try:
            return one if len(one := bytes.fromhex(text.replace("%", "")).decode()) == 1 else None
        except UnicodeDecodeError:
            return None
    if text == "+":
        return " "
    if text[0] == "<":
        return ""
    if text[0] == "&":
        if text[1] != "#":
            return _ENTITIES.get(text[1:], _ENTITIES.get(text[1:].lower()))
        digits = text[2:].rstrip(";")
        return _character(digits[1:]) if digits[0] in "xX" else _character(digits, 10)
    kind, rest = text[1], text[2:]
    if text.count("\\") > 1 and kind in "xX3":
        parts = text[1:].split("\\")
        data = bytes(int(part[1:], 16) if kind in "xX" else int(part, 8) for part in parts)
        try:
            return one if len(one := data.decode()) == 1 else None
        except UnicodeDecodeError:
            return None
    if kind in "ux" or (kind == "U" and rest):
        if len(rest) == 10:
            return bytes.fromhex(rest[:4] + rest[6:]).decode("utf-16-be")
        return _character(rest.strip("{}"))
    return _character(text[1:], 8) if kind in "01234567" else _CONTROLS.get(kind.lower(), kind)


def escapes(*, markup: bool, url: bool) -> TwoLevels:
    """HTML's tags and entities, escapes of strings and Markdown (`markup`), percent-encoding (`url`), twice over."""
    units = [_MARKUP_UNIT] * markup + [_URL_UNIT] * url
    prefixes = [_MARKUP_PREFIX] * markup + [_URL_PREFIX] * url
    return TwoLevels(TextEncoding("|".join(units), "|".join(prefixes), _unescape, abridged=_abridge_tag))


def _abridge_tag(begun: str) -> str:
    """Of a tag, only its length matters."""
    return "<a" + "a" * (len(begun) - 2) if begun[0] == "<" and len(begun) > 2 else begun


# -- letters by other characters ---------------------------------------------------------------------------------------

# One character each; what several letters look like is all of them.
LEET = {
    "0": "o", "1": "il", "2": "z", "3": "e", "4": "a", "5": "s", "6": "gb", "7": "t", "8": "b", "9": "g",
    "@": "a", "$": "s", "!": "il", "|": "il", "+": "t", "(": "c", "<": "c", "{": "c", "#": "h", "€": "e", "£": "l",
    "¢": "c", "¥": "y", "\u00a7": "s", "†": "t", "°": "o", "µ": "u", "^": "a",
}  # fmt: skip
# Of these, which are punctuation where a word begins or ends.
PUNCTUATION = frozenset("!|+(<{#^\u00b0")
# Several characters that draw one.
DRAWN = {
    "/\\": "a", "/-\\": "a", "|3": "b", "13": "b", "|)": "d", "|>": "dp", "[)": "d", "|=": "f", "ph": "f",
    "|-|": "h", "}{": "h", "]-[": "h", "_|": "j", "|<": "k", "|{": "k", "|_": "l", "1_": "l", "|\\/|": "m",
    "/\\/\\": "m", "(v)": "m", "|\\|": "n", "/\\/": "n", "()": "o", "[]": "o", "|*": "p", "|2": "r", "|?": "r",
    "|_|": "u", "(_)": "u", "\\/": "v", "\\/\\/": "w", "vv": "w", "uu": "w", "\\^/": "w", "><": "x", "`/": "y",
    "'/": "y",
}  # fmt: skip

# -- whole words in a code ---------------------------------------------------------------------------------------------

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


_CODE_INTRO = r"(?:0x|\\{1,2}x|x|%|=|\\{1,2}u00|u\+00|&\#x)?"
_CODE_INTRO_BEGUN = r"(?:0x?|\\{1,2}x?|x|%|=|\\{1,2}u0{0,2}|u\+?0{0,2}|&\#?x?)?"
_HEX = TextEncoding(
    f"{_H}{{2}}",
    _H,
    _byte,
    (rf"[ ,;:\n'\"-]{{0,4}}{_CODE_INTRO}", rf"[ ,;:\n'\"-]{{0,4}}{_CODE_INTRO_BEGUN}"),
)
_BETWEEN_CODES = r"[ ,;:.\n/-]{1,3}", r"[ ,;:.\n/-]{0,3}"
VARIANTS: dict[str, Encoding] = {
    "base64": Decoded(BitEncoding(6, {char: at for at, char in enumerate(_BASE64)} | {"-": 62, "_": 63})),
    "base32": Decoded(BitEncoding(5, {form: at for at, char in enumerate(_BASE32) for form in (char, char.lower())})),
    "hex": Decoded(_HEX),
    "decimal": AnyOf(
        TextEncoding("[0-9]{2,6}", "[0-9]{1,5}", lambda text: _character(text, 10), _BETWEEN_CODES),
        Decoded(TextEncoding("[0-3]?[0-7]{2}", "[0-7]{1,2}", lambda text: _character(text, 8), _BETWEEN_CODES)),
        Decoded(TextEncoding("[01]{8}", "[01]{1,7}", lambda text: _character(text, 2), (" ?", " ?"))),
    ),
    "nato": TextEncoding(
        "|".join(_NATO_LETTERS),
        _prefixes(_NATO_LETTERS),
        lambda text: _NATO_LETTERS[text.lower()],
        (r"[ ,.;/\n-]{1,3}", r"[ ,.;/\n-]{0,3}"),
    ),
    "morse": TextEncoding(
        "[.-]{1,5}",
        "[.-]{1,4}",
        _MORSE_LETTERS.get,
        (r"(?: {1,4}| ?[/|,] ?|\n)(?:/ )?", r"(?: {0,4}| ?[/|,]? ?|\n)(?:/ ?)?"),
    ),
}
# Terminal control sequences (ECMA-48), of colours and the like.
CONTROL_SEQUENCES = TextEncoding(
    r"\x1b\[[0-?]{0,16}[ -/]{0,2}[@-~]",
    r"\x1b(?:\[[0-?]{0,16}[ -/]{0,2})?",
    lambda text: "",
    abridged=lambda begun: begun[:2] + "".join("0" if char >= "0" else " " for char in begun[2:]),
)
