"""Where the strings of JSON are: what a reader finds in it, against the parser of the standard library."""

from __future__ import annotations

import json
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from gateway.inner_texts import Closed, InnerReader, Opened, Spelled
from gateway.surrogates import join_surrogates
from gateway.wire.jsonreader import MAX_NESTED, JsonReader


def strings_of(reader: InnerReader, pieces: list[str]) -> Iterator[str]:
    """The strings that end, in order; those of inner texts are left to their readers."""
    found: list[str] = []
    for text in pieces:
        at = 0
        while at < len(text):
            piece = reader.read(text, at, len(text))
            if piece is None:
                return
            assert piece.length == 1 or not piece.steps
            if piece.same and found:
                found[-1] += text[at : at + piece.length]
            for step in piece.steps:
                if isinstance(step, Opened):
                    found.append("")
                elif isinstance(step, Spelled):
                    found[-1] += step.char
                elif isinstance(step, Closed):
                    yield found.pop()
            at += piece.length


def strings_in(value: object) -> Iterator[str]:
    match value:
        case str():
            yield join_surrogates(value)
        case list() | tuple():
            for item in value:
                yield from strings_in(item)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(values.map(lambda value: [value]), st.booleans())
def test_the_strings_are_those_that_a_parser_finds(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    expected = [*strings_in(json.loads(text, object_pairs_hook=lambda pairs: [*map(list, pairs)]))]
    assert [*strings_of(JsonReader(), [text])] == expected
    assert [*strings_of(JsonReader(), [*text])] == expected


def test_as_deep_as_json_is_read() -> None:
    reader: InnerReader | None = JsonReader()
    for _ in range(MAX_NESTED + 1):
        assert reader is not None
        assert reader.read("[", 0, 1) is not None
        piece = reader.read('"', 0, 1)
        assert piece is not None
        (opened,) = piece.steps
        assert isinstance(opened, Opened)
        reader = opened.reader
    assert reader is None
