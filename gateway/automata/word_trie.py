"""The trie of a set of words, with what is below each node."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from gateway.automata.edges import is_cjk, is_word_char
from gateway.automata.pattern_states import Searched
from gateway.automata.trie import ROOT, Trie

_BITS = 59  # a prime number; an integer of that many is a small one
CJK_WEIGHT = 3  # letters that a character of a script without spaces counts for


@dataclass(frozen=True, slots=True, kw_only=True)
class WordSet(Searched):
    """Words of one rule, folded, distinct, not empty.

    `whole`: they begin and end at an edge. With `edits`, one to so many of them must be made, in a word of at least
    `edits_from` characters. `guards`: of a word of so many characters, how many must end a text to count as its
    beginning (0: never).
    """

    words: Sequence[str]
    whole: bool = False
    edits: int = 0
    edits_from: int = 0
    guards: Callable[[int], int] = lambda length: 0
    spares: Callable[[str], bool] = lambda text: False  # of a beginning: does it never count?


class WordTrie:
    """The trie of a set of words, with what is below each node; `missing`: without their first letters.

    So a word that lacks its first letters is one of another trie, and does not need a look at every first letter that
    there is. `edged`: only of the words whose first letter needs an edge, or of those whose does not; None: of all.
    """

    def __init__(self, words: WordSet, owner: int, missing: int = 0, edged: bool | None = None) -> None:
        self.set, self.owner = words, owner
        self.missing, self.edged = missing, edged
        chosen = [word for word in words.words if edged is None or _needs_edge(words, word[0]) == edged]
        self._rests = sorted({word[missing:] for word in chosen if len(word) > missing})
        self._heads = sorted((word[missing:], word[:missing]) for word in chosen) if missing else []
        self._onward: dict[tuple[int, int], int] = {}
        nothing = bytes(len(self._rests))
        self.trie = trie = Trie(self._rests, nothing, nothing, None)
        count = len(trie.labels)
        self.has_blanks = " " in trie.labels
        self.length = array("I", (length + missing for length in trie.length))
        self.longest = array("I", self.length)
        # Letters, and a character of a script without spaces for several.
        self.weight = array("I", [missing] * count)
        self.guard = array("I", [0] * count)  # the fewest characters that count at the end; 0: none do
        for node in range(count):
            for child in self.children(node):
                self.weight[child] = self.weight[node] + (CJK_WEIGHT if is_cjk(trie.labels[child]) else 1)
        self.heaviest = array("I", self.weight)
        self.lightest = array("I", self.weight)  # of the words that end at the node or below
        self.to_end = array("I", [0] * count)  # letters that a word lacks which is long enough, at least
        for node in reversed(range(count)):
            guard = words.guards(self.length[node]) if self.ends(node) else 0
            if not self.ends(node):
                self.lightest[node] = min((self.lightest[child] for child in self.children(node)), default=0)
            if not self.ends(node) or self.length[node] < words.edits_from:
                self.to_end[node] = min((self.to_end[child] + 1 for child in self.children(node)), default=count)
            for child in self.children(node):
                self.longest[node] = max(self.longest[node], self.longest[child])
                self.heaviest[node] = max(self.heaviest[node], self.heaviest[child])
                if self.guard[child]:
                    guard = min(guard, self.guard[child]) if guard else self.guard[child]
            self.guard[node] = guard

    def __bool__(self) -> bool:
        return bool(self._rests)

    def ends(self, node: int) -> bool:
        return node != ROOT and self.trie.out[node] == node

    def children(self, node: int) -> range:
        return range(self.trie.first[node], self.trie.first[node + 1])

    def child(self, node: int, letter: str) -> int:
        """The child by this letter; ROOT if there is none."""
        trie = self.trie
        if node == ROOT:
            return trie.root.get(letter, ROOT)
        return max(trie.labels.find(letter, trie.first[node], trie.first[node + 1]), ROOT)

    def descendants(self, node: int, depth: int, letter: str) -> Iterator[int]:
        """The nodes so far below, to which this letter leads."""
        first, labels = self.trie.first, self.trie.labels
        begin, end = node, node + 1
        for _ in range(depth):
            begin, end = first[begin], first[end]
        while (begin := labels.find(letter, begin, end)) >= 0:
            yield begin
            begin += 1

    def onward(self, node: int, skip: int) -> int:
        """The bits of the letters so many below that lead on. The node's own, if it is near, may come again; and behind
        a blank much leads on."""
        known = self._onward.get((node, skip))
        if known is None:
            labels, first = self.trie.labels, self.trie.first
            begin, end = first[node], first[node + 1]
            for _ in range(skip):
                begin, end = first[begin], first[end]
            letters = {*labels[begin:end], *(() if skip else labels[node])}
            known = self._onward[node, skip] = -1 if not skip and labels[node] == " " else letter_bits(letters)
        return known

    def parent(self, node: int) -> int:
        return bisect_right(self.trie.first, node) - 1

    def spares(self, node: int) -> bool:
        """Is the string of the node excluded from guarded beginnings?"""
        path = self.trie.path(node)
        if not self.missing:
            return self.set.spares(path)
        begin = bisect_left(self._heads, (path, ""))
        heads = takewhile(lambda each: each[0].startswith(path), islice(self._heads, begin, None))
        return all(self.set.spares(head + path) for head in {head for _, head in heads})

    def needs_edge(self, node: int) -> bool:
        """At the character that leads to the node, if it is the first or the last of a whole word."""
        return _needs_edge(self.set, self.trie.labels[node])


def letter_bits(letters: Iterable[str]) -> int:
    """A set of letters in few bits: some letters share one, and there are others."""
    bits = 0
    for letter in letters:
        bits |= 1 << ord(letter) % _BITS
    return bits


def _needs_edge(words: WordSet, char: str) -> bool:
    return words.whole and is_word_char(char)
