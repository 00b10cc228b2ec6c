"""JSON that costs more than its length: each construct as a function from a size in bytes to a JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from loadtest.hostile import DISGUISED

Construct = Callable[[int], str]


def _items(item: str, left: str = "[", right: str = "]") -> Construct:
    """A list of as many equal items as fit."""

    def build(size: int) -> str:
        count = max(1, (size - 2) // (len(item) + 1))
        return f"{left}{','.join([item] * count)}{right}"

    return build


def _numbered(pattern: str, left: str, right: str) -> Construct:
    """As many items as fit, each with a number of its own at the place of `#`."""

    def build(size: int) -> str:
        count = max(1, size // (len(pattern) + 6))
        return left + ",".join([pattern.replace("#", str(number)) for number in range(count)]) + right

    return build


def _nested(left: str, right: str, core: str, depth: int | None = None) -> Construct:
    """Things around a `core`, as deep as the size allows, or in columns of a fixed `depth`."""

    def build(size: int) -> str:
        deep = min(size // (len(left) + len(right)), depth or size)
        column = left * deep + core + right * deep
        if depth is None:
            return column
        return f"[{','.join([column] * max(1, size // (len(column) + 1)))}]"

    return build


def _text(piece: str) -> Construct:
    """One string of a repeated piece, which may be an escape."""
    return lambda size: '"' + piece * max(1, (size - 2) // len(piece)) + '"'


def _string(text: Construct) -> Construct:
    """One string of what `text` makes; escapes make it longer."""

    def build(size: int) -> str:
        written = json.dumps(text(size))
        return written if len(written) <= size else json.dumps(text(size * size // len(written)))

    return build


CONSTRUCTS: Mapping[str, Construct] = {
    "floats with exponents": _items("1e308"),
    "floats with negative exponents": _items("1e-320"),
    "floats of many digits": _items("0." + "123456789" * 40),
    "integers": _items("1"),
    "integers of 4,000 digits": _items("7" * 4000),
    "one integer": lambda size: "9" * size,
    "empty lists": _items("[]"),
    "empty objects": _items("{}"),
    "lists, deep": _nested("[", "]", ""),
    "lists, 50 deep": _nested("[", "]", "", 50),
    "objects, deep": _nested('{"a":', "}", "1"),
    "objects, 40 deep": _nested('{"a":', "}", "1", 40),
    "strings of one character": _items('"a"'),
    "distinct strings": _numbered('"s#"', "[", "]"),
    "strings that begin a word": _items('"12MONKEY"'),
    "strings full of digits": _items('"4111 1111 1111 111"'),
    "lists of strings": _items('["a"]'),
    "keys": _numbered('"k#":1', "{", "}"),
    "keys, the same": _items('"k":1', "{", "}"),
    "keys, long": _numbered('"' + "k" * 900 + '#":1', "{", "}"),
    "one string": _text("a word "),
    "one string that begins a word": _text("12MONKEY"),
    "one string of digits": _text("4111 1111 1111 111 "),
    "one string of escapes": _text("\\u0041"),
    "one string of lone surrogates": _text("\\ud83d"),
    "one string of invisible characters": _text("\\u200b"),
    "one string of quotes": _text('\\"'),
    **{f"one string: {name}": _string(text) for name, text in DISGUISED.items()},
    "white space": lambda size: "[" + " \n" * (size // 2) + "]",
    "null": _items("null"),
}


def in_string(text: str) -> str:
    """A JSON text as the string that tool arguments are."""
    return json.dumps(text)
