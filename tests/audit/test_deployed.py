"""What is asked of a gateway, what counts as an answer, and what a gateway that does not answer is told."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

import pytest

from gateway.audit.cli import gateway_client
from gateway.audit.cli.gateway_client import GatewayClient, GatewayError, GatewaySampling, Question
from tests.support.fake_gateway import Asked, Play, choices, gateway


def answers(play: Play, question: Question, samples: int = 3, key: str | None = None) -> tuple[list[str], Asked]:
    with gateway(play) as (url, asked), contextlib.closing(GatewayClient(url, "m", key)) as gate:
        return list(gate.answers(question, GatewaySampling(samples=samples, max_tokens=7, top_p=0.9))), asked


def test_one_greedy_answer_and_as_many_samples_as_wanted() -> None:
    texts, asked = answers(lambda _, body: choices(*["x"] * body.get("n", 1)), Question("My ", "number is"), key="k")
    assert texts == ["x"] * 4
    greedy = {"model": "m", "prompt": "My number is", "max_tokens": 7, "temperature": 0}
    drawn = {**greedy, "temperature": 1.0, "top_p": 0.9, "n": 3, "seed": 0}
    assert asked == [("/v1/completions", greedy, "Bearer k"), ("/v1/completions", drawn, "Bearer k")]


def test_a_server_that_gives_one_at_a_time_is_asked_again() -> None:
    texts, asked = answers(lambda _, body: choices(f"{body.get('seed', 'greedy')}"), Question("x"))
    assert texts == ["greedy", "0", "1", "2"]
    assert [body.get("n") for _, body, _ in asked] == [None, 3, 2, 1]


def test_a_chat_with_a_beginning_is_gone_on_with() -> None:
    messages: tuple[Mapping[str, str], ...] = ({"role": "user", "content": "Hi"},)
    for begun in ("", "My name"):
        _, asked = answers(lambda _, body: choices(*["x"] * body.get("n", 1)), Question(messages, begun))
        path, body, key = asked[0]
        assert (path, key) == ("/v1/chat/completions", None)
        more = [{"role": "assistant", "content": begun}] if begun else []
        assert body["messages"] == [*messages, *more]
        assert body.get("continue_final_message", False) is bool(begun)


def test_everything_that_is_said_counts_and_nothing_that_names() -> None:
    message = {
        "role": "assistant",
        "content": "said",
        "reasoning": "thought",
        "refusal": None,
        "tool_calls": [{"id": "call", "type": "function", "function": {"name": "tool", "arguments": '{"a": "b"}'}}],
    }
    body = json.dumps({"id": "x", "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
    texts, _ = answers(lambda *_: (200, body), Question("x"), samples=0)
    assert sorted(texts) == ["said", "thought", "tool", '{"a": "b"}']


def test_a_prompt_that_is_blocked_is_an_answer() -> None:
    blocked = json.dumps({"error": {"message": "m", "type": "t", "param": None, "code": "content_filter"}}).encode()
    texts, asked = answers(lambda *_: (400, blocked), Question("x"))
    assert (texts, len(asked)) == ([], 2)


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (401, b'{"error": {"type": "invalid_request_error", "code": "invalid_api_key", "message": "SECRET"}}',
         "answers with status 401 (invalid_request_error, invalid_api_key)"),
        (400, b'{"error": {"code": "\\u001b[31m"}}', "answers with status 400"),
        (502, b"<html>SECRET", "answers with status 502"),
        (200, b"<html>SECRET", "does not answer with JSON"),
        (200, b'{"choices": []}', "answers without a choice"),
        (200, b'["SECRET"]', "answers without a choice"),
        (200, b"[" * 100_000, "does not answer with JSON"),
    ],
)  # fmt: skip
def test_a_gateway_that_does_not_answer(status: int, answer: bytes, said: str) -> None:
    with pytest.raises(GatewayError) as failed:
        answers(lambda *_: (status, answer), Question("SECRET"))
    assert str(failed.value).endswith(said)
    assert "SECRET" not in str(failed.value)


def test_an_answer_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_client, "MAX_ANSWER", 1000)
    with pytest.raises(GatewayError, match="more than 1000 bytes"):
        answers(lambda *_: (200, b" " * 2000), Question("x"))


def test_nobody_is_there() -> None:
    with (
        contextlib.closing(GatewayClient("http://127.0.0.1:9/v1/", "m")) as gate,
        pytest.raises(GatewayError) as failed,
    ):
        list(gate.answers(Question("x"), GatewaySampling()))
    assert str(failed.value) == "http://127.0.0.1:9/v1/completions cannot be reached: ConnectError"


def test_a_question_shows_no_text() -> None:
    assert "secret" not in repr(Question("secret", "secret"))
