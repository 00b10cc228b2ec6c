"""Values of JSON schemas, judged by a validator that is not ours."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from gateway.demo.facts import Facts
from gateway.demo.patterns import StringPattern
from gateway.demo.schemas import MAX_DEPTH, MAX_ITEMS, SchemaRefused, value_of
from tests.support.examples import examples

Json = dict[str, Any]
SAID = "Say that Alice and Bob meet 3 wizards in New York on Friday, at 7.5 degrees"


def checked(schema: Any, said: str = SAID, leak: str | None = None) -> Any:
    value = value_of(schema, Facts(said, leak))
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(value)
    return value


def thing(**properties: Any) -> Json:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


NODE = {
    "$defs": {"Node": thing(value={"type": "integer"}, next={"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]})}
}

CASES: dict[str, tuple[Any, Any]] = {
    "any": ({}, "Alice"),
    "true": (True, "Alice"),
    "const": ({"const": [1, {"a": None}]}, [1, {"a": None}]),
    "the enum's value that was named": ({"enum": ["Berlin", "new york"]}, "new york"),
    "the enum's first value": ({"enum": [None, "Berlin"]}, None),
    "numbers in order": ({"type": "array", "items": {"type": "number"}, "minItems": 2}, [3, 7.5]),
    "an integer": ({"type": "integer", "minimum": 4}, 4),
    "a number that was said": ({"type": "integer", "minimum": 2}, 3),
    "beyond": ({"type": "integer", "exclusiveMinimum": 7, "exclusiveMaximum": 9}, 8),
    "between": ({"type": "number", "exclusiveMinimum": 0.1, "exclusiveMaximum": 0.3}, 0.2),
    "a multiple": ({"type": "integer", "multipleOf": 5, "minimum": 11}, 15),
    "a multiple of a fraction": ({"type": "number", "multipleOf": 0.25, "minimum": 0.3, "maximum": 0.6}, 0.5),
    "at most": ({"type": "number", "maximum": -2}, -2),
    "a boolean": ({"type": "boolean"}, True),
    "several types": ({"type": ["null", "string"]}, "Alice"),
    "a short string": ({"type": "string", "maxLength": 3}, "Ali"),
    "a long string": ({"type": "string", "minLength": 7}, "AliceAlice"),
    "no string": ({"type": "string", "maxLength": 0}, ""),
    "a pattern": ({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}, "AA-aaa".replace("a", "0")),
    "a pattern within": ({"type": "string", "pattern": "b+"}, "b"),
    "a long pattern": ({"type": "string", "pattern": "^[a-c]*$", "minLength": 5}, "a" * 8),
    "an alternative": ({"type": "string", "pattern": r"^(red|green)\b$"}, "red"),
    "date and time": ({"type": "string", "format": "date-time"}, "2026-01-01T12:00:00Z"),
    "an array": ({"type": "array", "items": {"type": "string"}}, ["Alice"]),
    "at most no items": ({"type": "array", "items": {"type": "string"}, "maxItems": 0}, []),
    "a tuple": (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        [3, "Alice"],
    ),
    "different strings": ({"type": "array", "uniqueItems": True, "minItems": 5, "items": {"type": "string"}}, None),
    "different numbers": (
        {"type": "array", "uniqueItems": True, "minItems": 9, "items": {"type": "integer", "minimum": 1}},
        None,
    ),
    "different values of an enum": (
        {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"enum": ["a", "b", "c"]}},
        ["a", "b", "c"],
    ),
    "an object": (thing(who={"type": "string"}, how_many={"type": "integer"}), {"who": "Alice", "how_many": 3}),
    "what is not required": ({"properties": {"a": {"type": "null"}}}, {"a": None}),
    "what cannot be": ({"type": "object", "properties": {"a": False}}, {}),
    "required without a schema": ({"type": "object", "required": ["a"]}, {"a": "Alice"}),
    "a dictionary": ({"type": "object", "additionalProperties": {"type": "integer"}}, {"Alice": 3}),
    "many properties": ({"type": "object", "minProperties": 3}, None),
    "few properties": (
        {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"], "maxProperties": 1},
        {"b": "Bob"},
    ),
    "any of": ({"anyOf": [False, {"type": "integer"}]}, 3),
    "one of, with siblings": ({"type": "integer", "oneOf": [{"minimum": 9}, {"minimum": 20}], "maximum": 12}, 9),
    "all of": ({"allOf": [thing(a={"type": "string"}) | {"additionalProperties": True}, {"required": ["b"]}]}, None),
    "a reference": ({"$defs": {"a/b": {"type": "integer"}}, "$ref": "#/$defs/a~1b"}, 3),
    "a reference in all of": (
        {"definitions": {"A": thing(a={"const": 1})}, "allOf": [{"$ref": "#/definitions/A"}]},
        {"a": 1},
    ),
    "a list of nodes": ({**NODE, "$ref": "#/$defs/Node"}, {"value": 3, "next": None}),
    "a tree": (
        {
            "type": "object",
            "properties": {"name": {}, "children": {"type": "array", "items": {"$ref": "#"}}},
            "required": ["children"],
        },
        {"name": "Alice", "children": [{"name": "Bob", "children": []}]},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_value_satisfies_its_schema(name: str) -> None:
    schema, expected = CASES[name]
    value = checked(schema)
    if expected is not None:
        assert value == expected


REFUSED: dict[str, tuple[Any, str]] = {
    "false": (False, "enum"),
    "no type": ({"type": "text"}, "'text' is not a type"),
    "no schema": ({"properties": {"a": 7}, "required": ["a"]}, "a schema is an object"),
    "not": ({"not": {}}, "'not'"),
    "a condition": ({"if": {}}, "'if'"),
    "an empty enum": ({"enum": []}, "enum"),
    "nothing between": ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, "no number"),
    "turned bounds": ({"type": "string", "minLength": 3, "maxLength": 2}, "'minLength'"),
    "a long string": ({"type": "string", "minLength": 10**9}, "'minLength' is more than"),
    "many items": ({"type": "array", "minItems": MAX_ITEMS + 1}, "'minItems' is more than"),
    "much": ({"type": "array", "minItems": 900, "items": {"type": "string", "minLength": 4000}}, "more than 100000"),
    "many steps": (
        {"type": "array", "minItems": 999, "items": {"type": "array", "minItems": 999, "items": {"type": "null"}}},
        "steps",
    ),
    "endless": ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, f"more than {MAX_DEPTH}"),
    "endless references": ({"$ref": "#"}, f"more than {MAX_DEPTH}"),
    "endless doubling": (
        {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "required": ["a", "b"]},
        f"more than {MAX_DEPTH}",
    ),
    "endless choices": ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "steps"),
    "a reference to nothing": ({"$ref": "#/$defs/x"}, "leads nowhere"),
    "a reference to elsewhere": ({"$ref": "https://example.com/s.json"}, "leads out"),
    "a look-ahead": ({"type": "string", "pattern": "(?=a)"}, "pattern"),
    "a pattern without end": ({"type": "string", "pattern": "((a{1000}){1000}){1000}"}, "pattern"),
    "a pattern that is too short": ({"type": "string", "pattern": "^a$", "minLength": 2}, "pattern"),
    "a pattern of nothing": ({"type": "string", "pattern": r"a\bb"}, "pattern"),
    "large numbers": ({"type": "integer", "minimum": 10**40}, "'minimum'"),
    "equal items": ({"type": "array", "uniqueItems": True, "minItems": 3, "items": {"type": "boolean"}}, "different"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_value_is_refused_with_the_reason(name: str) -> None:
    schema, reason = REFUSED[name]
    with pytest.raises(SchemaRefused, match=reason):
        value_of(schema, Facts(SAID))


class Address(BaseModel):
    street: str
    number: int = Field(gt=0, multiple_of=2)
    country: str = Field(pattern=r"^[A-Z]{2}$")


class Person(BaseModel):
    name: str = Field(min_length=2, max_length=4)
    age: int | None
    parents: list[Person] = []
    addresses: dict[str, Address]
    best_friend: Person | None = None


def test_models_of_pydantic_are_read() -> None:
    value = checked(Person.model_json_schema())
    person = Person.model_validate(value)
    assert person.name == "Alic" and person.addresses["Bob"].country == "AA"


def test_a_leak_is_in_every_string() -> None:
    schema = thing(a={"type": "string"}, b={"type": "array", "items": {"type": "string"}})
    assert checked(schema, leak="12MONKEYS") == {"a": "12MONKEYS", "b": ["12MONKEYS"]}


def test_a_message_without_names_is_the_string() -> None:
    assert checked({"type": "string"}, said="  what is\nthis? ") == "what is this?"
    assert checked({"type": "string"}, said="") == "nothing"


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("What is the weather in New York City?", ["New York City"]),
        ('Please call "the king" and Ädel', ["the king", "Ädel"]),
        ("Is Alice there?", ["Alice"]),
        ("Book a trip to Paris. Alice goes.", ["Paris", "Book", "Alice"]),
    ],
)
def test_names_are_what_is_quoted_or_capitalised(said: str, names: list[str]) -> None:
    facts = Facts(said)
    assert [facts.string() for _ in names] == names


def schemas() -> st.SearchStrategy[Json]:
    numbers = st.integers(-20, 20)
    numeric = st.builds(
        lambda kind, low, width, step: {"type": kind, "minimum": low, "maximum": low + width, "multipleOf": step},
        st.sampled_from(["integer", "number"]), numbers, st.integers(5, 20), st.sampled_from([1, 2, 5, 0.5, 0.25]),
    )  # fmt: skip
    strings = st.builds(
        lambda low, width: {"type": "string", "minLength": low, "maxLength": low + width},
        st.integers(0, 30), st.integers(0, 9),
    )  # fmt: skip
    leaves = st.one_of(
        numeric,
        strings,
        st.sampled_from([{"type": "boolean"}, {"type": "null"}, {}, {"enum": ["a", 1, None]}, {"type": "integer"}]),
        st.builds(lambda kind: {"type": "string", "format": kind}, st.sampled_from(["date", "uuid", "email", "ipv4"])),
    )

    def more(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
        properties = st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
        return st.one_of(
            properties.map(lambda each: thing(**each)),
            properties.map(lambda each: {"type": "object", "properties": each}),
            st.builds(lambda item, low: {"type": "array", "items": item, "minItems": low}, inner, st.integers(0, 3)),
            st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
            inner.map(lambda part: {"$defs": {"P": {}}, "allOf": [part]}),
        )

    return st.recursive(leaves, more, max_leaves=12)


@settings(max_examples=examples(300), deadline=None)
@given(schemas(), st.text(max_size=40))
def test_whatever_the_schema_the_value_satisfies_it(schema: Json, said: str) -> None:
    checked(schema, said)


@pytest.mark.parametrize("other", [0, 1, 2])
def test_there_is_more_than_one_string_of_a_pattern(other: int) -> None:
    assert StringPattern("^[a-c]x$").matching(0, 9, other) == "abc"[other] + "x"
