"""The `constrain` part of a policy → `Constrain`."""

from __future__ import annotations

import json
from typing import Any

from gateway.policy.checks import BadPattern, Checks
from gateway.policy.key_table import BOOLEAN, NONEMPTY, TEXT, Form, KeyTable, choice, several
from gateway.policy.model import Conflict, Constrain, Language, Violation
from gateway.policy.value import Node, ScalarKind, Value

# Values in a JSON schema, aliases written out. What compiles it takes 2 seconds for an object of 3,300 properties, and
# four times as long for twice as many.
MAX_SCHEMA = 10_000
CONSTRAIN = KeyTable(
    "policies.constrain",
    Constrain,
    {
        "regex": Form("[pattern](patterns.md)", NONEMPTY.schema),
        "choice": Form("list of text", several(TEXT, "").schema),
        "json_schema": Form("mapping", {"type": "object"}),
        "grammar": Form("text", NONEMPTY.schema),
        "on_conflict": choice(Conflict),
        "on_violation": choice(Violation),
        "require": BOOLEAN,
    },
    one_of=tuple(Language),
)


def read_constrain(value: Value, checks: Checks) -> Constrain:
    """Raises `ConfigError`, also for a language that no model can be held to."""
    section = CONSTRAIN.section(value)
    language = Language(section.only_one(CONSTRAIN.one_of))
    given = section[language]
    constrain = Constrain(language=language, texts=_texts(given, language), **CONSTRAIN.values(section))
    try:
        checks.read_constraint(constrain)
    except BadPattern as error:
        raise given.fail(str(error)) from None
    return constrain


def _texts(value: Value, language: Language) -> tuple[str, ...]:
    if language is Language.JSON_SCHEMA:
        if not isinstance(value.node, dict):
            raise value.wrong("a JSON schema, which is a mapping")
        if _size(value.node, MAX_SCHEMA) > MAX_SCHEMA:
            raise value.fail(
                f"holds more than {MAX_SCHEMA} values, those counted each time that an alias repeats; "
                "a schema can name what it repeats under $defs"
            )
        return (json.dumps(_plain(value), ensure_ascii=False),)
    if language is not Language.CHOICE:
        return (value.nonempty(),)
    options: dict[str, None] = {}
    for item in value.nonempty_items():
        option = item.text()
        if option in options:
            raise item.wrong("an option that is not listed already")
        options[option] = None
    return tuple(options)


def _size(node: Node, most: int) -> int:
    """The number of values in a node, itself included; the count ends above `most`."""
    size = 1
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        if size > most:
            break
        size += _size(child, most - size)
    return size


def _plain(value: Value) -> Any:
    """The node as JSON data: YAML's scalars as JSON's."""
    node = value.node
    if isinstance(node, dict):
        return {name: _plain(value.child(name, child)) for name, child in node.items()}
    if isinstance(node, list):
        return [_plain(item) for item in value.items()]
    match node.kind:
        case ScalarKind.TEXT:
            return node.text
        case ScalarKind.BOOLEAN:
            return value.boolean()
        case ScalarKind.NULL:
            return None
        case ScalarKind.INTEGER | ScalarKind.FLOAT:
            try:
                return json.loads(node.text)
            except ValueError:
                raise value.wrong("a number as JSON writes it") from None
        case _:
            raise value.fail(f"unquoted, YAML reads this as {node.kind}: quote it")
