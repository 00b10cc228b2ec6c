"""Text completions without a network: an upstream's events through the guard, and what a client reads of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.guard.answer import BrokenAnswer, PlainAnswer, StreamAnswer
from gateway.guard.open import open_guard
from gateway.guard.pseudonyms import Pseudonyms
from gateway.observe.facts import TextScanned
from gateway.policy.model import Policy
from gateway.wire.completions import COMPLETIONS
from tests.support.compiled import compiled
from tests.support.guard_client import (
    MAX_EVENT,
    MAX_WHOLE,
    Client,
    append,
    balanced,
    script,
)

SEEN = "[REDACTED]"
HEAD = {"id": "qz", "object": "text_completion", "created": 1, "model": "mz"}
AROUND = ("index", "finish_reason", "logprobs", "stop_reason")


class Reader(Client):
    """Reads as the most forgiving client of this endpoint does: what stands around the text, it does not append."""

    def _add(self, value: Any) -> None:
        self.events.append(value)
        if not isinstance(value, dict):
            return
        if value.get("error"):
            self.errors.append(value["error"])
            return
        self.usage = value.get("usage") or self.usage
        assert not str(value.get("object")).startswith("chat")
        for choice in value["choices"]:
            index = choice.get("index", 0)
            assert index not in self.finish, "a choice has ended but once"
            assert "text" in choice
            append(self.messages.setdefault(index, {}), {k: v for k, v in choice.items() if k not in AROUND})
            if choice.get("finish_reason"):
                self.finish[index] = choice["finish_reason"]

    def said(self, index: int = 0) -> str:
        return str(self.messages.get(index, {}).get("text", ""))


def part(text: Any = "", index: Any = 0, finish: Any = None, **more: Any) -> dict[str, Any]:
    """An event of a stream; `more` stands in its choice."""
    return {**HEAD, "choices": [{"text": text, "index": index, "logprobs": None, "finish_reason": finish, **more}]}


def whole_of(*texts: Any, **more: Any) -> dict[str, Any]:
    choices = [{"text": t, "index": i, "logprobs": None, "finish_reason": "stop"} for i, t in enumerate(texts)]
    return {**HEAD, "choices": choices, **more}


def answer_for(policy: Policy, expected: int = 1, pseudonyms: Pseudonyms | None = None) -> StreamAnswer:
    guard = open_guard(COMPLETIONS, compiled(policy), expected, ("mz",), pseudonyms=pseudonyms)
    return StreamAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE, dialect=COMPLETIONS)


def play(policy: Policy, *reads: bytes, expected: int = 1, pseudonyms: Pseudonyms | None = None) -> Reader:
    answer, reader = answer_for(policy, expected, pseudonyms), Reader()
    for number, data in enumerate(reads):
        reader.take(answer.feed(data, float(number)))
    reader.take(answer.close(99.0))
    assert answer.done and balanced(reader.scanned)
    return reader


def stream(
    policy: Policy, *values: Any, expected: int = 1, done: bool = True, pseudonyms: Pseudonyms | None = None
) -> Reader:
    """All events in one read; then byte by byte, which must not differ."""
    data = script(*values, done=done)
    reader = play(policy, data, expected=expected, pseudonyms=pseudonyms)
    slowly = play(policy, *(data[at : at + 1] for at in range(len(data))), expected=expected, pseudonyms=pseudonyms)
    assert slowly.raw.replace(b":\n\n", b"") == reader.raw.replace(b":\n\n", b"")
    return reader


def plain(policy: Policy, *reads: bytes, expected: int = 1) -> tuple[dict[str, Any], TextScanned]:
    guard = open_guard(COMPLETIONS, compiled(policy), expected, ("mz",))
    answer = PlainAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE, dialect=COMPLETIONS)
    for data in reads:
        answer.feed(data, 0.0)
    body = json.loads(answer.close(1.0))
    assert balanced(guard.counts.fact())
    return body, guard.counts.fact()


def broken(policy: Policy, *reads: bytes) -> dict[str, Any]:
    with pytest.raises(BrokenAnswer) as caught:
        plain(policy, *reads)
    return dict(caught.value.failure["error"])


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


def splits(text: str, most: int) -> Iterator[list[str]]:
    """Every way to cut a text in at most so many pieces."""
    for count in range(most):
        for places in itertools.combinations(range(1, len(text)), count):
            yield [text[a:b] for a, b in itertools.pairwise((0, *places, len(text)))]
