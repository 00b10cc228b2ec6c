r"""Markup and escapes within a text: `&#115;`, `\x73`, `%73`, and what is between letters and not shown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from html.entities import html5

from gateway.automata.encodings import HEX_DIGIT, MAX_TAG, AnyLetter, Reading, TextEncoding, character

_KINDS = {"<": "T", "[": "N", "]": "A", "\\": "L"}
# How each continues, with which characters it does not, how it ends, and how many characters it has at most.
_FORMS = {
    "T": ("/!?", "<", ">", MAX_TAG),
    **dict.fromkeys("CDE", ("-", "", "", MAX_TAG)),  # a comment, and one behind a hyphen, and behind two
    "N": ("^/", "[\n", "]", 16),
    "A": ("(", "(\n", ")", MAX_TAG),
    "L": ("", "", "{ ", 16),
    "G": ("", "{\n", "}", 16),
}
BETWEEN = frozenset(_FORMS)  # how states of `Between` begin


class Between(AnyLetter):
    """What may stand between two letters and is not shown: a tag or a comment of HTML, a note or a link's address in
    Markdown, a tag of forums (`[b]`), a command of LaTeX and its argument. The state says which, and how long it is."""

    def start(self, char: str) -> Iterator[Reading]:
        if char in _KINDS:
            yield Reading(None, f"{_KINDS[char]}0")

    def step(self, state: str, char: str) -> Iterator[Reading]:
        kind, length = state[0], int(state[1:])
        first, never, end, most = _FORMS[kind]
        if state + char == "T0!":
            yield Reading(None, "C0")  # if it is a comment, signs of a tag do not end it
        if length == 0 and kind != "G":
            continues = char in first or (kind in "TLN" and char.isalpha())
        elif kind in "CDE":
            if kind == "E" and char == ">":
                yield Reading("", "")
                return
            kind, continues = ("C" if char != "-" else "D" if kind == "C" else "E"), True
        elif char in end:
            yield Reading("", "")
            if kind == "L" and char == "{":  # what is shown, or an argument that is not
                yield Reading(None, "G0")
            return
        else:
            continues = char.isalpha() if kind == "L" else char not in never
        if continues and length < most:
            yield Reading(None, f"{kind}{length + 1}")


class TwoLevels(AnyLetter):
    """Escapes of which each character may be escaped once more, as `&amp;#115;` or `%2573`; and, with `between`, what
    stands between letters, of which each character may be escaped."""

    def __init__(self, single: TextEncoding, between: Between | None = None) -> None:
        self._single, self._between = single, between

    def start(self, char: str) -> Iterator[Reading]:
        for reading in self._single.start(char):
            yield reading if reading.letters is not None else Reading(None, reading.state + "\0")
            if reading.letters is None:
                yield Reading(None, "\0" + reading.state)
        if self._between is not None:
            for _, state in self._between.start(char):
                yield Reading(None, state + "\0")

    def step(self, state: str, char: str) -> Iterator[Reading]:
        outer, inner = state.split("\0")
        if inner:
            for letters, rest in self._single.step(inner, char):
                if letters is None:
                    yield Reading(None, f"{outer}\0{rest}")
                elif len(letters) == 1 and letters.isascii():
                    yield from self._outer(outer, letters)
            return
        yield from self._outer(outer, char)
        for _, begun in self._single.start(char):
            yield Reading(None, f"{outer}\0{begun}")

    def _outer(self, outer: str, char: str) -> Iterator[Reading]:
        readings: Iterable[Reading]
        if not outer and self._between is not None:
            readings = (*self._single.start(char), *self._between.start(char))
        elif outer[:1].isalpha() and self._between is not None:
            readings = self._between.step(outer, char)
        else:
            readings = self._single.step(outer, char)
        for letters, rest in readings:
            yield Reading(None, rest + "\0") if letters is None else Reading(letters, "")


_ENTITIES = {name: chars for name, chars in html5.items() if name.endswith(";")}
_TERMINAL = r"\\(?:x1b|033|e|u001b)"  # a terminal's control sequence, written as an escape
_MARKUP_UNIT = (
    rf"&(?:amp;)*\#[0-9]{{1,8}};?|&(?:amp;)*\#x{HEX_DIGIT}{{1,6}};?|&[a-z0-9]{{2,31}};"
    rf"|(?:\\x[c-f]{HEX_DIGIT}(?:\\x[89ab]{HEX_DIGIT}){{1,3}})|(?:\\3[0-7]{{2}}(?:\\2[0-7]{{2}}){{1,3}})"
    rf"|\\u{HEX_DIGIT}{{4}}|\\ud[89ab]{HEX_DIGIT}{{2}}\\ud[c-f]{HEX_DIGIT}{{2}}|\\[ux]\{{{HEX_DIGIT}{{1,6}}\}}|\\x{HEX_DIGIT}{{2}}|\\U{HEX_DIGIT}{{8}}|\\[0-7]{{3}}"
    rf"|\\01[0-7]{{2}}|\\o\{{[0-7]{{2,7}}\}}|\\'{HEX_DIGIT}{{2}}"
    rf"|\\{HEX_DIGIT}{{2,6}} ?|\\N\{{[a-z0-9 -]{{1,60}}\}}|{_TERMINAL}\[[0-9;]{{0,16}}m"
    r"|\\[nrt!-/:-@\[-`{-~]"
)
_MARKUP_PREFIX = (
    rf"&(?:(?:amp;)*\#(?:[0-9]{{0,8}}|x{HEX_DIGIT}{{0,6}})|(?:amp;)*(?:a|am|amp)?|[a-z0-9]{{0,31}})"
    rf"|\\x[c-f]{HEX_DIGIT}(?:\\x[89ab]{HEX_DIGIT}){{0,2}}(?:\\(?:x(?:[89ab]{HEX_DIGIT}?)?)?)?"
    rf"|\\3[0-7]{{2}}(?:\\2[0-7]{{2}}){{0,2}}(?:\\(?:2[0-7]{{0,2}})?)?"
    rf"|\\(?:u{HEX_DIGIT}{{0,3}}|ud[89ab]{HEX_DIGIT}{{2}}(?:\\(?:u(?:d(?:[c-f]{HEX_DIGIT}?)?)?)?)?|[ux]\{{{HEX_DIGIT}{{0,6}}|x{HEX_DIGIT}?|U{HEX_DIGIT}{{0,7}}|[0-7]{{0,2}}"
    rf"|{HEX_DIGIT}{{1,6}}|N(?:\{{[a-z0-9 -]{{0,60}})?|o(?:\{{[0-7]{{0,7}})?|'{HEX_DIGIT}?)?"
    rf"|{_TERMINAL}(?:\[[0-9;]{{0,16}})?"
)
# Bytes of UTF-8: how many there are is known from the first. Each percent sign may be escaped again; e-mail has `=`.
_P = "(?:%(?:25){0,4}|=)"
_C = f"{_P}[89ab]{HEX_DIGIT}"
_URL_UNIT = (
    rf"{_P}[0-7]{HEX_DIGIT}|{_P}[cd]{HEX_DIGIT}{_C}|{_P}e{HEX_DIGIT}{_C}{_C}|{_P}f{HEX_DIGIT}{_C}{_C}{_C}"
    rf"|%u{HEX_DIGIT}{{4}}|\+"
)
_BEGUN = f"{_P}{HEX_DIGIT}?"
_URL_PREFIX = (
    rf"{_BEGUN}|{_P}[cd]{HEX_DIGIT}(?:{_BEGUN})?|{_P}e{HEX_DIGIT}(?:{_C})?(?:{_BEGUN})?"
    rf"|{_P}f{HEX_DIGIT}(?:{_C}){{0,2}}(?:{_BEGUN})?|%u{HEX_DIGIT}{{0,3}}"
)
_BYTE = re.compile(f"(?:[%=](?:25)*)({HEX_DIGIT}{{2}})(?![^%=])", re.I)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}


def _unescape(text: str) -> str | None:
    if text == "+":
        return " "
    if text[0] in "%=":
        return character(text[2:]) if text[1] in "uU" else _utf8(int(part, 16) for part in _BYTE.findall(text))
    if text[0] == "&":
        if "#" not in text:
            return _ENTITIES.get(text[1:], _ENTITIES.get(text[1:].lower()))
        digits = text.rpartition("#")[2].rstrip(";")
        return character(digits[1:]) if digits[0] in "xX" else character(digits, 10)
    kind, rest = text[1], text[2:]
    if text[-1] == "m" and "[" in text:
        return ""
    if kind in "nN" and rest:
        return _named(rest[1:-1])
    if kind in "oO" and rest:
        return character(rest[1:-1], 8)
    if kind == "'" and rest:
        return character(rest)
    if text.count("\\") > 1 and kind in "xX3":
        return _utf8(int(part.lstrip("xX"), 16 if kind in "xX" else 8) for part in text[1:].split("\\"))
    if kind in "uUxX" and rest:
        if len(rest) == 10:
            return bytes.fromhex(rest[:4] + rest[6:]).decode("utf-16-be")
        return character(rest.strip("{}"))
    if (len(text) == 4 or (len(text) == 5 and text.startswith("\\01"))) and not set(text[1:]) - set("01234567"):
        return character(text[1:], 8)
    return character(text[1:]) if rest else _CONTROLS.get(kind.lower(), kind)


def _utf8(codes: Iterable[int]) -> str | None:
    """The character of these bytes, if they are one."""
    try:
        return one if len(one := bytes(codes).decode()) == 1 else None
    except UnicodeDecodeError:
        return None


def _named(name: str) -> str | None:
    try:
        return unicodedata.lookup(name)
    except KeyError:
        return None


def escapes(*, markup: bool, url: bool) -> TwoLevels:
    """HTML's entities, escapes of strings and Markdown, and what stands between letters (`markup`), percent-encoding
    (`url`), twice over."""
    units = [_MARKUP_UNIT] * markup + [_URL_UNIT] * url
    prefixes = [_MARKUP_PREFIX] * markup + [_URL_PREFIX] * url
    return TwoLevels(TextEncoding("|".join(units), "|".join(prefixes), _unescape), Between() if markup else None)
