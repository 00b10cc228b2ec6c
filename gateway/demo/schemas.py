"""A value that satisfies a JSON schema, with strings and numbers from the player's message.

Of a schema it reads what OpenAI's structured outputs take, and more: `$ref` and `$defs`, `anyOf`, `oneOf`, `allOf`,
`const`, `enum`, types with their bounds, `pattern` and `format`. What would need a search is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from functools import cache
from math import ceil
from typing import Any, NamedTuple, cast

from gateway.demo.facts import Facts
from gateway.demo.patterns import MAX_STRING, RegexError, StringPattern
from gateway.wire.json import Json

MAX_DEPTH = 32  # of values, and of references, within each other
MAX_STEPS = 20_000  # schemas and properties read for one value
MAX_CHARACTERS = 100_000  # of all strings of one value
PATTERN_STEPS = 300  # that a string for a pattern counts for
MAX_ITEMS = 1_000  # of one array or object
MAX_MAGNITUDE = Decimal(10**15)
_REFUSED = ("not", "if", "contains", "dependentSchemas", "dependentRequired", "$dynamicRef", "$recursiveRef")
_ANYTHING: Json = {}
_NOTHING: Json = {"enum": []}
_FORMATS = {
    "date-time": "2026-01-01T12:00:00Z",
    "date": "2026-01-01",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "gandalf@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "12345678-1234-4123-8123-123456789012",
    "uuid4": "12345678-1234-4123-8123-123456789012",
    "uri": "https://example.com/",
}
# The type of a schema that has none, by the first of these keys that it has.
_TYPE_OF_KEY = {
    **dict.fromkeys(("properties", "required", "additionalProperties", "minProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems", "uniqueItems"), "array"),
    **dict.fromkeys(("pattern", "format", "minLength", "maxLength"), "string"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
}


class SchemaRefused(ValueError):
    """No value was found. The message says what in the schema is in the way."""


class _TooMuch(SchemaRefused):
    """A bound was reached, and another branch would not help."""


def value_of(schema: Any, facts: Facts) -> Any:
    """A value that satisfies `schema`. Raises `SchemaRefused`."""
    return _Search(schema, facts).value(schema, _ValuePlace())


class _ValuePlace(NamedTuple):
    """Where a value stands: how deep, within which references, and in which of an array's different items."""

    depth: int = 0
    references: tuple[str, ...] = ()
    item: int = 0

    def below(self, item: int | None = None) -> _ValuePlace:
        return self._replace(depth=self.depth + 1, item=self.item if item is None else item)


