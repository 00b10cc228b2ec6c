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
NEXT = "\x1f"
# What is written for a sign of Morse's code, or as a dash, besides ASCII's.
_AS_ASCII = str.maketrans(dict.fromkeys("·•∙⋅․●▪", ".") | dict.fromkeys("‐‑‒–—―−▬", "-"))
ESCAPE = "\x1b"
# What terminals read as the beginning or the end of a control sequence, besides ESCAPE; each as it is in ASCII.
CONTROLS = {"\x07": "\x07"} | {chr(ord(char) + 0x40): ESCAPE + char for char in "[]\\PX^_"}
# What stands for characters that are not ASCII's: letters are no letters of a code.
_OTHER_SIGN, OTHER_LETTER = ",", "\x7f"
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
    """The character as encodings see it: one of ASCII, or two of a control sequence."""
    if char.isascii():
        return char
    if char in CONTROLS:
        return CONTROLS[char]
    char = unicodedata.normalize("NFKC", char.translate(_AS_ASCII))
    if len(char) == 1 and char.isascii():
        return char
    return OTHER_LETTER if char.isalnum() else _OTHER_SIGN


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
            self._after = NEXT
            self._separator = re.compile(NEXT + between, re.I | re.A)
            prefix = f"{NEXT}(?:{begun})|(?:{NEXT}{between})?(?:{prefix})"
        self._prefix = re.compile(prefix, re.I | re.A)

    def start(self, char: str) -> Iterator[Reading]:
        return self.step("", char)

    def step(self, state: str, char: str) -> Iterator[Reading]:
        text = state + char
        for begin in range(1, len(text)) if text[0] == NEXT else (0,):
            # A separator may end at several places, as it does in `0x0x73`.
            if self._unit.fullmatch(text, begin) and (not begin or self._separator.fullmatch(text, 0, begin)):
                letters = self._decode(text[begin:])
                if letters is not None:
                    yield Reading(letters, self._after)
        if self._prefix.fullmatch(text):
            yield Reading(None, self._abridged(text))


# What stands within Base64 as people and programs write it.
PASSED = frozenset(" \t\r\n\"'`,>|-+\\.:;*#()[]/_")
PADDING = "="


class BitEncoding(AnyLetter):
    """Bytes in groups of `width` bits a character (RFC 4648), from any bit offset. A letter is a byte, as in Latin-1.
    White space within it, quotation marks and the like do not count."""

    def __init__(self, width: int, values: dict[str, int]) -> None:
        self.width, self.values = width, values
        self.counts = [width - skip for skip in sorted({8 * byte % width for byte in range(width)})]

    def start(self, char: str) -> Iterator[Reading]:
        if char in self.values:  # with all of its bits or fewer, which the next character shows: so long one state
            yield Reading(None, f",{self.values[char]}")

    def step(self, state: str, char: str) -> Iterator[Reading]:
        if state[-1] == "\\":
            state = state[:-1]
            if char in "nr":  # a line break as programs write it, and digits of the code
                yield Reading(None, state)
        if char in PASSED:  # also where it is a digit of the code: between pieces it is none
            yield Reading(None, state)
            if char == "\\":
                yield Reading(None, state + char)
        elif char == PADDING:  # the next piece begins with a byte
            yield Reading(None, "0,0")
        if char in self.values:
            before, _, begun = state.partition(",")
            for count in (int(before),) if before else self.counts:
                value, rest = int(begun) << self.width | self.values[char], (count + self.width) % 8
                letter = chr(value >> rest & 0xFF) if count + self.width >= 8 else None
                yield Reading(letter, f"{rest},{value & ((1 << rest) - 1)}")


_UNFINISHED = frozenset({"unexpected end of data", "truncated data"})


