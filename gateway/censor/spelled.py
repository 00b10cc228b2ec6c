"""A text that is spelled with escapes, read as what they stand for and written as it was spelled."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable

from gateway.censor.compile import CompiledRule, Program
from gateway.censor.releaser import Releaser
from gateway.censor.stream import Censor
from gateway.policy.model import Action


class _SpelledReleaser(Releaser):
    """Releases escapes as they were, and replacements as `write` writes them.

    `spelled`: what is being released is written with its escapes already.
    """

    __slots__ = ("_raw", "_write", "spelled")

    def __init__(self, write: Callable[[str], str]) -> None:
        super().__init__()
        self._write = write
        self._raw: deque[tuple[int, str]] = deque()  # offsets and escapes that have not come out
        self.spelled = False

    def spell(self, offset: int, raw: str) -> None:
        self._raw.append((offset, raw))

    def with_escapes(self, text: str, first: int) -> str:
        """Released text as it was spelled; `first` is the offset of its first character."""
        raw, end = self._raw, first + len(text)
        while raw and raw[0][0] < first:
            raw.popleft()  # it was replaced
        out: list[str] = []
        at = first
        while raw and raw[0][0] < end:
            offset, escape = raw.popleft()
            out += text[at - first : offset - first], escape
            at = offset + 1
        return "".join([*out, text[at - first :]])

    def _release_text(self, to: int) -> str:
        self.spelled = True
        released = super()._release_text(to)
        return self.with_escapes(released, to - len(released))

    def _written(self, replacement: str) -> str:
        return self._write(replacement)


class SpelledCensor(Censor):
    """Feed it decoded characters, free of surrogates, after `spell` for those that are escapes; what comes out is raw:
    escapes as they were, replacements as `write` writes them. All counters and offsets are of the decoded text.

    The raw text is for another censor, which reads it as it stands. So of matches that change nothing only those are
    reported here that an escape has a part in, and such a one does not get a pseudonym.
    """

    __slots__ = ("_escaped", "_glued", "_piece", "_spelled")

    def __init__(self, program: Program, write: Callable[[str], str]) -> None:
        self._spelled = _SpelledReleaser(write)
        super().__init__(program, releaser=self._spelled)
        self._piece = program.piece
        self._escaped = array("Q")  # offsets of all escapes
        self._glued = bytearray()  # of each, 1 if its spelling ends as words do

    def spell(self, offset: int, raw: str) -> None:
        """The character at `offset`, not fed yet, is spelled so."""
        self._spelled.spell(offset, raw)
        self._escaped.append(offset)
        self._glued.append(raw[-1].isalnum())

    def feed(self, text: str) -> str:
        if not self._escaped:
            return super().feed(text)
        out: list[str] = []
        for at in range(0, len(text), self._piece):
            first = self._spelled.base
            self._spelled.spelled = False
            released = super().feed(text[at : at + self._piece])
            out.append(released if self._spelled.spelled else self._spelled.with_escapes(released, first))
        return "".join(out)

    def _is_seen_raw(self, start: int, end: int) -> bool:
        """Is a match of these characters one of the raw text too? Not if an escape is one of them, nor if one stands
        before them whose spelling would be a part of the first word (`\\nname`)."""
        at = bisect_left(self._escaped, start)
        if at < len(self._escaped) and self._escaped[at] < end:
            return False
        return not (at and self._escaped[at - 1] == start - 1 and self._glued[at - 1])

    def _report(self, rule: str, start: int, end: int, action: Action, seen: str = "") -> None:
        if action is not Action.FLAG or not self._is_seen_raw(start, end):
            super()._report(rule, start, end, action, seen)

    def _replace(self, start: int, end: int, certain: int, rule: CompiledRule) -> None:
        if rule.action is not Action.PSEUDONYMIZE or not self._is_seen_raw(start, end):
            super()._replace(start, end, certain, rule)
