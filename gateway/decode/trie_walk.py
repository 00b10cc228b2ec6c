"""Which tokens of a vocabulary an automaton can read.

The tokens that can be read from a state are found by walking the trie of the vocabulary a depth at a time, with the
states of a whole depth in one array.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gateway.automata.vocabulary import Ints, Vocabulary

MAX_ROWS = 16_384  # a kilobyte each

S = TypeVar("S", bound=Hashable)

_SPACE = ord(" ")


class TransitionTable(Generic[S]):
    """Which tokens an automaton can read, and its transitions as a table, a row for each state that was met; row 0 is
    the `dead` one, where no text is completed.

    `arcs`: from a state, ranges of bytes with the live states that they lead to. Row numbers hold until the next walk,
    which may add a row for each node of the trie, at worst, beyond `MAX_ROWS`.
    """

    def __init__(self, vocabulary: Vocabulary, arcs: Callable[[S], Iterable[tuple[int, int, S]]], dead: S) -> None:
        self._vocabulary, self._arcs, self._dead = vocabulary, arcs, dead
        self._reset()

    def _reset(self) -> None:
        self._states = [self._dead]
        self._numbers = {self._dead: 0}
        self._table: Ints = np.zeros((64, 256), np.int32)
        self._known = np.zeros(64, bool)
        self._known[0] = True

    def walk(self, begin: S, skips_space: bool) -> tuple[Ints, Ints]:
        """The tokens that can be read from a state, and the row after each, a depth of the trie at a time.
        `skips_space`: a token's first byte, if it is a space, is not read."""
        if len(self._states) > MAX_ROWS:
            self._reset()
        trie = self._vocabulary.trie
        nodes: Ints = np.zeros(1, np.int32)
        rows: Ints = np.full(1, self._number(begin), np.int32)
        met_nodes, met_rows = [nodes[:0]], [rows[:0]]
        while len(nodes):
            counts = trie.first[nodes + 1] - trie.first[nodes]
            rows = np.repeat(rows, counts)
            nodes = spread(trie.first[nodes], counts)
            reached = self._after(rows, trie.byte[nodes])
            if skips_space:
                reached = np.where(trie.byte[nodes] == _SPACE, rows, reached)
                skips_space = False
            nodes, rows = nodes[reached != 0], reached[reached != 0]
            met_nodes.append(nodes)
            met_rows.append(rows)
        nodes, rows = np.concatenate(met_nodes), np.concatenate(met_rows)
        counts = trie.exact[nodes] - trie.begin[nodes]
        return self._vocabulary.order[spread(trie.begin[nodes], counts)], np.repeat(rows, counts)

    def states(self, rows: Ints) -> tuple[Ints, list[S]]:
        """The states of some rows, each once, and for each row the place of its state."""
        numbers, places = np.unique(rows, return_inverse=True)
        return places.astype(np.int32), [self._states[row] for row in numbers.tolist()]

    def _after(self, rows: Ints, read: NDArray[np.uint8]) -> Ints:
        for row in np.unique(rows[~self._known[rows]]).tolist():
            for low, high, target in self._arcs(self._states[row]):
                number = self._number(target)
                self._table[row, low : high + 1] = number
            self._known[row] = True
        return self._table[rows, read]

    def _number(self, state: S) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
            if number == len(self._table):
                self._table = np.concatenate((self._table, np.zeros_like(self._table)))
                self._known = np.concatenate((self._known, np.zeros_like(self._known)))
        return number


def spread(begins: Ints, counts: Ints) -> Ints:
    """For each begin b and count c the numbers b, b + 1, … b + c - 1, one after the other."""
    last = np.cumsum(counts)
    return np.arange(len(begins) and last[-1], dtype=np.int32) + np.repeat(begins - last + counts, counts)
