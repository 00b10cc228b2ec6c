"""A model's vocabulary as bytes: its tokens sorted, and a trie over them in flat arrays.

What a token writes is bytes, not characters: a token may begin or end inside a character. In the order of their bytes
all tokens that begin with one string are neighbours, so a set of tokens is often a few ranges; and an automaton reads
the whole vocabulary by walking the trie, in which common beginnings are read once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]

# A text in UTF-8 never holds the other thirteen.
UTF8_BYTES = frozenset([*range(0xC0), *range(0xC2, 0xF5)])


@dataclass(frozen=True, slots=True, eq=False)
class TokenTrie:
    """The beginnings of all tokens. Nodes are numbered breadth first, the root is 0: the nodes of one depth are
    neighbours, and so are the children of one node, by rising bytes.

    Of node n: `byte[n]` leads to it; `first[n]`, up to `first[n + 1]`, are its children; `begin[n]`, up to `stop[n]`,
    are the places in `Vocabulary.order` of the tokens that begin with its string, and up to `exact[n]` of those that
    are its string.
    """

    byte: NDArray[np.uint8]
    first: Ints
    begin: Ints
    exact: Ints
    stop: Ints


class Vocabulary:
    """The bytes of each token id.

    `tokens[i]`: the bytes of token i, None for one that writes no text (a control token, a number without a token).
    `end`: the ids that end a text, sorted; whatever `tokens` has for them, they write nothing. `strips_first_space`:
    the first token of a text loses its first space, as SentencePiece's do; see `pieces`.
    Raises ValueError if an id of `end` is none of the vocabulary.
    """

    def __init__(
        self, tokens: Sequence[bytes | None], end: Iterable[int] = (), *, strips_first_space: bool = False
    ) -> None:
        self.end = tuple(sorted(set(end)))
        for token in self.end:
            if not 0 <= token < len(tokens):
                raise ValueError(f"end of text: token {token} is not in the vocabulary, which has {len(tokens)}")
        ends = frozenset(self.end)
        self.tokens = tuple(None if token in ends else text for token, text in enumerate(tokens))
        self.strips_first_space = strips_first_space
        # An empty token could be repeated for ever and write nothing: no constraint allows it.
        written = [(text, token) for token, text in enumerate(self.tokens) if text]
        written.sort()
        self.order: Ints = np.array([token for _, token in written], dtype=np.int32)
        self.order.setflags(write=False)
        self.trie = _trie([text for text, _ in written])
        # Whether every text can be spelled, since every byte it may hold is a token.
        self.spells_all = {text[0] for text, _ in written if len(text) == 1} >= UTF8_BYTES

    def __len__(self) -> int:
        return len(self.tokens)

    def digest(self) -> str:
        """SHA-256, in hexadecimal, of everything that the vocabulary is."""
        sha = hashlib.sha256(repr((self.end, self.strips_first_space)).encode())
        for text in self.tokens:
            sha.update(b"-" if text is None else b"%d:%b" % (len(text), text))
        return sha.hexdigest()

    def pieces(self, tokens: Iterable[int], at_text_start: bool = False) -> list[bytes]:
        """What each of the tokens writes, nothing for one that writes no text. `at_text_start`: they begin a text, and
        do not continue after a prompt."""
        written = [self.tokens[token] or b"" for token in tokens]
        if at_text_start and self.strips_first_space:
            first = next((at for at, text in enumerate(written) if text), None)
            if first is not None:
                written[first] = written[first].removeprefix(b" ")
        return written

    def text(self, tokens: Iterable[int], at_text_start: bool = False) -> str:
        """The text of the tokens; invalid UTF-8 becomes U+FFFD."""
        return b"".join(self.pieces(tokens, at_text_start)).decode("utf-8", "replace")

    def beginning_with(self, prefix: bytes) -> tuple[int, int]:
        """The half-open range of indices in `order` of the tokens that begin with `prefix`."""
        trie, node = self.trie, 0
        for byte in prefix:
            children = trie.byte[trie.first[node] : trie.first[node + 1]]
            at = int(np.searchsorted(children, byte))
            if at == len(children) or children[at] != byte:
                return 0, 0
            node = int(trie.first[node]) + at
        return int(trie.begin[node]), int(trie.stop[node])


def _trie(texts: list[bytes]) -> TokenTrie:
    """The trie of sorted, not empty texts, one depth after the other.

    A node of depth d begins at each text that has d bytes and shares fewer with the text before it.
    """
    count = len(texts)
    length = np.fromiter(map(len, texts), np.int32, count)
    flat = np.frombuffer(b"".join(texts), np.uint8)
    offset = np.concatenate(([0], np.cumsum(length, dtype=np.int64)))[:-1]
    shared = _shared(length, flat, offset)

    above = np.zeros(min(count, 1), np.int32)  # where the nodes of the depth before begin: the root's place
    parts = [_Depth(np.zeros(1, np.uint8), np.zeros(1, np.int32), np.zeros(1, np.int32), np.full(1, count, np.int32))]
    first = [np.empty(0, np.int32)]
    nodes = 1
    depth = 0
    while len(above):
        depth += 1
        breaks = np.flatnonzero(shared < depth).astype(np.int32)
        begin = breaks[length[breaks] >= depth]
        stop = np.append(breaks, count)[np.searchsorted(breaks, begin, side="right")].astype(np.int32)
        # The texts of exactly this length stand first in their node's range.
        ended = np.cumsum(np.append(0, length == depth))
        exact = (begin + ended[stop] - ended[begin]).astype(np.int32)
        # A node's children begin where its own range does, or behind the texts that are its string.
        first.append((nodes + np.searchsorted(begin, above)).astype(np.int32))
        parts.append(_Depth(flat[offset[begin] + depth - 1], begin, exact, stop))
        nodes += len(begin)
        above = begin
    if not count:
        first.append(np.full(1, 1, np.int32))
    first.append(np.full(1, nodes, np.int32))
    return TokenTrie(
        byte=np.concatenate([part.byte for part in parts]),
        first=np.concatenate(first),
        begin=np.concatenate([part.begin for part in parts]),
        exact=np.concatenate([part.exact for part in parts]),
        stop=np.concatenate([part.stop for part in parts]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Depth:
    """The nodes of one depth; the fields are those of `TokenTrie`."""

    byte: NDArray[np.uint8]
    begin: Ints
    exact: Ints
    stop: Ints


def _shared(length: Ints, flat: NDArray[np.uint8], offset: NDArray[np.int64]) -> Ints:
    """How many bytes each text shares with the one before it; -1 for the first."""
    shared = np.zeros(len(length), np.int32)
    alike = np.arange(1, len(length))
    depth = 0
    while len(alike):
        long = alike[(length[alike] > depth) & (length[alike - 1] > depth)]
        alike = long[flat[offset[long] + depth] == flat[offset[long - 1] + depth]]
        depth += 1
        shared[alike] = depth
    shared[:1] = -1
    return shared
