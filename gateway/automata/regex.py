"""Regular expressions: from their notation to a tree (docs/patterns.md says what is accepted and what it means).

The notation is that of Python's `re`, as far as an automaton that never goes back can mean the same by it. The rest is
refused with its position and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.automata.charset import ANY, CharSet
from gateway.automata.contexts import (
    LINE_END_EDGE,
    LINE_START_EDGE,
    NO_WORD_EDGE,
    TEXT_END,
    TEXT_START,
    WORD_EDGE,
)
from gateway.automata.escapes import BACK_REFERENCE, RegexReader, read_class, read_escape, refuse
from gateway.automata.escapes import RegexError as RegexError

MAX_LENGTH = 10_000  # characters of a pattern
MAX_DEPTH = 100  # groups within groups
MAX_COUNT = 1_000_000  # in {m,n}


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of `set`."""

    set: CharSet


@dataclass(frozen=True, slots=True)
class Edge:
    """No character, at a place in one of `contexts` (`gateway.automata.contexts`)."""

    contexts: int


@dataclass(frozen=True, slots=True)
class Concat:
    """One part after the other; without parts, the empty string."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """Any one of at least two options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`node` at least `low` times, and at most `high` times if that is not None."""

    node: Node
    low: int
    high: int | None


Node = Chars | Edge | Concat | Alternation | Repeat
EMPTY = Concat(())


def parse(pattern: str, *, ignore_case: bool = False, fold: Callable[[str], Sequence[str]] | None = None) -> Node:
    """The tree of a pattern. Raises RegexError.

    `ignore_case` is `(?i)` before the pattern. `fold` says how a text that is seen through a lens shows a character:
    so the pattern's literal characters outside classes are written, each on its own, in one or more ways.
    """
    if len(pattern) > MAX_LENGTH:
        raise RegexError(
            f"the pattern has {len(pattern)} characters, and {MAX_LENGTH} are allowed; divide it among several rules"
        )
    return _Parser(pattern, fold).parse(_Flags(ignore_case))


def spelled(text: str) -> Concat:
    """The tree of one text. Raises ValueError if it cannot be written as UTF-8."""
    text.encode()
    return Concat(tuple(Chars(CharSet.of(char)) for char in text))


class _Flags(NamedTuple):
    ignore_case: bool = False
    multi_line: bool = False
    dot_all: bool = False
    verbose: bool = False


_EDGES = {"b": WORD_EDGE, "B": NO_WORD_EDGE, "A": TEXT_START, "Z": TEXT_END, "z": TEXT_END}

_BRACES = re.compile(r"\{([0-9]*)(?:(,)([0-9]*))?\}")
_NAMED = re.compile(r"\(\?P?<([^>]*)>")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_FLAG_NAMES = {"i": "ignore_case", "m": "multi_line", "s": "dot_all", "x": "verbose"}
# As `re` reads comments, a backslash in one takes the next character with it, a line break or ) too.
_NOTHING_UNDER_X = re.compile(r"[ \t\n\r\f\v]+|#(?:[^\n\\]|\\(?s:.))*")
_COMMENT = re.compile(r"\(\?#(?:[^)\\]|\\(?s:.))*(\)?)")

_LOOK_AROUND = r"look-around is not supported: name what may stand there as a part of the match, or use \b, ^ or $"
_REFUSED_GROUPS = {
    "(?=": _LOOK_AROUND,
    "(?!": _LOOK_AROUND,
    "(?<=": _LOOK_AROUND,
    "(?<!": _LOOK_AROUND,
    "(?P=": BACK_REFERENCE,
    "(?>": "atomic groups mean nothing here, where every way to match counts: write (?:...)",
    "(?(": "conditional groups are not supported: spell the alternatives out",
}
_REFUSED_FLAGS = {
    "a": r"(?a) is not supported: write [0-9] for \d and [0-9A-Za-z_] for \w",
    "u": "(?u) is what holds without it: leave it out",
    "L": "(?L) is not supported, text is Unicode: leave it out",
}
_GLOBAL_FLAGS_LATE = "flags for the whole pattern stand at its beginning: move them there, or write (?i:...)"


class _Parser(RegexReader):
    """Recursive descent: `_alternatives` > `_sequence` > `_atom` > `_group` > `_alternatives`."""

    def __init__(self, pattern: str, fold: Callable[[str], Sequence[str]] | None) -> None:
        super().__init__(pattern)
        self._fold = fold
        self._names: set[str] = set()

    def parse(self, flags: _Flags) -> Node:
        node = self._alternatives(self._opening_flags(flags), 0)
        if not self.ended:
            refuse(r"unbalanced ')': remove it, or write \)", self.at)
        return node

    def _opening_flags(self, flags: _Flags) -> _Flags:
        while True:
            begin = self.at
            if self._skip_nothing(flags):
                continue
            found = self.accept_match(_FLAGS)
            if found is None or found[3] == ":":
                self.at = begin
                return flags
            flags = self._changed(flags, found)

    def _changed(self, flags: _Flags, found: re.Match[str]) -> _Flags:
        """The flags after a group's head; `found` is one of `_FLAGS`."""
        on, off, end = found.groups()
        letters = on + (off or "")
        for letter in letters:
            if letter not in _FLAG_NAMES:
                refuse(_REFUSED_FLAGS.get(letter, "unknown flag: i, m, s and x are supported"), found.start())
        if not letters or off == "" or (off and (end == ")" or set(on) & set(off))):
            refuse("flags are written (?i), (?i:...) or (?-i:...)", found.start())
        return flags._replace(**{_FLAG_NAMES[letter]: letter in on for letter in letters})

    def _alternatives(self, flags: _Flags, depth: int) -> Node:
        options = [self._sequence(flags, depth)]
        while self.accept("|"):
            options.append(self._sequence(flags, depth))
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _sequence(self, flags: _Flags, depth: int) -> Node:
        parts: list[Node] = []
        no_repeat = nothing = r"nothing to repeat: a literal quantifier sign is written \*, \+, \? or \{"
        while not self.ended and self.next() not in "|)":
            if self._skip_nothing(flags):
                continue
            begin = self.at
            bounds = self._quantifier()
            if bounds is not None:
                if no_repeat:
                    refuse(no_repeat, begin)
                parts[-1] = Repeat(parts[-1], *bounds)
                no_repeat = "multiple repeat: put what is repeated into a group, (?:...)"
            else:
                is_group = self.pattern[begin] == "("
                parts.append(self._atom(flags, depth))
                no_repeat = nothing if isinstance(parts[-1], Edge) and not is_group else ""
        return parts[0] if len(parts) == 1 else Concat(tuple(parts))

    def _skip_nothing(self, flags: _Flags) -> bool:
        """Skip a comment, and under `(?x)` blanks and what is between # and the line's end."""
        begin = self.at
        if flags.verbose and self.accept_match(_NOTHING_UNDER_X):
            return True
        found = self.accept_match(_COMMENT)
        if found is not None and not found[1]:
            refuse("the comment has no end: close it with )", begin)
        return found is not None

    def _quantifier(self) -> tuple[int, int | None] | None:
        """The bounds of the quantifier here; None if there is none."""
        begin = self.at
        bounds: tuple[int, int | None]
        if self.accept("*"):
            bounds = 0, None
        elif self.accept("+"):
            bounds = 1, None
        elif self.accept("?"):
            bounds = 0, 1
        elif self.sees("{}") or not (found := self.accept_match(_BRACES)):
            return None
        else:
            bounds = self._counts(found)
        if self.accept("?"):
            refuse("lazy quantifiers mean nothing here, where every way to match counts: leave the ? out", begin)
        if self.accept("+"):
            refuse("possessive quantifiers mean nothing here, where every way to match counts: leave the + out", begin)
        return bounds

    def _counts(self, braces: re.Match[str]) -> tuple[int, int | None]:
        least, comma, most = braces.groups()
        low = _count(least, braces.start())
        high = low if comma is None else _count(most, braces.start()) if most else None
        if high is not None and high < low:
            refuse("the least count is greater than the most: exchange them", braces.start())
        return low, high

    def _atom(self, flags: _Flags, depth: int) -> Node:
        begin = self.at
        char = self.next()
        if char == "(":
            return self._group(flags, depth)
        self.at += 1
        match char:
            case ".":
                return Chars(ANY if flags.dot_all else ~CharSet.of("\n"))
            case "^":
                return Edge(LINE_START_EDGE if flags.multi_line else TEXT_START)
            case "$":
                return Edge(LINE_END_EDGE if flags.multi_line else TEXT_END)
            case "[":
                return Chars(read_class(self, begin, flags.ignore_case))
            case "\\":
                escaped = self._edge_escape() or read_escape(self, begin, flags.ignore_case)
                if isinstance(escaped, Edge):
                    return escaped
                return Chars(escaped) if isinstance(escaped, CharSet) else self._literal(escaped, flags)
        return self._literal(char, flags)

    def _literal(self, char: str, flags: _Flags) -> Node:
        written: list[Node] = []
        for folded in (char,) if self._fold is None else self._fold(char):
            sets = map(CharSet.of, folded)
            parts = [Chars(each.ignoring_case() if flags.ignore_case else each) for each in sets]
            written.append(parts[0] if len(parts) == 1 else Concat(tuple(parts)))
        return written[0] if len(written) == 1 else Alternation(tuple(written))

    def _group(self, flags: _Flags, depth: int) -> Node:
        begin = self.at
        if depth == MAX_DEPTH:
            refuse(f"groups are nested deeper than {MAX_DEPTH} levels: flatten the pattern", begin)
        for head, reason in _REFUSED_GROUPS.items():
            if self.sees(head):
                refuse(reason, begin)
        if self.accept("(?:"):
            pass
        elif found := self.accept_match(_NAMED):
            self._name(found)
        elif found := self.accept_match(_FLAGS):
            flags = self._changed(flags, found)
            if found[3] == ")":
                refuse(_GLOBAL_FLAGS_LATE, begin)
        elif self.accept("(?"):
            refuse("an unknown kind of group: (...), (?:...), (?P<name>...) and (?i:...) are supported", begin)
        else:
            self.accept("(")
        node = self._alternatives(flags, depth + 1)
        if not self.accept(")"):
            refuse(r"the group has no end: close it with ), or write \( for the character", begin)
        return node

    def _name(self, found: re.Match[str]) -> None:
        name = found[1]
        if not name.isidentifier() or name in self._names:
            refuse("a group's name is made of letters, digits and _, and is used once", found.start())
        self._names.add(name)

    def _edge_escape(self) -> Edge | None:
        contexts = _EDGES.get(self.next())
        if contexts is None:
            return None
        self.at += 1
        return Edge(contexts)


def _count(digits: str, position: int) -> int:
    digits = digits.lstrip("0") or "0"
    # A longer number is not even read: that would take its time.
    if len(digits) > len(str(MAX_COUNT)) or int(digits) > MAX_COUNT:
        refuse(f"a count above {MAX_COUNT}: repeat without an upper bound instead", position)
    return int(digits)
