"""The JSON Schema of a configuration file, and the rows of the documentation's tables of keys."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from gateway.policy.key_table import BYTES, KeyTable
from gateway.policy.load import CONFIG

LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
KIBIBYTES = (("MiB", 1 << 20), ("KiB", 1 << 10))


@cache
def _texts() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads((files("gateway.policy") / "keys.toml").read_text("utf-8"))


def meaning(table: KeyTable[Any], key: str) -> tuple[str, str]:
    """What a key means, in Markdown, and its default if it is not that of the dataclass; "" for keys that the
    documentation leaves out."""
    text = _texts()[table.name].get(key, "")
    return (text, "") if isinstance(text, str) else (text["meaning"], text["default"])


def schema() -> dict[str, Any]:
    """The JSON Schema, draft 7. It cannot know files, patterns, detectors and names that lead nowhere; all that it
    refuses, the loader refuses too."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Portcullis configuration",
        **_mapping(CONFIG),
    }


def _mapping(table: KeyTable[Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {key: _property(table, key) for key in table.forms},
    }
    if required := [key for key in table.forms if table.is_required(key)]:
        made["required"] = required
    if table.one_of:
        made["oneOf"] = [{"required": [name]} for name in table.one_of]
    return {**made, **table.rules}


def _property(table: KeyTable[Any], key: str) -> dict[str, Any]:
    form = table.forms[key]
    made: dict[str, Any] = _resolved(form.schema) if form.table is None else _mapping(form.table)
    text, shown = meaning(table, key)
    default = table.default(key)
    if text:
        made["description"] = LINK.sub(r"\1", text)
    if not shown and isinstance(default, str | int | float):
        made["default"] = default
    return made


def _resolved(node: Any) -> Any:
    """The schema with the schemas of tables in their places."""
    match node:
        case KeyTable():
            return _mapping(node)
        case dict():
            return {name: _resolved(child) for name, child in node.items()}
        case list():
            return [_resolved(child) for child in node]
    return node


def rows(table: KeyTable[Any], within: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Key, type, default and meaning, those of nested mappings in place."""
    for key, form in table.forms.items():
        text, shown = meaning(table, key)
        if form.table is not None:
            yield from rows(form.table, f"{key}.")
        elif text:
            yield f"`{within}{key}`", form.shown, shown or _default(table, key, within), text


def _default(table: KeyTable[Any], key: str, within: str) -> str:
    default = table.default(key)
    match default:
        case dataclasses.MISSING:
            return f"required in `{within[:-1]}`" if within else "required"
        case None | ():
            return "none"
        case bool():
            return str(default).lower()
        case str():
            return f"`{default}`"
    if table.forms[key] is BYTES:
        return next(f"{default // size}{name}" for name, size in KIBIBYTES if default % size == 0)
    return f"{default:g}" if isinstance(default, float) else str(default)
