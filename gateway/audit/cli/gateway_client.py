"""Client of a running gateway, for verification: the texts of its answers to what led to findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from gateway.audit.models.http import MAX_ANSWER, NotJson, RequestFailed, client, post

TIMEOUT = httpx2.Timeout(300.0, connect=10.0)  # seconds, for each read
ANSWER_TIMEOUT = 600.0  # seconds for an answer

# Fields of a choice that are no text of the answer.
_LABELS = frozenset({"role", "id", "type", "index", "finish_reason", "stop_reason"})
_STOPPED = "content_filter"  # of an answer or a prompt that the gateway blocked


class GatewayError(Exception):
    """The gateway does not answer, or not as an OpenAI-compatible server."""


@dataclass(frozen=True, slots=True)
class Question:
    """What leads to a string that was found: a prompt to be continued, or the messages of a chat. `begun` is the
    beginning of the answer, which the model is given, too."""

    prompt: str | tuple[Mapping[str, str], ...] = field(repr=False)
    begun: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySampling:
    """How answers are drawn: `samples` of them at `temperature`, and one more that is greedy."""

    samples: int = 20
    max_tokens: int = 64
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0


class GatewayClient:
    """A gateway at a base URL, with `/v1` at its end or without. `key` is a client's key. Raises GatewayError if
    nothing can be sent from here."""

    def __init__(self, url: str, model: str, key: str | None = None) -> None:
        base = url.rstrip("/")
        self._base = base if base.endswith("/v1") else f"{base}/v1"
        self._model = model
        try:
            self._client = client(key, TIMEOUT)
        except RequestFailed as error:
            raise GatewayError(f"{self._base}: {error}") from None

    def close(self) -> None:
        self._client.close()

    def answers(self, question: Question, sampling: GatewaySampling) -> Iterator[str]:
        """All texts of the answers to a question. Raises GatewayError."""
        yield from self._request(question, {"max_tokens": sampling.max_tokens, "temperature": 0})[1]
        left = sampling.samples
        while left:
            drawn = {
                "max_tokens": sampling.max_tokens,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "n": left,
                "seed": sampling.seed + sampling.samples - left,
            }
            # A server may return fewer than requested.
            count, texts = self._request(question, drawn)
            yield from texts
            left = max(left - count, 0)

    def _request(self, question: Question, drawn: Mapping[str, object]) -> tuple[int, list[str]]:
        """The number of answers, and their texts."""
        asked: dict[str, object]
        if isinstance(question.prompt, str):
            path, asked = "/completions", {"prompt": question.prompt + question.begun}
        else:
            path, asked = "/chat/completions", _chat(question.prompt, question.begun)
        status, answer = self._post(path, {"model": self._model, **asked, **drawn})
        error = answer.get("error") if isinstance(answer, dict) else None
        error = error if isinstance(error, dict) else {}
        if status == 400 and error.get("code") == _STOPPED:
            return int(str(drawn.get("n", 1))), []
        if status != 200:
            raise GatewayError(f"{self._base}{path} answers with status {status}{_reason(error)}")
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or not choices:
            raise GatewayError(f"{self._base}{path} answers without a choice")
        return len(choices), [text for choice in choices for text in _texts(choice)]

    def _post(self, path: str, body: Mapping[str, object]) -> tuple[int, Any]:
        try:
            return post(self._client, self._base + path, body, max_bytes=MAX_ANSWER, timeout=ANSWER_TIMEOUT)
        except NotJson:
            raise GatewayError(f"{self._base}{path} does not answer with JSON") from None
        except RequestFailed as error:
            raise GatewayError(f"{self._base}{path} cannot be reached: {error}") from None


def _chat(messages: Sequence[Mapping[str, str]], begun: str) -> dict[str, object]:
    if not begun:
        return {"messages": list(messages)}
    # vLLM continues with the last message then, in place of a new one.
    return {
        "messages": [*messages, {"role": "assistant", "content": begun}],
        "continue_final_message": True,
        "add_generation_prompt": False,
    }


def _texts(value: object) -> Iterator[str]:
    """Every text in a choice."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str(text):
                yield text
            case dict(fields):
                waiting += [field for name, field in fields.items() if name not in _LABELS]
            case list(items):
                waiting += items


def _reason(error: Mapping[str, object]) -> str:
    """The kind of an error; its message may quote the request."""
    named = (error.get(key) for key in ("type", "code"))
    known = [each for each in named if isinstance(each, str) and each.isascii() and each.isprintable()]
    return f" ({', '.join(known)[:100]})" if known else ""
