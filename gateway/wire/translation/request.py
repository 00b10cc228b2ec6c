"""What the translations of requests share: how a place is named, and how it is refused."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

from gateway.wire.dialect import BadRequest, an_object
from gateway.wire.json import Json

# Of what a client wrote, an error shows what can be the name of a field or a type.
_NAME = re.compile("[A-Za-z][A-Za-z0-9_.-]{0,63}")


class FieldTable(NamedTuple):
    """What becomes of the fields of an endpoint's requests. Every other field passes as it is: chat has it under the
    same name, or neither endpoint knows it; both are scanned like a chat request's."""

    translated: dict[str, str]
    without_effect: dict[str, str]
    refused: dict[str, str]

    @staticmethod
    def of(endpoint: str) -> FieldTable:
        tables = tomllib.loads(Path(__file__).with_name("fields.toml").read_text("utf-8"))
        table = FieldTable(**tables[endpoint])
        of_chat = {field: reason for field, reason in tables["chat"].items() if field not in table.translated}
        return table._replace(refused=table.refused | of_chat)

    def passed(self, body: Json) -> Json:
        """The fields of a request that pass. Raises `BadRequest` for one that is refused, unless its value means that
        it is not there."""
        for field, reason in self.refused.items():
            if body.get(field):
                raise untranslatable(field, reason)
        return {field: value for field, value in body.items() if not any(field in table for table in self)}


def untranslatable(place: str, reason: str = "", code: str | None = None) -> BadRequest:
    """The refusal of what a chat upstream could not honour."""
    because = f": {reason}" if reason else ""
    message = f"`{place}` cannot be translated for an upstream that only has chat completions{because}."
    return BadRequest(message, place, code)


def unsupported_type(place: str, given: Any) -> BadRequest:
    """The refusal of an object by its `type`."""
    shown = f"`{given}` is none" if isinstance(given, str) and _NAME.fullmatch(given) else "this is none"
    return untranslatable(place, f"{shown} of the types that can")


def refuse_others(given: Json, known: Container[str], place: str) -> None:
    """Refuse an object that says more than `known` fields do. Values that switch nothing on say nothing."""
    for name, value in given.items():
        if name not in known and value not in (None, False, "", [], {}):
            raise untranslatable(f"{place}.{name}" if _NAME.fullmatch(name) else place)


def a_list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequest(f"`{place}` must be a list.", place)
    return value


def a_string(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"`{place}` must be a string.", place)
    return value


def blocks_of(content: Any, place: str) -> list[tuple[Json, str]]:
    """The blocks of a message of Anthropic's, each with its place."""
    if isinstance(content, str):
        return [({"type": "text", "text": content}, place)]
    return [(an_object(block, f"{place}[{at}]"), f"{place}[{at}]") for at, block in enumerate(a_list(content, place))]


def picked(given: Json, names: tuple[str, ...]) -> Json:
    """These fields, as far as they are there and not null."""
    return {name: given[name] for name in names if given.get(name) is not None}


def flat_name(namespace: str, name: str) -> str:
    """The name that a tool of a namespace has for chat, which has none."""
    return f"{namespace}__{name}"


def add_system(messages: list[Json], text: str) -> None:
    """Instructions. Those that begin a conversation become one message: the templates of many models take no second."""
    if len(messages) == 1 and messages[0]["role"] == "system":
        messages[0]["content"] += "\n\n" + text
    else:
        messages.append({"role": "system", "content": text})


def add_assistant(messages: list[Json], part: Json) -> None:
    """What the assistant said or called. Chat has the calls of one turn in the message of its text."""
    last = messages[-1] if messages and messages[-1]["role"] == "assistant" else {}
    if "tool_calls" not in last and ("tool_calls" not in part or not last):
        messages.append({"role": "assistant", **part})
    elif "tool_calls" in part:
        last.setdefault("tool_calls", []).extend(part["tool_calls"])
    else:  # between calls and their outputs, where chat has no place for another message
        last.update({field: last.get(field, "") + text for field, text in part.items()})


def user_content(parts: list[Json]) -> str | list[Json]:
    """Parts as the content of a message: a single text as a string, which every server takes."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts or ""