class Decoded(AnyLetter):
    """Letters of an encoding of bytes: UTF-8, and ASCII in UTF-16, whose other bytes are 0; or of another charset."""

    def __init__(self, encoded: Encoding, charset: str = "utf-8") -> None:
        self.encoded, self.charset = encoded, charset
        self._passes_zero = charset == "utf-8"

    def start(self, char: str) -> Iterator[Reading]:
        return self._decoded("", self.encoded.start(char))

    def step(self, state: str, char: str) -> Iterator[Reading]:
        begun, _, inner = state.partition(":")
        return self._decoded(begun, self.encoded.step(inner, char))

    def decode(self, begun: str, letter: str) -> Iterator[Reading]:
        """What a byte more comes to, behind those of a character that has begun."""
        for letters, rest in self._decoded(begun, (Reading(letter, ""),)):
            yield Reading(letters, rest[:-1])

    def _decoded(self, begun: str, readings: Iterable[Reading]) -> Iterator[Reading]:
        for letters, inner in readings:
            if letters is None or (self._passes_zero and letters == "\0"):
                yield Reading(None, f"{begun}:{inner}")
                continue
            if self._passes_zero and not begun and letters < "\xc2":  # what begins UTF-8: quicker than to try
                if letters < "\x80":
                    yield Reading(letters, f":{inner}")
                continue
            data = bytes.fromhex(begun) + letters.encode("latin-1", "replace")
            try:
                yield Reading(data.decode(self.charset), f":{inner}")
            except UnicodeDecodeError as error:
                if len(data) < 4 and error.reason in _UNFINISHED:
                    yield Reading(None, f"{data.hex()}:{inner}")


class AnyOf(AnyLetter):
    """One of several encodings, the same for all letters of a word."""

    def __init__(self, *encodings: Encoding) -> None:
        self.encodings = encodings

    def start(self, char: str) -> Iterator[Reading]:
        for number, encoding in enumerate(self.encodings):
            for letters, state in encoding.start(char):
                yield Reading(letters, f"{number}{state}")

    def step(self, state: str, char: str) -> Iterator[Reading]:
        for letters, rest in self.encodings[int(state[0])].step(state[1:], char):
            yield Reading(letters, state[0] + rest)


class Stacked(AnyLetter):
    """An encoding of what is encoded already: the letters of the `outer` are read by the `inner`."""

    def __init__(self, outer: Encoding, inner: Encoding) -> None:
        self.outer, self.inner = outer, inner

    def start(self, char: str) -> Iterator[Reading]:
        return self._read("", self.outer.start(char))

    def step(self, state: str, char: str) -> Iterator[Reading]:
        outer, _, inner = state.partition("\0")
        return self._read(inner, self.outer.step(outer, char))

    def _read(self, inner: str, readings: Iterable[Reading]) -> Iterator[Reading]:
        for letters, outer in readings:
            if letters is None:
                yield Reading(None, f"{outer}\0{inner}")
                continue
            for found, rest in self.inner.step(inner, letters) if inner else self.inner.start(letters):
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
    "0": "o", "1": "il", "2": "z", "3": "e", "4": "a", "5": "s", "6": "gb", "7": "t", "8": "b", "9": "gq",
    "@": "a", "$": "s", "!": "il", "|": "il", "+": "t", "(": "c", "<": "c", "{": "c", "#": "h", "€": "e", "£": "l",
    "¢": "c", "¥": "y", "\u00a7": "s", "†": "t", "°": "o", "µ": "u", "^": "a", "¡": "i", "©": "c", "®": "r", "ª": "a",
    "º": "o",
}  # fmt: skip
MASKS = frozenset("*_•█■▇●○")  # for a vowel
LEET |= dict.fromkeys(MASKS, "aeiou")
# Of these, which are punctuation where a word begins or ends.
PUNCTUATION = frozenset("!|+(<{#^¡©®\u00b0") | MASKS
# Several characters that draw one.
DRAWN = {
    "/\\": "a", "/-\\": "a", "|3": "b", "13": "b", "|)": "d", "|>": "dp", "[)": "d", "|=": "f", "ph": "f",
    "|-|": "h", "}{": "h", "]-[": "h", "_|": "j", "|<": "k", "|{": "k", "|_": "l", "1_": "l", "|\\/|": "m",
    "/\\/\\": "m", "(v)": "m", "|\\|": "n", "/\\/": "n", "()": "o", "[]": "o", "|*": "p", "|2": "r", "|?": "r",
    "|_|": "u", "(_)": "u", "\\/": "v", "\\/\\/": "w", "vv": "w", "uu": "w", "\\^/": "w", "><": "x", "`/": "y",
    "'/": "y", "-|-": "t", "']['": "t", "/-/": "h", "[-]": "h", "}-{": "h", "^^": "m", "[v]": "m", "/v\\": "m",
    "^/": "n", "|v": "n", "(3": "b", "!3": "b", "/3": "b", "/2": "r", "|(": "k", "\\|/": "w", "|o": "p",
    "|v|": "m", "[-": "e", "(,)": "q",
}  # fmt: skip


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
