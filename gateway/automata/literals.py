"""Many words at once, on a stream, over the characters as they were written.

The textbook machine for many words is Aho and Corasick's (1975): a trie of the words, and for every text the longest
suffix that is a prefix of some word. pyahocorasick holds that trie in compact C memory; what it cannot say is how much
of the end of a text is still *live*, which is exactly what a minimal hold needs. So the machine here is determinised
lazily on top of it:

* a `State` stands for everything the past can still mean: the longest suffix that begins a word, whether a word
  character stands before it, and the words that ended just now and wait for their right edge;
* its transitions are keyed by the *original* character. Folding, whole-word edges and characters that become several
  or none are worked out once, when a transition is first taken, and cost nothing afterwards;
* transitions are kept in a bounded cache. When it is full it is emptied: that costs time, never correctness.

Work for a transition not seen before is bounded by the longest word; the starts tried move only to the right, so a
text of n characters tries at most n of them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import ahocorasick

# Some 350 bytes each with the states they lead to, so that text made to fill a machine's cache costs it 35 MB.
MAX_TRANSITIONS = 100_000
MAX_FOLDS = 4096


class Folded(NamedTuple):
    """A character through a lens: `text` may be empty or longer than one; a match may not begin or end inside an
    `atomic` expansion."""

    text: str
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Literal:
    """A word to find. `text` is already folded and not empty.

    `left`/`right`: a word character there undoes the match. `holds`: text is held back for it. `guard`: from this many
    characters on, a beginning of it that ends the text counts (0: never). `tag` is the caller's.
    """

    text: str
    tag: int
    left: bool = False
    right: bool = False
    holds: bool = True
    guard: int = 0


class Found(NamedTuple):
    """A word that is certain now; it ended `back` folded characters before the end of the folded text."""

    literal: Literal
    back: int


class Arrival(NamedTuple):
    """What is remarkable about the character that led to a state: `width` folded characters, words now certain."""

    width: int
    atomic: bool
    found: tuple[Found, ...]


def is_word_char(char: str) -> bool:
    """Alphanumeric, a mark, or `_`: what must not stand beside a whole word."""
    return char.isalnum() or char == "_" or unicodedata.category(char)[0] == "M"


class State(dict[str, "State"]):
    """A state *is* the table of its known transitions: `state[char]`.

    `suffix` is the longest folded suffix that begins a word, `left` whether a word character precedes it, `pending` the
    words that ended just now and wait for their right edge. `arrival` is None for the usual case: one folded character,
    no word certain.
    """

    __slots__ = ("_live", "arrival", "left", "machine", "pending", "suffix")

    def __init__(
        self, machine: LiteralMachine, suffix: str, left: bool, pending: tuple[Literal, ...], arrival: Arrival | None
    ) -> None:
        self.machine = machine
        self.suffix = suffix
        self.left = left
        self.pending = pending
        self.arrival = arrival
        self._live = -1

    def __missing__(self, char: str) -> State:
        target = self[char] = self.machine.step(self, char)
        return target

    @property
    def live(self) -> int:
        """Folded length of the longest suffix that may yet become, or already is and waits as, a word that holds."""
        if self._live < 0:
            self._live = next(self.machine.live_lengths(self), 0)
        return self._live


class LiteralMachine:
    """The automaton of a set of words seen through one lens.

    `fold` maps an original character to its folded form. `longest` is the length of the longest word, folded.
    """

    def __init__(
        self, literals: Iterable[Literal], fold: Callable[[str], Folded], max_transitions: int = MAX_TRANSITIONS
    ) -> None:
        by_text: dict[str, list[Literal]] = {}
        for literal in literals:
            by_text.setdefault(literal.text, []).append(literal)
        if not by_text or "" in by_text:
            raise ValueError("a machine needs at least one word, and no empty one")
        self.longest = max(map(len, by_text))
        self._fold = lru_cache(MAX_FOLDS)(fold)
        self._lengths = sorted({len(text) for text in by_text})
        self._words = _trie(by_text)
        self._word, self._begins_word = self._words.get, self._words.match
        self._free = self._subset(by_text, lambda literal: literal.holds and not literal.left)
        self._edged = self._subset(by_text, lambda literal: literal.holds and literal.left)
        self._edges = any(literal.left for group in by_text.values() for literal in group)
        self._shortest_guard = min(
            (literal.guard for group in by_text.values() for literal in group if literal.holds and literal.guard),
            default=0,
        )
        self._states: dict[str | tuple[str, bool, tuple[Literal, ...], Arrival | None], State] = {}
        self._transitions = 0
        self._max_transitions = max_transitions

    def _subset(
        self, by_text: dict[str, list[Literal]], wanted: Callable[[Literal], bool]
    ) -> ahocorasick.Automaton | None:
        chosen = {text: group for text, group in by_text.items() if any(map(wanted, group))}
        if len(chosen) == len(by_text):
            return self._words
        return _trie(chosen) if chosen else None

    def start(self) -> State:
        """The state before any text; the beginning of a text is an edge."""
        return self._intern("", False, (), None)

    def step(self, state: State, char: str) -> State:
        """The state after `char`, worked out afresh; `state[char]` remembers it."""
        self._transitions += 1
        if self._transitions > self._max_transitions:
            self._empty_cache()
        folded, atomic = self._fold(char)
        if len(folded) != 1 or state.pending:
            return self._step_folded(state, folded, atomic)
        suffix, left = self._advance(state.suffix, state.left, folded)
        ended = self._ending(suffix, left)
        if ended:
            return self._step_folded(state, folded, atomic)
        return self._intern(suffix, left, (), None)

    def _step_folded(self, state: State, folded: str, atomic: bool) -> State:
        """The step where something is remarkable: words end, or a character folds to none or several."""
        if not folded:
            return self._intern(state.suffix, state.left, state.pending, Arrival(0, False, ()))
        suffix, left, pending = state.suffix, state.left, state.pending
        found: list[Found] = []
        back = len(folded)
        for unit in folded:
            if pending and not is_word_char(unit):
                found += [Found(literal, back) for literal in pending]
            back -= 1
            suffix, left = self._advance(suffix, left, unit)
            ended = (None if atomic and back else self._ending(suffix, left)) or ()
            found += [Found(literal, back) for literal in ended if not literal.right]
            pending = tuple(literal for literal in ended if literal.right)
        if found or len(folded) != 1:
            return self._intern(suffix, left, pending, Arrival(len(folded), atomic, tuple(found)))
        return self._intern(suffix, left, pending, None)

    def live_lengths(self, state: State, at_most: int | None = None) -> Iterator[int]:
        """Folded lengths, descending, of the suffixes that some continuation or the end could complete into a word
        that holds."""
        longest = len(state.suffix) if at_most is None else min(at_most, len(state.suffix))
        return (length for length in range(longest, 0, -1) if self.is_live(state, length))

    def is_live(self, state: State, length: int) -> bool:
        """Could the last `length` folded characters still become, or wait to be, a word that holds?"""
        begin = len(state.suffix) - length
        if begin < 0:
            return False
        rest = state.suffix[begin:]
        return (
            _has_longer(self._free, rest)
            or (self._edged is not None and self._at_edge(state, begin) and _has_longer(self._edged, rest))
            or any(literal.holds and len(literal.text) == length for literal in state.pending)
        )

    def beginnings(self, state: State) -> Iterator[tuple[Literal, int]]:
        """Words that hold, of which at least `guard` characters, but not all, end the text; with that length."""
        suffix = state.suffix
        if not self._shortest_guard:
            return
        for begin in range(len(suffix) - self._shortest_guard + 1):
            rest = suffix[begin:]
            for literal in self.completions(rest, at_edge=self._at_edge(state, begin)):
                if literal.guard and literal.guard <= len(rest) < len(literal.text):
                    yield literal, len(rest)

    def completions(self, prefix: str, at_edge: bool) -> Iterator[Literal]:
        """The words that hold and begin with `prefix`."""
        for group in self._words.values(prefix):
            for literal in group:
                if literal.holds and (at_edge or not literal.left):
                    yield literal

    def wanted_at(self, state: State, length: int) -> Literal | None:
        """The word, first by tag, for which the last `length` folded characters are held."""
        begin = len(state.suffix) - length
        candidates = self.completions(state.suffix[begin:], self._at_edge(state, begin))
        return min(candidates, key=lambda literal: literal.tag, default=None)

    def _at_edge(self, state: State, begin: int) -> bool:
        return not (is_word_char(state.suffix[begin - 1]) if begin else state.left)

    def _advance(self, suffix: str, left: bool, unit: str) -> tuple[str, bool]:
        """The longest suffix of `suffix + unit` that begins a word, and whether a word character precedes it."""
        begins_word = self._begins_word
        rest = grown = suffix + unit
        while rest and not begins_word(rest):
            rest = rest[1:]
        if self._edges and len(rest) < len(grown):
            # Without whole words the distinction would only double the states.
            left = is_word_char(grown[-len(rest) - 1])
        return rest, left

    def _ending(self, suffix: str, left: bool) -> list[Literal] | None:
        """The words that end here and whose left edge is right; None is none."""
        ended: list[Literal] | None = None
        size = len(suffix)
        for length in self._lengths:
            if length > size:
                break
            group = self._word(suffix[size - length :], None)
            if group is not None:
                begin = size - length
                blocked = is_word_char(suffix[begin - 1]) if begin else left
                ended = ended or []
                ended += [literal for literal in group if not (literal.left and blocked)]
        return ended

    def _intern(self, suffix: str, left: bool, pending: tuple[Literal, ...], arrival: Arrival | None) -> State:
        # Almost all states are told apart by their suffix alone.
        key = suffix if arrival is None and not pending and not left else (suffix, left, pending, arrival)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State(self, suffix, left, pending, arrival)
        return state

    def _empty_cache(self) -> None:
        """Streams keep the states they stand on; those fill up again from here."""
        # A list, since another thread may add a state meanwhile; dictionaries themselves bear that.
        for state in list(self._states.values()):
            state.clear()
        self._states.clear()
        self._transitions = 0


def _trie(by_text: dict[str, list[Literal]]) -> ahocorasick.Automaton:
    trie = ahocorasick.Automaton()
    for text, group in by_text.items():
        trie.add_word(text, tuple(group))
    return trie


def _has_longer(trie: ahocorasick.Automaton | None, prefix: str) -> bool:
    """Does some word go on after `prefix`?"""
    if trie is None or not trie.match(prefix):
        return False
    if not trie.exists(prefix):
        return True
    keys = trie.keys(prefix)
    next(keys)
    return next(keys, None) is not None
