"""A request to Anthropic's `/messages` as one to `/chat/completions`."""

from __future__ import annotations

from typing import Any

from gateway.wire import json
from gateway.wire.dialect import BadRequest, an_object, require_messages
from gateway.wire.json import Json
from gateway.wire.translation.messages_tools import (
    BLOCK_FIELDS,
    TOOL_CHANGES,
    offered_tools,
    referenced_name,
    tool_choice,
)
from gateway.wire.translation.request import (
    FieldTable,
    a_list,
    a_string,
    add_assistant,
    add_system,
    blocks_of,
    refuse_others,
    unsupported_type,
    untranslatable,
    user_content,
)

FIELDS = FieldTable.of("messages")
_NO_THREADS = "thread_unsupported_request"  # Anthropic's code, for which its clients continue without threads
_THINKING = ("thinking", "redacted_thinking")
_THINKING_TYPES = ("enabled", "adaptive", "between_tools", "disabled")
_NO_THINKING = {"type": "disabled"}


def to_chat(body: Json) -> Json:
    """The request for a chat upstream; parts of it are the body's own. Raises `BadRequest`."""
    if body.get("thread"):
        raise untranslatable("thread", FIELDS.refused["thread"], _NO_THREADS)
    chat = FIELDS.passed(body)
    if body.get("speed") not in (None, "standard"):
        raise untranslatable("speed")
    if (thinking := an_object(body.get("thinking") or _NO_THINKING, "thinking")).get("type") not in _THINKING_TYPES:
        raise unsupported_type("thinking", thinking.get("type"))
    _check_context_management(an_object(body.get("context_management") or {}, "context_management"))
    chat["messages"] = _messages(body)
    if (most := body.get("max_tokens")) is not None:
        chat["max_completion_tokens"] = most
    if stops := a_list(body.get("stop_sequences") or [], "stop_sequences"):
        chat["stop"] = stops
    if tools := offered_tools(body):
        chat["tools"] = tools
        if choice := body.get("tool_choice"):
            chat |= tool_choice(an_object(choice, "tool_choice"))
    chat |= _output(body)
    metadata = an_object(body.get("metadata") or {}, "metadata")
    refuse_others(metadata, ("user_id",), "metadata")
    if (user := metadata.get("user_id")) is not None:
        chat["user"] = user
    if chat.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat


def _check_context_management(given: Json) -> None:
    for at, edit in enumerate(a_list(given.get("edits") or [], "context_management.edits")):
        place = f"context_management.edits[{at}]"
        kind = an_object(edit, place).get("type")
        if not isinstance(kind, str) or not kind.startswith("clear_thinking_"):
            raise unsupported_type(place, kind)


def _output(body: Json) -> Json:
    config = an_object(body.get("output_config") or {}, "output_config")
    refuse_others(config, ("effort", "format"), "output_config")
    chat: Json = {}
    if (effort := _effort(body, config.get("effort"))) is not None:
        chat["reasoning_effort"] = effort
    for place, given in (("output_config.format", config.get("format")), ("output_format", body.get("output_format"))):
        if given is not None:
            given = an_object(given, place)
            if given.get("type") != "json_schema":
                raise unsupported_type(place, given.get("type"))
            refuse_others(given, ("type", "schema"), place)
            schema = {"name": "answer", "schema": given.get("schema"), "strict": True}
            chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


def _effort(body: Json, effort: Any) -> Any:
    """The effort of the answer: a system message changes it for the user's turn before it, else from the next one."""
    waiting: Any = None
    answers_input = False  # the turn of the model that comes next answers something new, and not results of tools
    for position, message in enumerate(body["messages"]):
        if message["role"] != "system":
            answers_input = message["role"] == "user" and any(
                block.get("type") != "tool_result" for block, _ in blocks_of(message.get("content"), "messages")
            )
        elif config := message.get("output_config"):
            place = f"messages[{position}].output_config"
            refuse_others(an_object(config, place), ("effort",), place)
            waiting = config.get("effort")
        if answers_input and waiting is not None:
            effort, waiting = waiting, None
    return effort


# -- messages ----------------------------------------------------------------------------------------------------------


def _messages(body: Json) -> list[Json]:
    messages: list[Json] = []
    if system := body.get("system"):
        add_system(messages, _system_text(system, "system"))
    require_messages(body)
    given = body["messages"]
    for position, message in enumerate(given):
        place, role = f"messages[{position}]", message.get("role")
        refuse_others(message, ("role", "content", *(("output_config",) if role == "system" else ())), place)
        match role:
            case "user":
                _add_user(messages, message.get("content"), f"{place}.content")
            case "assistant":
                _add_assistant(messages, message.get("content"), f"{place}.content")
            case "system":
                if text := _system_text(message.get("content"), f"{place}.content", TOOL_CHANGES):
                    add_system(messages, text)
            case _:
                raise BadRequest(f"`{place}.role` must be user, assistant or system.", f"{place}.role")
    if given[-1]["role"] == "assistant":
        raise untranslatable(f"messages[{len(given) - 1}]", "chat cannot continue the beginning of an answer")
    return messages


