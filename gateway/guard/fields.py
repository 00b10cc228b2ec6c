"""The texts of a request beside its messages or prompts: descriptions of tools, schemas, documents, labels, unknown
fields.

What the protocol itself defines is not scanned: the names of its fields, the keywords of JSON schemas, and the few
words that stand where only these words may. A rule for the word `object` must not make a schema invalid.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from gateway.wire.dialects import SERVED
from gateway.wire.json import Json
from gateway.wire.message import KNOWN_NAMES, ROLES, SlotKind, TextSlot, may_spell_text
from gateway.wire.names import named

FIXED_NAMES = frozenset(KNOWN_NAMES).union(
    *(named("requests", fields) for fields in ("json_schema", "openai", "anthropic", "servers")),
    *((*dialect.prompt_fields, *dialect.dropped, *dialect.refused) for dialect in SERVED),
)

_CONSTANT_FIELDS = named("requests", "constant_fields")
_CONSTANTS = named("requests", "constants").union(ROLES)
NAMES_TOOLS = frozenset({"tools", "functions", "tool_choice", "function_call"})
_TOKEN_ID = re.compile("[0-9]{1,7}")


class _FieldPlace(NamedTuple):
    """`field` is the name nearest above the value; `names_tools`: a `name` here is that of a tool."""

    holder: Any
    key: Any
    field: str
    names_tools: bool


def slots(body: Json, apart: Container[str]) -> Iterator[TextSlot]:
    """Every text of a request but those in fields `apart`: strings at any depth, and after them the names of fields.

    Numbers are none. All are texts of the channel `other`, but names of tools are of their own. The request may be
    changed while this runs, but only at the slot just yielded, and not by renaming. It is walked without recursion;
    how deep it is, the JSON decoder has bounded.
    """
    names: list[TextSlot] = []
    waiting = [_FieldPlace(body, field, field, field in NAMES_TOOLS) for field in reversed(body) if field not in apart]
    while waiting:
        holder, key, field, names_tools = waiting.pop()
        value = holder[key]
        if isinstance(key, str) and key not in FIXED_NAMES:
            names.append(TextSlot(holder, key, (), "other", SlotKind.KEY))
        if isinstance(value, str):
            if not (field in _CONSTANT_FIELDS and value in _CONSTANTS):
                channel = "tool_names" if names_tools and isinstance(key, str) and key.casefold() == "name" else "other"
                yield TextSlot(holder, key, (), channel, SlotKind.TEXT)
        elif isinstance(value, list):
            waiting += [_FieldPlace(value, at, field, names_tools) for at in reversed(range(len(value)))]
        elif isinstance(value, dict) and not (field == "logit_bias" and _are_token_ids(value)):
            within = names_tools and not (isinstance(key, str) and key.casefold() == "parameters")
            waiting += [_FieldPlace(value, name, name, within) for name in reversed(value)]
    yield from names


def number_lists(body: Json) -> Iterator[tuple[Any, Any, bool]]:
    """Every list of a request whose numbers may spell text, as (holder, key), and whether the protocol has its name.
    A list may be changed as it is yielded."""
    waiting: list[tuple[Any, Any, str]] = [(body, field, field) for field in reversed(body)]
    while waiting:
        holder, key, field = waiting.pop()
        value = holder[key]
        if isinstance(value, list):
            if may_spell_text(value):
                yield holder, key, field.casefold() in FIXED_NAMES
            value = holder[key]
            waiting += [(value, at, field) for at in reversed(range(len(value))) if isinstance(value[at], list | dict)]
        elif isinstance(value, dict):
            waiting += [(value, name, name) for name in reversed(value) if isinstance(value[name], list | dict)]


def _are_token_ids(value: Json) -> bool:
    """Are these biases by token id? The digits of an id are not text."""
    return all(_TOKEN_ID.fullmatch(name) and isinstance(bias, int | float) for name, bias in value.items())


# -- names in other letters --------------------------------------------------------------------------------------------
