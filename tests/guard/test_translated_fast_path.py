"""A translated stream the fast path and the slow path: the same bytes."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.censor.compile import compile_policy
from gateway.guard.answer import StreamAnswer
from gateway.guard.commands import SendBytes
from gateway.guard.fast_path import FastPath
from gateway.guard.open import open_guard
from gateway.policy.model import Action, Policy, Rule
from gateway.wire import json, sse
from gateway.wire.chat import CHAT
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES

POLICY = Policy(
    name="p",
    rules=(
        Rule(id="r", words=("12MONKEYS",), replacement="[CENSORED]"),
        Rule(id="b", words=("FORBIDDEN",), action=Action.BLOCK, message="No."),
    ),
)
PIECES = ("", "It is ", "12MON", "KEYS", "1", 'a "quote"\n', "\u2028\x85é", "FORBID", "DEN", "😀")
BODY = {"model": "m", "input": "x", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}


def chunk_of(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return sse.encode(json.encode({**head, "choices": [choice]}))


def sent(dialect: Dialect, chunks: list[bytes], fast: bool) -> tuple[bytes, int]:
    """What a client gets, and how many chunks went the fast path."""
    assert dialect.translation is not None
    guard = open_guard(CHAT, compile_policy(POLICY))
    encoder = dialect.translation.encoder(BODY)
    answer = StreamAnswer(guard, max_event=1 << 16, max_whole=1 << 16, encoder=encoder)
    count = 0
    if fast:
        quick = encoder.content

        def counted(text: str) -> bytes | None:
            nonlocal count
            count += 1
            return quick(text)

        encoder.content = counted  # type: ignore[method-assign]
    else:
        answer._fast = None
    with patch.object(FastPath, "bytes_path", lambda *_: None):
        commands = [command for data in chunks for command in answer.feed(data, 0.0)] + answer.close(0.0)
    return b"".join(command.data for command in commands if isinstance(command, SendBytes)), count


@pytest.mark.parametrize("dialect", [RESPONSES, MESSAGES], ids=lambda dialect: dialect.path)
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=12),
    thought=st.sampled_from([None, 0, 3]),
    finish=st.sampled_from(["stop", "length", None]),
)
def test_both_ways_write_the_same(dialect: Dialect, pieces: list[str], thought: int | None, finish: str | None) -> None:
    chunks = [chunk_of({"role": "assistant", "content": ""}), *(chunk_of({"content": piece}) for piece in pieces)]
    if thought is not None:
        chunks.insert(thought + 1, chunk_of({"reasoning_content": "hm 12MONKEYS"}))
    chunks += [chunk_of({}, finish), sse.DONE] if finish else []
    assert sent(dialect, chunks, fast=True)[0] == sent(dialect, chunks, fast=False)[0]


@pytest.mark.parametrize("dialect", [RESPONSES, MESSAGES], ids=lambda dialect: dialect.path)
def test_most_of_a_stream_goes_the_fast_way(dialect: Dialect) -> None:
    chunks = [chunk_of({"content": f"word {number} "}) for number in range(50)]
    assert sent(dialect, chunks, fast=True)[1] == 49
