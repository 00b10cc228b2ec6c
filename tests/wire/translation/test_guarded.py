"""Chat answers through the guard and an encoder: what the official clients get."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from gateway.censor.compile import compile_policy
from gateway.guard.answer import BrokenAnswer, PlainAnswer, StreamAnswer
from gateway.guard.commands import RecordFact, SendBytes
from gateway.guard.open import open_guard
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Policy
from gateway.wire.chat import CHAT
from gateway.wire.translation.messages_answer import MessagesEncoder
from gateway.wire.translation.responses_answer import ResponsesEncoder
from tests.support.chat_streams import assembled, chunk, function, usage_chunk
from tests.support.guard_client import BLOCK, WORD, event, policy, script
from tests.support.replaying import Replay, replaying

Json = dict[str, Any]
Encoder = ResponsesEncoder | MessagesEncoder
REDACT = policy()
ASKED: Json = {
    "model": "m",
    "max_tokens": 10,
    "messages": [{"role": "user", "content": "x"}],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}
Read = Callable[[], Json]


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replaying() as server:
        yield server


@pytest.fixture(scope="module", params=["responses", "messages"])
def dialect(request: pytest.FixtureRequest, replay: Replay) -> tuple[Callable[..., Encoder], Read]:
    """The encoder, and the answer that the official client has when it has read the replayed stream."""
    if request.param == "responses":
        of_openai = openai.OpenAI(base_url=replay.base_url, api_key="k", max_retries=0)

        def read_response() -> Json:
            *_, last = of_openai.responses.create(model="m", input="x", stream=True)
            assert last.type in ("response.completed", "response.incomplete")
            return last.response.to_dict()

        return ResponsesEncoder, read_response
    of_anthropic = anthropic.Anthropic(base_url=replay.base_url, api_key="k", max_retries=0)

    def read_message() -> Json:
        with of_anthropic.messages.stream(**ASKED) as stream:
            message = stream.get_final_message().to_dict()
        message.pop("stop_details", None)  # the client's own
        return message

    return MessagesEncoder, read_message


def streamed(encoder: Encoder, *reads: bytes, compiled: Policy = REDACT) -> tuple[bytes, list[GuardFailed]]:
    answer = StreamAnswer(
        open_guard(CHAT, compile_policy(compiled)), max_event=1 << 16, max_whole=1 << 16, encoder=encoder
    )
    commands = [command for data in reads for command in answer.feed(data, 0.0)] + answer.close(0.0)
    failures = [each.fact for each in commands if isinstance(each, RecordFact) and isinstance(each.fact, GuardFailed)]
    return b"".join(each.data for each in commands if isinstance(each, SendBytes)), failures


def plain(encoder: Encoder, answer: Json, compiled: Policy = REDACT) -> Json:
    guarded = PlainAnswer(
        open_guard(CHAT, compile_policy(compiled)), max_event=1 << 16, max_whole=1 << 16, encoder=encoder
    )
    guarded.feed(json.dumps(answer).encode(), 0.0)
    shown: Json = json.loads(guarded.close(0.0))
    return shown


FIELDS: dict[str, Callable[[str], Json]] = {
    "content": lambda text: {"content": text},
    "refusal": lambda text: {"refusal": text},
    "reasoning": lambda text: {"reasoning": text},
    "arguments": lambda text: function(0, None, text),
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("cut", range(1, len(WORD)))
def test_a_secret_is_redacted_wherever_it_is_cut(
    field: str, cut: int, dialect: tuple[Callable[..., Encoder], Read], replay: Replay
) -> None:
    encoder, read = dialect
    chunks = [chunk(function(0, "tool", '{"a": "so '))] if field == "arguments" else [chunk(FIELDS[field]("so "))]
    chunks += [chunk(FIELDS[field](WORD[:cut])), chunk(FIELDS[field](WORD[cut:]))]
    chunks += [chunk(FIELDS[field]('"}' if field == "arguments" else " 1")), chunk({}, "stop"), usage_chunk()]
    whole = assembled(chunks)
    replay.answer, failures = streamed(encoder(ASKED), script(*chunks))
    assert not failures
    assert WORD.encode() not in replay.answer
    answer = read()
    assert "so [REDACTED]" in json.dumps(answer)
    assert plain(encoder(ASKED), whole) == answer


TEXTS_IN_PARTS: dict[str, list[Json]] = {
    "parts": [{"content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]}],
    "parts, one after the other": [
        {"content": [{"index": at, "type": "text", "text": text}]} for at, text in enumerate("AB")
    ],
    "a string and a part": [{"content": "A"}, {"content": [{"type": "text", "text": "B"}]}],
    "parts of reasoning": [{"reasoning": [{"text": "A"}, {"text": "B"}]}],
    "a function and a custom tool": [
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "A"}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "B"}}]},
    ],
}


@pytest.mark.parametrize("deltas", TEXTS_IN_PARTS.values(), ids=TEXTS_IN_PARTS)
@pytest.mark.parametrize("encoder", [ResponsesEncoder, MessagesEncoder])
def test_texts_that_were_scanned_apart_are_not_joined(encoder: Callable[..., Encoder], deltas: list[Json]) -> None:
    shown, _ = streamed(encoder(ASKED), script(*map(chunk, deltas), chunk({}, "stop")))
    assert b"in several parts" in shown
    if len(deltas) == 1:
        answer = {"choices": [{"index": 0, "message": {"role": "assistant", **deltas[0]}, "finish_reason": "stop"}]}
        with pytest.raises(BrokenAnswer, match="in several parts"):
            plain(encoder(ASKED), answer)


def test_a_block_ends_the_answer(dialect: tuple[Callable[..., Encoder], Read], replay: Replay) -> None:
    encoder, read = dialect
    chunks = [chunk({"content": f"so {WORD}"}), chunk({"content": "never"}), chunk({}, "stop")]
    replay.answer, _ = streamed(encoder(ASKED), script(*chunks), compiled=BLOCK)
    answer = read()
    assert "so Not shown." in json.dumps(answer)
    assert "never" not in json.dumps(answer)
    assert answer.get("stop_reason") == "refusal" or answer["incomplete_details"] == {"reason": "content_filter"}
    assert plain(encoder(ASKED), assembled(chunks), BLOCK) == answer


def test_an_upstream_that_ends_without_a_word(dialect: tuple[Callable[..., Encoder], Read], replay: Replay) -> None:
    encoder, read = dialect
    replay.answer, _ = streamed(encoder(ASKED), script(chunk({"content": "12M"}), chunk({}, "stop"), done=False))
    assert "12M" in json.dumps(read())
    replay.answer, _ = streamed(encoder(ASKED), script(chunk({"content": "12M"}), done=False))
    assert b"12M" in replay.answer
    with pytest.raises((openai.APIError, anthropic.APIError), match="before the answer had ended"):
        read()


def test_an_error_of_the_upstream_is_raised(dialect: tuple[Callable[..., Encoder], Read], replay: Replay) -> None:
    encoder, read = dialect
    error = {"error": {"message": f"I lost {WORD}.", "type": "server_error"}}
    replay.answer, _ = streamed(encoder(ASKED), event(chunk({"content": "x"})), event(error))
    with pytest.raises((openai.APIError, anthropic.APIError), match=r"I lost \[REDACTED\]"):
        read()


def test_an_answer_of_too_much_text_is_the_upstreams_fault(
    dialect: tuple[Callable[..., Encoder], Read], replay: Replay
) -> None:
    encoder, read = dialect
    chunks = [chunk({"content": "0123456789"}), chunk({"content": "0123456789"}), chunk({}, "stop")]
    replay.answer, failures = streamed(encoder(ASKED, max_text=15), *map(event, chunks))
    assert not failures
    with pytest.raises((openai.APIError, anthropic.APIError), match="more than 15 characters"):
        read()
    with pytest.raises(BrokenAnswer, match="more than 15 characters"):
        plain(encoder(ASKED, max_text=15), assembled(chunks))


def test_log_probabilities_come_with_their_text_and_leave_with_it() -> None:
    def spoken(*tokens: str) -> Json:
        entries = [
            {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []} for token in tokens
        ]
        return chunk({"content": "".join(tokens)}, logprobs={"content": entries, "refusal": None})

    chunks = [spoken("so ", WORD[:4]), spoken(WORD[4:], " it"), spoken(" is"), chunk({}, "stop")]
    data, _ = streamed(ResponsesEncoder(ASKED), *map(event, chunks), b"data: [DONE]\n\n")
    events = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]
    (item,) = events[-1]["response"]["output"]
    (part,) = item["content"]
    assert part["text"] == "so [REDACTED] it is"
    assert [entry["token"] for entry in part["logprobs"]] == ["so ", " it", " is"]
    deltas = [event["logprobs"] for event in events if event["type"] == "response.output_text.delta"]
    assert [entry for entries in deltas for entry in entries] == part["logprobs"]
    (whole,) = plain(ResponsesEncoder(ASKED), assembled(chunks))["output"]
    assert whole["content"][0]["text"] == part["text"]
    assert not {WORD[:4], WORD[4:]} & {entry["token"] for entry in whole["content"][0]["logprobs"]}


# What a translated answer repeats of its request, and other fields that clients read.
_OF_REQUESTS = (
    *("background", "instructions", "metadata", "tools", "tool_choice", "text", "user", "service_tier"),
    *("previous_response_id", "conversation", "prompt_cache_key", "safety_identifier", "truncation", "error"),
    *("incomplete_details", "object", "status", "type", "role", "stop_sequence", "stop_details", "container"),
)


@pytest.mark.parametrize("encoder", [ResponsesEncoder, MessagesEncoder])
def test_what_repeats_the_request_is_never_the_upstreams(encoder: Callable[[Json], Encoder]) -> None:
    """Even of an answer that nothing has scanned, none of it gets into the envelope."""
    upstreams = dict.fromkeys(_OF_REQUESTS, WORD)
    choice = {"index": 0, "finish_reason": "stop", **upstreams}
    whole = {**upstreams, "id": "a", "model": "m", "choices": [{**choice, "message": {"content": "x", **upstreams}}]}
    assert WORD not in json.dumps(encoder(ASKED).answer(whole))
    part = {**upstreams, "id": "a", "model": "m", "choices": [{**choice, "delta": {"content": "x", **upstreams}}]}
    streaming = encoder(ASKED)
    assert WORD.encode() not in streaming.events(part) + streaming.end()
