"""A language × a vocabulary: which tokens may come next, so that the whole answer belongs to the language.

A token is allowed if the text after it can still be completed *by tokens of this vocabulary*: where not every byte is a
token, what remains may be something that no token spells. The end of the text is allowed exactly where the text may
end.

What is computed for a state is kept, in caches with bounds; a full one is emptied, which costs time, never
correctness. For languages with few states `precompile` makes tables of all of them, to be saved and loaded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from gateway.automata.bytes import ByteAutomaton, Entries
from gateway.automata.liveness import Liveness, SearchTooLong
from gateway.automata.positions import positions
from gateway.automata.regex import parse, spelled
from gateway.automata.vocabulary import Ints, Vocabulary

MAX_CACHED_TOKENS = 16_000_000  # four bytes each
MAX_SEARCHED = 20_000  # states, for one answer whether tokens complete a text
MAX_ROWS = 16_384  # of a table of transitions, a kilobyte each

S = TypeVar("S", bound=Hashable)

_SPACE = ord(" ")


class NotAllowed(ValueError):
    """A token that may not come here."""


class DeadLanguage(ValueError):
    """No sequence of tokens spells any text of the language, or none was found within bounds."""


class Constraint(Protocol[S]):
    """A token-by-token acceptor. States are values: they can be kept, compared and returned to."""

    vocabulary: Vocabulary

    def start(self) -> S:
        """The state before the first token."""

    def allowed(self, state: S) -> Ints:
        """The ids of the tokens that may come next, sorted, int32[n], not to be written to; ends of text among them
        exactly if the text may end here. Empty only after an end of text."""

    def advance(self, state: S, token: int) -> S:
        """The state after a token. Raises NotAllowed for one that may not come next."""

    def accepting(self, state: S) -> bool:
        """May the text end here?"""


def regex(*patterns: str) -> ByteAutomaton:
    """The language of texts that one of the patterns describes as a whole (docs/patterns.md says what is accepted).
    Raises RegexError."""
    return union(patterns, ())


def choice(*options: str) -> ByteAutomaton:
    """The language of some texts. Raises ValueError if one of them cannot be written as UTF-8."""
    return union((), options)


def union(patterns: Iterable[str], options: Iterable[str]) -> ByteAutomaton:
    """The language of all texts that a pattern describes or that are among the options. Raises as `regex` and `choice`
    do, and ValueError if there is neither."""
    trees = [*map(parse, patterns), *map(spelled, options)]
    if not trees:
        raise ValueError("a language needs at least one pattern or option")
    return ByteAutomaton(positions(tree, may_be_empty=True) for tree in trees)


class TransitionTable(Generic[S]):
    """Which tokens an automaton can read, and its transitions as a table, a row for each state that was met; row 0 is
    the `dead` one, where no text is completed.

    `arcs`: from a state, ranges of bytes with the live states that they lead to. `accepting`: where a text may end.
    Row numbers hold until the next walk, which may add a row for each node of the trie, at worst, beyond `MAX_ROWS`.
    `completable`: can tokens complete a text from a state? It looks at `most` states, or raises SearchTooLong.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        arcs: Callable[[S], Iterable[tuple[int, int, S]]],
        accepting: Callable[[S], bool],
        dead: S,
        most: int | None = None,
    ) -> None:
        self._vocabulary, self._arcs, self._dead = vocabulary, arcs, dead
        self._bytes = sorted({text[0] for text in vocabulary.tokens if text and len(text) == 1})
        self._by_bytes = Liveness(dead, self._after_bytes, accepting, most)
        self.completable = Liveness(dead, self._after_tokens, self._is_completed_by_bytes, most)
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

    def steps(self, begin: S, skips_space: bool) -> tuple[Ints, Ints, list[S]]:
        """The tokens that can be read from a state and behind which tokens complete a text, in no order; for each the
        place in the list of the state after it; and that list, without repetitions. Raises SearchTooLong."""
        tokens, rows = self.walk(begin, skips_space)
        numbers, places = np.unique(rows, return_inverse=True)
        states = [self._states[row] for row in numbers.tolist()]
        if not self._vocabulary.spells_all:
            useful = np.array([self.completable(state) for state in states], bool)
            states = [state for state, keep in zip(states, useful, strict=True) if keep]
            tokens, places = tokens[useful[places]], (np.cumsum(useful) - 1)[places[useful[places]]]
        return tokens, places.astype(np.int32), states

    def _is_completed_by_bytes(self, state: S) -> bool:
        """Much quicker, and most times enough."""
        try:
            return self._by_bytes(state)
        except SearchTooLong:
            return False

    def _after_bytes(self, state: S) -> Iterator[S]:
        known = self._bytes
        return (after for low, high, after in self._arcs(state) if bisect_left(known, low) < bisect_right(known, high))

    def _after_tokens(self, state: S) -> list[S]:
        return [self._states[row] for row in np.unique(self.walk(state, False)[1]).tolist()]

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


