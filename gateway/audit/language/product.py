"""Product of a language and a vocabulary: the tokens that can follow each state, and the states they lead to.

They are found by walking the trie of the vocabulary. The text may end exactly in the automaton's accepting states.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from gateway.audit.language.automaton import Dfa
from gateway.automata.vocabulary import Ints, Vocabulary
from gateway.decode.guide import TransitionTable

MAX_CACHED = 8_000_000  # tokens with their targets, twelve bytes each

States = NDArray[np.int64]


class TokenArcs:
    """The tokens from each state. What is computed is kept, in caches with bounds; a full one is emptied, which costs
    time, never correctness.

    Where not every byte is a token, tokens are left out behind which no tokens complete a string.
    """

    def __init__(self, automaton: Dfa, vocabulary: Vocabulary) -> None:
        self.automaton = automaton
        self.vocabulary = vocabulary
        self._table = TransitionTable(vocabulary, automaton.arcs, automaton.accepting, 0)
        self._cache: OrderedDict[tuple[int, bool], tuple[Ints, States]] = OrderedDict()
        self._cached = 0

    def live(self, state: int) -> bool:
        """Can tokens complete what was read, or is it complete? Raises AutomatonTooLarge."""
        return self.automaton.live(state) if self.vocabulary.spells_all else self._table.completable(state)

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
        tokens, places, states = self._table.steps(*key)
        targets = np.array(states, np.int64)[places]
        for array in (tokens, targets):
            array.setflags(write=False)
        self._cache[key] = tokens, targets
        self._cached += len(tokens) + 1
        while self._cached > MAX_CACHED:
            self._cached -= len(self._cache.popitem(last=False)[1][0]) + 1
        return tokens, targets
