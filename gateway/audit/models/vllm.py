"""A model served by vLLM. Neither PyTorch nor transformers is needed here."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gateway.audit.model import ROUNDING, Floats, Messages, ModelError
from gateway.audit.models.hf import Rows, Tokens, encoding, short
from gateway.audit.models.http import MAX_ANSWER, NotJson, RequestFailed, client, post
from gateway.automata.vocabulary import Ints
from gateway.decode.vocabulary import read_vocabulary
from gateway.version import install_hint

RETRY_DELAYS = (0.5, 2.0)  # seconds, before a request that failed is sent again
TIMEOUT = 120.0  # seconds for an answer
MAX_PROMPTS = 64  # in one request
MAX_ASKED = 128  # tokens in `logprob_token_ids`, as vLLM allows
BYTES_PER_TOKEN = 128  # of JSON, beyond `MAX_ANSWER`: each requested token's id and its log-probability

_TOKEN = re.compile(r"token_id:([0-9]+)")
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
_CONNECT_FAILED = "ConnectError"  # nothing listens
_CONNECTION_LOST = frozenset({"ReadError", "WriteError", "RemoteProtocolError"})  # it was there, and went away
_NEVER_ANSWERED = ": nothing listens there: is the server running, and is this its address?"
# The model's own distribution, whatever the server's defaults are.
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
    """The server rejected the request."""


class VllmModel:
    """A model that vLLM serves.

    `url`: with `/v1` at its end. `name`: as it is served. `tokenizer`: the folder with the model's `tokenizer.json`, or
    the file. `key`: sent as a bearer token. A request that fails is sent again after each of `RETRY_DELAYS`.
    Raises ModelError if the tokenizer cannot be read; later, if the server cannot be reached, or its response is
    invalid.
    """

    def __init__(
        self, url: str, name: str, tokenizer: str | Path, key: str | None = None, *, timeout: float = TIMEOUT
    ) -> None:
        path = Path(tokenizer)
        self._tokenizer = path / "tokenizer.json" if path.is_dir() else path
        try:
            # Beside the file it often says which token ends a text.
            in_folder = self._tokenizer.name == "tokenizer.json"
            self.vocabulary = read_vocabulary(self._tokenizer.parent if in_folder else path)
            self._first = self._begin_of_text()
        except (OSError, ValueError) as error:
            raise ModelError(f"{tokenizer}: the tokenizer cannot be read: {error}") from None
        except (LookupError, TypeError, AttributeError, RecursionError) as error:
            reason = f"a file of another form than tokenizers write it ({type(error).__name__})"
            raise ModelError(f"{tokenizer}: the tokenizer cannot be read: {reason}") from None
        self.url, self.name = url.rstrip("/"), name
        self._encode: Callable[[str], list[int]] | None = None
        self._top_k: int | None = None
        self._key, self._timeout = key, timeout
        self._answered = False
        try:
            self._client = client(key, timeout)
        except RequestFailed as error:
            raise ModelError(f"{self.url}: {error}") from None

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r}, {self.name!r})"

    def close(self) -> None:
        self._client.close()

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Rows:
        if self._top_k is None:
            self.require_top_k(None)
        found = np.full((len(prefixes), len(self.vocabulary)), -np.inf, np.float32)
        for begin in range(0, len(prefixes), MAX_PROMPTS):
            answers = self._logprobs(prefixes[begin : begin + MAX_PROMPTS], {"logprobs": self._top_k})
            for row, logprobs in zip(found[begin:], answers, strict=False):
                if self._top_k and not _has_top(logprobs, self._top_k):
                    raise self._invalid(f"{len(logprobs)} log-probabilities where {self._top_k} were asked for")
                for token, logprob in logprobs.items():
                    if token < len(row):
                        row[token] = logprob
        return found

    def logprobs_of(self, prefixes: Sequence[Sequence[int]], tokens: Sequence[Ints]) -> list[Floats]:
        return [self._logprobs_of(prefix, some.tolist()) for prefix, some in zip(prefixes, tokens, strict=True)]

    def require_top_k(self, top_k: int | None) -> None:
        wanted = min(top_k or len(self.vocabulary), len(self.vocabulary))
        if self._offers(wanted):
            self._top_k = wanted
            return
        low, high = 0, wanted
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offers(middle) else (low, middle)
        if not low:
            raise ModelError(f"{self.url}: the server returns no log-probabilities")
        asked = f"without decoding.top_k all {wanted} count" if top_k is None else f"decoding.top_k asks for {top_k}"
        raise ModelError(
            f"{self.url}: the server returns the {low} most likely tokens, and {asked}: set decoding.top_k to {low} or "
            f"less, or start the server with --max-logprobs {wanted}"
        )

    def encode(self, text: str, at_text_start: bool = False) -> list[int]:
        """Raises ModelError if `tokenizers` is not installed."""
        if self._encode is None:
            self._encode = _encoder(self._tokenizer)
        return encoding(self._encode, text, continues=self.vocabulary.strips_first_space and not at_text_start)

    def context(self, prompt: str | Messages | None) -> Tokens:
        if prompt is None or isinstance(prompt, str):
            asked: dict[str, Any] = {"prompt": prompt or ""}
        else:
            asked = {"messages": list(prompt), "add_generation_prompt": True}
        answer = self._post(self.url.removesuffix("/v1") + "/tokenize", {"model": self.name, **asked})
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(tokens, list) or not all(type(token) is int and token >= 0 for token in tokens):
            raise self._invalid("/tokenize gives no tokens")
        return tuple(tokens) or (self._first,)

    def _begin_of_text(self) -> int:
        """The first token of a text if the tokenizer adds none: a model needs one to continue."""
        for name in ("config.json", "generation_config.json"):
            file = self._tokenizer.with_name(name)
            try:
                begin = json.loads(file.read_text(encoding="utf-8")).get("bos_token_id") if file.exists() else None
            except (ValueError, AttributeError, RecursionError) as error:
                raise ValueError(f"{file}: not a JSON object ({type(error).__name__})") from None
            if type(begin) is int and begin >= 0:
                return begin
        return self.vocabulary.end[0]

    def _offers(self, count: int) -> bool:
        """Does the server return this many tokens?"""
        try:
            [logprobs] = self._logprobs([[self._first]], {"logprobs": count})
        except _Refused as error:
            if "logprobs" not in str(error):
                raise
            return False
        return _has_top(logprobs, count)  # a server may also give fewer without a word

    def _logprobs_of(self, prefix: Sequence[int], tokens: list[int]) -> Floats:
        found: list[float] = []
        for begin in range(0, len(tokens), MAX_ASKED):
            asked = tokens[begin : begin + MAX_ASKED]
            [logprobs] = self._logprobs([prefix], {"logprobs": len(asked), "logprob_token_ids": asked})
            if not logprobs.keys() >= set(asked):
                raise ModelError(
                    f"{self.url}: the server does not return the log-probabilities of given tokens, which the prefix "
                    "needs: vLLM does since it knows logprob_token_ids"
                )
            found += (logprobs[token] for token in asked)
        return np.array(found, np.float64)

    def _logprobs(self, prefixes: Sequence[Sequence[int]], asked: dict[str, Any]) -> list[dict[int, float]]:
        """What the server returns of the token after each prefix."""
        body = {
            "model": self.name,
            "prompt": [list(prefix) for prefix in prefixes],
            "max_tokens": 1,
            "return_tokens_as_token_ids": True,
            **_PLAIN,
            **asked,
        }
        max_bytes = MAX_ANSWER + BYTES_PER_TOKEN * len(prefixes) * (asked["logprobs"] + 1)
        answer = self._post(self.url + "/completions", body, max_bytes)
        try:
            choices = {choice["index"]: choice["logprobs"]["top_logprobs"][0] for choice in answer["choices"]}
            found = {index: _by_token_id(logprobs) for index, logprobs in choices.items()}
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            raise self._invalid("the answer has no log-probabilities by token id") from None
        if found.keys() != set(range(len(prefixes))):
            raise self._invalid(f"answers to {len(found)} of {len(prefixes)} prompts, or to others")
        return [found[number] for number in range(len(prefixes))]

    def _post(self, url: str, body: dict[str, Any], max_bytes: int = MAX_ANSWER) -> Any:
        connection_lost = False
        for pause in (*RETRY_DELAYS, None):
            try:
                status, answer = post(self._client, url, body, max_bytes=max_bytes, timeout=self._timeout)
            except NotJson:
                raise self._invalid("the answer is not JSON") from None
            except RequestFailed as error:
                failure = str(error)
                connection_lost = connection_lost or failure in _CONNECTION_LOST
            else:
                self._answered = True
                if status == 200:
                    return answer
                failure = f"status {status}: {self._redacted(_message(answer))}"
                if status not in _RETRIED:
                    raise _Refused(f"{self.url}: the server refuses: {failure}")
            if pause is not None:
                time.sleep(pause)
        if failure == _CONNECT_FAILED:
            failure += _gone_hint(body) if connection_lost or self._answered else _NEVER_ANSWERED
        raise ModelError(f"{self.url}: the server failed {len(RETRY_DELAYS) + 1} times: {failure}")

    def _redacted(self, message: str) -> str:
        """Without the key, which a server may echo."""
        return short(message.replace(self._key, "…") if self._key else message)

    def _invalid(self, what: str) -> ModelError:
        return ModelError(f"{self.url}: {what}: is this vLLM's API?")


def _gone_hint(body: Mapping[str, Any]) -> str:
    """A hint why the server is gone, with the shape of the request."""
    prompts = body.get("prompt")
    asked = ""
    if isinstance(prompts, list):
        longest = max(map(len, prompts))
        asked = f" ({len(prompts)} prompts of up to {longest} tokens, {body.get('logprobs')} log-probabilities each)"
    return (
        f": it was there before, so its process has most likely ended, perhaps by this very request{asked}. The end of "
        "its log says why (vLLM's standard error, `--vllm-log FILE`, or the container's log); an illegal instruction "
        "there is known of vLLM's build for the CPU on Intel machines with AMX"
    )


def _by_token_id(logprobs: dict[str, float]) -> dict[int, float]:
    """Log-probabilities by token id. Raises TypeError, ValueError or AttributeError for anything else."""
    found = {}
    for name, logprob in logprobs.items():
        match = _TOKEN.fullmatch(name)
        if match is None:
            raise ValueError(name)
        found[int(match[1])] = float(logprob)
    return found


def _has_top(logprobs: dict[int, float], count: int) -> bool:
    """Are these the `count` most likely tokens, or all that have any probability?"""
    return len(logprobs) >= count or math.fsum(math.exp(min(each, 0.0)) for each in logprobs.values()) >= 1 - ROUNDING


def _message(answer: Any) -> str:
    """The error message in a response."""
    try:
        message = answer.get("error", answer.get("detail", answer))
        return str(message if isinstance(message, str) else message["message"])
    except (KeyError, TypeError, AttributeError):
        return "no message"


def _encoder(tokenizer: Path) -> Callable[[str], list[int]]:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ModelError(f"canonical encodings need the tokenizer itself: {install_hint('audit')} tokenizers") from None
    try:
        encode = Tokenizer.from_file(str(tokenizer)).encode
    except Exception as error:  # it raises nothing more particular
        raise ModelError(f"{tokenizer}: the tokenizer cannot be read: {short(str(error))}") from None
    return lambda text: list(encode(text, add_special_tokens=False).ids)
