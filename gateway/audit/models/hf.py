"""A causal model loaded by Hugging Face transformers in this process.

PyTorch and transformers are imported when a model is made; the rest of the audit does not need them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.audit.model import FullVocabulary, Messages, ModelError
from gateway.decode.vocabulary import read_vocabulary
from gateway.version import install_hint

Rows = NDArray[np.floating[Any]]
Tokens = tuple[int, ...]
Layers = list[tuple[Any, Any]]  # keys and values of each layer, [rows, heads, tokens, size]

MAX_BATCH_TOKENS = 16_384  # in one call of the network, with what is kept of their beginnings
MAX_CACHE_BYTES = 512 * 1024**2
INITIAL_CAPACITY = 256  # tokens
MIN_COMMON = 16  # tokens that are worth a call of their own, before several paths continue from them

_NO_TOKEN = -1


class PathCache:
    """A KV cache: keys and values of the tokens of paths, in at most so many bytes.

    Those of a token depend on what stands before it only, so they are kept once for every beginning of a path, as in a
    prefix tree. They lie in one table for each layer, a row for each token, and a path is the numbers of its rows: as
    vLLM keeps them (PagedAttention, Kwon and others 2023), with pages of one token. All is forgotten when there
    is no room left: what a search continues from is computed again with the next paths. `emptied`: how often that was,
    after which rows that were found before hold other tokens.
    """

    def __init__(self, torch: Any, max_bytes: int) -> None:
        self._torch = torch
        self._max_bytes = max_bytes
        self._tables: list[tuple[Any, Any]] = []  # keys and values of each layer, [tokens, heads, size]
        self._rows: dict[tuple[int, int], int] = {}  # of a token behind the one in a row
        self.emptied = 0

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, tokens: Sequence[int]) -> list[int]:
        """The rows of the longest beginning that is known."""
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
        """Take what was computed of the tokens `rests`, each path's behind its rows `begun`: the last columns of
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
        """How many tokens there is room for."""
        size = sum(table.shape[1] * table.shape[3] * table.element_size() for layer in layers for table in layer)
        return self._max_bytes // int(size)

    def _widen(self, layers: Layers, rows: int) -> None:
        """Make the tables long enough for so many rows, twice as long as before at least."""
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


