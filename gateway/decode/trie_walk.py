"""Which tokens of a vocabulary an automaton can read, and whether an end can be reached.

The tokens that can be read from a state are found by walking the trie of the vocabulary a depth at a time, with the
states of a whole depth in one array.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gateway.automata.bytes import ByteState, Entries
from gateway.automata.vocabulary import Ints, Vocabulary

MAX_ROWS = 16_384  # a kilobyte each
MAX_SEARCHED = 20_000  # states, for one answer

S = TypeVar("S")

_SPACE = ord(" ")


class TransitionTable(Generic[S]):
    """An automaton's transitions as a table, a row for each state that was met; row 0 is where no text is completed.

    `arcs`: from a state, ranges of bytes with the live states that they lead to. `key` tells states apart, `dead` is
    that of row 0. Row numbers hold until the next walk, which may add a row for each node of the trie, at worst, beyond
    `MAX_ROWS`.
    """

    def __init__(
        self, arcs: Callable[[S], Iterable[tuple[int, int, S]]], key: Callable[[S], Hashable], dead: Hashable
    ) -> None:
        self._arcs, self._key, self._dead = arcs, key, dead
        self._reset()

    def _reset(self) -> None:
        self.states: list[Any] = [None]
        self._numbers = {self._dead: 0}
        self._table: Ints = np.zeros((64, 256), np.int32)
        self._known = np.zeros(64, bool)
        self._known[0] = True

    def walk(self, vocabulary: Vocabulary, begin: S, skips_space: bool) -> tuple[Ints, Ints]:
        """The tokens that the automaton can read from `begin`, and the row after each. `skips_space`: a token's first
        byte, if it is a space, is not read."""
        if len(self.states) > MAX_ROWS:
            self._reset()
        return walk_trie(vocabulary, self._number(begin), self._after, skips_space)

    def _after(self, rows: Ints, read: NDArray[np.uint8]) -> Ints:
        for row in np.unique(rows[~self._known[rows]]).tolist():
            for low, high, target in self._arcs(self.states[row]):
                number = self._number(target)
                self._table[row, low : high + 1] = number
            self._known[row] = True
        return self._table[rows, read]

    def _number(self, state: S) -> int:
        number = self._numbers.setdefault(self._key(state), len(self.states))
        if number == len(self.states):
            self.states.append(state)
            if number == len(self._table):
                self._table = np.concatenate((self._table, np.zeros_like(self._table)))
                self._known = np.concatenate((self._known, np.zeros_like(self._known)))
        return number


def walk_trie(
    vocabulary: Vocabulary, begin: int, after: Callable[[Ints, NDArray[np.uint8]], Ints], skips_space: bool
) -> tuple[Ints, Ints]:
    """The tokens that can be read from row `begin` of a table, and the row after each, a depth of the trie at a time.

    `after`: the rows that some bytes lead to from as many rows, 0 where none does. `skips_space`: a token's first byte,
    if it is a space, is not read.
    """
    trie = vocabulary.trie
    nodes: Ints = np.zeros(1, np.int32)
    rows: Ints = np.full(1, begin, np.int32)
    met_nodes, met_rows = [nodes[:0]], [rows[:0]]
    while len(nodes):
        counts = trie.first[nodes + 1] - trie.first[nodes]
        rows = np.repeat(rows, counts)
        nodes = spread(trie.first[nodes], counts)
        reached = after(rows, trie.byte[nodes])
        if skips_space:
            reached = np.where(trie.byte[nodes] == _SPACE, rows, reached)
            skips_space = False
        nodes, rows = nodes[reached != 0], reached[reached != 0]
        met_nodes.append(nodes)
        met_rows.append(rows)
    nodes, rows = np.concatenate(met_nodes), np.concatenate(met_rows)
    counts = trie.exact[nodes] - trie.begin[nodes]
    return vocabulary.order[spread(trie.begin[nodes], counts)], np.repeat(rows, counts)


def spread(begins: Ints, counts: Ints) -> Ints:
    """For each begin b and count c the numbers b, b + 1, … b + c - 1, one after the other."""
    last = np.cumsum(counts)
    return np.arange(len(begins) and last[-1], dtype=np.int32) + np.repeat(begins - last + counts, counts)


class Reachability:
    """Can an end be reached by some steps? `reached`: is this state an end? Answers are kept, as many as a search may
    visit states."""

    def __init__(self, steps: Callable[[ByteState], Iterable[ByteState]], reached: Callable[[ByteState], bool]) -> None:
        self._steps = steps
        self._reached = reached
        self._known: dict[Entries, bool] = {}

    def leads_to_an_end(self, begin: ByteState) -> bool | None:
        """Depth first, until a state is found of which the answer is known. What led there has the same answer; and if
        nothing is found, nothing that was searched leads to an end. None: `MAX_SEARCHED` states were not enough."""
        known = self._known
        if len(known) > MAX_SEARCHED:
            known.clear()
        came_from: dict[Entries, Entries | None] = {begin.entries: None}
        waiting = [begin]
        while waiting:
            state = waiting.pop()
            answer = known.get(state.entries)
            if answer or (answer is None and self._reached(state)):
                place: Entries | None = state.entries
                while place is not None:
                    known[place] = True
                    place = came_from[place]
                return True
            if answer is None:
                if len(came_from) > MAX_SEARCHED:
                    return None
                for target in self._steps(state):
                    if target.entries not in came_from:
                        came_from[target.entries] = state.entries
                        waiting.append(target)
        known.update(dict.fromkeys(came_from, False))
        return False
