"""Release of text: what is held, and the clusters of matches that are replaced in it (semantics rules 2 and 4)."""

from __future__ import annotations

from bisect import insort
from copy import copy
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from gateway.censor.changes import Changes
from gateway.censor.compile import CompiledRule
from gateway.censor.lens import is_mark
from gateway.policy.model import Action


@dataclass(slots=True)
class Cluster:
    """Text [start, end) that a `pseudonymize` rule took out; what stands for it goes to offset `at` of the output."""

    rule: CompiledRule
    at: int
    start: int
    end: int


class _Certain(NamedTuple):
    """A match of a redact rule. Field order is the order of precedence within a cluster (semantics rule 2)."""

    start: int
    certain: int
    end: int
    order: int
    rule: CompiledRule


_PRECEDENCE = itemgetter(0, 1, 2, 3)


@dataclass(slots=True, eq=False)
class Releaser:
    """The end of one text that is not released, and the queue of matches to be replaced in it.

    With `gathers`, the clusters of `pseudonymize` rules are removed and listed in `clusters`, and pseudonyms inserted
    later. `replaced` counts original characters, `inserted` those of replacements.
    """

    gathers: bool = False
    held: str = ""
    base: int = 0  # original offset of the first held character
    queue: list[_Certain] = field(default_factory=list)  # certain, but one that begins earlier is still possible
    marks_to: int = 0  # marks before this offset go with the match they decorate; 0: none
    replaced: int = 0
    inserted: int = 0
    clusters: list[Cluster] = field(default_factory=list)
    changes: Changes | None = None  # None until there is one
    _cover: int = field(default=0, init=False)  # end of the cluster replaced last; never beyond `base`
    _mask: str | None = field(default=None, init=False)  # of that cluster
    _pseudonym: Cluster | None = field(default=None, init=False)  # that cluster, if a pseudonym is to stand for it

    def replace(self, start: int, end: int, certain: int, rule: CompiledRule) -> None:
        """Queue a match, which became certain with the `certain`-th character, to be replaced by its cluster."""
        insort(self.queue, _Certain(start, certain, end, rule.order, rule), key=_PRECEDENCE)

    def release(self, live: int) -> str:
        """Release everything before `live`, with clusters that begin at or before it as their replacements."""
        self._extend_marks()
        out: list[str] = []
        queue = self.queue
        while queue and (queue[0].start < self._cover or queue[0].start <= live):
            start, _, end, _, rule = queue.pop(0)
            if start >= self._cover:
                # A new cluster, and the queue's order makes this its winner.
                out.append(self._release_text(start))
                self._cover = start
                if self.changes is not None:
                    self.changes.open(start)
                self._mask = rule.mask
                self._pseudonym = None
                if rule.action is Action.PSEUDONYMIZE and self.gathers:
                    self._mask = None
                    self._pseudonym = Cluster(rule, start - self.replaced + self.inserted, start, start)
                    self.clusters.append(self._pseudonym)
                elif rule.mask is None:
                    self._insert(rule.replacement, out)
            if end > self._cover:
                self._extend_cluster(end, out)
            if rule.drops_marks and end == self.base:
                self.marks_to = end
                self._extend_marks()
        out.append(self._release_text(live))
        return "".join(out)

    def fork(self) -> Releaser:
        """An independent copy."""
        other = copy(self)
        other.queue, other.clusters, other.changes = list(self.queue), list(self.clusters), None
        return other

    def _extend_cluster(self, end: int, out: list[str]) -> None:
        if self._mask is not None:
            self._insert(self._mask * self._characters(self._cover, end), out)
        if self._pseudonym is not None:
            self._pseudonym.end = end
        self.replaced += end - self._cover
        self._note_change(self._cover, end)
        self.held = self.held[end - self.base :]
        self.base = self._cover = end

    def _note_change(self, start: int, end: int) -> None:
        if self.changes is None:
            self.changes = Changes()
        self.changes.add(start, end, self.inserted - self.replaced)

    def _characters(self, start: int, end: int) -> int:
        """How many characters of the text [start, end) are."""
        return end - start

    def _insert(self, replacement: str, out: list[str]) -> None:
        out.append(replacement)
        self.inserted += len(replacement)

    def _release_text(self, to: int) -> str:
        """Remove the held text before `to` and return it, less the marks that belong to a replaced match."""
        if to <= self.base:
            return ""
        marks = max(min(self.marks_to, to) - self.base, 0)
        if marks:
            self.replaced += marks
            self._note_change(self.base, self.base + marks)
        released = self.held[marks : to - self.base]
        self.held = self.held[to - self.base :]
        self.base = to
        return released

    def _extend_marks(self) -> None:
        """Marks directly after a replaced match go with it (semantics rule 11), also those that arrive later."""
        at = self.marks_to - self.base
        if not self.marks_to or at < 0:
            self.marks_to = 0
            return
        while at < len(self.held) and is_mark(self.held[at]):
            at += 1
        run_is_over = at == 0 and self.held
        self.marks_to = 0 if run_is_over else self.base + at