class _Search:
    def __init__(self, root: Any, facts: Facts) -> None:
        self._root = root
        self._facts = facts
        self._steps = MAX_STEPS
        self._characters = MAX_CHARACTERS
        self._pattern = cache(_pattern)

    def value(self, schema: Any, place: _ValuePlace) -> Any:
        schema = _as_object(schema)
        self._count_steps(1)
        if place.depth > MAX_DEPTH:
            raise SchemaRefused(f"its values are nested more than {MAX_DEPTH} deep")
        for key in _REFUSED:
            if key in schema:
                raise SchemaRefused(f"the demo model cannot follow {key!r}")
        if "$ref" in schema:
            place = place._replace(references=(*place.references, str(schema["$ref"])))
            return self.value(self._merged(_without(schema, "$ref"), self._resolved(schema["$ref"])), place.below())
        if isinstance(parts := schema.get("allOf"), list):
            whole = _without(schema, "allOf")
            for part in parts:
                whole = self._merged(whole, self._dereferenced(part))
            return self.value(whole, place.below())
        for key in ("anyOf", "oneOf"):
            if isinstance(options := schema.get(key), list):
                rest = _without(schema, key)
                return self._first_of((self._merged(rest, option) for option in self._ordered(options, place)), place)
        return self._plain(schema, place)

    def _plain(self, schema: Json, place: _ValuePlace) -> Any:
        if "const" in schema:
            return schema["const"]
        if isinstance(options := schema.get("enum"), list):
            return self._chosen(options, place.item)
        kind = schema.get("type") or next((_TYPE_OF_KEY[key] for key in schema if key in _TYPE_OF_KEY), "string")
        if isinstance(kind, list):
            # null is for values that are not there.
            ordered = sorted(kind, key=lambda each: each == "null")
            return self._first_of(({**schema, "type": each} for each in ordered), place)
        match kind:
            case "object":
                return self._object(schema, place)
            case "array":
                return self._array(schema, place)
            case "string":
                return self._string(schema, place.item)
            case "integer" | "number":
                return self._number(schema, kind == "integer", place.item)
            case "boolean":
                return place.item % 2 == 0
            case "null":
                return None
        raise SchemaRefused(f"{str(kind)[:40]!r} is not a type")

    # -- choices -------------------------------------------------------------------------------------------------------

    def _ordered(self, options: list[Any], place: _ValuePlace) -> list[Any]:
        """The options, those last that lead back to a schema that the value stands within."""
        self._count_steps(len(options))
        return sorted(options, key=lambda option: _recurs(option, place))

    def _first_of(self, options: Iterable[Json], place: _ValuePlace) -> Any:
        """The value of the first option that has one."""
        reason = SchemaRefused("a choice has no options")
        for option in options:
            try:
                return self.value(option, place.below())
            except _TooMuch:
                raise
            except SchemaRefused as refused:
                reason = refused
        raise reason

    def _chosen(self, options: list[Any], item: int) -> Any:
        """The options, those first that the message names."""
        self._count_steps(len(options))
        ordered = sorted(options, key=lambda each: not (isinstance(each, str) and self._facts.names(each)))
        if item >= len(ordered):
            raise SchemaRefused("an enum has no value, or fewer than an array needs")
        return ordered[item]

    # -- objects and arrays --------------------------------------------------------------------------------------------

    def _object(self, schema: Json, place: _ValuePlace) -> Json:
        properties, required = _of(dict, schema, "properties"), _of(list, schema, "required")
        self._count_steps(len(properties))
        self._count_steps(len(required))
        needed = {name for name in required if isinstance(name, str)}
        found: Json = {}
        for name, part in properties.items():
            if name in needed:
                found[name] = self.value(part, place.below())
            elif not _recurs(part, place):
                self._put(found, name, part, place)
        more = schema.get("additionalProperties", True)
        for name in sorted(needed - found.keys()):
            found[name] = self.value(more, place.below())
        low, high = _bounds(schema, "Properties", MAX_ITEMS)
        if len(found) > high:
            # Those that are not required were written for show.
            optional = [name for name in reversed(found) if name not in needed]
            for name in optional[: len(found) - high]:
                del found[name]
        while len(found) < max(low, min(high, 1) if not properties and isinstance(more, dict) else 0):
            name = self._facts.string()
            found[name if name not in found else f"{name} {len(found)}"] = self.value(more, place.below())
        return found

    def _put(self, found: Json, name: str, part: Any, place: _ValuePlace) -> None:
        """A property that may be left out where it has no value."""
        try:
            found[name] = self.value(part, place.below())
        except _TooMuch:
            raise
        except SchemaRefused:
            pass

    def _array(self, schema: Json, place: _ValuePlace) -> list[Any]:
        first, items = _of(list, schema, "prefixItems"), schema.get("items", True)
        low, high = _bounds(schema, "Items", MAX_ITEMS)
        shown = 0 if items is False or _recurs(items, place) else 1
        different = schema.get("uniqueItems") is True
        found: list[Any] = []
        for position in range(max(low, min(high, max(len(first), shown)))):
            part = first[position] if position < len(first) else items
            try:
                found.append(self._another(part, place, found) if different else self.value(part, place.below()))
            except _TooMuch:
                raise
            except SchemaRefused:
                if position < low:
                    raise
                break
        return found

    def _another(self, schema: Any, place: _ValuePlace, found: list[Any]) -> Any:
        """A value that is not among those found."""
        # The first one may have been what a later one would be.
        for item in range(len(found), len(found) + 3):
            value = self.value(schema, place.below(item))
            if value not in found:
                return value
        raise SchemaRefused("an array needs more different items than were found")

    # -- strings and numbers -------------------------------------------------------------------------------------------

    def _string(self, schema: Json, item: int) -> str:
        low, high = _bounds(schema, "Length", MAX_STRING)
        kind = schema.get("format")
        if isinstance(pattern := schema.get("pattern"), str):
            self._count_steps(PATTERN_STEPS)
            text = self._pattern(pattern).matching(low, high, item)
            if text is None:
                raise SchemaRefused("no string for a pattern was found")
        elif isinstance(kind, str) and kind in _FORMATS:
            text = _FORMATS[kind]
            if item or not low <= len(text) <= high:
                raise SchemaRefused(f"no other string of format {kind} was found")
        else:
            text, suffix = self._facts.string(), f" {item}" if item else ""
            text = text * ceil(low / len(text)) if len(text) < low else text
            text = text[: max(high - len(suffix), 0)] + suffix[:high]
        self._characters -= len(text)
        if self._characters < 0:
            raise _TooMuch(f"its strings have more than {MAX_CHARACTERS} characters")
        return text

    def _number(self, schema: Json, whole: bool, item: int) -> int | float:
        step = _decimal(schema, "multipleOf") or (Decimal(1) if whole else None)
        low, high = _decimal(schema, "minimum"), _decimal(schema, "maximum")
        above, below = _decimal(schema, "exclusiveMinimum"), _decimal(schema, "exclusiveMaximum")
        starts = [each for each in (low, above) if each is not None]
        ends = [each for each in (high, below) if each is not None]

        def allowed(number: Decimal) -> bool:
            return (
                all(number >= each for each in starts)
                and all(number <= each for each in ends)
                and number not in (above, below)
                and (step is None or number % step == 0)
                and (not whole or number % 1 == 0)
            )

        said = None if item else self._facts.number()
        try:
            number = next(filter(allowed, _candidates(said, starts, ends, abs(step or Decimal(1)), item)), None)
        except InvalidOperation:
            number = None
        if number is None:
            raise SchemaRefused("no number within its bounds was found")
        return int(number) if number % 1 == 0 else float(number)

    # -- references ----------------------------------------------------------------------------------------------------

    def _resolved(self, reference: Any) -> Json:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise SchemaRefused("a $ref leads out of the schema")
        found = self._root
        for name in filter(None, reference[1:].split("/")):
            name = name.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise SchemaRefused("a $ref leads nowhere")
            found = found[name]
        return _as_object(found)

    def _dereferenced(self, schema: Any) -> Json:
        for _ in range(MAX_DEPTH):
            schema = _as_object(schema)
            if "$ref" not in schema:
                break
            schema = self._merged(_without(schema, "$ref"), self._resolved(schema["$ref"]))
        return _as_object(schema)

    def _merged(self, one: Json, option: Any) -> Json:
        """What satisfies both, as far as properties and required names go; of other keys the second schema's hold."""
        other = _as_object(option)
        if not one:
            return other
        merged = one | other
        properties = _of(dict, one, "properties"), _of(dict, other, "properties")
        if all(properties):
            self._count_steps(sum(map(len, properties)))
            merged["properties"] = properties[0] | properties[1]
        if "required" in one and "required" in other:
            merged["required"] = _of(list, one, "required") + _of(list, other, "required")
            self._count_steps(len(merged["required"]))
        return merged

    def _count_steps(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise _TooMuch(f"it takes more than {MAX_STEPS} steps to find a value")


def _pattern(pattern: str) -> StringPattern:
    try:
        return StringPattern(pattern)
    except RegexError as error:
        raise SchemaRefused(f"a pattern cannot be read: {error}") from None


def _candidates(
    said: Decimal | None, starts: list[Decimal], ends: list[Decimal], step: Decimal, item: int
) -> Iterable[Decimal]:
    """Numbers that may lie within bounds; for different items different ones."""
    if said is not None:
        yield said
    if item == 0:
        yield Decimal(0)
    for start in starts or [Decimal(0)] if not ends else starts:
        multiple = -(-start // step) * step
        yield from (start + item * step, multiple + item * step, multiple + (item + 1) * step)
    for end in ends:
        yield from (end - item * step, end // step * step - item * step, end // step * step - (item + 1) * step)
    if starts and ends:
        yield max(starts) + (min(ends) - max(starts)) * (item + 1) / (item + 2)


def _recurs(schema: Any, place: _ValuePlace) -> bool:
    """Does a schema, or that of an array's items, lead to one that the value stands within?"""
    while isinstance(schema, dict):
        if "$ref" in schema:
            return schema["$ref"] in place.references
        schema = schema.get("items")
    return False


def _as_object(schema: Any) -> Json:
    if schema is True:
        return _ANYTHING
    if schema is False:
        return _NOTHING
    if not isinstance(schema, dict):
        raise SchemaRefused("a schema is an object or a truth value")
    return cast(Json, schema)


def _without(schema: Json, key: str) -> Json:
    return {name: value for name, value in schema.items() if name != key}


def _of(kind: type[Any], schema: Json, key: str) -> Any:
    """The value under a key; an empty one if there is none."""
    value = schema.get(key, kind())
    if not isinstance(value, kind):
        raise SchemaRefused(f"{key!r} has an invalid value")
    return value


def _bounds(schema: Json, what: str, most: int) -> tuple[int, int]:
    """The least and the greatest count of Items, Properties or characters (Length)."""
    low, high = schema.get(f"min{what}", 0), schema.get(f"max{what}", most)
    if type(low) is not int or type(high) is not int or low < 0 or high < low <= most:
        raise SchemaRefused(f"'min{what}' and 'max{what}' leave no count")
    if low > most:
        raise SchemaRefused(f"'min{what}' is more than {most}")
    return low, min(high, most)


def _decimal(schema: Json, key: str) -> Decimal | None:
    value = schema.get(key)
    if value is None or isinstance(value, bool):
        return None
    if not isinstance(value, int | float) or abs(value) > MAX_MAGNITUDE:
        raise SchemaRefused(f"{key!r} is no number, or a large one")
    return Decimal(str(value))
