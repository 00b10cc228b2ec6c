"""The keys of a configuration's mappings, declared once: the forms of their values in a `KeyTable`, which reads the
mapping into its dataclass, the defaults in the dataclass, the meanings in keys.toml.

Each section declares its table beside the rules that a table cannot express. `gateway.policy.schema` makes the tables
of docs/configuration.md and the JSON Schema of the same three.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from gateway.policy.errors import ConfigError
from gateway.policy.value import LABEL, SIZE, Section, Value

M = TypeVar("M")
Reader: TypeAlias = Callable[[Value], Any]
Schema: TypeAlias = Mapping[str, Any]  # JSON Schema, in which a `KeyTable` stands for its own

# Any scalar may be a reference to the environment, which is resolved after the schema has been checked.
REFERENCE: Schema = {"type": "string", "pattern": r"\$\{"}


@dataclass(frozen=True, slots=True)
class Form:
    """The values that a key takes: `shown` in the column "type" of the documentation, `schema` for the JSON Schema, and
    `read`, which makes the value; None where the section reads it itself, as other keys decide what it means. `table`
    is that of a nested mapping."""

    shown: str
    schema: Schema
    read: Reader | None = None
    table: KeyTable[Any] | None = None

    def __call__(self, value: Value) -> Any:
        """The value of a key with a reader."""
        assert self.read is not None
        return self.read(value)


@dataclass(frozen=True)
class KeyTable(Generic[M]):
    """The keys of a mapping in the file and the dataclass that it becomes; `name` is its table in keys.toml.

    `one_of`: exactly one of these keys is given. `later`: keys of later versions, with a hint or "". `rules`: further
    keywords of the JSON Schema.
    """

    name: str
    model: type[M]
    forms: Mapping[str, Form]
    one_of: tuple[str, ...] = ()
    later: Mapping[str, str] = field(default_factory=dict)
    rules: Schema = field(default_factory=dict)

    def section(self, value: Value) -> Section:
        """The mapping with its keys checked. Raises `ConfigError`."""
        return value.section(self.forms, self.later)

    def read(self, value: Value, **readers: Reader) -> M:
        """The whole mapping. Raises `ConfigError`."""
        return self.model(**self.values(self.section(value), **readers))

    def values(self, section: Section, **readers: Reader) -> dict[str, Any]:
        """The keys that the section has, but for those that it reads itself; `readers` replace those of the forms.

        What is refused is noted and left to its default. Raises `ConfigError`, after the last key, if a required key is
        absent or refused.
        """
        refused: ConfigError | None = None
        values: dict[str, Any] = {}
        for key, form in self.forms.items():
            read = readers.get(key, form.read)
            required = self.is_required(key)
            if read is None or not (required or key in section):
                continue
            try:
                values[key] = read(section[key])
            except ConfigError as error:
                section.value.note(error)
                refused = error if required else refused
        if refused is not None:
            raise refused
        return values

    def default(self, key: str) -> Any:
        """The dataclass's default for a key, `dataclasses.MISSING` without one; None if it has no such field."""
        fields = dataclasses.fields(self.model)  # type: ignore[arg-type]
        return next((each.default for each in fields if each.name == key), None)

    def is_required(self, key: str) -> bool:
        return self.default(key) is dataclasses.MISSING and key not in self.one_of


# -- forms -------------------------------------------------------------------------------------------------------------


def or_reference(schema: Schema) -> Schema:
    return {"anyOf": [schema, REFERENCE]}


def integer(low: int, high: int | None = None, shown: str = "") -> Form:
    """A whole number, both bounds included."""
    bounds = {"minimum": low} if high is None else {"minimum": low, "maximum": high}
    shown = shown or (f"whole number from {low}" if high is None else f"{low} to {high}")
    return Form(shown, or_reference({"type": "integer", **bounds}), lambda value: value.integer(low, high))


def choice(names: type[StrEnum]) -> Form:
    """A member of `names`."""
    listed = [str(name) for name in names]
    shown = ", ".join(f"`{name}`" for name in listed)
    return Form(shown, or_reference({"enum": listed}), lambda value: value.choice(names))


def several(form: Form, shown: str, make: Callable[[Any], Any] = tuple, least: int = 1) -> Form:
    """A list; `make` is given the values. With `least` 0 it may be empty."""

    def read(value: Value) -> Any:
        return make(form(item) for item in (value.nonempty_items() if least else value.items()))

    return Form(shown, {"type": "array", "items": form.schema, "minItems": least}, read)


def nested(table: KeyTable[Any], read: Reader | None = None) -> Form:
    """A mapping with a table of its own."""
    return Form("mapping", {}, read or table.read, table)


def named(table: KeyTable[Any]) -> Form:
    """A non-empty mapping of names that the operator chose, each to such a mapping."""
    names = {"pattern": f"^{LABEL.pattern}$"}
    return Form("", {"type": "object", "minProperties": 1, "propertyNames": names, "additionalProperties": table})


def reference(what: str, names: Collection[str]) -> Reader:
    """Reads one of `names`, which the file defines elsewhere as `what`."""
    return partial(Value.reference, what=what, names=names)


TEXT = Form("text", {"type": "string"}, Value.text)
NONEMPTY = Form("text", {"type": "string", "pattern": r"\S"}, Value.nonempty)
NAME = Form("name", {"type": "string", "minLength": 1}, Value.label)
PATH = Form("path", NONEMPTY.schema)
SECONDS = Form("seconds", or_reference({"type": "number", "exclusiveMinimum": 0}), Value.seconds)
SHARE = Form("0 to 1", or_reference({"type": "number", "minimum": 0, "maximum": 1}), Value.share)
BOOLEAN = Form("true or false", or_reference({"type": "boolean"}), Value.boolean)
BYTES = Form(
    "size",
    {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^{SIZE.pattern}$"}, REFERENCE]},
    Value.size,
)
