"""Product of a language and a vocabulary: the tokens that can follow each state, and the states they lead to.

They are found by walking the trie of the vocabulary. The text may end exactly in the automaton's accepting states.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from gateway.audit.language.automaton import Dfa, Liveness
from gateway.automata.vocabulary import Ints, Vocabulary
from gateway.decode.trie_walk import MAX_ROWS, walk_trie

MAX_CACHED = 8_000_000  # tokens with their targets, twelve bytes each

States = NDArray[np.int64]


class TokenArcs:
    """The tokens from each state. What is worked out is kept, in caches with bounds; a full one is emptied, which costs
    time, never correctness.

    Where not every byte is a token, tokens are left out behind which no tokens complete a string.
    """

    def __init__(self, automaton: Dfa, vocabulary: Vocabulary) -> None:
        self.automaton = automaton
        self.vocabulary = vocabulary
        self._table = _DfaTable(automaton)
        self._cache: OrderedDict[tuple[int, bool], tuple[Ints, States]] = OrderedDict()
        self._cached = 0
        bytes_ = sorted({text[0] for text in vocabulary.tokens if text and len(text) == 1})
        # Much quicker to tell, and most times enough.
        by_bytes = Liveness(lambda state: [automaton.step(state, byte) for byte in bytes_], automaton.accepting)
        self._by_tokens = Liveness(lambda state: np.unique(self._read(state, False)[1]).tolist(), by_bytes)

    def live(self, state: int) -> bool:
        """Can tokens complete what was read, or is it complete? Raises AutomatonTooLarge."""
        return self.automaton.live(state) if self.vocabulary.spells_all else self._by_tokens(state)

    def arcs(self, state: int, at_text_start: bool = False) -> tuple[Ints, States]:
        """The ids of the tokens that can come next, int32[n] in no order, and the states behind them, int64[n], neither
        to be written to. None of them ends the text: `Dfa.accepting` says where it may end.

        `at_text_start`: nothing stands before the token, and a vocabulary that strips a text's first space strips its.
        Raises AutomatonTooLarge.
        """
        key = state, at_text_start and self.vocabulary.strips_first_space
        kept = self._cache.get(key)
        if kept is not None:
            self._cache.move_to_end(key)
            return kept
        tokens, targets = self._read(*key)
        if not self.vocabulary.spells_all:
            states, places = np.unique(targets, return_inverse=True)
            useful = np.array([self._by_tokens(target) for target in states.tolist()], bool)[places]
            tokens, targets = tokens[useful], targets[useful]
        for array in (tokens, targets):
            array.setflags(write=False)
        self._cache[key] = tokens, targets
        self._cached += len(tokens) + 1
        while self._cached > MAX_CACHED:
            self._cached -= len(self._cache.popitem(last=False)[1][0]) + 1
        return tokens, targets

    def _read(self, state: int, skips_space: bool) -> tuple[Ints, States]:
        """The tokens that can be read, whatever comes after them. `skips_space`: a token's first byte, if it is a
        space, is not read."""
        begin = self._table.begin_walk(state)
        tokens, rows = walk_trie(self.vocabulary, begin, self._table.after, skips_space)
        return tokens, self._table.states[rows]


class _DfaTable:
    """The transitions of an automaton as a table, a row for each state that was met; row 0 is the dead one.

    Row numbers hold until the next `begin_walk`. A walk may add a row for each node of the trie, at worst, beyond
    `MAX_ROWS`.
    """

    def __init__(self, automaton: Dfa) -> None:
        self._automaton = automaton
        self._clear()

    def _clear(self) -> None:
        self._numbers: dict[int, int] = {0: 0}
        self._table: Ints = np.zeros((64, 256), np.int32)
        self._known = np.zeros(64, bool)
        self._known[0] = True
        self.states: States = np.zeros(64, np.int64)

    def begin_walk(self, state: int) -> int:
        """The row of a state from which a walk begins."""
        if len(self._numbers) > MAX_ROWS:
            self._clear()
        return self._row_of(state)

    def after(self, rows: Ints, read: NDArray[np.uint8]) -> Ints:
        """The rows behind some bytes."""
        for row in np.unique(rows[~self._known[rows]]).tolist():
            arcs = [(low, high, self._row_of(to)) for low, high, to in self._automaton.arcs(int(self.states[row]))]
            for low, high, target in arcs:
                self._table[row, low : high + 1] = target
            self._known[row] = True
        return self._table[rows, read]

    def _row_of(self, state: int) -> int:
        row = self._numbers.setdefault(state, len(self._numbers))
        if row == len(self.states):
            self._table = np.concatenate((self._table, np.zeros_like(self._table)))
            self._known = np.concatenate((self._known, np.zeros_like(self._known)))
            self.states = np.concatenate((self.states, np.zeros_like(self.states)))
        self.states[row] = state
        return row
