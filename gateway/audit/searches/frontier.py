"""The frontier of a best-first search: a bounded priority queue of token paths.

The children of a node are kept as arrays and become nodes only when they are popped: most never are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.audit.model import Floats
from gateway.automata.vocabulary import Ints

ENDED = -1  # in place of a state: the text has ended

MAX_KNOWN = 64  # tokens that a node keeps itself, so that they need not be put together again

States = NDArray[np.int64]
Tokens: TypeAlias = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Node:
    """A path of tokens.

    `state`: the language's state after it. `place`: the state of the prefix's automaton, 0 behind the prefix. `inside`:
    how many tokens belong to the prefix; `behind`: how many came after. `logprob` is that of the latter, under the
    rule; `prefix_logprob` that of the former, without one.
    """

    parent: Node | None
    token: int
    state: int
    place: int
    inside: int
    behind: int
    logprob: float
    prefix_logprob: float
    _known: Tokens | None = field(default=None, init=False, repr=False)

    def tokens(self) -> Tokens:
        """All its tokens, in order."""
        if self._known is not None:
            return self._known
        rest: list[int] = []
        node = self
        while node.parent is not None and node._known is None:
            rest.append(node.token)
            node = node.parent
        found = (*(node._known or ()), *reversed(rest))
        if len(found) <= MAX_KNOWN:
            self._known = found
        return found

    def child(self, token: int, state: int, logprob: float) -> Node:
        """The path with one more token behind the prefix; `logprob` is that of the whole."""
        return Node(self, token, state, 0, self.inside, self.behind + 1, logprob, self.prefix_logprob)


class Children:
    """The children of a node that were not taken yet: tokens, the states they lead to and the log-probabilities of the
    paths, the most likely first."""

    __slots__ = ("at", "logprobs", "parent", "targets", "tokens")

    def __init__(self, parent: Node, tokens: Ints, targets: States, logprobs: Floats) -> None:
        # Of equal ones the lowest token first, so that what is found does not depend on an automaton's numbers.
        order = np.lexsort((tokens, -logprobs))
        self.parent = parent
        self.tokens = tokens[order]
        self.targets = targets[order]
        self.logprobs = logprobs[order]
        self.at = 0

    def __len__(self) -> int:
        return len(self.tokens) - self.at

    @property
    def best(self) -> float:
        return float(self.logprobs[self.at])

    def rest(self) -> Floats:
        """The log-probabilities of the remaining children."""
        return self.logprobs[self.at :]

    def pop_child(self) -> Node:
        """The most likely child."""
        at = self.at
        self.at += 1
        return self.parent.child(int(self.tokens[at]), int(self.targets[at]), float(self.logprobs[at]))

    def cut(self, count: int) -> None:
        """Keep the `count` most likely of the remaining children."""
        keep = slice(self.at, self.at + count)
        # Copies: a view would keep all that was cut away in memory.
        self.tokens, self.targets = self.tokens[keep].copy(), self.targets[keep].copy()
        self.logprobs, self.at = self.logprobs[keep].copy(), 0


class Frontier:
    """Nodes to be looked at, `capacity` at most: where there are more, the least likely are dropped. `dropped` is the
    log-probability of the best of those, -inf if there is none: whatever is more likely has not been missed."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.dropped = -np.inf
        self._heap: list[tuple[float, int, Children | Node]] = []
        self._count = 0
        self._pushed = 0

    def __len__(self) -> int:
        return self._count

    @property
    def best(self) -> float:
        """The log-probability of the most likely node; -inf if there is none."""
        return -self._heap[0][0] if self._heap else -np.inf

    def push(self, entry: Children | Node) -> None:
        """A node, or all children of one."""
        if isinstance(entry, Node):
            self._count += 1
            self._put(entry.logprob, entry)
        elif len(entry):
            self._count += len(entry)
            self._put(entry.best, entry)
        if self._count > self.capacity:
            self._drop_least_likely()

    def pop(self) -> Node:
        """Take the most likely node."""
        _, _, entry = heapq.heappop(self._heap)
        self._count -= 1
        if isinstance(entry, Node):
            return entry
        node = entry.pop_child()
        if len(entry):
            self._put(entry.best, entry)
        return node

    def entries(self) -> Iterator[Children | Node]:
        """All entries, the most likely first."""
        return (entry for _, _, entry in sorted(self._heap, key=lambda each: each[:2]))

    def _put(self, logprob: float, entry: Children | Node) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (-logprob, self._pushed, entry))

    def _drop_least_likely(self) -> None:
        """Shrink to three quarters of the capacity, so that it is not done for every node."""
        keep = max(self.capacity * 3 // 4, 1)
        self._heap.sort()  # numbers differ, so that entries are never compared
        logprobs = [
            entry.rest() if isinstance(entry, Children) else np.array([entry.logprob]) for _, _, entry in self._heap
        ]
        together = np.concatenate(logprobs)
        sizes = np.array([len(some) for some in logprobs])
        starts = np.cumsum(sizes) - sizes
        least = float(np.partition(together, -keep)[-keep])
        above = np.add.reduceat(together > least, starts, dtype=np.int64)
        equal = np.add.reduceat(together == least, starts, dtype=np.int64)
        # Of those that are as likely as the last one, the first stay.
        counts = above + np.clip(keep - above.sum() - (np.cumsum(equal) - equal), 0, equal)
        cut = counts < sizes
        self.dropped = max(self.dropped, float(together[(starts + counts)[cut]].max()))
        for number in np.flatnonzero(cut & (counts > 0)).tolist():
            entry = self._heap[number][2]
            assert isinstance(entry, Children)  # a node is kept or not
            entry.cut(int(counts[number]))
        # In order, and so a heap.
        self._heap, self._count = [self._heap[number] for number in np.flatnonzero(counts).tolist()], keep
