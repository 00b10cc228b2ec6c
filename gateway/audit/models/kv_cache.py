"""A KV cache for a search: keys and values of the tokens of paths, shared by the paths that extend them.

The keys and values of a token depend on it and on those before it, and on nothing behind it. So they are kept once for
every beginning of a path, as in a prefix tree: of a path that is one token longer only that token is worked out. They
lie in one table for each layer, a row for each token, and a path is the numbers of its rows. That is how vLLM keeps
them (PagedAttention, Kwon and others 2023), with pages of one token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Layers = list[tuple[Any, Any]]  # keys and values of each layer, [rows, heads, tokens, size]

INITIAL_CAPACITY = 256  # tokens

_NO_TOKEN = -1


class PathCache:
    """Keys and values of tokens behind tokens, in at most so many bytes. When it is full, everything is dropped:
    what a search goes on from is worked out again with the next paths. `emptied`: how often that was, after which rows
    that were found before hold other tokens."""

    def __init__(self, torch: Any, max_bytes: int) -> None:
        self._torch = torch
        self._max_bytes = max_bytes
        self._tables: list[tuple[Any, Any]] = []  # keys and values of each layer, [tokens, heads, size]
        self._rows: dict[tuple[int, int], int] = {}  # of a token behind the one in a row
        self.emptied = 0

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, tokens: Sequence[int]) -> list[int]:
        """The rows of the longest prefix that is cached."""
        found: list[int] = []
        before = _NO_TOKEN
        for token in tokens:
            row = self._rows.get((before, token))
            if row is None:
                break
            found.append(row)
            before = row
        return found

    def layers(self, paths: Sequence[Sequence[int]]) -> Layers:
        """The keys and values of paths, given by their rows. Shorter ones are filled up on the left, with anything."""
        longest = max(map(len, paths))
        rows = self._torch.tensor(
            [[0] * (longest - len(path)) + list(path) for path in paths], device=self._tables[0][0].device
        )
        return [(keys[rows].transpose(1, 2), values[rows].transpose(1, 2)) for keys, values in self._tables]

    def keep(self, begun: Sequence[Sequence[int]], rests: Sequence[Sequence[int]], layers: Layers) -> None:
        """Store what was computed for the tokens `rests`, each path's behind its rows `begun`: the last columns of
        `layers`, the paths' in their order."""
        if len(self._rows) + sum(map(len, rests)) > self._capacity(layers):
            self._rows.clear()
            self.emptied += 1
            return
        width = layers[0][0].shape[2]
        paths: list[int] = []
        columns: list[int] = []
        first = len(self._rows)
        fresh: dict[tuple[int, int], int] = {}
        for path, (before, rest) in enumerate(zip(begun, rests, strict=True)):
            last = before[-1] if before else _NO_TOKEN
            for column, token in enumerate(rest, start=width - len(rest)):
                row = self._rows.get((last, token), fresh.get((last, token)))
                if row is None:
                    row = fresh[last, token] = first + len(fresh)
                    paths.append(path)
                    columns.append(column)
                last = row
        end = first + len(fresh)
        self._widen(layers, end)
        for (keys, values), (some_keys, some_values) in zip(self._tables, layers, strict=True):
            keys[first:end] = some_keys[paths, :, columns]
            values[first:end] = some_values[paths, :, columns]
        # Last, and at once: an interrupt or a lack of memory may end this anywhere.
        self._rows.update(fresh)

    def _capacity(self, layers: Layers) -> int:
        """How many tokens the cache can hold."""
        size = sum(table.shape[1] * table.shape[3] * table.element_size() for layer in layers for table in layer)
        return self._max_bytes // int(size)

    def _widen(self, layers: Layers, rows: int) -> None:
        """Grow the tables to this many rows, and at least to twice their length."""
        capacity = len(self._tables[0][0]) if self._tables else 0
        if rows <= capacity:
            return
        capacity = min(max(2 * capacity, rows, INITIAL_CAPACITY), self._capacity(layers))
        before = self._tables or [(None, None)] * len(layers)
        self._tables = [
            (self._wider(old_keys, keys, capacity), self._wider(old_values, values, capacity))
            for (old_keys, old_values), (keys, values) in zip(before, layers, strict=True)
        ]

    def _wider(self, old: Any, like: Any, capacity: int) -> Any:
        table = like.new_empty((capacity, like.shape[1], like.shape[3]))
        if old is not None:
            table[: len(old)] = old
        return table