class GuideState(NamedTuple):
    """The position of a text in a guide. Equal states allow the same continuations.

    `entries`: those of the automaton's state, None after the end of a text. `first`: nothing is written yet, and the
    first space does not count.
    """

    entries: Entries | None
    first: bool


ENDED = GuideState(None, False)
_NONE: Ints = np.empty(0, np.int32)


class Guide:
    """The lazy constraint.

    `at_text_start`: the answer begins a text, and with a vocabulary that strips a text's first space a first token
    ` hot` writes `hot`. An answer that continues after a prompt does not begin a text.
    Raises ValueError if the vocabulary has no end of text, DeadLanguage if no tokens spell any text of the language;
    `allowed` and `advance` raise it too, where a vocabulary cannot spell everything and too many states had to be
    searched.
    """

    def __init__(self, language: ByteAutomaton, vocabulary: Vocabulary, *, at_text_start: bool = False) -> None:
        if not vocabulary.end:
            raise ValueError("the vocabulary has no token that ends a text: an answer could not end")
        self.vocabulary = vocabulary
        self._language = language
        self._strips = at_text_start and vocabulary.strips_first_space
        self._ends: Ints = np.array(vocabulary.end, np.int32)
        nothing: Entries = frozenset()
        self._rows = TransitionTable(
            vocabulary, language.arcs, lambda entries: language.state(entries).accepting, nothing, MAX_SEARCHED
        )
        self._cache: OrderedDict[GuideState, Ints] = OrderedDict()
        self._cached = 0
        if not len(self.allowed(self.start())):
            raise DeadLanguage("no sequence of this vocabulary's tokens spells any text of the constraint")

    def start(self) -> GuideState:
        return GuideState(self._language.start().entries, self._strips)

    def accepting(self, state: GuideState) -> bool:
        return state.entries is not None and self._language.state(state.entries).accepting

    def allowed(self, state: GuideState) -> Ints:
        kept = self._cache.get(state)
        if kept is not None:
            self._cache.move_to_end(state)
            return kept
        ends = self._ends if self.accepting(state) else _NONE
        tokens = np.sort(np.concatenate((self._written(state), ends)))
        tokens.setflags(write=False)
        self._cache[state] = tokens
        self._cached += len(tokens) + 1
        while self._cached > MAX_CACHED_TOKENS:
            self._cached -= len(self._cache.popitem(last=False)[1]) + 1
        return tokens

    def advance(self, state: GuideState, token: int) -> GuideState:
        allowed = self.allowed(state)
        at = int(np.searchsorted(allowed, token))
        if at == len(allowed) or allowed[at] != token:
            raise NotAllowed(f"token {token} may not come here, where {len(allowed)} others may")
        written = self.vocabulary.tokens[token]
        if written is None:
            return ENDED
        assert state.entries is not None
        if state.first:
            written = written.removeprefix(b" ")
        return GuideState(self._language.walk(self._language.state(state.entries), written).entries, False)

    def _written(self, state: GuideState) -> Ints:
        if state.entries is not None and self.vocabulary.spells_all:
            return self._rows.walk(state.entries, state.first)[0]
        return self.steps(state)[0]

    def steps(self, state: GuideState) -> tuple[Ints, Ints, list[GuideState]]:
        """The allowed tokens that write something, in no order; for each the place in the list of the state after it;
        and that list, without repetitions."""
        if state.entries is None:
            return _NONE, _NONE, []
        try:
            tokens, places, targets = self._rows.steps(state.entries, state.first)
        except SearchTooLong:
            raise DeadLanguage(
                "among the states after a token none was found that tokens complete, and there are too many to look at "
                "all: use a smaller constraint, or a vocabulary in which every byte is a token"
            ) from None
        return tokens, places, [GuideState(target, False) for target in targets]
