"""Escapes in a text of no certain grammar: decoded alike whole, in two pieces and character by character."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.escapes import Escape, Unescaper

DECODED = {
    "none": ("12MONKEYS", "12MONKEYS"),
    "json": (r"\u0031\u0032\"\\\/\b\f\n\r\t", '12"\\/\b\f\n\r\t'),
    "python": (r"\x31\62\'\a\v\U0001f600", "12'\a\v😀"),
    "javascript": (r"\u{31}\u{1F600}\0", "1😀\0"),
    "a letter that needs none": (r"\M\8", "M8"),
    "a pair": (r"a\ud83d\ude00b", "a😀b"),
    "half a pair": (r"\ud83d \ude00\ud83d\ud83d\ude00", "\ufffd \ufffd\ufffd😀"),
    "half a pair, another escape": (r"\ud83d\u0041\ud83d\n", "\ufffdA\ufffd\n"),
    "past the last character": (r"\U00110000\u{110000}", "\ufffd\ufffd"),
    "too few digits": (r"\u12 \x4g \u{} \U0001f60", "u12 x4g u{} U0001f60"),
    "too many digits": (r"\u{123456789} \1234", "u{123456789} S4"),
    "a backslash at the end": ("a\\", "a\\"),
    "half an escape at the end": (r"\u00", "u00"),
    "half of a second half at the end": (r"\ud83d\ud", "\ufffdud"),
    "raw surrogates": ("\ud83d\ude00\ud83d", "😀\ufffd"),
}


def decoded(pieces: list[str]) -> tuple[str, list[Escape]]:
    unescaper, out, escapes = Unescaper(), "", []
    for text, more in [*(unescaper.feed(piece) for piece in pieces), unescaper.finish()]:
        out += text
        escapes += more
    return out, escapes


def decoded_every_way(text: str) -> tuple[str, list[Escape]]:
    whole = decoded([text])
    assert decoded(list(text)) == whole
    for cut in range(len(text)):
        assert decoded([text[:cut], text[cut:]]) == whole, f"cut at {cut}"
    return whole


@pytest.mark.parametrize(("text", "expected"), DECODED.values(), ids=DECODED)
def test_e5_escapes_are_decoded(text: str, expected: str) -> None:
    assert decoded_every_way(text)[0] == expected


@given(st.text("\\ux{}d83cU0017an'\"M", max_size=24))
def test_e5_escapes_are_found_where_they_are(text: str) -> None:
    out, escapes = decoded_every_way(text)
    spelled, at = "", 0
    for offset, raw in escapes:
        spelled += out[at:offset] + raw
        at = offset + 1
    assert spelled + out[at:] == text


@given(st.text())
def test_e5_what_json_and_python_write_is_read(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert decoded([json.dumps(text)[1:-1]])[0] == text
    assert decoded([ascii(text)[1:-1]])[0] == ast.literal_eval(ascii(text))


def test_e5_only_an_escape_waits() -> None:
    unescaper = Unescaper()
    given = ["ab", "c\\", "u00", "e9", r"\ud8", "3d", "x", "\\x4", "1\\0", "\\"]
    assert [unescaper.feed(piece)[0] for piece in given] == ["ab", "c", "", "é", "", "", "\ufffdx", "", "A", "\0"]
