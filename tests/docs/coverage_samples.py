"""The places of each endpoint where text may stand: a word in each of them, as samples that are tried one by one.

A sample is laid over the base of its dialect. Samples are small, so that one which is refused refuses no other.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

Sample = dict[str, Any]


class Together(NamedTuple):
    """A sample whose word stands in several places at once; `name` is the one that it is about. `kept` is a part of it
    that comes out only if the place does."""

    name: str
    sample: Sample
    kept: str


WORD = "12MONKEYS"
PICTURE = "data:image/png;base64," + "iVBORw0KGgoA" + WORD * 20
OPAQUE = "AAAA/+v7" + WORD * 20 + "AAA="  # a payload that is no text, with the word in its letters
_ARGUMENTS = json.dumps({"a": WORD})
_SCHEMA = {"type": "object", "title": WORD}
_CALL = {"index": 0, "id": WORD, "type": "function", "function": {"name": WORD, "arguments": _ARGUMENTS}}
_LOGPROB: Sample = {"logprob": -7, "bytes": None, "top_logprobs": []}
_ENGINE: list[Sample] = [
    {"prompt_token_ids": [WORD]},
    {"prompt_logprobs": [{"1": {"decoded_token": WORD}}]},
    {"kv_transfer_params": {"a": WORD}},
    {"ec_transfer_params": {"a": WORD}},
    {"any_other_field": WORD},
]

# -- answers -----------------------------------------------------------------------------------------------------------

_CHAT_MESSAGES: list[Sample] = [
    {"content": WORD},
    {"refusal": WORD},
    {"reasoning_content": WORD},
    {"reasoning": WORD},
    {"tool_calls": [_CALL]},
    {"tool_calls": [{"index": 0, "id": "b", "type": "custom", "custom": {"name": WORD, "input": WORD}}]},
    {"function_call": {"name": WORD, "arguments": _ARGUMENTS}},
    {"audio": {"id": WORD, "data": WORD, "transcript": WORD}},
    {"annotations": [{"type": "url_citation", "url_citation": {"title": WORD, "url": WORD}}]},
    {"images": [{"type": "image_url", "image_url": {"url": PICTURE}}]},
    {"any_other_field": WORD},
]
_AROUND_CHOICES: list[Sample] = [
    {"finish_reason": WORD},
    {"stop_reason": WORD},
    {"content_filter_results": {"citation": {"URL": WORD}}},
    {"content_filter_offsets": {"a": WORD}},
    {"token_ids": [WORD]},
]
_ENVELOPES: list[Sample] = [{"id": WORD}, {"model": WORD}, {"system_fingerprint": WORD}, *_ENGINE]


def _choice(**fields: Any) -> Sample:
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"} | fields]
    }


CHAT_BASE = {"id": "a", "object": "chat.completion", "created": 1, "model": "m", **_choice()}
CHAT_ANSWERS: list[Sample | Together] = [
    *(_choice(message={"role": "assistant", **message}) for message in _CHAT_MESSAGES),
    Together(
        "choices[].logprobs",
        _choice(
            message={"role": "assistant", "content": f"a {WORD}"},
            logprobs={"content": [{"token": "a ", **_LOGPROB}, {"token": WORD, **_LOGPROB}]},
        ),
        "-7",
    ),
    *(_choice(**fields) for fields in _AROUND_CHOICES),
    *_ENVELOPES,
    {"prompt_filter_results": [{"content_filter_results": {"error": {"message": WORD}}}]},
]


def _text(**fields: Any) -> Sample:
    return {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"} | fields]}


_TEXT_LOGPROBS = {
    "tokens": ["a ", WORD],
    "token_logprobs": [-7, -7],
    "top_logprobs": [{"a ": -7}, {WORD: -7}],
    "text_offset": [0, 2],
}
TEXT_BASE = {"id": "a", "object": "text_completion", "created": 1, "model": "m", **_text()}
TEXT_ANSWERS: list[Sample | Together] = [
    _text(text=WORD),
    Together("choices[].logprobs", _text(text=f"a {WORD}", logprobs=_TEXT_LOGPROBS), "-7"),
    _text(reasoning=WORD),
    _text(any_other_field=WORD),
    *(_text(**fields) for fields in _AROUND_CHOICES),
    *_ENVELOPES,
]


def _item(kind: str, **fields: Any) -> Sample:
    return {"output": [{"type": kind, "id": "i", "status": "completed", **fields}]}


def _part(kind: str, **fields: Any) -> Sample:
    return _item("message", role="assistant", content=[{"type": kind, **fields}])


RESPONSE_BASE: Sample = {
    "id": "a",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "m",
    "output": [],
}
RESPONSE_ANSWERS: list[Sample] = [
    _part("output_text", text=WORD, annotations=[]),
    _part("output_text", text="a", annotations=[{"type": "url_citation", "title": WORD, "url": WORD}]),
    _part("output_text", text="a", annotations=[{"type": "file_citation", "file_id": WORD, "filename": WORD}]),
    _part("output_text", text="a", annotations=[], logprobs=[{"token": WORD, **_LOGPROB}]),
    _part("refusal", refusal=WORD),
    _part("any_other_type", text=WORD),
    _item("reasoning", summary=[{"type": "summary_text", "text": WORD}]),
    _item("reasoning", summary=[], content=[{"type": "reasoning_text", "text": WORD}]),
    _item("reasoning", summary=[], encrypted_content=OPAQUE),
    _item("function_call", call_id=WORD, name=WORD, arguments=_ARGUMENTS),
    _item("custom_tool_call", call_id="c", name=WORD, input=WORD),
    _item("mcp_call", name=WORD, server_label=WORD, arguments=_ARGUMENTS, output=WORD),
    _item("mcp_list_tools", server_label="s", tools=[{"name": WORD, "description": WORD, "input_schema": _SCHEMA}]),
    _item("mcp_approval_request", name=WORD, server_label="s", arguments=_ARGUMENTS),
    _item("tool_search_call", arguments={"query": WORD}),
    _item("web_search_call", action={"type": "search", "query": WORD, "sources": [{"type": "url", "url": WORD}]}),
    _item("file_search_call", queries=[WORD], results=[{"file_id": "f", "filename": WORD, "text": WORD}]),
    _item("code_interpreter_call", code=WORD, outputs=[{"type": "logs", "logs": WORD}]),
    _item("shell_call", action={"commands": [WORD]}),
    _item("image_generation_call", result=OPAQUE, revised_prompt=WORD),
    _item("compaction", encrypted_content=OPAQUE),
    _item("any_other_type", any_field=WORD),
    {"id": WORD},
    {"model": WORD},
    {"instructions": WORD},
    {"metadata": {"any_name": WORD}},
    {"user": WORD},
    {"error": {"code": WORD, "message": WORD}},
    {"input_messages": [WORD]},
    {"output_messages": [WORD]},
    *_ENGINE,
]
# What only streams have. Each stands between the begin and the end of an answer.
RESPONSE_EVENTS: list[Sample] = [
    {"type": "response.audio.delta", "delta": WORD},
    {"type": "response.audio.transcript.delta", "delta": WORD},
    {"type": "response.image_generation_call.partial_image", "output_index": 0, "partial_image_b64": OPAQUE},
    {"type": "response.any_other_event", "any_field": WORD},
    {"type": "response.in_progress", "obfuscation": WORD, "response": {**RESPONSE_BASE, "status": "in_progress"}},
]


def _block(kind: str, **fields: Any) -> Sample:
    return {"content": [{"type": kind, **fields}]}


MESSAGE_BASE: Sample = {
    "id": "a",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
_LOCATION = {"type": "char_location", "cited_text": WORD, "document_title": WORD, "document_index": 0}
_SEARCHED = {"type": "web_search_result_location", "url": WORD, "title": WORD, "encrypted_index": OPAQUE}
_FOUND = {"type": "web_search_result", "title": WORD, "url": WORD, "encrypted_content": OPAQUE}
MESSAGE_ANSWERS: list[Sample] = [
    _block("text", text=WORD),
    _block("text", text="a", citations=[_LOCATION]),
    _block("text", text="a", citations=[_SEARCHED]),
    _block("thinking", thinking=WORD, signature=""),
    _block("thinking", thinking="a", signature=OPAQUE),
    _block("redacted_thinking", data=OPAQUE),
    _block("tool_use", id=WORD, name=WORD, input={"a": WORD}),
    _block("server_tool_use", id="t", name=WORD, input={"a": WORD}),
    _block("mcp_tool_use", id="t", name=WORD, input={"a": WORD}),
    _block("web_search_tool_result", tool_use_id="t", content=[_FOUND]),
    _block("any_other_type", any_field=WORD),
    {"id": WORD},
    {"model": WORD},
    {"stop_sequence": WORD},
    *_ENGINE,
]
MESSAGE_EVENTS: list[Sample] = [{"type": "any_other_event", "any_field": WORD}]

EMBEDDING_BASE: Sample = {"object": "list", "model": "m", "data": [], "usage": {"prompt_tokens": 1, "total_tokens": 1}}
EMBEDDING_ANSWERS: list[Sample] = [
    {"data": [{"object": "embedding", "index": 0, "embedding": WORD}]},
    {"data": [{"object": "embedding", "index": 0, "embedding": [0.1], "any_other_field": WORD}]},
    {"model": WORD},
    *_ENGINE,
]
COUNT_BASE: Sample = {"input_tokens": 1}
COUNT_ANSWERS: list[Sample] = [{"any_other_field": WORD}]

# -- requests ----------------------------------------------------------------------------------------------------------

_REFUSED: list[Sample] = [{"vllm_xargs": {"a": WORD}}, {"chat_template": WORD}]
_ANY: list[Sample] = [
    {"model": WORD},
    {"metadata": {"any_name": WORD}},
    {"user": WORD},
    {"any_other_field": WORD},
    *_REFUSED,
    {"return_token_ids": WORD},
    {"return_tokens_as_token_ids": WORD},
    {"prompt_logprobs": WORD},
    {"kv_transfer_params": {"a": WORD}},
    {"ec_transfer_params": {"a": WORD}},
]


def _user(*content: Sample, role: str = "user") -> Sample:
    return {"messages": [{"role": role, "content": list(content)}]}


CHAT_ASKED_BASE: Sample = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
CHAT_ASKED: list[Sample] = [
    {"messages": [{"role": "user", "content": WORD, "name": WORD, "any_other_field": WORD}]},
    _user({"type": "text", "text": WORD}),
    _user({"type": "image_url", "image_url": {"url": "https://example.com/" + WORD}}),
    _user({"type": "image_url", "image_url": {"url": PICTURE}}),
    _user({"type": "input_audio", "input_audio": {"data": WORD * 20, "format": "wav", "transcript": WORD}}),
    _user({"type": "file", "file": {"filename": WORD, "file_data": "data:text/plain," + WORD}}),
    {"messages": [{"role": "assistant", "tool_calls": [_CALL]}]},
    {"messages": [{"role": "tool", "tool_call_id": WORD, "content": WORD}]},
    {"prediction": {"type": "content", "content": WORD}},
    {"tools": [{"type": "function", "function": {"name": WORD, "description": WORD, "parameters": _SCHEMA}}]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": WORD, "schema": _SCHEMA}}},
    {"stop": [WORD]},
    *_ANY,
]
TEXT_ASKED_BASE: Sample = {"model": "m", "prompt": "a"}
TEXT_ASKED: list[Sample] = [{"prompt": WORD}, {"prompt": [WORD]}, {"suffix": WORD}, {"prompt_embeds": WORD}, *_ANY]


def _given(**fields: Any) -> Sample:
    return {"input": [{"type": "message", "role": "user", "content": "a"}, fields]}


def _given_part(kind: str, **fields: Any) -> Sample:
    return {"input": [{"type": "message", "role": "user", "content": [{"type": kind, **fields}]}]}


RESPONSE_ASKED_BASE: Sample = {"model": "m", "input": "a"}
RESPONSE_ASKED: list[Sample] = [
    {"input": WORD},
    {"instructions": WORD},
    _given(type="message", role="user", content=WORD),
    _given_part("input_text", text=WORD),
    _given_part("input_image", image_url="https://example.com/" + WORD),
    _given_part("input_image", image_url=PICTURE),
    _given_part("input_file", filename=WORD, file_data="data:text/plain," + WORD),
    _given(type="message", role="assistant", content=[{"type": "output_text", "text": WORD}]),
    _given(type="function_call", call_id="c", name=WORD, arguments=_ARGUMENTS),
    _given(type="function_call_output", call_id="c", output=WORD),
    _given(type="custom_tool_call", call_id="c", name=WORD, input=WORD),
    _given(type="reasoning", summary=[{"type": "summary_text", "text": WORD}]),
    _given(type="reasoning", summary=[], encrypted_content=OPAQUE),
    {"prompt": {"id": "p", "variables": {"any_name": WORD}}},
    {"tools": [{"type": "function", "name": WORD, "description": WORD, "parameters": _SCHEMA}]},
    {"tools": [{"type": "mcp", "server_label": WORD, "server_url": WORD}]},
    {"text": {"format": {"type": "json_schema", "name": WORD, "schema": _SCHEMA}}},
    {"previous_response_id": WORD},
    {"conversation": WORD},
    {"safety_identifier": WORD},
    {"prompt_cache_key": WORD},
    {"enable_response_messages": WORD},
    {"previous_input_messages": WORD},
    *_ANY,
]
MESSAGE_ASKED_BASE: Sample = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}
_BASE64 = {"type": "base64", "media_type": "image/png", "data": OPAQUE}
MESSAGE_ASKED: list[Sample] = [
    {"system": WORD},
    {"system": [{"type": "text", "text": WORD}]},
    {"messages": [{"role": "user", "content": WORD}]},
    _user({"type": "text", "text": WORD}),
    _user({"type": "image", "source": {"type": "url", "url": "https://example.com/" + WORD}}),
    _user({"type": "image", "source": _BASE64}),
    _user({"type": "document", "title": WORD, "source": {"type": "text", "media_type": "text/plain", "data": WORD}}),
    _user({"type": "tool_result", "tool_use_id": "t", "content": WORD}),
    {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": WORD, "input": {"a": WORD}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a"}]},
        ]
    },
    {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": WORD, "signature": OPAQUE}]},
            {"role": "user", "content": "a"},
        ]
    },
    {"tools": [{"name": WORD, "description": WORD, "input_schema": _SCHEMA}]},
    {"tools": [{"type": "web_search_20250305", "name": "web_search", "allowed_domains": [WORD]}]},
    {"stop_sequences": [WORD]},
    {"metadata": {"user_id": WORD}},
    {"output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}}},
    *(sample for sample in _ANY if "metadata" not in sample),
]
EMBEDDING_ASKED_BASE: Sample = {"model": "m", "input": "a"}
EMBEDDING_ASKED: list[Sample] = [
    {"input": WORD},
    {"input": [WORD]},
    {"encoding_format": WORD},
    {"prompt_embeds": WORD},
    *_ANY,
]
MODERATED: list[Sample] = [
    {"input": WORD},
    {"input": [WORD]},
    {"input": [{"type": "text", "text": WORD}]},
    {"input": [{"type": "image_url", "image_url": {"url": "https://example.com/" + WORD}}]},
    {"input": [{"type": "image_url", "image_url": {"url": PICTURE}}]},
]
