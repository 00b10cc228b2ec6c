"""Models that can be audited: one of Hugging Face's in this process, one behind vLLM's API; and a toy.

What a model needs is imported when it is made: the rest of an audit does without PyTorch and without a network.
"""

from __future__ import annotations

import inspect
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.audit.law import Floats, Messages, ModelError, TellsAll
from gateway.audit.pathcache import PathCache
from gateway.audit.toy import Toy as Toy
from gateway.automata.vocabulary import Ints
from gateway.decode.vocabulary import read_vocabulary

Rows = NDArray[np.floating[Any]]
Tokens = tuple[int, ...]

_INSTALL = "pip install 'portcullis[audit]'"


# -- in this process ---------------------------------------------------------------------------------------------------

MAX_BATCH_TOKENS = 16_384  # in one call of the network, with what is kept of their beginnings
MAX_CACHE_BYTES = 512 * 1024**2
MIN_COMMON = 16  # tokens that are worth a call of their own, before several paths go on from them


class HuggingFace(TellsAll):
    """A causal model of transformers, from a folder or a name that Hugging Face knows.

    `device`: as PyTorch names it. Numbers are single precision on the CPU, and what the model was saved with elsewhere.
    What the network worked out about a prefix is kept for those that go on from it; `reuse` False works it out again
    for each.
    Raises ModelError if transformers is not installed, or the model cannot be loaded.
    """

    def __init__(self, path: str | Path, device: str = "cpu", *, reuse: bool = True) -> None:
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise ModelError(f"{path}: {error.name} is not installed: {_INSTALL} torch transformers") from None
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(path)
            dtype = torch.float32 if device == "cpu" else "auto"
            self._model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).to(device).eval()
            width = self._model.get_output_embeddings().weight.shape[0]
            folder = Path(path)
            source = folder if (folder / "tokenizer.json").is_file() else self._tokenizer
            self.vocabulary = read_vocabulary(source, size=width)
        except (OSError, ValueError, RuntimeError) as error:
            raise ModelError(f"{path}: the model cannot be loaded: {_short(str(error))}") from None
        self._torch = torch
        self._device = device
        takes = inspect.signature(self._model.forward).parameters
        self._only_last = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._cache = PathCache(torch, MAX_CACHE_BYTES) if reuse and self._keeps_all_positions() else None

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Rows:
        if not all(prefixes):
            raise ModelError("nothing stands before the first token: give a prompt")
        if not prefixes:
            return np.empty((0, len(self.vocabulary)), np.float32)
        try:
            with self._torch.inference_mode():
                return self._asked([tuple(prefix) for prefix in prefixes])
        except (RuntimeError, IndexError) as error:  # memory, or more tokens than the model has places for
            raise ModelError(
                f"the model failed behind {max(map(len, prefixes))} tokens: {_short(str(error))}"
            ) from None

    def encode(self, text: str, at_text_start: bool = False) -> list[int]:
        return encoding(
            lambda some: list(self._tokenizer(some, add_special_tokens=False).input_ids),
            text,
            goes_on=self.vocabulary.strips_first_space and not at_text_start,
        )

    def context(self, prompt: str | Messages | None) -> Tokens:
        if prompt is None or isinstance(prompt, str):
            return _beginning(list(self._tokenizer(prompt or "").input_ids), self._tokenizer)
        try:
            found = self._tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, return_dict=True)
        except Exception as error:  # a template is a program: it raises whatever it wants
            raise ModelError(f"the model's chat template cannot be used: {_short(str(error))}") from None
        return tuple(found["input_ids"])

    def _keeps_all_positions(self) -> bool:
        """Does the model's cache hold keys and values of all tokens, and nothing else?"""
        from transformers import DynamicCache

        try:
            layers = DynamicCache(config=self._model.config).layers
        except (TypeError, AttributeError):
            return False
        return all(type(layer).__name__ == "DynamicLayer" for layer in layers)

    def _asked(self, prefixes: list[Tokens]) -> Rows:
        begun = [self._begun(prefix) for prefix in prefixes]
        low = min(prefixes)
        common = min(_shared(low, max(prefixes)), min(map(len, prefixes)) - 1)
        if self._cache is not None and len(prefixes) > 1 and common - min(map(len, begun)) >= MIN_COMMON:
            self._forward([low[:common]], [self._begun(low[:common])])
            begun = [self._begun(prefix) for prefix in prefixes]
        sizes = [(len(before), len(prefix) - len(before)) for before, prefix in zip(begun, prefixes, strict=True)]
        order = sorted(range(len(prefixes)), key=sizes.__getitem__)
        # A tokenizer can have more tokens than the model; those cannot come.
        out = np.full((len(prefixes), len(self.vocabulary)), -np.inf, np.float32)
        for chunk in _chunks(order, sizes):
            rows = self._forward([prefixes[number] for number in chunk], [begun[number] for number in chunk])
            out[chunk, : rows.shape[1]] = rows
        return out

    def _begun(self, prefix: Tokens) -> list[int]:
        """What is kept of a prefix but for its last token, behind which the model is asked."""
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
    """A prompt, or what a text begins with where the tokenizer says nothing: a model needs a token to go on from."""
    if tokens:
        return tuple(tokens)
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token is not None:
            return (int(token),)
    raise ModelError("the tokenizer has no token that begins a text: give a prompt")


