"""A request of `/responses` as the chat request it becomes, or the field that it is refused for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from openai.types.chat.chat_completion_tool_choice_option_param import ChatCompletionToolChoiceOptionParam
from openai.types.chat.completion_create_params import ResponseFormat
from pydantic import TypeAdapter

from gateway.wire.dialect import BadRequest
from gateway.wire.translation.responses_request import FIELDS, to_chat

Json = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
FUNCTION = {"type": "function", "name": "get", "description": "Gets.", "parameters": SCHEMA, "strict": True}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "get", "arguments": "{}", "status": "completed"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "get", "arguments": "{}"}}


def message(role: str, *parts: Json | str) -> Json:
    return {"type": "message", "role": role, "content": [_part(role, part) for part in parts]}


def _part(role: str, part: Json | str) -> Json:
    return (
        part
        if isinstance(part, dict)
        else {"type": "output_text" if role == "assistant" else "input_text", "text": part}
    )


# name: input, instructions, messages
CONVERSATIONS: dict[str, tuple[Any, str | None, list[Json]]] = {
    "a string": ("hi", None, [{"role": "user", "content": "hi"}]),
    "instructions": ("hi", "Be.", [{"role": "system", "content": "Be."}, {"role": "user", "content": "hi"}]),
    "a message without a type": ([{"role": "user", "content": "hi"}], None, [{"role": "user", "content": "hi"}]),
    "one text part": ([message("user", "hi")], None, [{"role": "user", "content": "hi"}]),
    "several text parts": (
        [message("user", "a", "b")],
        None,
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    ),
    "the first instructions are one message": (
        [message("developer", "b", "c"), message("system", "d"), message("user", "e"), message("developer", "f")],
        "a",
        [
            {"role": "system", "content": "a\n\nb\n\nc\n\nd"},
            {"role": "user", "content": "e"},
            {"role": "system", "content": "f"},
        ],
    ),
    "media": (
        [
            message(
                "user",
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
                {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            )
        ],
        None,
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
                    {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
                ],
            }
        ],
    ),
    "a turn with calls": (
        [
            message("user", "hi"),
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {"type": "item_reference", "id": "rs_2"},
            message("assistant", "I look."),
            CALL,
            {**CALL, "call_id": "c2"},
            OUTPUT,
            {**OUTPUT, "call_id": "c2", "output": [{"type": "input_text", "text": "43"}]},
            message("assistant", "42"),
        ],
        None,
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "I look.", "tool_calls": [CHAT_CALL, {**CHAT_CALL, "id": "c2"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            {"role": "tool", "tool_call_id": "c2", "content": "43"},
            {"role": "assistant", "content": "42"},
        ],
    ),
    "texts between a call and its output": (
        [CALL, message("assistant", "I "), message("assistant", "look."), OUTPUT],
        None,
        [
            {"role": "assistant", "tool_calls": [CHAT_CALL], "content": "I look."},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ],
    ),
    "texts around a call": (
        [message("assistant", "I "), CALL, message("assistant", "look."), OUTPUT],
        None,
        [
            {"role": "assistant", "content": "I look.", "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ],
    ),
    "two texts of the assistant": (
        [message("assistant", "a", "b"), message("assistant", "c")],
        None,
        [{"role": "assistant", "content": "ab"}, {"role": "assistant", "content": "c"}],
    ),
    "a call of a namespace's tool": (
        [{**CALL, "namespace": "crm"}, OUTPUT],
        None,
        [
            {
                "role": "assistant",
                "tool_calls": [{**CHAT_CALL, "function": {"name": "crm__get", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ],
    ),
    "a refusal": (
        [message("assistant", {"type": "refusal", "refusal": "no"})],
        None,
        [{"role": "assistant", "refusal": "no"}],
    ),
    "a custom call": (
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": ""},
        ],
        None,
        [
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": ""},
        ],
    ),
    "an output of the API, sent back": (
        [
            {
                "id": "msg_1",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}],
            }
        ],
        None,
        [{"role": "assistant", "content": "hi"}],
    ),
}

# name: fields of the request, fields of the chat request beside `model` and `messages`
CASES: dict[str, tuple[Json, Json]] = {
    "the same in both": (
        {"temperature": 0, "top_p": 0.5, "user": "u", "service_tier": "auto", "prompt_cache_key": "k", "seed": 3},
        {"temperature": 0, "top_p": 0.5, "user": "u", "service_tier": "auto", "prompt_cache_key": "k", "seed": 3},
    ),
    "known to neither": ({"top_k": 3}, {"top_k": 3}),
    "nothing is switched on": (
        {
            **dict.fromkeys(FIELDS.refused, None),
            "background": False,
            "truncation": "disabled",
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {},
            "text": {"format": {"type": "text"}},
            "include": [],
            "top_logprobs": 0,
        },
        {},
    ),
    "without effect": (
        {
            "store": True,
            "metadata": {"a": "b"},
            "max_tool_calls": 3,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"summary": "auto", "context": "auto"},
            "stream_options": {"include_obfuscation": False},
        },
        {},
    ),
    "a stream": ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    "the limit": ({"max_output_tokens": 7}, {"max_completion_tokens": 7}),
    "reasoning": ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
    "logprobs": ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
    "top_logprobs": ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
    "JSON": ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    "a schema": (
        {
            "text": {
                "verbosity": "low",
                "format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True, "description": None},
            }
        },
        {
            "verbosity": "low",
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
        },
    ),
    "tools": (
        {
            "tools": [
                FUNCTION,
                {"type": "custom", "name": "sh", "description": "d", "format": {"type": "text"}},
                {
                    "type": "custom",
                    "name": "sql",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"},
                },
            ],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "get", "description": "Gets.", "parameters": SCHEMA, "strict": True},
                },
                {"type": "custom", "custom": {"name": "sh", "description": "d", "format": {"type": "text"}}},
                {
                    "type": "custom",
                    "custom": {
                        "name": "sql",
                        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a/"}},
                    },
                },
            ],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
    ),
    "a namespace of tools": (
        {
            "tools": [
                {
                    "type": "namespace",
                    "name": "crm",
                    "description": "Customers.",
                    "tools": [{**FUNCTION, "strict": None}, {"type": "custom", "name": "sh"}],
                }
            ]
        },
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "crm__get", "description": "Customers.\n\nGets.", "parameters": SCHEMA},
                },
                {"type": "custom", "custom": {"name": "crm__sh", "description": "Customers."}},
            ]
        },
    ),
    "a chosen function": (
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "get"}},
        {"tool_choice": {"type": "function", "function": {"name": "get"}}},
    ),
    "a chosen custom tool": (
        {"tools": [FUNCTION], "tool_choice": {"type": "custom", "name": "get"}},
        {"tool_choice": {"type": "custom", "custom": {"name": "get"}}},
    ),
    "allowed tools": (
        {
            "tools": [FUNCTION],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get"}]},
        },
        {
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get"}}]},
            }
        },
    ),
}

# fields of the request, the field that the refusal names
REFUSALS: list[tuple[Json, str]] = [
    *(({field: ["x"]}, field) for field in FIELDS.refused),
    ({"background": True}, "background"),
    ({"n": 2}, "n"),
    ({"truncation": "auto"}, "truncation"),
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": 3}, "input"),
    ({"input": ["x"]}, "input[0]"),
    ({"instructions": ["x"]}, "instructions"),
    *(
        ({"tools": [FUNCTION, {"type": kind}]}, "tools[1]")
        for kind in (
            *("web_search", "web_search_preview", "file_search", "computer_use_preview", "code_interpreter", "mcp"),
            *("image_generation", "local_shell", "shell", "apply_patch", "tool_search", "programmatic_tool_calling"),
            *(None, 3, ["x"], "a secret !"),
        )
    ),
    ({"tools": ["x"]}, "tools[0]"),
    ({"tools": {"x": 1}}, "tools"),
    ({"tools": [{**FUNCTION, "defer_loading": True}]}, "tools[0].defer_loading"),
    ({"tools": [{"type": "custom", "name": "a", "format": {"type": "x"}}]}, "tools[0].format"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice.tools"),
    ({"text": {"format": {"type": "grammar"}}}, "text.format"),
    ({"text": {"format": {"type": "json_schema", "x": 1}}}, "text.format.x"),
    ({"text": "x"}, "text"),
    ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
    ({"reasoning": {"x": 1}}, "reasoning.x"),
    ({"include": "x"}, "include"),
    *(
        ({"input": [message("user", "x"), {"type": kind, "id": "i"}]}, "input[1]")
        for kind in (
            *("item_reference", "web_search_call", "file_search_call", "computer_call", "computer_call_output"),
            *("code_interpreter_call", "mcp_call", "mcp_list_tools", "mcp_approval_request", "local_shell_call"),
            *("image_generation_call", "compaction", "shell_call", "apply_patch_call", None, 3, {}),
        )
    ),
    ({"input": [message("tool", "x")]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{**message("user", "x"), "odd": 1}]}, "input[0].odd"),
    ({"input": [message("user", {"type": "input_image", "file_id": "f"})]}, "input[0].content[0].file_id"),
    ({"input": [message("user", {"type": "input_image"})]}, "input[0].content[0].image_url"),
    ({"input": [message("user", {"type": "input_file", "file_url": "u"})]}, "input[0].content[0].file_url"),
    ({"input": [message("user", {"type": "input_video"})]}, "input[0].content[0]"),
    ({"input": [message("user", {"type": "input_text"})]}, "input[0].content[0].text"),
    ({"input": [message("system", {"type": "input_image", "image_url": "u"})]}, "input[0].content[0]"),
    ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments"),
    ({"input": [{**CALL, "namespace": 3}]}, "input[0].namespace"),
    ({"tools": [{"type": "namespace", "name": "n"}]}, "tools[0].tools"),
    ({"tools": [{"type": "namespace", "tools": [FUNCTION]}]}, "tools[0]"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "namespace"}]}]}, "tools[0].tools[0].name"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "x", "name": "a"}]}]}, "tools[0].tools[0]"),
    ({"input": [{**CALL, "call_id": None}]}, "input[0].call_id"),
    ({"input": [{**OUTPUT, "output": [{"type": "input_image", "image_url": "u"}]}]}, "input[0].output[0]"),
    ({"input": [{**OUTPUT, "output": None}]}, "input[0].output"),
]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation(name: str) -> None:
    items, instructions, messages = CONVERSATIONS[name]
    body = {"model": "m", "input": items, **({"instructions": instructions} if instructions else {})}
    before = copy.deepcopy(body)
    assert to_chat(body) == {"model": "m", "messages": messages}
    assert body == before
    for each in messages:
        TypeAdapter(ChatCompletionMessageParam).validate_python(each)


@pytest.mark.parametrize("name", CASES)
def test_a_field(name: str) -> None:
    given, expected = CASES[name]
    chat = to_chat({"model": "m", "input": "x", **given})
    assert {
        field: chat[field] for field in chat if field in expected or field not in ("model", "messages", "tools")
    } == expected
    for tool in chat.get("tools", ()):
        TypeAdapter(ChatCompletionToolUnionParam).validate_python(tool)
    if "tool_choice" in chat:
        TypeAdapter(ChatCompletionToolChoiceOptionParam).validate_python(chat["tool_choice"])
    if "response_format" in chat:
        TypeAdapter(ResponseFormat).validate_python(chat["response_format"])


@pytest.mark.parametrize(("given", "param"), REFUSALS, ids=str)
def test_what_cannot_be_translated_is_refused_by_name(given: Json, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        to_chat({"model": "m", "input": "x", **given})
    assert refused.value.param == param
    assert f"`{param}`" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_field_has_one_fate() -> None:
    names = [*FIELDS.translated, *FIELDS.without_effect, *FIELDS.refused]
    assert len(set(names)) == len(names)


def test_a_reference_says_how_items_are_sent_whole() -> None:
    with pytest.raises(BadRequest, match=r"sent whole.*`providerOptions: \{openai: \{store: false\}\}`"):
        to_chat({"model": "m", "input": [message("user", "x"), {"type": "item_reference", "id": "msg_1"}]})
