"""A trie of words with Aho and Corasick's failure links (1975), laid out flat.

Nodes are numbered breadth first: the children of a node are neighbours, and node `n` is reached by the character
`labels[n]`. So a child is found by searching its character among its siblings, and the place where it is found is its
number. Some 23 bytes a node and no object: a million nodes are 23 MB, and a step not taken before costs well under a
microsecond.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

ROOT = 0
AS_BEFORE = 2


def sorted_words(texts: Iterable[str]) -> list[str]:
    """`sorted`, in many short calls: while one lasts no other thread has its turn, and with a hundred thousand words it
    lasts 30 ms."""
    beginnings = defaultdict[str, list[str]](list)
    for text in texts:
        beginnings[text[:2]].append(text)
    return [text for beginning in sorted(beginnings) for text in sorted(beginnings[beginning])]


class Trie:
    """The automaton of `words`, which must be distinct, not empty, and sorted.

    `free[i]` and `edged[i]` are 1 if text is held for `words[i]`, wherever it begins, or only where it begins at an
    edge. `is_word_char`: which characters are no edge; None if no word needs one, and then `before` is all 0.
    `seen_through`: a word character that is an edge where one stands before it.

    Of node n, whose string is the path to it:

    `length[n]` of the string; `first[n]`, up to `first[n + 1]`, its children; `fail[n]`, its longest proper suffix that
    is a node too; `before[n]`, 1 if the character before that suffix is a word character, `AS_BEFORE` if that is for
    what stands before the string to say; `out[n]`, its longest suffix, itself included, that is a word, `ROOT` if none
    is; `live[n]`, the length of its longest suffix that some free word continues; `edged[n]`, 1 if some edged word
    continues after the string itself.
    """

    __slots__ = (
        "_is_word_char",
        "_seen_through",
        "before",
        "edged",
        "fail",
        "first",
        "labels",
        "length",
        "live",
        "out",
        "root",
    )

    def __init__(
        self,
        words: Sequence[str],
        free: bytes,
        edged: bytes,
        is_word_char: Callable[[str], bool] | None,
        seen_through: str = "",
    ) -> None:
        self._is_word_char = is_word_char
        self._seen_through = seen_through
        labels = "\0"
        self.length, self.first, self.fail, self.out, self.live = (array("I", [0]) for _ in range(5))
        self.before, self.edged = bytearray(1), bytearray([1 in edged])
        self.first.pop()
        # For each node of one depth, in order: the words that begin with it and continue, `words[begin:end]`.
        begins, ends = array("I", [0]), array("I", [len(words)])
        depth = 0
        while begins:
            begins, ends, chars = self._grow(labels, begins, ends, depth, words, free, edged)
            # In place, since nothing else refers to it: a long word has as many levels as characters.
            labels += chars
            depth += 1
        self.labels = labels
        self.first.append(len(labels))
        self.root = {labels[child]: child for child in range(self.first[ROOT], self.first[ROOT + 1])}

    def _grow(
        self,
        labels: str,
        begins: array[int],
        ends: array[int],
        depth: int,
        words: Sequence[str],
        free: bytes,
        edged: bytes,
    ) -> tuple[array[int], array[int], str]:
        """Add the children of all nodes of `depth`, and return them with their labels. Everything that a child's links
        lead to is there already."""
        length, first, fail, out, live = self.length, self.first, self.fail, self.out, self.live
        # What all or no words are need not be looked for node by node.
        all_free, some_free, some_edged = 0 not in free, 1 in free, 1 in edged
        has_edges, find = self._is_word_char is not None, labels.find
        child = len(labels)
        node = child - len(begins)
        chars: list[str] = []
        rests, stops = array("I"), array("I")
        for begin, end in zip(begins, ends, strict=True):
            first.append(child)
            while begin < end:
                word = words[begin]
                char = word[depth]
                stop = begin + 1
                while stop < end and words[stop][depth] == char:
                    stop += 1
                suffix = ROOT
                if depth:
                    at = fail[node]
                    suffix = find(char, first[at], first[at + 1])
                    while suffix < 0 and at:
                        at = fail[at]
                        suffix = find(char, first[at], first[at + 1])
                    if suffix < 0:
                        suffix = ROOT
                is_word = len(word) == depth + 1
                rest = begin + is_word
                chars.append(char)
                fail.append(suffix)
                out.append(child if is_word else out[suffix])
                continues = rest < stop if all_free else some_free and free.find(1, rest, stop) >= 0
                live.append(depth + 1 if continues else live[suffix])
                if some_edged:
                    self.edged.append(edged.find(1, rest, stop) >= 0)
                if has_edges:
                    self.before.append(self.standing(word, depth + 1 - length[suffix], AS_BEFORE))
                rests.append(rest)
                stops.append(stop)
                child += 1
                begin = stop
            node += 1
        length.extend([depth + 1] * len(chars))
        if not some_edged:
            self.edged.extend(bytes(len(chars)))
        if not has_edges:
            self.before.extend(bytes(len(chars)))
        return rests, stops, "".join(chars)

    def standing(self, text: str, at: int, before: int) -> int:
        """Does a word character stand before text[at:]? `before`: what to say if the text leaves that open."""
        if self._is_word_char is None:
            return 0
        while at and text[at - 1] == self._seen_through:
            at -= 1
        return self._is_word_char(text[at - 1]) if at else before

    def step(self, node: int, left: bool, unit: str) -> tuple[int, bool]:
        """The longest suffix that begins a word after one more character, and whether a word character precedes it."""
        first = self.first
        while node:
            child = self.labels.find(unit, first[node], first[node + 1])
            if child > 0:
                return child, left
            if self.before[node] != AS_BEFORE:
                left = self.before[node] != 0
            node = self.fail[node]
        node = self.root.get(unit, ROOT)
        if not node and unit != self._seen_through:
            left = self._is_word_char is not None and self._is_word_char(unit)
        return node, left

    def suffixes(self, node: int, left: bool) -> Iterator[tuple[int, bool]]:
        """The suffixes of a node's string that begin a word, longest first, and whether an edge precedes each."""
        at_edge = not left
        while node:
            yield node, at_edge
            if self.before[node] != AS_BEFORE:
                at_edge = not self.before[node]
            node = self.fail[node]

    def path(self, node: int) -> str:
        """The string of a node."""
        chars: list[str] = []
        while node:
            chars.append(self.labels[node])
            # Its parent is the last node whose children begin at or before it.
            node = bisect_right(self.first, node) - 1
        return "".join(reversed(chars))