def encoding(encode: Callable[[str], list[int]], text: str, goes_on: bool) -> list[int]:
    """The tokenizer's own encoding of a text. `goes_on`: the text does not begin one, and the tokenizer is one of those
    that put a space before every text."""
    if goes_on:
        before = encode("\n")
        both = encode("\n" + text)
        if both[: len(before)] == before:
            return both[len(before) :]
    return encode(text)


def _short(message: str) -> str:
    return message if len(message) <= 300 else message[:300] + "…"


# -- behind an API -----------------------------------------------------------------------------------------------------

PAUSES = (0.5, 2.0)  # seconds, before a request that failed is sent again
PATIENCE = 120.0  # seconds for an answer
MAX_PROMPTS = 64  # in one request
MAX_ASKED = 128  # tokens in `logprob_token_ids`, as vLLM allows

_TOKEN = re.compile(r"token_id:([0-9]+)")
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
# The model's own law, whatever the server's defaults for the model are.
_PLAIN = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "seed": 0,
}


class _Refused(ModelError):
    """The server understood the request and does not want it."""


class Endpoint:
    """A model that vLLM serves.

    `url`: with `/v1` at its end. `name`: as it is served. `tokenizer`: the folder with the model's `tokenizer.json`, or
    the file. `key`: sent as a bearer token. A request that fails is sent again after each of `PAUSES`.
    Raises ModelError if the tokenizer cannot be read; later, if the server cannot be reached, or answers something
    else than was asked for.
    """

    def __init__(
        self, url: str, name: str, tokenizer: str | Path, key: str | None = None, *, patience: float = PATIENCE
    ) -> None:
        import httpx

        path = Path(tokenizer)
        self._tokenizer = path / "tokenizer.json" if path.is_dir() else path
        try:
            # Beside the file it often says which token ends a text.
            in_folder = self._tokenizer.name == "tokenizer.json"
            self.vocabulary = read_vocabulary(self._tokenizer.parent if in_folder else path)
        except (OSError, ValueError) as error:
            raise ModelError(f"{tokenizer}: the tokenizer cannot be read: {error}") from None
        self.url, self.name = url.rstrip("/"), name
        self._encode: Callable[[str], list[int]] | None = None
        self._told: int | None = None
        self._httpx = httpx
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(headers=headers, timeout=patience, follow_redirects=False)

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r}, {self.name!r})"

    def close(self) -> None:
        self._client.close()

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Rows:
        if self._told is None:
            self.tell(None)
        found = np.full((len(prefixes), len(self.vocabulary)), -np.inf, np.float32)
        for begin in range(0, len(prefixes), MAX_PROMPTS):
            told = self._logprobs(prefixes[begin : begin + MAX_PROMPTS], {"logprobs": self._told})
            for row, logprobs in zip(found[begin:], told, strict=False):
                for token, logprob in logprobs.items():
                    if token < len(row):
                        row[token] = logprob
        return found

    def told(self, prefixes: Sequence[Sequence[int]], tokens: Sequence[Ints]) -> list[Floats]:
        return [self._told_of(prefix, some.tolist()) for prefix, some in zip(prefixes, tokens, strict=True)]

    def tell(self, top_k: int | None) -> None:
        wanted = min(top_k or len(self.vocabulary), len(self.vocabulary))
        if self._tells(wanted):
            self._told = wanted
            return
        low, high = 0, wanted
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._tells(middle) else (low, middle)
        if not low:
            raise ModelError(f"{self.url}: the server tells no log-probabilities")
        asked = f"without decoding.top_k all {wanted} count" if top_k is None else f"decoding.top_k asks for {top_k}"
        raise ModelError(
            f"{self.url}: the server tells the {low} most likely tokens, and {asked}: set decoding.top_k to {low} or "
            f"less, or start the server with --max-logprobs {wanted}"
        )

    def encode(self, text: str, at_text_start: bool = False) -> list[int]:
        """Raises ModelError if `tokenizers` is not installed."""
        if self._encode is None:
            self._encode = _encoder(self._tokenizer)
        return encoding(self._encode, text, goes_on=self.vocabulary.strips_first_space and not at_text_start)

    def context(self, prompt: str | Messages | None) -> Tokens:
        if prompt is None or isinstance(prompt, str):
            asked: dict[str, Any] = {"prompt": prompt or ""}
        else:
            asked = {"messages": list(prompt), "add_generation_prompt": True}
        answer = self._post(self.url.removesuffix("/v1") + "/tokenize", {"model": self.name, **asked})
        try:
            tokens = tuple(int(token) for token in answer["tokens"])
        except (KeyError, TypeError, ValueError):
            raise self._senseless("/tokenize gives no tokens") from None
        return tokens or (self._first(),)

    def _first(self) -> int:
        """What a text begins with where the tokenizer says nothing: a model needs a token to go on from."""
        for name in ("config.json", "generation_config.json"):
            file = self._tokenizer.with_name(name)
            begin = json.loads(file.read_text()).get("bos_token_id") if file.exists() else None
            if isinstance(begin, int):
                return begin
        return self.vocabulary.end[0]

    def _tells(self, count: int) -> bool:
        """Does the server tell so many tokens?"""
        try:
            self._logprobs([[self._first()]], {"logprobs": count})
        except _Refused as error:
            if "logprobs" not in str(error):
                raise
            return False
        return True

    def _told_of(self, prefix: Sequence[int], tokens: list[int]) -> Floats:
        found: list[float] = []
        for begin in range(0, len(tokens), MAX_ASKED):
            asked = tokens[begin : begin + MAX_ASKED]
            [told] = self._logprobs([prefix], {"logprobs": len(asked), "logprob_token_ids": asked})
            if not told.keys() >= set(asked):
                raise ModelError(
                    f"{self.url}: the server does not tell the log-probabilities of given tokens, which the prefix "
                    "needs: vLLM does since it knows logprob_token_ids"
                )
            found += (told[token] for token in asked)
        return np.array(found, np.float64)

    def _logprobs(self, prefixes: Sequence[Sequence[int]], asked: dict[str, Any]) -> list[dict[int, float]]:
        """What the server tells of the token after each prefix."""
        body = {
            "model": self.name,
            "prompt": [list(prefix) for prefix in prefixes],
            "max_tokens": 1,
            "return_tokens_as_token_ids": True,
            **_PLAIN,
            **asked,
        }
        answer = self._post(self.url + "/completions", body)
        try:
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            told = [_read(choice["logprobs"]["top_logprobs"][0]) for choice in choices]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise self._senseless("the answer has no log-probabilities by token id") from None
        if len(told) != len(prefixes):
            raise self._senseless(f"{len(told)} answers to {len(prefixes)} prompts")
        return told

    def _post(self, url: str, body: dict[str, Any]) -> Any:
        for pause in (*PAUSES, None):
            try:
                answer = self._client.post(url, json=body)
            except self._httpx.HTTPError as error:
                failure = type(error).__name__
            else:
                if answer.status_code == 200:
                    return self._parsed(answer.content)
                failure = f"status {answer.status_code}: {_message(answer.content)}"
                if answer.status_code not in _RETRIED:
                    raise _Refused(f"{self.url}: the server refuses: {failure}")
            if pause is not None:
                time.sleep(pause)
        raise ModelError(f"{self.url}: the server failed {len(PAUSES) + 1} times: {failure}")

    def _parsed(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except ValueError:
            raise self._senseless("the answer is not JSON") from None

    def _senseless(self, what: str) -> ModelError:
        return ModelError(f"{self.url}: {what}: is this vLLM's API?")


def _read(told: dict[str, float]) -> dict[int, float]:
    """Log-probabilities by token id. Raises TypeError, ValueError or AttributeError for anything else."""
    found = {}
    for name, logprob in told.items():
        match = _TOKEN.fullmatch(name)
        if match is None:
            raise ValueError(name)
        found[int(match[1])] = float(logprob)
    return found


def _message(content: bytes) -> str:
    """What an answer says went wrong."""
    try:
        described = json.loads(content)
        return _short(str(described.get("error", described)["message"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "no message"


def _encoder(tokenizer: Path) -> Callable[[str], list[int]]:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ModelError(f"canonical encodings need the tokenizer itself: {_INSTALL} tokenizers") from None
    encode = Tokenizer.from_file(str(tokenizer)).encode
    return lambda text: list(encode(text, add_special_tokens=False).ids)
