"""One line for each request: its fields, both styles, and what is never in it."""

from __future__ import annotations

import io
import json
import re
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.observe.facts import (
    ChannelCount,
    GuardFailed,
    MaskJudged,
    MatchCount,
    RequestFinished,
    TextScanned,
    UpstreamFailed,
)
from gateway.observe.log import MAX_PARTS, RequestLog, outcome_of, request_fields
from tests.support.examples import examples

PROMPT = TextScanned("default", "input", (ChannelCount("content", 10, 10, 0, 0),))
ANSWER = TextScanned(
    "default",
    "output",
    (ChannelCount("content", 30, 20, 9, 1), ChannelCount("reasoning", 5, 4, 0, 0)),
    (MatchCount("password", "redact", "content", 1), MatchCount("password", "redact", "reasoning", 2)),
)
REQUEST = RequestFinished(
    request_id="req-1",
    path="/v1/chat/completions",
    route="gpt-*",
    policy="default",
    upstream="openai",
    status=200,
    outcome="redacted",
    stream=True,
    duration=1.2345678,
    ttft=0.25,
    scanned=(PROMPT, ANSWER),
    model="gpt-4o",
    tokens=(12, 34),
)


def json_lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


USUAL = replace(REQUEST, scanned=(PROMPT, TextScanned("default", "output", (ChannelCount("content", 9, 8, 0, 1),))))
ODD: dict[str, tuple[Any, ...]] = {
    "request_id": ("req_0", 'a"b', "a b", "ü", "", "a\n", "%b"),
    "path": ("/v1/x", "ü%d"),
    "status": (0, 499),
    "outcome": ("ok", "failed"),
    "stream": (True, False),
    "upstream": ("none", "%r"),
    "model": (None, "", 'a"', "gpt-4o", "ü\u2028"),
    "key": (None, "k"),
    "duration": (0.0, 1e-9, 0.0005, 12.3456789, 86400.0),
    "ttft": (None, 0.0, 0.0123456),
    "error": (None, "timeout", "upstream status 500"),
    "tokens": (None, (0, 0), (10**12, 7)),
    "rollbacks": (0, 2),
    "scanned": ((), (PROMPT,), (PROMPT, ANSWER), (replace(PROMPT, constraints={"held": 1}),)),
}


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({}, optional={name: st.sampled_from(each) for name, each in ODD.items()}), max_size=6
    )
)
def test_the_usual_line_is_what_the_fields_are(requests: list[dict[str, Any]]) -> None:
    """Put together from parts that are known from other requests."""
    written = io.BytesIO()
    log = RequestLog("json", io.TextIOWrapper(written, "utf-8"))
    for changes in requests:
        fact = replace(USUAL, **changes)
        log.record(fact)
        line = written.getvalue().splitlines(keepends=True)[-1]
        fields = json.loads(line)
        expected = {"time": fields["time"], "event": "request", **request_fields(fact)}
        assert line == msgspec.json.encode(expected) + b"\n"


def test_few_parts_of_lines_are_kept() -> None:
    log = RequestLog("json", io.TextIOWrapper(io.BytesIO()))
    for number in range(MAX_PARTS + 1):
        log.record(replace(USUAL, model=str(number)))
    assert len(log._names) == 1


def test_a_request_is_one_json_line() -> None:
    out = io.StringIO()
    RequestLog("json", out).record(REQUEST)
    (line,) = json_lines(out)
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "event": "request",
        "request_id": "req-1",
        "path": "/v1/chat/completions",
        "status": 200,
        "outcome": "redacted",
        "stream": True,
        "route": "gpt-*",
        "policy": "default",
        "upstream": "openai",
        "model": "gpt-4o",
        "duration_ms": 1234.568,
        "ttft_ms": 250.0,
        "matches": {"password": 3},
        "scanned": 45,
        "forwarded": 34,
        "replaced": 9,
        "withheld": 1,
        "error": None,
        "key": None,
        "prompt_tokens": 12,
        "completion_tokens": 34,
        "coverage_errors": ["reasoning"],
    }


def test_a_request_that_was_covered_has_no_coverage_errors() -> None:
    fields = request_fields(RequestFinished("r", "/p", "*", "p", "u", 200, "ok", False, 0.0, scanned=(PROMPT,)))
    assert "coverage_errors" not in fields
    assert (fields["ttft_ms"], fields["matches"]) == (None, {})


def test_the_console_leaves_out_what_is_empty() -> None:
    out = io.StringIO()
    RequestLog("console", out).record(RequestFinished("r", "/p", "*", "p", "", 200, "ok", False, 0.5))
    assert re.fullmatch(r"\d\d:\d\d:\d\d request request_id=r path=/p status=200 outcome=ok .*\n", out.getvalue())
    for name in ("ttft_ms", "matches", "error", "upstream"):
        assert f"{name}=" not in out.getvalue()
    assert "scanned=0" in out.getvalue()


def test_a_guard_that_failed_is_a_line_and_other_facts_are_not() -> None:
    out = io.StringIO()
    log = RequestLog("json", out)
    log.record(UpstreamFailed("openai", "reset"))
    log.record(ANSWER)
    log.record(GuardFailed("default", "KeyError at chat.py line 7"))
    (line,) = json_lines(out)
    assert (line["event"], line["policy"], line["where"]) == ("guard_failed", "default", "KeyError at chat.py line 7")


def test_what_a_canary_finds_out_is_a_line() -> None:
    out = io.StringIO()
    RequestLog("json", out).record(MaskJudged("local", "strict", "missing", "the server has other words"))
    (line,) = json_lines(out)
    assert {key: line[key] for key in line.keys() - {"time"}} == {
        "event": "mask",
        "upstream": "local",
        "policy": "strict",
        "state": "missing",
        "reason": "the server has other words",
    }


def test_events_have_a_name_and_fields() -> None:
    out = io.StringIO()
    RequestLog("json", out).event("upstream_up", upstream="openai", up=False)
    (line,) = json_lines(out)
    assert {key: line[key] for key in ("event", "upstream", "up")} == {
        "event": "upstream_up",
        "upstream": "openai",
        "up": False,
    }


def test_a_closed_log_stops_nothing() -> None:
    out = io.StringIO()
    log = RequestLog("json", out)
    out.close()
    log.record(REQUEST)


def test_without_a_file_it_writes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    RequestLog().record(REQUEST)
    assert json.loads(capsys.readouterr().err)["request_id"] == "req-1"


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_line_stays_one_line(style: str) -> None:
    out = io.StringIO()
    RequestLog(style, out).event("probe", error="first\nsecond\r\x1b[2Kthird")
    text = out.getvalue().removesuffix("\n")
    assert text.isprintable()
    assert "first\\nsecond\\r" in text


@pytest.mark.parametrize(
    ("texts", "outcome"),
    [
        ((), "ok"),
        ((PROMPT,), "ok"),
        ((PROMPT, ANSWER), "redacted"),
        ((TextScanned("p", "output", matches=(MatchCount("r", "flag", "content", 1),)),), "flagged"),
        ((ANSWER, TextScanned("p", "output", blocked_by="stop")), "blocked"),
    ],
)
def test_the_outcome_is_the_strictest_that_happened(texts: tuple[TextScanned, ...], outcome: str) -> None:
    assert outcome_of(texts) == outcome
