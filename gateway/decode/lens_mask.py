"""Which tokens would complete a banned word: one list of words, seen through one lens, over one vocabulary.

What the text so far can still become is a state of Aho and Corasick's automaton over folded characters (1975), together
with what whole words need to know of their edges and the bytes of a character that is not finished. In a state a token
is forbidden if a word becomes certain while its bytes are fed. Such a word

* lies inside the token: the same set in every state. If it begins where the token begins and needs a left edge, the
  state has to end in one; that makes a second set.
* began in the state: some suffix of the text is a proper beginning of the word, and the token begins with the rest. In
  the sorted vocabulary those tokens are one range.
* ended with the state, and waits for its right edge: every token that begins with one, a third set, and the end.

A word that ends with a token and needs a right edge is not certain yet. Where the text is cut after this token (`last`)
it would be, so there these tokens are forbidden too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

import ahocorasick
import numpy as np

from gateway.automata.trie import ROOT, Trie
from gateway.decode.folded_vocabulary import BROKEN, SEPARATOR, Flags, FoldedToken, FoldedVocabulary, Ids, decode

MAX_HEADED = 4096  # states of which the forbidden tokens with a head are kept
_AFTER_ALL = "\U0010ffff"


class Edges(NamedTuple):
    """Must no character of a word stand before, or after?"""

    left: bool
    right: bool


class LensState(NamedTuple):
    """`node`: the longest suffix of the text that begins a word; `left`: a word character stands before it; `pending`:
    a word has just ended and waits for its right edge; `partial`: the bytes of an unfinished character."""

    node: int
    left: bool
    pending: bool
    partial: bytes


class Sets(NamedTuple):
    """Which of the sets that many states share is forbidden in a state: see `LensMask.shared`."""

    at_edge: bool
    pending: bool
    last: bool


class Parts(NamedTuple):
    """What is forbidden in a state: the shared sets, `ranges` of the sorted vocabulary, and single tokens."""

    sets: Sets
    ranges: tuple[tuple[int, int], ...]
    singles: Ids


class LensMask:
    """The words, folded, distinct and not empty, with the edges that each needs."""

    def __init__(self, vocabulary: FoldedVocabulary, words: Mapping[str, Edges]) -> None:
        self.vocabulary = vocabulary
        self._edges = dict(words)
        self._sorted = sorted(words)
        self._in_words = vocabulary.folds.in_words
        self._edged = any(edges.left for edges in words.values())
        self._goes_on_broken = any(BROKEN in word for word in words)
        count = len(self._sorted)
        self._trie = Trie(self._sorted, b"\1" * count, bytes(count), self._in_words if self._edged else None)
        self._ending = cache(self._ending_at)
        self._rests_after = cache(self._rests_behind)
        self._headed = lru_cache(MAX_HEADED)(lambda *state: np.fromiter(self._try_headed(*state), np.int64))
        self._inside, self._first = self._words_in_tokens()

    # -- the automaton -------------------------------------------------------------------------------------------------

    def start(self) -> LensState:
        """The state before any text, which is an edge."""
        return LensState(ROOT, False, False, b"")

    def advance(self, state: LensState, number: int) -> LensState:
        """The state after a token. One that adds nothing, or does not exist, changes nothing."""
        token = self.vocabulary.token(number)
        if token is None:
            return state
        if isinstance(token, FoldedToken):
            return self.feed(state, token.data)
        if state.partial:
            state, _ = self._walk(state, self.vocabulary.folds.char(BROKEN))
        return self._walk(state, token)[0]

    def feed(self, state: LensState, data: bytes) -> LensState:
        """The state after some bytes of text."""
        return self._feed(state, data)[0]

    def _feed(self, state: LensState, data: bytes) -> tuple[LensState, bool]:
        text, partial = decode(state.partial + data)
        units, inner = self.vocabulary.folds.text(text)
        reached, completed = self._walk(state, units, inner)
        return reached._replace(partial=partial), completed

    def _walk(self, state: LensState, units: str, inner: frozenset[int] = frozenset()) -> tuple[LensState, bool]:
        """The state after folded text, no character left unfinished, and whether a word became certain on the way."""
        node, left, pending, _ = state
        trie, in_words = self._trie, self._in_words
        labels, first = trie.labels, trie.first
        completed = False
        for offset, unit in enumerate(units, start=1):
            if pending:
                completed = completed or not in_words(unit)
                pending = False
            while node:
                child = labels.find(unit, first[node], first[node + 1])
                if child > 0:
                    node = child
                    break
                left = trie.before[node] != 0
                node = trie.fail[node]
            else:
                node = trie.root.get(unit, ROOT)
                if not node:
                    left = self._edged and in_words(unit)
            if trie.out[node] and offset not in inner:
                certain, pending = self._ending(node, left)
                completed = completed or certain
        return LensState(node, left, pending, b""), completed

    def _ending_at(self, node: int, left: bool) -> tuple[bool, bool]:
        """Is some word that ends here certain; does some wait for its right edge?"""
        path = self._trie.path(node)
        ended = [
            edges
            for suffix, at_edge in self._trie.suffixes(node, left)
            if (edges := self._edges.get(path[len(path) - self._trie.length[suffix] :])) and (at_edge or not edges.left)
        ]
        return any(not edges.right for edges in ended), any(edges.right for edges in ended)

    # -- what is forbidden ---------------------------------------------------------------------------------------------

    def forbidden(self, state: LensState, last: bool) -> Parts:
        """The tokens after which a word is certain; `last`: also if the text is cut after the token."""
        everything = ((0, len(self.vocabulary.order)),)
        reached = state
        if state.partial:
            reached, completed = self._walk(state, self.vocabulary.folds.char(BROKEN))
            if completed:
                return Parts(Sets(False, state.pending, last), everything, self._forbidden_headed(state, last))
        ranges = self._ranges(reached.node, reached.left, last)
        node = reached.node
        at_edge = self._edged and not (self._in_words(self._trie.labels[node]) if node else reached.left)
        return Parts(Sets(at_edge, state.pending, last), ranges, self._forbidden_headed(state, last))

    def _ranges(self, node: int, left: bool, last: bool) -> tuple[tuple[int, int], ...]:
        """The ranges of all words that began in the state, none of which meets another."""
        found: list[tuple[int, int]] = []
        for suffix, at_edge in self._trie.suffixes(node, left):
            found += self._rests_after(suffix, at_edge, last)
        return tuple(_joined(found))

    def _rests_behind(self, node: int, at_edge: bool, last: bool) -> list[tuple[int, int]]:
        """The ranges of the rests of the words that begin with a node's string."""
        path = self._trie.path(node)
        begin = bisect_left(self._sorted, path)
        found: list[tuple[int, int]] = []
        for word in self._sorted[begin : bisect_left(self._sorted, path + _AFTER_ALL, begin)]:
            edges = self._edges[word]
            if len(word) == len(path) or (edges.left and not at_edge):
                continue
            rest = word[len(path) :]
            if edges.right:
                found += self.vocabulary.beginning_with_word(rest, or_ending=last)
            else:
                found += self.vocabulary.beginning_with(rest)
        return list(_joined(found))

    def _forbidden_headed(self, state: LensState, last: bool) -> Ids:
        """Of the tokens with a head; there are few, so each is tried."""
        if not state.partial and not self._goes_on_broken:
            # Whatever the text is, these bytes break it off. A word that waits finds its edge in that.
            state = LensState(ROOT, False, state.pending, b"")
        return self._headed(state, last)

    def _try_headed(self, state: LensState, last: bool) -> Iterator[int]:
        for head, tokens in self.vocabulary.headed.items():
            entry, completed = self._feed(state, head)
            for number, token in tokens:
                reached, inside = entry, False
                if len(token.data) > len(head):
                    reached, inside = self._feed(entry, token.data[len(head) :])
                if completed or inside or (last and reached.pending):
                    yield number

    # -- what is forbidden in many states ------------------------------------------------------------------------------

    def shared(self, sets: Sets) -> Flags:
        """One flag for each token id: tokens with a word inside; `at_edge`: with a word at the beginning that wants an
        edge before it; `pending`: that begin with an edge."""
        flags = self._inside[False].copy()
        if sets.at_edge:
            flags |= self._first[False]
        if sets.last:
            flags |= self._inside[True]
            if sets.at_edge:
                flags |= self._first[True]
        if sets.pending:
            for begin, end in self.vocabulary.beginning_with_word("", or_ending=sets.last):
                flags[self.vocabulary.order[begin:end]] = True
            if sets.last:
                flags[self.vocabulary.silent] = True
        return flags

    def _words_in_tokens(self) -> tuple[dict[bool, Flags], dict[bool, Flags]]:
        """The tokens with words inside: anywhere, and at the beginning where it must be an edge; under True those whose
        word ends with the token and needs an edge after it. Found by one search with pyahocorasick's automaton through
        all tokens, joined to one text."""
        places: dict[tuple[bool, bool], list[int]] = {
            (first, ends): [] for first in (False, True) for ends in (False, True)
        }
        words: ahocorasick.Automaton = ahocorasick.Automaton()
        for word, edges in self._edges.items():
            words.add_word(word, (len(word), *edges))
        words.make_automaton()
        whole, starts, numbers = self.vocabulary.joined
        for end, (length, left, right) in words.iter(whole):
            begin = end - length + 1
            before, after = whole[begin - 1], whole[end + 1]
            first = left and before == SEPARATOR
            ends = right and after == SEPARATOR
            if (left and not first and self._in_words(before)) or (right and not ends and self._in_words(after)):
                continue
            if not self.vocabulary.is_inner(begin, end + 1):
                places[first, ends].append(begin)
        flags: dict[tuple[bool, bool], Flags] = {}
        for kind, found in places.items():
            flags[kind] = np.zeros(self.vocabulary.width, dtype=np.bool_)
            flags[kind][numbers[np.searchsorted(starts, found, side="right") - 1]] = True
        # With a head it depends on the character that the head finishes whether there is an edge.
        for tokens in self.vocabulary.headed.values():
            for number, _ in tokens:
                flags[True, False][number] = flags[True, True][number] = False
        inside, first = ({ends: flags[at_begin, ends] for ends in (False, True)} for at_begin in (False, True))
        return inside, first


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same places in ranges that do not meet, in order."""
    begin = end = -1
    for low, high in sorted(ranges):
        if low > end:
            if end > begin:
                yield begin, end
            begin, end = low, high
        else:
            end = max(end, high)
    if end > begin:
        yield begin, end
