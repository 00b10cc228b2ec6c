"""Whatever a client or an upstream sends: a translation, or the error that says why there is none."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire import json, sse
from gateway.wire.dialect import BadRequest, UntranslatableAnswer
from gateway.wire.translation import messages_request, responses_request
from gateway.wire.translation.messages_answer import MessagesEncoder
from gateway.wire.translation.responses_answer import ResponsesEncoder
from tests.support.chat_streams import HEAD
from tests.support.examples import examples

Json = dict[str, Any]
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.floats(0, 2), st.sampled_from(["", "a", "user"]))


def objects(fields: tuple[str, ...], types: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """JSON of these fields, whose objects mostly have one of these types."""
    return st.recursive(
        SCALAR,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(fields), inner, max_size=4).flatmap(
                lambda given: st.sampled_from([*({**given, "type": kind} for kind in types), given])
            ),
        ),
        max_leaves=12,
    )


RESPONSES = objects(
    (
        *("input", "role", "content", "text", "output", "call_id", "name", "arguments", "image_url", "summary"),
        *("format", "schema", "tools", "mode", "effort", "refusal", "function", "odd"),
    ),
    (
        *("message", "input_text", "output_text", "refusal", "input_image", "function", "custom", "function_call"),
        *("function_call_output", "reasoning", "custom_tool_call", "grammar", "allowed_tools", "json_schema", "odd"),
    ),
)
MESSAGES = objects(
    (
        *("role", "content", "text", "source", "data", "url", "media_type", "id", "name", "input", "tool_use_id"),
        *("input_schema", "format", "edits", "effort", "title", "user_id", "citations", "odd"),
    ),
    (
        *("text", "image", "document", "tool_use", "tool_result", "thinking", "base64", "url", "content", "custom"),
        *("tool", "any", "enabled", "json_schema", "clear_thinking_1", "odd"),
    ),
)
REQUESTS = [
    pytest.param(module, encoder, values, {"model": "m", **rest}, id=name)
    for name, module, encoder, values, rest in (
        ("responses", responses_request, ResponsesEncoder, RESPONSES, {"input": "x"}),
        (
            "messages",
            messages_request,
            MessagesEncoder,
            MESSAGES,
            {"messages": [{"role": "user", "content": "x"}]},
        ),
    )
]
ENCODERS = [ResponsesEncoder, MessagesEncoder]
LISTED = {"input", "messages", "tools"}


@pytest.mark.parametrize(("module", "encoder", "values", "body"), REQUESTS)
def test_any_request(module: Any, encoder: Any, values: st.SearchStrategy[Any], body: Json) -> None:
    fields = st.sampled_from([*module.FIELDS.translated, *module.FIELDS.refused])

    @settings(max_examples=examples(400))
    @given(field=fields, value=values, listed=st.booleans(), tools=st.booleans())
    def check(field: str, value: Any, listed: bool, tools: bool) -> None:
        given = {**body, field: [value] if listed and field in LISTED else value}
        if tools and field == "tool_choice":
            given["tools"] = [{"type": "function", "name": "t"}] if module is responses_request else []
        before = copy.deepcopy(given)
        written = encoder(given)
        try:
            chat = module.to_chat(given)
        except BadRequest as error:
            assert error.param is not None
            assert error.param.split("[")[0].split(".")[0] in (field, "tools")
            return
        assert given == before
        assert chat["messages"]
        json.encode(chat)
        assert written.end().endswith(b"\n\n")

    check()


CHUNK = objects(
    (
        *("content", "refusal", "reasoning", "reasoning_content", "tool_calls", "index", "id", "function", "custom"),
        *("name", "arguments", "input", "text", "annotations", "url_citation", "top_logprobs", "token", "bytes"),
        *("prompt_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens"),
    ),
    ("function", "custom", "url_citation", "text"),
)


@st.composite
def odd_chunks(draw: st.DrawFn) -> Json:
    delta = draw(st.dictionaries(st.sampled_from(["content", "refusal", "reasoning", "tool_calls"]), CHUNK, max_size=3))
    if draw(st.booleans()):
        delta["tool_calls"] = draw(st.lists(CHUNK, max_size=3))
    choice: Json = {"index": 0, "delta": draw(st.sampled_from([delta, None])), "logprobs": {"content": draw(CHUNK)}}
    choice["finish_reason"] = draw(st.sampled_from([None, None, "stop", "odd", 3]))
    return {**HEAD, "id": draw(SCALAR), "usage": draw(CHUNK), "choices": draw(st.sampled_from([[choice], [], None]))}


@pytest.mark.parametrize("encoder", ENCODERS)
@settings(max_examples=examples(400))
@given(chunks=st.lists(odd_chunks(), max_size=4))
def test_any_answer(encoder: Any, chunks: list[Json]) -> None:
    written = encoder({"model": "m"})
    data = b"".join([*map(written.events, chunks), written.end()])
    assert len(sse.Decoder(1 << 20).feed(data)) >= 3
    for each in chunks:
        answer = {**each, "choices": [{**c, "message": c.pop("delta")} for c in each["choices"] or ()]}
        try:
            json.encode(encoder({"model": "m"}).answer(answer))
        except UntranslatableAnswer:
            assert encoder is MessagesEncoder
