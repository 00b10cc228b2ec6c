"""One entry, one line: what stands in it, what never does, and what is read back."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from gateway.journal.chain import Seal
from gateway.journal.entries import (
    HMAC_DIGITS,
    BeginEntry,
    JournalEntry,
    MatchLine,
    RequestEntry,
    decode,
    encode,
    encode_line,
    text_hmac,
)
from tests.support.journal_samples import BEGIN, KEY, MATCH, REQUEST, SECRET
from tests.support.pages import ROOT, table

PAGE = ROOT / "docs" / "journal.md"


def written(entry: JournalEntry) -> dict[str, Any]:
    line = encode(entry, KEY)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    fields: dict[str, Any] = json.loads(line)
    return fields


def test_a_match() -> None:
    fields = asdict(MATCH)
    del fields["seen"]
    digest = hmac.new(KEY.encode(), SECRET.encode(), hashlib.sha256).hexdigest()[:HMAC_DIGITS]
    assert written(MATCH) == {"type": "match", **fields, "hmac": digest}


def test_a_request() -> None:
    assert written(REQUEST) == {"type": "request", **asdict(REQUEST)}


def test_a_beginning() -> None:
    assert written(BEGIN) == {"type": "begin", **asdict(BEGIN)}
    assert decode(encode(BEGIN, KEY)) == BEGIN


def test_a_prompt_has_no_choice() -> None:
    assert written(replace(MATCH, choice=None))["choice"] is None


def test_the_text_is_in_no_representation() -> None:
    assert SECRET not in repr(MATCH)
    assert SECRET.encode() not in encode(MATCH, KEY)


def test_the_hmac_depends_on_the_key_and_the_text_only() -> None:
    assert text_hmac(KEY, SECRET) == written(replace(MATCH, rule="another", offset=3))["hmac"]
    assert text_hmac("another key of a journal", SECRET) != text_hmac(KEY, SECRET)
    assert text_hmac(KEY, "13monkeys") != text_hmac(KEY, SECRET)


@pytest.mark.parametrize("entry", [replace(MATCH, request_id="\ud83d"), replace(REQUEST, request_id="a\udc00b")])
def test_half_a_surrogate_pair_in_a_name_does_not_stop_the_journal(entry: JournalEntry) -> None:
    assert "?" in written(entry)["request_id"]


def test_half_a_surrogate_pair_in_a_text_has_an_hmac() -> None:
    assert len(text_hmac(KEY, "a\ud83d")) == HMAC_DIGITS


@given(st.text(), st.text())
def test_any_name_and_any_text_make_one_readable_line(name: str, seen: str) -> None:
    line = encode(replace(MATCH, request_id=name, seen=seen), KEY)
    read = decode(line)
    assert isinstance(read, MatchLine) and read.request_id == name
    assert encode_line(read) + b"\n" == line


@given(st.binary())
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    assert decode(text) is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(encode(MATCH, KEY)[:-20], id="cut off"),
        pytest.param(encode(MATCH, KEY).replace(b'"v":1', b'"v":2'), id="another version"),
        pytest.param(encode(MATCH, KEY).replace(b'"match"', b'"mood"'), id="another type"),
        pytest.param(encode(MATCH, KEY).replace(b'"offset":17', b'"offset":"17"'), id="another kind of value"),
        pytest.param(encode(MATCH, KEY).replace(b'"offset":17', b'"offset":18446744073709551616'), id="too large"),
        pytest.param(b"[" * 100_000, id="too deep"),
        pytest.param(b'{"type":"match","v":1,"x":' + b"[" * 100_000, id="too deep inside"),
    ],
)
def test_a_damaged_line_says_nothing(text: bytes) -> None:
    assert decode(text) is None


def test_fields_of_later_versions_are_passed_over() -> None:
    line = encode(REQUEST, KEY).replace(b'"v":1', b'"v":1,"mood":"good"')
    assert decode(line) == decode(encode(REQUEST, KEY))


def test_every_field_is_documented() -> None:
    documented = {(kind, name) for name, kinds, _ in table(PAGE, "fields") for kind in kinds.split(", ")}
    kinds = {"match": MatchLine, "begin": BeginEntry, "request": RequestEntry}
    sealed = (*Seal.__struct_fields__, "mac")
    fields = {kind: ("type", *line.__struct_fields__, *sealed) for kind, line in kinds.items()}
    assert documented == {(kind, name) for kind, names in fields.items() for name in names}
