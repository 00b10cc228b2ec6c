"""A request to OpenAI's `/responses` as one to `/chat/completions`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gateway.wire.dialect import BadRequest, an_object
from gateway.wire.json import Json
from gateway.wire.translation.request import (
    FieldTable,
    a_list,
    a_string,
    add_assistant,
    add_system,
    flat_name,
    picked,
    refuse_others,
    unsupported_type,
    untranslatable,
    user_content,
)

FIELDS = FieldTable.of("responses")
_LOGPROBS = "message.output_text.logprobs"
_WHOLE_ITEMS = (
    "no item is stored, so items of earlier turns must be sent whole. The Vercel AI SDK sends them whole with "
    "`providerOptions: {openai: {store: false}}`"
)
_ROLES = ("user", "assistant", "system", "developer")
_TEXT_PARTS = ("input_text", "output_text", "text")
_CALL_FIELDS = frozenset({"type", "id", "call_id", "name", "namespace", "status"})


def to_chat(body: Json) -> Json:
    """The request for a chat upstream; parts of it are the body's own. Raises `BadRequest`."""
    chat = FIELDS.passed(body)
    if body.get("truncation", "disabled") not in ("disabled", None):
        raise untranslatable("truncation", "the conversation is forwarded as it is")
    chat["messages"] = _messages(body)
    if tools := body.get("tools"):
        chat["tools"] = list(_tools(tools, "tools"))
        chat |= picked(body, ("parallel_tool_calls",))
        if (choice := body.get("tool_choice")) is not None:
            chat["tool_choice"] = _tool_choice(choice)
    chat |= _text_format(an_object(body.get("text") or {}, "text"))
    chat |= _reasoning(an_object(body.get("reasoning") or {}, "reasoning"))
    if (most := body.get("max_output_tokens")) is not None:
        chat["max_completion_tokens"] = most
    chat |= _logprobs(body)
    if chat.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat


def _logprobs(body: Json) -> Json:
    top = body.get("top_logprobs")
    if not top and _LOGPROBS not in a_list(body.get("include") or [], "include"):
        return {}
    return {"logprobs": True, **({"top_logprobs": top} if top else {})}


def _text_format(text: Json) -> Json:
    refuse_others(text, ("format", "verbosity"), "text")
    given = an_object(text.get("format") or {"type": "text"}, "text.format")
    chat = picked(text, ("verbosity",))
    match given.get("type"):
        case "text":
            pass
        case "json_object":
            chat["response_format"] = {"type": "json_object"}
        case "json_schema":
            fields = ("name", "schema", "strict", "description")
            refuse_others(given, ("type", *fields), "text.format")
            chat["response_format"] = {"type": "json_schema", "json_schema": picked(given, fields)}
        case other:
            raise unsupported_type("text.format", other)
    return chat


def _reasoning(reasoning: Json) -> Json:
    refuse_others(reasoning, ("effort", "summary", "generate_summary", "context", "mode"), "reasoning")
    if reasoning.get("mode") not in (None, "standard"):
        raise untranslatable("reasoning.mode")
    effort = reasoning.get("effort")
    return {} if effort is None else {"reasoning_effort": effort}


# -- tools -------------------------------------------------------------------------------------------------------------


def _tools(tools: Any, place: str, namespace: Json | None = None) -> Iterator[Json]:
    for at, tool in enumerate(a_list(tools, place)):
        where = f"{place}[{at}]"
        if an_object(tool, where).get("type") == "namespace" and namespace is None:
            refuse_others(tool, ("type", "name", "description", "tools"), where)
            yield from _tools(tool.get("tools"), f"{where}.tools", {**tool, "name": a_string(tool.get("name"), where)})
        else:
            yield _tool(tool if namespace is None else _flat(tool, namespace, where), where)


def _flat(tool: Json, namespace: Json, place: str) -> Json:
    """A tool of a namespace as one that stands by itself."""
    texts = [holder["description"] for holder in (namespace, tool) if isinstance(holder.get("description"), str)]
    name = flat_name(namespace["name"], a_string(tool.get("name"), f"{place}.name"))
    return {**tool, "name": name, "description": "\n\n".join(texts)}


def _tool(tool: Json, place: str) -> Json:
    match kind := tool.get("type"):
        case "function":
            fields = ("name", "description", "parameters", "strict")
            refuse_others(tool, ("type", "output_schema", *fields), place)
            return {"type": "function", "function": picked(tool, fields)}
        case "custom":
            refuse_others(tool, ("type", "name", "description", "format"), place)
            custom = picked(tool, ("name", "description"))
            if (given := tool.get("format")) is not None:
                custom["format"] = _input_format(an_object(given, f"{place}.format"), f"{place}.format")
            return {"type": "custom", "custom": custom}
    raise unsupported_type(place, kind)


