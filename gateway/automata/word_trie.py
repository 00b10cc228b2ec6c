"""The trie of a set of words, with what is below each node."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.automata.edges import is_cjk, is_word_char
from gateway.automata.machine import Searched
from gateway.automata.trie import ROOT, Trie

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
    """The trie of a set of words, with what is below each node."""

    def __init__(self, words: WordSet) -> None:
        self.set = words
        texts = sorted(words.words)
        nothing = bytes(len(texts))
        self.trie = trie = Trie(texts, nothing, nothing, None)
        count = len(trie.labels)
        self.longest = array("I", trie.length)
        self.weight = array("I", [0] * count)  # letters, and a character of a script without spaces for several
        self.guard = array("I", [0] * count)  # the fewest characters that count at the end; 0: none do
        for node in range(count):
            for child in self.children(node):
                self.weight[child] = self.weight[node] + (CJK_WEIGHT if is_cjk(trie.labels[child]) else 1)
        self.heaviest = array("I", self.weight)
        self.lightest = array("I", self.weight)  # of the words that end at the node or below
        for node in reversed(range(count)):
            guard = words.guards(trie.length[node]) if self.ends(node) else 0
            if not self.ends(node):
                self.lightest[node] = min((self.lightest[child] for child in self.children(node)), default=0)
            for child in self.children(node):
                self.longest[node] = max(self.longest[node], self.longest[child])
                self.heaviest[node] = max(self.heaviest[node], self.heaviest[child])
                if self.guard[child]:
                    guard = min(guard, self.guard[child]) if guard else self.guard[child]
            self.guard[node] = guard

    def ends(self, node: int) -> bool:
        return node != ROOT and self.trie.out[node] == node

    def children(self, node: int) -> range:
        return range(self.trie.first[node], self.trie.first[node + 1])

    def child(self, node: int, letter: str) -> int:
        """ROOT if there is none."""
        trie = self.trie
        if node == ROOT:
            return trie.root.get(letter, ROOT)
        return max(trie.labels.find(letter, trie.first[node], trie.first[node + 1]), ROOT)

    def needs_edge(self, node: int) -> bool:
        """At the character that leads to the node, if it is the first or the last of a whole word."""
        label = self.trie.labels[node]
        return self.set.whole and is_word_char(label)
