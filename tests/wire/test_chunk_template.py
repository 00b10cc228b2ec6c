"""The quick ways to read the usual chunk know nothing that a parser would not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from gateway.wire.chunk_template import ChunkTemplate, read_typed
from tests.support.examples import examples

HEAD = '{"id":"c-1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,'
PADDING = b',"obfuscation":"k3Xq9"}'
ONE = (HEAD + '"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"system_fingerprint":"f"}').encode()


def template_of(data: bytes) -> ChunkTemplate | None:
    chunk = read_typed(data)
    assert chunk is not None
    return ChunkTemplate.of(data, chunk)


@settings(max_examples=examples(300), deadline=None)
@given(st.text(max_size=30), st.booleans(), st.sampled_from(["", "a", "k3Xq9", "0" * 40]), st.booleans())
def test_a_template_reads_and_shows_what_a_parser_does(
    content: str, ascii_only: bool, padding: str, padded: bool
) -> None:
    template = template_of(ONE[:-1] + PADDING if padded else ONE)
    assert template is not None
    string = json.dumps(content, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    data = ONE.replace(b'"Hello"', string)
    data = data[:-1] + PADDING.replace(b"k3Xq9", padding.encode()) if padded else data
    whole = read_typed(data)
    assert template.read(data) == (None if whole is None else whole.choices[0].delta.content)
    if whole is not None:
        whole.obfuscation = UNSET
        assert json.loads(template.show(content)) == json.loads(whole.show(content))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(['"', "\\", "}", ",", ":", "a", "\n", '"obfuscation":"', "}]", "é"])).map("".join))
def test_what_a_padding_must_not_be_is_left_to_the_parser(value: str) -> None:
    padded = ONE[:-1] + PADDING
    template = template_of(padded)
    assert template is not None
    for data in (padded.replace(b"k3Xq9", value.encode()), padded.replace(b"Hello", value.encode())):
        whole, content = read_typed(data), template.read(data)
        assert content is None or (whole is not None and whole.choices[0].delta.content == content)


def test_a_template_has_its_padding_at_the_place_where_it_is() -> None:
    before = ONE.replace(b'"delta"', b'"obfuscation":"a","delta"')
    assert read_typed(before) is None
    first = ONE.replace(b'{"id"', b'{"obfuscation":"a","id"')
    assert template_of(first) is None
    within = ONE.replace(b'"system_fingerprint":"f"', b'"obfuscation":"k3Xq9","system_fingerprint":"f"')
    template = template_of(within)
    assert template is not None
    assert template.read(within.replace(b"k3Xq9", b"z")) == "Hello"
    assert template.read(within.replace(b'"f"', b'"g"')) is None
    spaced = template_of(json.dumps(json.loads(within)).encode())
    assert spaced is not None
    assert spaced.read(json.dumps(json.loads(within.replace(b"k3Xq9", b"zz").replace(b"Hello", b"x"))).encode()) == "x"


@pytest.mark.parametrize(
    "value",
    [
        b'"a","role":"assistant"',
        b'"a","content":"b"',
        b'"a"},"delta":{"content":"b"',
        b'"a"}},{"index":1,"delta":{"content":"b"',
        b'"a" "b"',
        b"null",
        b"5",
        b'["a"]',
        b'"\\ud800"',
        b'"a\n"',
        b'"\xff"',
        b'"',
        b"",
    ],
)
def test_what_is_no_string_in_the_contents_place_is_not_read(value: bytes) -> None:
    template = template_of(ONE)
    assert template is not None
    assert template.read(ONE.replace(b'"Hello"', value)) is None


def test_anything_else_that_differs_is_not_read() -> None:
    template = template_of(ONE)
    assert template is not None
    assert template.read(ONE.replace(b'"m"', b'"n"')) is None
    assert template.read(ONE.replace(b'"index":0', b'"index":1')) is None
    assert template.read(ONE[:-1]) is None
    assert template.read(ONE.replace(b'"content":"Hello"', b'"content":')) is None


def test_where_the_content_cannot_be_told_from_the_bytes_there_is_no_template() -> None:
    twice = ONE.replace(b'"content":"Hello"', b'"content":"x","content":"Hello"')
    assert read_typed(twice) is None or template_of(twice) is None
    escaped = ONE.replace(b'"content":"Hello"', b'"content":"x","c\\u006fntent":"Hello"')
    assert read_typed(escaped) is None or template_of(escaped) is None
    assert template_of(ONE.replace(b'"content"', b'"c\\u006fntent"')) is None


def test_a_label_that_looks_like_the_content_changes_nothing() -> None:
    for label in ('"content":"Hello"', '""}', 'x","delta":{"content":"'):
        data = ONE.replace(b'"c-1"', json.dumps(label).encode())
        template = template_of(data)
        if template is not None:
            assert template.read(data) == "Hello"
            assert json.loads(template.show("other")) == {**json.loads(data.replace(b'"Hello"', b'"other"'))}


def test_spaces_after_the_colon() -> None:
    template = template_of(json.dumps(json.loads(ONE)).encode())
    assert template is not None
    spaced = json.dumps(json.loads(ONE.replace(b"Hello", b"World"))).encode()
    assert template.read(spaced) == "World"
    assert json.loads(template.show("World"))["choices"][0]["delta"] == {"content": "World"}