def _system_text(content: Any, place: str, others: tuple[str, ...] = ()) -> str:
    """The text of instructions, without blocks of the types `others`."""
    texts = (_text(block, where) for block, where in blocks_of(content, place) if block.get("type") not in others)
    return "\n\n".join(texts)


def _text(block: Json, place: str) -> str:
    if block.get("type") != "text":
        raise unsupported_type(place, block.get("type"))
    refuse_others(block, (*BLOCK_FIELDS, "text", "citations"), place)
    return a_string(block.get("text"), f"{place}.text")


def _add_user(messages: list[Json], content: Any, place: str) -> None:
    """The results of tools first: chat has them in messages of their own, which follow the calls."""
    parts: list[Json] = []
    media: list[Json] = []  # of the results
    results: list[Json] = []
    for block, where in blocks_of(content, place):
        if block.get("type") == "tool_result":
            results.append(_tool_result(block, where, media))
        else:
            parts += _user_parts(block, where)
    messages += results
    if media or parts or not results:
        messages.append({"role": "user", "content": user_content(media + parts)})


def _tool_result(block: Json, place: str, media: list[Json]) -> Json:
    refuse_others(block, (*BLOCK_FIELDS, "tool_use_id", "content", "is_error"), place)
    inner = blocks_of("" if block.get("content") is None else block["content"], f"{place}.content")
    parts = [part for each, where in inner for part in _user_parts(each, where)]
    media += [part for part in parts if part["type"] != "text"]
    content = user_content([part for part in parts if part["type"] == "text"])
    tool_use_id = a_string(block.get("tool_use_id"), f"{place}.tool_use_id")
    return {"role": "tool", "tool_call_id": tool_use_id, "content": content}


def _user_parts(block: Json, place: str) -> list[Json]:
    match kind := block.get("type"):
        case "text":
            return [{"type": "text", "text": _text(block, place)}]
        case "image":
            refuse_others(block, (*BLOCK_FIELDS, "source"), place)
            return [{"type": "image_url", "image_url": {"url": _url(block.get("source"), f"{place}.source")}}]
        case "tool_reference":
            return [{"type": "text", "text": referenced_name(block, place)}]
        case "document":
            refuse_others(block, (*BLOCK_FIELDS, "source", "title", "context", "citations"), place)
            refuse_others(an_object(block.get("citations") or {}, f"{place}.citations"), (), f"{place}.citations")
            about = [a_string(block[field], f"{place}.{field}") for field in ("title", "context") if block.get(field)]
            texts: list[Json] = [{"type": "text", "text": text} for text in about]
            return texts + _document(an_object(block.get("source"), f"{place}.source"), f"{place}.source")
    raise unsupported_type(place, kind)


def _url(source: Any, place: str) -> str:
    match kind := an_object(source, place).get("type"):
        case "url":
            return a_string(source.get("url"), f"{place}.url")
        case "base64":
            media_type = a_string(source.get("media_type"), f"{place}.media_type")
            return f"data:{media_type};base64,{a_string(source.get('data'), f'{place}.data')}"
    raise unsupported_type(place, kind)


def _document(source: Json, place: str) -> list[Json]:
    match kind := source.get("type"):
        case "text":
            return [{"type": "text", "text": a_string(source.get("data"), f"{place}.data")}]
        case "base64":
            return [{"type": "file", "file": {"filename": "document.pdf", "file_data": _url(source, place)}}]
        case "content":
            inner = blocks_of(source.get("content"), f"{place}.content")
            return [part for block, where in inner for part in _user_parts(block, where)]
    raise unsupported_type(place, kind)


def _add_assistant(messages: list[Json], content: Any, place: str) -> None:
    texts: list[str] = []
    calls: list[Json] = []
    for block, where in blocks_of(content, place):
        match block.get("type"):
            case "tool_use":
                calls.append(_call(block, where))
            case kind if kind in _THINKING:
                pass
            case _:
                texts.append(_text(block, where))
    if texts or not calls:
        add_assistant(messages, {"content": "".join(texts)})
    if calls:
        add_assistant(messages, {"tool_calls": calls})


def _call(block: Json, place: str) -> Json:
    refuse_others(block, (*BLOCK_FIELDS, "id", "name", "input", "caller"), place)
    arguments = json.encode(an_object(block.get("input"), f"{place}.input")).decode()
    function = {"name": a_string(block.get("name"), f"{place}.name"), "arguments": arguments}
    return {"id": a_string(block.get("id"), f"{place}.id"), "type": "function", "function": function}