def _input_format(given: Json, place: str) -> Json:
    match kind := given.get("type"):
        case "text":
            return {"type": "text"}
        case "grammar":
            refuse_others(given, ("type", "syntax", "definition"), place)
            return {"type": "grammar", "grammar": picked(given, ("syntax", "definition"))}
    raise unsupported_type(place, kind)


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    choice = an_object(choice, "tool_choice")
    match kind := choice.get("type"):
        case "function" | "custom":
            return {"type": kind, kind: picked(choice, ("name",))}
        case "allowed_tools":
            tools = [_tool_choice(tool) for tool in a_list(choice.get("tools"), "tool_choice.tools")]
            return {"type": kind, kind: {**picked(choice, ("mode",)), "tools": tools}}
    raise unsupported_type("tool_choice", kind)


# -- items -------------------------------------------------------------------------------------------------------------


def _messages(body: Json) -> list[Json]:
    messages: list[Json] = []
    if (instructions := body.get("instructions")) is not None:
        add_system(messages, a_string(instructions, "instructions"))
    given = body.get("input")
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
        return messages
    if not isinstance(given, list) or not given:
        raise BadRequest("`input` must be a string or a non-empty list of items.", "input")
    for position, item in enumerate(given):
        place = f"input[{position}]"
        kind = an_object(item, place).get("type", "message" if "role" in item else None)
        read = _ITEMS.get(kind) if isinstance(kind, str) else None
        if kind == "item_reference":
            if str(item.get("id")).startswith("rs_"):
                continue  # to reasoning, which is left out
            raise untranslatable(place, _WHOLE_ITEMS)
        if read is None:
            raise unsupported_type(place, kind)
        read(messages, item, place)
    return messages


def _message(messages: list[Json], item: Json, place: str) -> None:
    refuse_others(item, ("type", "id", "status", "role", "content", "phase"), place)
    role = item.get("role")
    if role not in _ROLES:
        raise BadRequest(f"`{place}.role` must be one of {', '.join(_ROLES)}.", f"{place}.role")
    parts = _parts(item.get("content"), f"{place}.content")
    if role == "user":
        messages.append({"role": "user", "content": user_content(parts)})
        return
    for at, part in enumerate(parts):
        if part["type"] != "text" and not (role == "assistant" and part["type"] == "refusal"):
            raise untranslatable(f"{place}.content[{at}]", "this role's messages are text")
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if role != "assistant":
        add_system(messages, "\n\n".join(texts))
        return
    refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
    said = {"content": "".join(texts)} if texts or not refusals else {}
    add_assistant(messages, said | ({"refusal": "".join(refusals)} if refusals else {}))


def _parts(content: Any, place: str) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [
        _part(an_object(part, f"{place}[{at}]"), f"{place}[{at}]") for at, part in enumerate(a_list(content, place))
    ]


def _part(part: Json, place: str) -> Json:
    kind = part.get("type")
    fields: tuple[str, ...] = ("type", "prompt_cache_breakpoint")
    if kind in _TEXT_PARTS:
        refuse_others(part, (*fields, "text", "annotations", "logprobs"), place)
        return {"type": "text", "text": a_string(part.get("text"), f"{place}.text")}
    match kind:
        case "refusal":
            return {"type": "refusal", "refusal": a_string(part.get("refusal"), f"{place}.refusal")}
        case "input_image":
            refuse_others(part, (*fields, "image_url", "detail"), place)
            url = a_string(part.get("image_url"), f"{place}.image_url")
            return {"type": "image_url", "image_url": {"url": url, **picked(part, ("detail",))}}
        case "input_file":
            refuse_others(part, (*fields, "file_data", "filename", "detail"), place)
            return {"type": "file", "file": picked(part, ("file_data", "filename"))}
        case "input_audio":
            refuse_others(part, (*fields, "input_audio"), place)
            return {"type": "input_audio", "input_audio": part.get("input_audio")}
    raise unsupported_type(place, kind)


def _call(messages: list[Json], item: Json, place: str, kind: str, text: str) -> None:
    refuse_others(item, _CALL_FIELDS | {text}, place)
    of_kind = {field: a_string(item.get(field), f"{place}.{field}") for field in ("name", text)}
    if namespace := item.get("namespace"):
        of_kind["name"] = flat_name(a_string(namespace, f"{place}.namespace"), of_kind["name"])
    call = {"id": a_string(item.get("call_id"), f"{place}.call_id"), "type": kind, kind: of_kind}
    add_assistant(messages, {"tool_calls": [call]})


def _call_output(messages: list[Json], item: Json, place: str) -> None:
    refuse_others(item, (*_CALL_FIELDS, "output"), place)
    parts = _parts(item.get("output"), f"{place}.output")
    for at, part in enumerate(parts):
        if part["type"] != "text":
            raise untranslatable(f"{place}.output[{at}]", "chat takes text from tools")
    call_id = a_string(item.get("call_id"), f"{place}.call_id")
    messages.append({"role": "tool", "tool_call_id": call_id, "content": user_content(parts)})


_ITEMS: dict[str, Callable[[list[Json], Json, str], None]] = {
    "message": _message,
    "function_call": partial(_call, kind="function", text="arguments"),
    "function_call_output": _call_output,
    "custom_tool_call": partial(_call, kind="custom", text="input"),
    "custom_tool_call_output": _call_output,
    "reasoning": lambda messages, item, place: None,  # chat has no place for what was thought in earlier turns
}
