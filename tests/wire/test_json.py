"""JSON in and out: what is forgiven, what is refused, and that no message quotes the text."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.surrogates import SurrogateJoiner, join_surrogates
from gateway.wire.json import (
    LONG_RUN,
    MAX_ALL_VALUES,
    MAX_LONG_RUNS,
    MAX_VALUES,
    UNCOUNTED,
    VALUES_A_FLOAT,
    JSONError,
    decode,
    encode,
)

READABLE = {
    "object": (b'{"a":[1,2.5,true,false,null,"x"]}', {"a": [1, 2.5, True, False, None, "x"]}),
    "text": ('{"a":"\u00e9"}', {"a": "\u00e9"}),
    "last duplicate wins": (b'{"a":1,"a":2}', {"a": 2}),
    "surrogate pair": (b'"\\ud83d\\ude00"', "\U0001f600"),
    "lone high surrogate": (b'"\\ud83d"', "\ud83d"),
    "lone low surrogate": (b'{"\\ude00":"\\ude00"}', {"\ude00": "\ude00"}),
    "raw surrogate in text": ('"\ud83d"', "\ud83d"),
    "invalid utf-8": (b'"a\xffb"', "a\ufffdb"),
    "invalid utf-8 in a key": (b'{"\xff":1}', {"\ufffd": 1}),
    "overlong utf-8": (b'"\xc0\x80"', "\ufffd\ufffd"),
    "invalid utf-8 beside a lone surrogate": (b'"\xff\\ud83d"', "\ufffd\ud83d"),
    "byte order mark": (b"\xef\xbb\xbf{}", {}),
    "byte order mark in text": ("\ufeff[]", []),
    "big integer": (b"123456789012345678901234567890", 123456789012345678901234567890),
    "big integer beside a lone surrogate": (
        b'[-123456789012345678901234567890,"\\ud83d"]',
        [-123456789012345678901234567890, "\ud83d"],
    ),
    "float beside a lone surrogate": (b'[1.5e3,"\\ud83d"]', [1500.0, "\ud83d"]),
    "escaped nul": (b'"\\u0000"', "\0"),
}

REFUSED = {
    "nothing": (b"", "not JSON at character 0"),
    "cut": (b'{"secret":', "not JSON at character 10"),
    "trailing text": (b"{} secret", "not JSON at character 3"),
    "trailing comma": (b'["secret",]', "not JSON at character"),
    "leading zero": (b"01", "not JSON at character 1"),
    "single quotes": (b"{'secret':1}", "not JSON at character 1"),
    "raw control character": (b'"secret\x01"', "not JSON at character 7"),
    "bad escape": (b'"secret\\x"', "not JSON at character 7"),
    "NaN": (b'["secret",NaN]', "not JSON: NaN and Infinity are not JSON"),
    "minus Infinity": (b"-Infinity", "not JSON: NaN and Infinity are not JSON"),
    "infinite float": (b"1e999", "not JSON: a number is out of range"),
    "negative infinite float beside a lone surrogate": (b'["\\ud83d",-1e999]', "a number is out of range"),
    "too many digits": (b"1" * 5000, "JSON holds an integer with too many digits"),
    "too deep": (b"[" * 100_000, "JSON nested too deeply"),
    "utf-16": ('{"secret":1}'.encode("utf-16"), "not JSON at character 0"),
}


@pytest.mark.parametrize(("data", "value"), READABLE.values(), ids=READABLE)
def test_decode(data: bytes | str, value: object) -> None:
    assert decode(data) == value


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused_without_quoting(data: bytes, reason: str) -> None:
    with pytest.raises(JSONError, match=reason) as caught:
        decode(data)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None, "a context would carry the text into logs"
    assert caught.value.__cause__ is None


WRITABLE = {
    "compact": ({"a": [1, None, True, 2.5]}, b'{"a":[1,null,true,2.5]}'),
    "raw unicode": ("\u00e9\U0001f600", '"\u00e9\U0001f600"'.encode()),
    "lone surrogate": ({"a": "\u00e9\ud83d"}, b'{"a":"\\u00e9\\ud83d"}'),
    "lone surrogate in a key": ({"\ude00": [1, 2]}, b'{"\\ude00":[1,2]}'),
    "big integer": (10**30, b"1" + b"0" * 30),
}


@pytest.mark.parametrize(("value", "data"), WRITABLE.values(), ids=WRITABLE)
def test_encode(value: object, data: bytes) -> None:
    assert encode(value) == data


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_no_float_outside_json_is_written(number: float) -> None:
    assert encode([number]) == b"[null]"
    with pytest.raises(JSONError, match="a number that JSON cannot write"):
        encode([number, "\ud83d"])


def test_encode_refuses_too_many_digits() -> None:
    with pytest.raises(JSONError, match="a number that JSON cannot write"):
        encode(10**5000)


def test_encode_refuses_endless_nesting() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(JSONError, match="nested too deeply"):
        encode(value)


def test_encode_lets_a_programming_error_show() -> None:
    with pytest.raises(TypeError):
        encode(object())


any_text = st.text(st.characters(codec=None, exclude_categories=()) | st.sampled_from("a\ud83d\ude00\udfff\ud800"))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


@given(any_json, st.booleans())
def test_round_trip_agrees_with_the_standard_library(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert decode(text) == json.loads(text)
    assert json.loads(encode(value)) == json.loads(json.dumps(value))


@given(st.binary(max_size=40))
def test_decode_raises_nothing_else(data: bytes) -> None:
    with contextlib.suppress(JSONError):
        decode(data)


def naively_joined(text: str) -> str:
    joined = []
    rest = list(text)
    while rest:
        first = rest.pop(0)
        if "\ud800" <= first <= "\udbff" and rest and "\udc00" <= rest[0] <= "\udfff":
            joined.append(chr(0x10000 + ((ord(first) - 0xD800) << 10) + (ord(rest.pop(0)) - 0xDC00)))
        else:
            joined.append("\ufffd" if "\ud800" <= first <= "\udfff" else first)
    return "".join(joined)


surrogate_text = st.text("a\u00e9\ud83d\ude00\udfff\ud800", max_size=8)


@given(any_text | surrogate_text)
def test_join_surrogates(text: str) -> None:
    assert join_surrogates(text) == naively_joined(text)


@given(st.lists(surrogate_text, max_size=6))
def test_surrogates_join_however_the_text_is_cut(pieces: list[str]) -> None:
    joiner = SurrogateJoiner()
    joined = "".join([joiner.feed(piece) for piece in pieces]) + joiner.finish()
    assert joined == naively_joined("".join(pieces))
    assert joiner.finish() == ""


@pytest.mark.parametrize("text", ["", "plain", "\u00e9\U0001f600"])
def test_text_without_surrogates_is_returned_as_it_is(text: str) -> None:
    assert join_surrogates(text) is text


# -- what a decoder written in C would take too long for ---------------------------------------------------------------


def calls_of(name: str, work: Callable[[], object]) -> int:
    """How often a function of ours of that name is called."""
    calls = 0

    def note(frame: Any, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name == name

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("number", ["1e308", "1.5", "-1.2345678901234567e-300", "2.2250738585072014e-308"])
def test_d4_floats_are_not_left_to_the_slow_reader(number: str) -> None:
    data = f"[{','.join([number] * 100)}]".encode()
    assert decode(data) == [float(number)] * 100
    assert calls_of("_finite", lambda: decode(data)) == 100


VALUES = {
    "integers": (b"1", 1),
    "empty lists": (b"[]", 2),
    "empty objects": (b"{}", 2),
    "strings": (b'""', 1),
    "strings of commas": (b'",,,[{"', 1),
    "strings of quotes": (rb'"\"\\\","', 1),
    "lone surrogates": (rb'"\ud800"', 1),
    "members": (b'{"a":1}', 3),
    "lists of lists": (b"[[1,2],3]", 5),
    "not UTF-8": (b'"\xff"', 1),
}


@pytest.mark.parametrize(("value", "counted"), VALUES.values(), ids=VALUES)
def test_d26_as_many_values_as_are_decoded_in_time(value: bytes, counted: int) -> None:
    most = MAX_VALUES // counted
    decoded = decode(b"[" + b",".join([value] * most) + b"]")
    assert isinstance(decoded, list)
    assert len(decoded) == most
    with pytest.raises(JSONError, match=f"^JSON of more than {MAX_VALUES} values$"):
        decode(b"[" + b",".join([value] * (most + 1)) + b"]")


def test_log_probabilities_of_a_long_answer_are_read() -> None:
    alternative = b'{"token":"a,b","logprob":-0.25,"bytes":[97,44,98]}'
    token = b'{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[' + b",".join([alternative] * 20) + b"]}"
    tokens = decode(b"[" + b",".join([token] * 2_000) + b"]")
    assert isinstance(tokens, list)
    assert len(tokens) == 2_000


def test_d26_values_among_floats_are_bounded_too() -> None:
    many = VALUES_A_FLOAT // 2
    group, groups = b",".join([b"0.5", *[b"1"] * (many - 1)]), MAX_ALL_VALUES // many
    assert isinstance(decode(b"[" + b",".join([group] * groups) + b"]"), list)
    with pytest.raises(JSONError, match=f"^JSON of more than {MAX_ALL_VALUES} values$"):
        decode(b"[" + b",".join([group] * (groups + 1)) + b"]")


def test_d26_a_few_floats_do_not_make_room() -> None:
    group = b",".join([b"0.5", *[b"1"] * (2 * VALUES_A_FLOAT)])
    with pytest.raises(JSONError, match=f"^JSON of more than {MAX_VALUES} values$"):
        decode(b"[" + b",".join([group] * (MAX_VALUES // VALUES_A_FLOAT)) + b"]")


def test_d26_members_count_as_two_values() -> None:
    most = MAX_VALUES // 2
    members = [b'"%d":1' % number for number in range(most)]
    assert len(decode(b"{" + b",".join(members) + b"}")) == most  # type: ignore[arg-type]
    with pytest.raises(JSONError, match="values"):
        decode(b"{" + b",".join([*members, b'"":1']) + b"}")


def test_d26_text_with_too_many_values_is_refused_as_characters_too() -> None:
    with pytest.raises(JSONError, match="values"):
        decode("[" + "[]," * MAX_VALUES + "[]]")
    with pytest.raises(JSONError, match="values"):
        decode('["\ud800",' + "[]," * MAX_VALUES + "[]]")


@pytest.mark.parametrize("before", range(5))
@pytest.mark.parametrize("text", ['\\"', "\\\\", '\\\\\\"', "a", "é,"])
def test_d26_strings_are_told_from_structure_wherever_a_slice_ends(before: int, text: str) -> None:
    long = text * 40_000
    data = (" " * before + f'["{long}",{{"{long}":"{long}"}},[1,2],"{long}"]').encode()
    commas = b",[{" * MAX_VALUES  # past the first look, which does not know strings
    decoded = decode(data[:-1] + b',"' + commas + b'"]')
    assert decoded == json.loads(data[:-1] + b',"' + commas + b'"]')


def test_d4_long_integers() -> None:
    fits = [b"7" * LONG_RUN] * MAX_LONG_RUNS
    assert decode(b"[" + b",".join(fits) + b"]") == [int(fits[0])] * MAX_LONG_RUNS
    with pytest.raises(JSONError, match="JSON with too many long numbers"):
        decode(b"[" + b",".join([*fits, b"7" * LONG_RUN]) + b"]")
    with pytest.raises(JSONError, match="JSON with too many long numbers"):
        decode(b"[" + b",".join([b"7" * 4000] * (MAX_LONG_RUNS // 13 + 1)) + b"]")


def test_d4_digits_in_strings_are_no_numbers() -> None:
    text = "7" * LONG_RUN * (MAX_LONG_RUNS + 1)
    assert decode(f'["{text}"]') == [text]


def test_d26_a_short_text_is_not_counted() -> None:
    assert calls_of("_refuse_costly", lambda: decode(b'"' + b"a" * (UNCOUNTED - 2) + b'"')) == 0
    assert calls_of("_refuse_costly", lambda: decode(b'"' + b"a" * (UNCOUNTED - 1) + b'"')) == 1


@pytest.mark.parametrize("collects", [True, False])
def test_d26_the_collector_is_left_as_it_was(collects: bool) -> None:
    if not collects:
        gc.disable()
    try:
        for data in (b'["' + b"a" * UNCOUNTED + b'"]', b'["' + b"a" * UNCOUNTED):
            with contextlib.suppress(JSONError):
                decode(data)
            assert gc.isenabled() is collects
    finally:
        gc.enable()


def test_d26_long_text_that_is_not_utf_8_is_decoded_in_slices() -> None:
    data = b'["' + b"a\xff\xe2\x82\xf0\x9f\x98\x80" * 30_000 + b'"]'
    assert decode(data) == json.loads(data.decode("utf-8", "replace"))
