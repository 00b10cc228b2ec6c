"""A request of `/messages` as the chat request it becomes, or the field that it is refused for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from openai.types.chat.chat_completion_tool_choice_option_param import ChatCompletionToolChoiceOptionParam
from openai.types.chat.completion_create_params import ResponseFormat
from pydantic import TypeAdapter

from gateway.wire.dialect import BadRequest
from gateway.wire.translation.messages_request import FIELDS, to_chat

Json = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
TOOL = {"name": "get", "description": "Gets.", "input_schema": SCHEMA}
CACHED = {"cache_control": {"type": "ephemeral"}}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
CHAT_PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
USE = {"type": "tool_use", "id": "t1", "name": "get", "input": {"x": 1}}
CHAT_CALL = {"id": "t1", "type": "function", "function": {"name": "get", "arguments": '{"x":1}'}}
HI = {"role": "user", "content": "hi"}


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def result(content: Any = "42", **rest: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": "t1", "content": content, **rest}


FOUND = {"type": "tool_reference", "tool_name": "get"}


def effort(level: str) -> Json:
    return {"role": "system", "content": [], "output_config": {"effort": level}}


def change(kind: str, name: str) -> Json:
    return {"role": "system", "content": [{"type": kind, "tool": {"type": "tool_reference", "name": name}, **CACHED}]}


def defined(name: str) -> Json:
    tool = {"type": "tool_definition", "definition": {**TOOL, "name": name}}
    return {"role": "system", "content": [text("now:"), {"type": "tool_addition", "tool": tool}]}


# name: what follows the first question, and the names of the tools that are offered; `late` is deferred.
OFFERS: dict[str, tuple[list[Json], list[str]]] = {
    "deferred": ([], ["get"]),
    "referred to by a result": ([assistant(USE), user(result([{**FOUND, "tool_name": "late"}]))], ["get", "late"]),
    "offered": ([change("tool_addition", "late")], ["get", "late"]),
    "withdrawn": ([change("tool_removal", "get")], []),
    "withdrawn and offered again": ([change("tool_removal", "get"), HI, change("tool_addition", "get")], ["get"]),
    "offered and withdrawn": ([change("tool_addition", "late"), HI, change("tool_removal", "late")], ["get"]),
    "defined": ([defined("new")], ["get", "new"]),
    "defined again": ([defined("late")], ["get", "late"]),
}

# name: what follows the first question, and the effort of the answer; `high` is the request's
EFFORTS: dict[str, tuple[list[Json], str]] = {
    "none changes it": ([], "high"),
    "for the turn before": ([effort("low")], "low"),
    "behind other instructions": ([{"role": "system", "content": "b"}, effort("low")], "low"),
    "for the next turn": ([assistant(text("a")), effort("low"), HI], "low"),
    "not for results": ([assistant(USE), effort("low"), user(result())], "high"),
    "after results": ([assistant(USE), user(result()), effort("low")], "high"),
    "once there is input": ([assistant(USE), user(result()), effort("low"), assistant(text("a")), HI], "low"),
    "input beside results": ([assistant(USE), effort("low"), user(result(), text("b"))], "low"),
    "twice": ([effort("low"), assistant(text("a")), HI, effort("max")], "max"),
}


# name: system, messages, messages of chat
CONVERSATIONS: dict[str, tuple[Any, list[Json], list[Json]]] = {
    "a string": (None, [HI], [HI]),
    "a system prompt": ("Be.", [HI], [{"role": "system", "content": "Be."}, HI]),
    "a system prompt of blocks": (
        [text("a"), {**text("b"), **CACHED}],
        [HI],
        [{"role": "system", "content": "a\n\nb"}, HI],
    ),
    "a system message": (
        "a",
        [{"role": "system", "content": "b"}, HI, {"role": "system", "content": [text("c")]}, HI],
        [{"role": "system", "content": "a\n\nb"}, HI, {"role": "system", "content": "c"}, HI],
    ),
    "one block": (None, [user({**text("hi"), **CACHED})], [HI]),
    "several blocks": (None, [user(text("a"), text("b"))], [user(text("a"), text("b"))]),
    "pictures": (
        None,
        [user(text("a"), PNG, {"type": "image", "source": {"type": "url", "url": "http://p"}})],
        [user(text("a"), CHAT_PNG, {"type": "image_url", "image_url": {"url": "http://p"}})],
    ),
    "documents": (
        None,
        [
            user(
                {
                    "type": "document",
                    "title": "t",
                    "context": "c",
                    "citations": {"enabled": False},
                    "source": {"type": "text", "media_type": "text/plain", "data": "d"},
                },
                {"type": "document", "source": {"type": "content", "content": [text("e"), PNG]}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}},
            )
        ],
        [
            user(
                *(text("t"), text("c"), text("d"), text("e"), CHAT_PNG),
                {
                    "type": "file",
                    "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,AA"},
                },
            )
        ],
    ),
    "a turn with calls": (
        None,
        [
            HI,
            assistant(
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                text("I "),
                text("look."),
                USE,
                {**USE, "id": "t2", "input": {}},
            ),
            user(text("and?"), result(), {**result([text("43")], is_error=True), "tool_use_id": "t2"}),
            assistant(text("42")),
            HI,
        ],
        [
            HI,
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    CHAT_CALL,
                    {"id": "t2", "type": "function", "function": {"name": "get", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "t1", "content": "42"},
            {"role": "tool", "tool_call_id": "t2", "content": "43"},
            {"role": "user", "content": "and?"},
            {"role": "assistant", "content": "42"},
            HI,
        ],
    ),
    "calls alone": (
        None,
        [assistant(USE), user(result(None))],
        [{"role": "assistant", "tool_calls": [CHAT_CALL]}, {"role": "tool", "tool_call_id": "t1", "content": ""}],
    ),
    "a picture from a tool": (
        None,
        [assistant(USE), user(result([text("seen"), PNG]))],
        [
            {"role": "assistant", "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "t1", "content": "seen"},
            user(CHAT_PNG),
        ],
    ),
}

# name: fields of the request, fields of the chat request beside `model` and `messages`
CASES: dict[str, tuple[Json, Json]] = {
    "the same in both": ({"temperature": 0, "top_p": 0.5}, {"temperature": 0, "top_p": 0.5}),
    "known to neither": ({"top_k": 3}, {"top_k": 3}),
    "nothing is switched on": (
        {**dict.fromkeys(FIELDS.refused, None), "tools": [], "stop_sequences": [], "system": "", "speed": "standard"},
        {},
    ),
    "without effect": (
        {
            "cache_control": {"type": "ephemeral"},
            "service_tier": "auto",
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        },
        {},
    ),
    "a stream": ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    "limits": ({"max_tokens": 7, "stop_sequences": ["a"]}, {"max_completion_tokens": 7, "stop": ["a"]}),
    "the user": ({"metadata": {"user_id": "u"}}, {"user": "u"}),
    "the effort": ({"output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
    **{
        place: (
            given,
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
                }
            },
        )
        for place, given in {
            "a schema": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            "a schema in the beta's place": {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        }.items()
    },
    "tools": (
        {"tools": [{**TOOL, **CACHED, "type": "custom", "strict": True, "allowed_callers": ["direct"]}]},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "get", "description": "Gets.", "strict": True, "parameters": SCHEMA},
                }
            ],
        },
    ),
    "any tool, one": (
        {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        {"tool_choice": "required", "parallel_tool_calls": False},
    ),
    "no tool": ({"tools": [TOOL], "tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
    "a chosen tool": (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "get"}},
        {"tool_choice": {"type": "function", "function": {"name": "get"}}},
    ),
}

# fields of the request, the field that the refusal names
REFUSALS: list[tuple[Json, str]] = [
    *(({field: ["x"]}, field) for field in FIELDS.refused),
    ({"speed": "fast"}, "speed"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": ["x"]}, "messages[0]"),
    ({"messages": [HI, {"role": "assistant", "content": "{"}]}, "messages[1]"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{**HI, "name": "n"}]}, "messages[0].name"),
    ({"system": [PNG]}, "system[0]"),
    ({"system": [{"type": "text"}]}, "system[0].text"),
    *(
        ({"tools": [TOOL, {"type": kind, "name": "n"}]}, "tools[1]")
        for kind in (
            *("web_search_20250305", "web_fetch_20250910", "bash_20250124", "text_editor_20250728", "mcp_toolset"),
            *("code_execution_20250825", "computer_20250124", "memory_20250818", "tool_search_tool_bm25_20251119"),
            *(3, ["x"], "a secret !"),
        )
    ),
    ({"tools": [{"name": "n"}]}, "tools[0].input_schema"),
    ({"tools": [{"input_schema": SCHEMA}]}, "tools[0].name"),
    ({"tools": [TOOL, TOOL]}, "tools[1].name"),
    ({"messages": [HI, change("tool_addition", "get")]}, "messages[1].content[0]"),
    ({"tools": [TOOL], "messages": [HI, change("tool_removal", "x")]}, "messages[1].content[0]"),
    *(
        (
            {"messages": [HI, {"role": "system", "content": [{"type": kind, "tool": tool}]}]},
            f"messages[1].content[0].{place}",
        )
        for kind, tool, place in (
            ("tool_addition", {"type": "mcp_toolset_reference", "server_name": "s"}, "tool"),
            ("tool_addition", None, "tool"),
            ("tool_addition", {"type": "tool_definition", "definition": {**TOOL, "name": 3}}, "tool.definition.name"),
            ("tool_addition", {"type": "tool_definition", "definition": {"name": "x"}}, "tool.definition.input_schema"),
            ("tool_removal", {"type": "tool_definition", "definition": TOOL}, "tool"),
        )
    ),
    ({"messages": [HI, {"role": "system", "content": [], "output_config": {"x": 1}}]}, "messages[1].output_config.x"),
    ({"messages": [{**HI, "output_config": {"effort": "low"}}]}, "messages[0].output_config"),
    ({"tools": [{**TOOL, "allowed_callers": ["code_execution_20250825"]}]}, "tools[0].allowed_callers"),
    ({"tools": ["x"]}, "tools[0]"),
    ({"tools": [TOOL], "tool_choice": {"type": "x"}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice"),
    ({"thinking": {"type": "x"}}, "thinking"),
    ({"thinking": "x"}, "thinking"),
    ({"stop_sequences": "x"}, "stop_sequences"),
    ({"output_config": {"x": 1}}, "output_config.x"),
    ({"output_config": {"format": {"type": "x"}}}, "output_config.format"),
    ({"output_format": {"type": "json_schema", "schema": SCHEMA, "name": "n"}}, "output_format.name"),
    ({"metadata": {"x": "y"}}, "metadata.x"),
    ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management.edits[0]"),
    *(
        ({"messages": [HI, assistant({"type": kind}), HI]}, "messages[1].content[0]")
        for kind in ("server_tool_use", "web_search_tool_result", "mcp_tool_use", "compaction", None, 3, {})
    ),
    *(
        ({"messages": [user({"type": kind})]}, "messages[0].content[0]")
        for kind in ("search_result", "container_upload", "tool_use", "thinking")
    ),
    (
        {"messages": [user({"type": "image", "source": {"type": "file", "file_id": "f"}})]},
        "messages[0].content[0].source",
    ),
    ({"messages": [user({"type": "image"})]}, "messages[0].content[0].source"),
    (
        {"messages": [user({"type": "document", "source": {"type": "url", "url": "u"}})]},
        "messages[0].content[0].source",
    ),
    (
        {"messages": [user({"type": "document", "citations": {"enabled": True}})]},
        "messages[0].content[0].citations.enabled",
    ),
    ({"messages": [user(result([{"type": "tool_reference"}]))]}, "messages[0].content[0].content[0].tool_name"),
    ({"messages": [user(result([FOUND]))]}, "messages[0].content[0].content[0]"),
    ({"messages": [user({"type": "tool_result"})]}, "messages[0].content[0].tool_use_id"),
    ({"messages": [assistant({**USE, "input": "{}"}), HI]}, "messages[0].content[0].input"),
    ({"messages": [assistant({**text("x"), "odd": 1}), HI]}, "messages[0].content[0].odd"),
]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation(name: str) -> None:
    system, messages, expected = CONVERSATIONS[name]
    body = {"model": "m", "messages": messages, **({"system": system} if system else {})}
    before = copy.deepcopy(body)
    assert to_chat(body) == {"model": "m", "messages": expected}
    assert body == before
    for each in expected:
        TypeAdapter(ChatCompletionMessageParam).validate_python(each)


@pytest.mark.parametrize("name", OFFERS)
def test_the_tools_that_a_conversation_offers(name: str) -> None:
    messages, expected = OFFERS[name]
    late = {**TOOL, "name": "late", "defer_loading": True}
    chat = to_chat({"model": "m", "messages": [HI, *messages], "tools": [TOOL, late]})
    assert [tool["function"]["name"] for tool in chat.get("tools", ())] == expected
    for each in chat["messages"]:
        TypeAdapter(ChatCompletionMessageParam).validate_python(each)
    assert all(each["content"] for each in chat["messages"] if each["role"] == "system")


@pytest.mark.parametrize("name", EFFORTS)
def test_the_effort_that_a_conversation_asks_for(name: str) -> None:
    messages, expected = EFFORTS[name]
    body = {"model": "m", "messages": [HI, *messages], "output_config": {"effort": "high"}}
    assert to_chat(body)["reasoning_effort"] == expected


@pytest.mark.parametrize("name", CASES)
def test_a_field(name: str) -> None:
    given, expected = CASES[name]
    chat = to_chat({"model": "m", "messages": [HI], **given})
    rest = {"tools", "tool_choice"} - expected.keys()
    assert {field: chat[field] for field in chat if field not in {"model", "messages", *rest}} == expected
    for tool in chat.get("tools", ()):
        TypeAdapter(ChatCompletionToolUnionParam).validate_python(tool)
    if "tool_choice" in chat:
        TypeAdapter(ChatCompletionToolChoiceOptionParam).validate_python(chat["tool_choice"])
    if "response_format" in chat:
        TypeAdapter(ResponseFormat).validate_python(chat["response_format"])


@pytest.mark.parametrize(("given", "param"), REFUSALS, ids=str)
def test_what_cannot_be_translated_is_refused_by_name(given: Json, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        to_chat({"model": "m", "messages": [HI], **given})
    assert refused.value.param == param
    assert f"`{param}`" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_field_has_one_fate() -> None:
    names = [*FIELDS.translated, *FIELDS.without_effect, *FIELDS.refused]
    assert len(set(names)) == len(names)


def test_a_thread_is_refused_with_the_code_for_which_the_official_client_sends_all_messages() -> None:
    with pytest.raises(BadRequest) as raised:
        to_chat({"model": "m", "max_tokens": 1, "messages": [HI], "thread": {"type": "create"}})
    assert (raised.value.param, raised.value.code) == ("thread", "thread_unsupported_request")
