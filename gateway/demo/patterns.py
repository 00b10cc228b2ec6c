"""A string that a regular expression matches, for the `pattern` of a JSON schema."""

from __future__ import annotations

from gateway.automata.bytes import ByteAutomaton
from gateway.automata.charset import CharSet
from gateway.automata.positions import positions
from gateway.automata.regex import Alternation, Chars, Concat, Edge, Node, Repeat, parse
from gateway.automata.regex import RegexError as RegexError

MAX_STRING = 4096  # characters of one string
MAX_POSITIONS = 512  # of the automaton that checks it
_READABLE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_. "
# How often a part is repeated beyond its least number, to make a string long enough.
_LENGTHS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class StringPattern:
    """A pattern and the automaton that checks what was written for it. Raises `RegexError` for one that cannot be
    read."""

    def __init__(self, pattern: str) -> None:
        self._node = parse(pattern)
        self._automaton = ByteAutomaton([positions(self._node, max_positions=MAX_POSITIONS, may_be_empty=True)])

    def matching(self, low: int, high: int, other: int = 0) -> str | None:
        """A string of `low` to `high` characters with a match in it; None if none was found. `other`: 0 for the first
        one found, 1 for another, and so on, as far as there are more."""
        automaton = self._automaton
        for more in _LENGTHS:
            text = _Writer(more, other).text(self._node)
            if text is None or len(text) > high:
                return None
            if len(text) >= low and automaton.accepting(automaton.walk(automaton.start(), text.encode())):
                return text
        return None


class _Writer:
    """Writes one string; `more` times beyond the least wherever a part may be repeated."""

    def __init__(self, more: int, other: int) -> None:
        self._more = more
        self._other = other
        self._left = MAX_STRING

    def text(self, node: Node) -> str | None:
        """None if it would be longer than `MAX_STRING`."""
        written = self._write(node)
        return None if self._left < 0 else written

    def _write(self, node: Node) -> str:
        match node:
            case Chars(set=chars):
                self._left -= 1
                return _any_of(chars, self._other)
            case Edge():
                return ""
            case Concat(parts=parts):
                return "".join(map(self._write, parts))
            case Alternation(options=options):
                return self._write(options[self._other % len(options)])
            case Repeat(node=part, low=low, high=high):
                count = low + self._more if high is None else min(low + self._more, high)
                written: list[str] = []
                while len(written) < count and self._left >= 0:
                    self._left -= 1  # for empty parts, too
                    self._left += 1 if (text := self._write(part)) else 0
                    written.append(text)
                return "".join(written)


def _any_of(chars: CharSet, other: int) -> str:
    readable = [char for char in _READABLE if char in chars]
    if readable:
        return readable[other % len(readable)]
    return next((chr(low) for low, _ in chars.ranges if not 0xD800 <= low <= 0xDFFF), "")
