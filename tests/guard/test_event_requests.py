"""Requests to `/responses` and `/messages`: where their prompts are, what of them is refused and dropped."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.guard.constrained import asks_for_json
from gateway.guard.prompt import BadRequest, apply_request_table, guard_prompt, read_request
from gateway.policy.model import Action, Direction, Policy, Rule
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from tests.support.guard_client import WORD
from tests.support.message_streams import SIGNATURE

SEEN = "[REDACTED]"
PICTURE = "iVBORw0KGgo" + "AAAA" * 20 + "AAAAA"
Body = dict[str, Any]

RESPONSE: Body = {
    "model": "m",
    "instructions": WORD,
    "input": [
        {"role": "user", "content": WORD},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": WORD}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": WORD, "annotations": []}]},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": WORD}]},
        {"type": "function_call", "call_id": "c", "name": WORD, "arguments": json.dumps({"a": WORD})},
        {"type": "function_call_output", "call_id": "c", "output": WORD},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": WORD}]},
        {"type": "custom_tool_call", "call_id": "d", "name": "f", "input": WORD},
        {"role": "user", "content": [{"type": "input_file", "filename": WORD, "file_data": "data:text/plain," + WORD}]},
    ],
    "prompt": {"id": "p", "variables": {"a": WORD, "b": {"type": "input_text", "text": WORD}}},
    "tools": [{"type": "function", "name": WORD, "description": WORD, "parameters": {"title": WORD}}],
    "metadata": {"a": WORD},
}
MESSAGE: Body = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": WORD, "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": WORD},
        {"role": "user", "content": [{"type": "text", "text": WORD}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": WORD, "input": {"a": [WORD]}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": WORD}]},
        {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": WORD}]}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": WORD, "signature": SIGNATURE}]},
        {"role": "user", "content": [{"type": "document", "title": WORD, "source": {"type": "text", "data": WORD}}]},
    ],
    "tools": [{"name": WORD, "description": WORD, "input_schema": {"type": "object", "description": WORD}}],
    "metadata": {"user_id": WORD},
}
EACH = pytest.mark.parametrize(("dialect", "body"), [(RESPONSES, RESPONSE), (MESSAGES, MESSAGE)], ids=["r", "m"])


def policy(*words: str, **given: Any) -> Policy:
    rule = Rule(id="r", words=words or (WORD,), apply_to=frozenset(Direction), **given)
    return Policy(name="p", rules=(rule,))


def guarded(dialect: Dialect, body: Body, with_policy: Policy) -> tuple[Body, Any]:
    made = copy.deepcopy(body)
    compiled = compile_policy(with_policy)
    read_request(made, dialect)
    apply_request_table(made, compiled, dialect)
    return made, guard_prompt(made, compiled, None, dialect)


@EACH
def test_a_word_is_taken_out_of_every_place(dialect: Dialect, body: Body) -> None:
    made, prompt = guarded(dialect, body, policy())
    assert prompt.refusal is None and prompt.rule is None
    written = json.dumps(made)
    assert WORD not in written and written == json.dumps(body).replace(WORD, SEEN).replace(
        "data:text/plain,[", "data:text/plain,%5B"
    ).replace("%5BREDACTED]", "%5BREDACTED%5D")


@EACH
def test_a_word_in_any_place_blocks(dialect: Dialect, body: Body) -> None:
    _, prompt = guarded(dialect, body, policy(action=Action.BLOCK))
    assert prompt.rule is not None


@EACH
def test_words_of_the_protocol_stay(dialect: Dialect, body: Body) -> None:
    clean = json.loads(json.dumps(body).replace(WORD, "zz"))
    words = ("type", "text", "input", "output", "content", "user", "message", "tool", "function", "summary", "role")
    made, prompt = guarded(dialect, clean, policy(*words))
    assert prompt.refusal is None and made == clean


def test_pictures_signatures_and_what_nobody_can_read_stay() -> None:
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
    opaque = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAAAAB" + "_x-9" * 20 + "A"}
    output = {"type": "function_call_output", "call_id": "c", "output": [picture]}
    body = {"model": "m", "input": [{"role": "user", "content": [picture]}, opaque, output]}
    made, _ = guarded(RESPONSES, body, policy("AAAA", "x-9"))
    assert made == body
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
    thinking = {"type": "thinking", "thinking": "zz", "signature": SIGNATURE}
    content = [image, {"type": "tool_result", "tool_use_id": "t", "content": [image]}, thinking]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    made, _ = guarded(MESSAGES, body, policy("AAAA", SIGNATURE[4:9]))
    assert made == body


BAD: list[tuple[Dialect, Body, str]] = [
    (RESPONSES, {}, "input"),
    (RESPONSES, {"input": 7}, "input"),
    (RESPONSES, {"input": ["x"]}, "input[0]"),
    (RESPONSES, {"input": "x", "instructions": 7}, "instructions"),
    (RESPONSES, {"input": "x", "prompt": "x"}, "prompt"),
    (RESPONSES, {"input": "x", "chat_template": "x"}, "chat_template"),
    (RESPONSES, {"Input": "x"}, "input"),
    (MESSAGES, {}, "messages"),
    (MESSAGES, {"messages": []}, "messages"),
    (MESSAGES, {"messages": ["x"]}, "messages[0]"),
    (MESSAGES, {"messages": [{}], "system": 7}, "system"),
    (MESSAGES, {"messages": [{}], "vllm_xargs": {}}, "vllm_xargs"),
]


@pytest.mark.parametrize(("dialect", "fields", "param"), BAD, ids=lambda each: str(each)[:30])
def test_what_no_upstream_could_take_is_refused_by_name(dialect: Dialect, fields: Body, param: str) -> None:
    with pytest.raises(BadRequest) as raised:
        guarded(dialect, {"model": "m", **fields}, policy())
    assert raised.value.param == param


def test_what_needs_no_input_has_none() -> None:
    for fields in ({"prompt": {"id": "p"}}, {"previous_response_id": "resp_1"}, {"conversation": "conv_1"}):
        made, _ = guarded(RESPONSES, {"model": "m", **fields}, policy())
        assert made == {"model": "m", **fields}


def test_what_would_send_tokens_is_dropped() -> None:
    made, _ = guarded(RESPONSES, {"model": "m", "input": "x", "enable_response_messages": True}, policy())
    assert made == {"model": "m", "input": "x"}


def test_a_prompt_that_is_too_deep_is_refused() -> None:
    deep: Any = WORD
    for _ in range(100):
        deep = [deep]
    _, prompt = guarded(RESPONSES, {"model": "m", "input": [{"role": "user", "content": deep}]}, policy())
    assert prompt.refusal is not None
    _, prompt = guarded(MESSAGES, {"model": "m", "messages": [{"role": "user", "content": deep}]}, policy())
    assert prompt.refusal is not None


@pytest.mark.parametrize(
    "body",
    [
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
        {"text": {"format": {"type": "json_object"}}},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
        {"output_format": {"type": "json_schema", "schema": {}}},
    ],
)
def test_structured_output_is_recognised(body: Body) -> None:
    assert asks_for_json(body, policy())
    assert not asks_for_json({"text": {"format": {"type": "text"}}}, policy())