class HuggingFace(FullVocabulary):
    """A causal model of transformers, from a folder or a name that Hugging Face knows.

    `device`: as PyTorch names it. Numbers are single precision on the CPU, and what the model was saved with elsewhere.
    What the network computed about a prefix is kept for those that continue from it; `reuse` False works it out again
    for each.
    Raises ModelError if transformers is not installed, or the model cannot be loaded.
    """

    def __init__(self, path: str | Path, device: str = "cpu", *, reuse: bool = True) -> None:
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise ModelError(
                f"{path}: {error.name} is not installed: {install_hint('audit')} torch transformers"
            ) from None
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(path)
            dtype = torch.float32 if device == "cpu" else "auto"
            self._model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).to(device).eval()
            width = self._model.get_output_embeddings().weight.shape[0]
            folder = Path(path)
            source = folder if (folder / "tokenizer.json").is_file() else self._tokenizer
            self.vocabulary = read_vocabulary(source, size=width)
        except Exception as error:  # a model is a program with its libraries, and fails in all their ways
            reason = short(str(error)) or type(error).__name__
            raise ModelError(f"{path}: the model cannot be loaded: {reason}") from None
        self._torch = torch
        self._device = device
        takes = inspect.signature(self._model.forward).parameters
        self._only_last = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._cache = PathCache(torch, MAX_CACHE_BYTES) if reuse and self._keeps_all_positions() else None

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Rows:
        if not all(prefixes):
            raise ModelError("there is no token before the first one: give a prompt")
        if not prefixes:
            return np.empty((0, len(self.vocabulary)), np.float32)
        try:
            with self._torch.inference_mode():
                return self._rows_of([tuple(prefix) for prefix in prefixes])
        except (RuntimeError, IndexError, MemoryError) as error:  # memory, or more tokens than the model has places for
            raise ModelError(f"the model failed after {max(map(len, prefixes))} tokens: {short(str(error))}") from None

    def encode(self, text: str, at_text_start: bool = False) -> list[int]:
        return encoding(
            lambda some: list(self._tokenizer(some, add_special_tokens=False).input_ids),
            text,
            continues=self.vocabulary.strips_first_space and not at_text_start,
        )

    def context(self, prompt: str | Messages | None) -> Tokens:
        if prompt is None or isinstance(prompt, str):
            return _beginning(list(self._tokenizer(prompt or "").input_ids), self._tokenizer)
        try:
            found = self._tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, return_dict=True)
        except Exception as error:  # a template is a program: it raises whatever it wants
            raise ModelError(f"the model's chat template cannot be used: {short(str(error))}") from None
        return tuple(found["input_ids"])

    def _keeps_all_positions(self) -> bool:
        """Does the model's cache hold keys and values of all tokens, and nothing else?"""
        from transformers import DynamicCache

        try:
            layers = DynamicCache(config=self._model.config).layers
        except (TypeError, AttributeError):
            return False
        return all(type(layer).__name__ == "DynamicLayer" for layer in layers)

    def _rows_of(self, prefixes: list[Tokens]) -> Rows:
        begun = [self._cached_rows(prefix) for prefix in prefixes]
        low = min(prefixes)
        common = min(_shared(low, max(prefixes)), min(map(len, prefixes)) - 1)
        if self._cache is not None and len(prefixes) > 1 and common - min(map(len, begun)) >= MIN_COMMON:
            self._forward([low[:common]], [self._cached_rows(low[:common])])
            begun = [self._cached_rows(prefix) for prefix in prefixes]
        sizes = [(len(before), len(prefix) - len(before)) for before, prefix in zip(begun, prefixes, strict=True)]
        order = sorted(range(len(prefixes)), key=sizes.__getitem__)
        # A tokenizer can have more tokens than the model; those cannot come.
        out = np.full((len(prefixes), len(self.vocabulary)), -np.inf, np.float32)
        emptied = self._emptied
        for chunk in _chunks(order, sizes):
            if self._emptied != emptied:
                # To keep the chunk before, all was forgotten, and the rows hold other tokens now. What is found is cut
                # to what was planned, or the chunk would be too large.
                begun = [self._cached_rows(prefix)[:known] for prefix, (known, _) in zip(prefixes, sizes, strict=True)]
                emptied = self._emptied
            rows = self._forward([prefixes[number] for number in chunk], [begun[number] for number in chunk])
            out[chunk, : rows.shape[1]] = rows
        return out

    @property
    def _emptied(self) -> int:
        """How often the cache was emptied."""
        return 0 if self._cache is None else self._cache.emptied

    def _cached_rows(self, prefix: Tokens) -> list[int]:
        """The cached rows of a prefix without its last token, which the network needs as input."""
        return [] if self._cache is None else self._cache.find(prefix[:-1])

    def _forward(self, prefixes: list[Tokens], begun: list[list[int]]) -> Rows:
        """The log-probabilities behind prefixes of which some tokens are kept: float[n, vocabulary]."""
        torch = self._torch
        rests = [prefix[len(before) :] for prefix, before in zip(prefixes, begun, strict=True)]
        known, longest = max(map(len, begun)), max(map(len, rests))
        # Both parts are filled up on the left, so that the last token of each row stands in the last column.
        ids = torch.tensor([[0] * (longest - len(rest)) + list(rest) for rest in rests], device=self._device)
        more: dict[str, Any] = dict(self._only_last)
        if len({*map(len, begun)}) > 1 or len({*map(len, rests)}) > 1:
            mask, places = [], []
            for before, rest in zip(map(len, begun), map(len, rests), strict=True):
                mask.append([0] * (known - before) + [1] * before + [0] * (longest - rest) + [1] * rest)
                places.append([before] * (longest - rest) + list(range(before, before + rest)))
            more["attention_mask"] = torch.tensor(mask, device=self._device)
            more["position_ids"] = torch.tensor(places, device=self._device)
        cache = None
        if self._cache is not None:
            from transformers import DynamicCache

            cache = DynamicCache()
            if known:
                for number, (keys, values) in enumerate(self._cache.layers(begun)):
                    cache.update(keys, values, number)
            more["past_key_values"] = cache
        logits = self._model(input_ids=ids, use_cache=cache is not None, **more).logits[:, -1]
        if self._cache is not None and cache is not None:
            self._cache.keep(begun, rests, [(layer.keys, layer.values) for layer in cache.layers])
        found: Rows = torch.log_softmax(logits.float(), dim=-1).cpu().numpy()
        return found


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _chunks(order: list[int], sizes: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Numbers in the order of rising size, in parts of at most `MAX_BATCH_TOKENS`, padding counted. A size is what is
    kept of a prefix, and what is not."""
    chunk: list[int] = []
    known = rest = 0
    for number in order:
        known, rest = max(known, sizes[number][0]), max(rest, sizes[number][1])
        if chunk and (len(chunk) + 1) * (known + rest) > MAX_BATCH_TOKENS:
            yield chunk
            chunk, (known, rest) = [], sizes[number]
        chunk.append(number)
    yield chunk


def _beginning(tokens: list[int], tokenizer: Any) -> Tokens:
    """A prompt's tokens, or the first token of a text if there are none: a model needs one to continue."""
    if tokens:
        return tuple(tokens)
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token is not None:
            return (int(token),)
    raise ModelError("the tokenizer has no token that begins a text: give a prompt")


def encoding(encode: Callable[[str], list[int]], text: str, continues: bool) -> list[int]:
    """The tokenizer's own encoding of a text. `continues`: the text does not begin one, and the tokenizer puts a
    space before every text."""
    if continues:
        before = encode("\n")
        both = encode("\n" + text)
        if both[: len(before)] == before:
            return both[len(before) :]
    return encode(text)


def short(message: str) -> str:
    """An error's message on one line, and not much of it: it comes from elsewhere, and may hold anything."""
    line = " ".join("".join(char if char.isprintable() else " " for char in message).split())
    return line if len(line) <= 300 else line[:300] + "…"
