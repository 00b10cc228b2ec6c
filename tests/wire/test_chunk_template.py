"""The fast paths to read the usual chunk know nothing that a parser would not."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from gateway.wire.chunk_template import decode_string, encode, read_typed
from gateway.wire.chunks import HEAD_FIELDS
from gateway.wire.event_template import CONTENT, EventTemplate
from tests.support.examples import examples

HEAD = '{"id":"c-1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,'
PADDING = b',"obfuscation":"k3Xq9"}'
ONE = (HEAD + '"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"system_fingerprint":"f"}').encode()


def test_labels_and_head_are_those_of_every_chunk() -> None:
    for more in (
        {},
        {"system_fingerprint": None},
        {"service_tier": "t"},
        {"service_tier": "t", "system_fingerprint": "f"},
    ):
        given = {**json.loads(ONE), **more}
        chunk = read_typed(json.dumps(given).encode())
        assert chunk is not None
        around = [(name, given[name]) for name in HEAD_FIELDS if name in given]
        assert list(chunk.head().items()) == around
        assert list(chunk.labels().items()) == [pair for pair in around if isinstance(pair[1], str)]


def template_of(data: bytes) -> EventTemplate | None:
    chunk = read_typed(data)
    assert chunk is not None
    return chunk.template(data)


def read(template: EventTemplate, data: bytes) -> str | None:
    """The content of an event's data, None if that differs in anything else."""
    found = template.read(data)
    try:
        return None if found is None or found[1] < len(data) else decode_string(quoted(template, found[0]))
    except (msgspec.DecodeError, UnicodeError):
        return None


def quoted(template: EventTemplate, values: list[bytes]) -> bytes:
    return b'"%b"' % values[template.kinds.index(CONTENT)]


def show(template: EventTemplate, data: bytes, content: str) -> bytes:
    """The data with this content."""
    found = template.read(data)
    assert found is not None
    found[0][template.kinds.index(CONTENT)] = encode(content)[1:-1]
    parts = [
        part
        for before, place in zip(template.shown, template.order, strict=False)
        for part in (before, found[0][place])
    ]
    return b"".join((*parts, template.shown[-1])).removeprefix(b"data: ")


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
    assert read(template, data) == (None if whole is None else whole.choices[0].delta.content)
    if whole is not None:
        whole.obfuscation = UNSET
        assert json.loads(show(template, data, content)) == json.loads(whole.show(content))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(['"', "\\", "}", ",", ":", "a", "\n", '"obfuscation":"', "}]", "é"])).map("".join))
def test_what_a_padding_must_not_be_is_left_to_the_parser(value: str) -> None:
    padded = ONE[:-1] + PADDING
    template = template_of(padded)
    assert template is not None
    for data in (padded.replace(b"k3Xq9", value.encode()), padded.replace(b"Hello", value.encode())):
        whole, content = read_typed(data), read(template, data)
        assert content is None or (whole is not None and whole.choices[0].delta.content == content)


def test_a_template_has_its_padding_at_the_place_where_it_is() -> None:
    before = ONE.replace(b'"delta"', b'"obfuscation":"a","delta"')
    assert read_typed(before) is None
    first = ONE.replace(b'{"id"', b'{"obfuscation":"a","id"')
    template = template_of(first)
    assert template is not None
    assert read(template, first.replace(b'"obfuscation":"a"', b'"obfuscation":""')) == "Hello"
    assert read(template, first.replace(b'"obfuscation":"a"', b'"obfuscation":"a","id":"b"')) is None
    within = ONE.replace(b'"system_fingerprint":"f"', b'"obfuscation":"k3Xq9","system_fingerprint":"f"')
    template = template_of(within)
    assert template is not None
    assert read(template, within.replace(b"k3Xq9", b"z")) == "Hello"
    assert read(template, within.replace(b'"f"', b'"g"')) is None
    spaced = template_of(json.dumps(json.loads(within)).encode())
    assert spaced is not None
    assert read(spaced, json.dumps(json.loads(within.replace(b"k3Xq9", b"zz").replace(b"Hello", b"x"))).encode()) == "x"


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
    assert read(template, ONE.replace(b'"Hello"', value)) is None


def test_anything_else_that_differs_is_not_read() -> None:
    template = template_of(ONE)
    assert template is not None
    assert read(template, ONE.replace(b'"m"', b'"n"')) is None
    assert read(template, ONE.replace(b'"index":0', b'"index":1')) is None
    assert read(template, ONE[:-1]) is None
    assert read(template, ONE.replace(b'"content":"Hello"', b'"content":')) is None


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
            assert read(template, data) == "Hello"
            assert json.loads(show(template, data, "other")) == {**json.loads(data.replace(b'"Hello"', b'"other"'))}


def test_spaces_after_the_colon() -> None:
    template = template_of(json.dumps(json.loads(ONE)).encode())
    assert template is not None
    spaced = json.dumps(json.loads(ONE.replace(b"Hello", b"World"))).encode()
    assert read(template, spaced) == "World"
    assert json.loads(show(template, spaced, "World"))["choices"][0]["delta"] == {"content": "World"}


COUNTED = ONE[:-1] + b',"usage":{"prompt_tokens":9,"total_tokens":10,"completion_tokens":1}}'


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(["created", "prompt_tokens", "total_tokens", "completion_tokens"]),
    st.from_regex(r"-?[0-9]{1,13}(\.0|e1)?", fullmatch=True)
    | st.sampled_from(["null", "true", '"7"', "[7]", "", "7 "]),
)
def test_a_figure_is_read_where_a_parser_reads_one(name: str, number: str) -> None:
    template = template_of(COUNTED)
    assert template is not None
    before, key, after = COUNTED.partition(f'"{name}":'.encode())
    data = before + key + number.encode() + after.lstrip(b"0123456789")
    whole, content = read_typed(data), read(template, data)
    plain = number.isdigit() and len(number) <= 11
    assert content == (None if whole is None or not plain else "Hello")
    if content is not None:
        shown = json.loads(show(template, data, "other"))
        shown["choices"][0]["delta"]["content"] = "Hello"
        assert shown == json.loads(data)


@pytest.mark.parametrize(
    "other",
    [
        COUNTED.replace(b'"created":7', b'"created":8,"created":7'),
        COUNTED.replace(b'"created":7', b'"created":8,"cr\\u0065ated":7'),
        COUNTED.replace(b'"created":7', b'"created":700000000000'),
        COUNTED.replace(b'"total_tokens":10', b'"total_tokens":-10'),
        COUNTED.replace(b'"total_tokens":10', b'"total_tokens":10,"total_tokens":11'),
        COUNTED.replace(b',"usage"', b',"usage":null,"usage"').replace(
            b'"model":"m"', b'"model":"m","usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":1}'
        ),
    ],
)
def test_where_a_figure_is_at_two_places_or_none_there_is_no_template(other: bytes) -> None:
    assert template_of(other) is None


def test_what_is_counted_is_shown_without_a_content_too() -> None:
    template = template_of(COUNTED)
    assert template is not None and template.counted is not None
    assert b"".join(template.bare).endswith(
        b'"choices":[],"system_fingerprint":"f","usage":{"prompt_tokens":,"completion_tokens":,"total_tokens":}}\n\n'
    )
    assert (template_of(ONE) or template).bare == ()
