"""The tools of a request to Anthropic's `/messages`, which the conversation may change, as those of a chat request.

Tools with `defer_loading` are not offered to the model before a result names them (`tool_reference`), so that a program
can have the model search for them; a system message may offer and withdraw tools (`tool_addition`, `tool_removal`).
Chat has one list of tools, for the next turn: those that are offered at the end of the conversation.
"""

from __future__ import annotations

from typing import Any

from gateway.wire.dialect import BadRequest, an_object
from gateway.wire.json import Json
from gateway.wire.translation.request import (
    a_list,
    a_string,
    blocks_of,
    picked,
    refuse_others,
    unsupported_type,
    untranslatable,
)

BLOCK_FIELDS = ("type", "cache_control")
TOOL_CHANGES = ("tool_addition", "tool_removal")
_TOOL_FIELDS = ("name", "description", "input_schema", "strict", "eager_input_streaming", "allowed_callers")


def offered_tools(body: Json) -> list[Json]:
    """The tools that the model has for its next turn. Raises `BadRequest`."""
    tools: dict[str, Json] = {}
    offered: set[str] = set()
    for at, given in enumerate(a_list(body.get("tools") or [], "tools")):
        tool = _tool(given, f"tools[{at}]")
        name = a_string(tool["function"].get("name"), f"tools[{at}].name")
        if name in tools:
            raise BadRequest(f"`tools[{at}].name` is the name of another tool.", f"tools[{at}].name")
        tools[name] = tool
        if not given.get("defer_loading"):
            offered.add(name)
    for block, place in _changes(body):
        name = _changed(tools, block, place)
        if name not in tools:
            raise BadRequest(f"`{place}` names no tool of this request.", place)
        if block["type"] == "tool_removal":
            offered.discard(name)
        else:
            offered.add(name)
    return [tool for name, tool in tools.items() if name in offered]


def _changes(body: Json) -> list[tuple[Json, str]]:
    """The blocks that offer or withdraw a tool, in the order of the conversation."""
    found: list[tuple[Json, str]] = []
    for position, message in enumerate(body["messages"]):
        for block, place in blocks_of(message.get("content"), f"messages[{position}].content"):
            if message["role"] == "system" and block.get("type") in TOOL_CHANGES:
                found.append((block, place))
            elif block.get("type") == "tool_result":
                inner = blocks_of(block.get("content") or "", f"{place}.content")
                found += [each for each in inner if each[0].get("type") == "tool_reference"]
    return found


def _changed(tools: dict[str, Json], block: Json, place: str) -> str:
    """The name of the tool that a block offers or withdraws; one that is defined there is added to `tools`."""
    if block["type"] == "tool_reference":
        return referenced_name(block, place)
    refuse_others(block, (*BLOCK_FIELDS, "tool"), place)
    place = f"{place}.tool"
    tool = an_object(block.get("tool"), place)
    match kind := tool.get("type"):
        case "tool_reference":
            refuse_others(tool, ("type", "name"), place)
            return a_string(tool.get("name"), f"{place}.name")
        case "tool_definition" if block["type"] == "tool_addition":
            refuse_others(tool, ("type", "definition"), place)
            defined = _tool(tool.get("definition"), f"{place}.definition")
            name = a_string(defined["function"].get("name"), f"{place}.definition.name")
            tools[name] = defined
            return name
    raise unsupported_type(place, kind)


def referenced_name(block: Json, place: str) -> str:
    """The name of the tool that a result refers to."""
    refuse_others(block, (*BLOCK_FIELDS, "tool_name"), place)
    return a_string(block.get("tool_name"), f"{place}.tool_name")


def _tool(given: Any, place: str) -> Json:
    tool = an_object(given, place)
    if tool.get("type") not in (None, "custom"):
        raise unsupported_type(place, tool["type"])
    refuse_others(tool, (*BLOCK_FIELDS, *_TOOL_FIELDS, "defer_loading"), place)
    if tool.get("allowed_callers") not in (None, [], ["direct"]):
        raise untranslatable(f"{place}.allowed_callers")
    schema = an_object(tool.get("input_schema"), f"{place}.input_schema")
    function = {**picked(tool, ("name", "description", "strict")), "parameters": schema}
    return {"type": "function", "function": function}


def tool_choice(choice: Json) -> Json:
    """The fields of a chat request that say which tools are to be called."""
    refuse_others(choice, ("type", "name", "disable_parallel_tool_use"), "tool_choice")
    chosen: Any
    match kind := choice.get("type"):
        case "auto" | "none":
            chosen = kind
        case "any":
            chosen = "required"
        case "tool":
            chosen = {"type": "function", "function": picked(choice, ("name",))}
        case _:
            raise unsupported_type("tool_choice", kind)
    single = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") else {}
    return {"tool_choice": chosen, **single}
