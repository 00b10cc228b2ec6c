"""Spans that do not arrive: a collector that does not do its part, and tracing that is off or cannot be."""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import sys
import threading

import pytest

from gateway.observe import tracing
from gateway.observe.tracing import ExportProblems, TelemetryUnavailable, make_tracer, traces_url
from gateway.policy.model import Telemetry
from tests.support.collector import TIMEOUT, Collector, begin, finished, tracer_for


def join_closing() -> None:
    """A tracer that was given too little time closes in the background, and its messages would reach other tests."""
    for thread in threading.enumerate():
        if thread.name == "telemetry-close":
            thread.join(TIMEOUT)
            assert not thread.is_alive()


def python(program: str) -> str:
    """What a fresh interpreter prints."""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=4 * TIMEOUT)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_a_collector_that_is_not_there_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=collector-token")
    with socket.socket() as reserved:  # bound, and not listening: connections are refused
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        told: list[str] = []
        heard = threading.Event()

        def on_problem(text: str) -> None:
            told.append(text)
            heard.set()

        with tracer_for(f"http://127.0.0.1:{port}/secret-path", on_problem=on_problem, timeout=0.1) as tracer:
            for _ in range(10):
                span = begin(tracer)
                span.headers()
                span.finish(finished(), None, [])
        assert heard.wait(TIMEOUT)
        join_closing()
    (text,) = told
    assert text.startswith(f"telemetry: spans to 127.0.0.1:{port} may be lost: ")
    assert "secret-path" not in text
    assert "collector-token" not in text


def test_a_refusal_is_told_with_its_status(collector: Collector) -> None:
    collector.status = 401
    told: list[str] = []
    with tracer_for(collector.endpoint, on_problem=told.append) as tracer:
        begin(tracer).finish(finished(), None, [])
    (text,) = told
    assert "401" in text


def test_a_collector_that_hangs_costs_spans_and_no_request(collector: Collector) -> None:
    collector.open.clear()
    told: list[str] = []
    requests = tracing.QUEUED_SPANS + 3 * tracing.BATCH_SPANS
    with tracer_for(collector.endpoint, on_problem=told.append) as tracer:
        for _ in range(requests):
            begin(tracer).finish(finished(), None, [])
        collector.open.set()
    (text,) = told
    assert re.search("Queue (is )?full", text)
    # What the exporter had taken before it hung, and one queue.
    assert 0 < len(collector.spans) <= tracing.QUEUED_SPANS + 2 * tracing.BATCH_SPANS


def test_a_callback_that_raises_harms_nobody() -> None:
    def broken(_: str) -> None:
        raise ValueError

    problems = ExportProblems("there", broken)
    problems.note("something")
    with problems.contained():
        raise KeyError


def test_problems_are_told_once_a_minute_and_counted() -> None:
    told: list[str] = []
    clock = [0.0]
    problems = ExportProblems("collector:4318", told.append, lambda: clock[0])
    for moment in (0.0, 1.0, 59.9, 60.0, 61.0):
        clock[0] = moment
        problems.note(f"at {moment}")
    assert [re.findall(r"lost: (.*?)\. Requests", text) for text in told] == [
        ["at 0.0"],
        ["at 60.0; 2 more messages before this one"],
    ]


def test_a_message_of_the_sdk_shows_no_text_that_could_be_a_credential() -> None:
    told: list[str] = []
    clock = [0.0]
    problems = ExportProblems("there", told.append, lambda: clock[0])
    problems.attach()
    try:
        exporter = logging.getLogger("opentelemetry.exporter.otlp")
        exporter.error("Failed to export %s batch code: %s, reason: %s", "spans", 503, "Service Unavailable")
        clock[0] = 60.0
        exporter.warning("Failed %s: %s", ValueError("Bearer token"), "authorization: Bearer token")
        clock[0] = 120.0
        logging.getLogger("opentelemetry.trace.span").warning("Invalid tracestate of a client")
    finally:
        problems.detach()
    assert [re.findall("lost: (.*?)[.] Requests", text) for text in told] == [
        ["Failed to export spans batch code: 503, reason: Service Unavailable"],
        ["Failed ValueError: …"],
    ]


def test_without_telemetry_opentelemetry_is_not_imported() -> None:
    program = """
import sys
from gateway.observe.tracing import make_tracer
assert make_tracer(None) is None
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    assert python(program) == "[]"


def test_the_gateway_imports_no_sdk_and_no_exporter() -> None:
    """The bare API may be there: recent versions of FastAPI import it themselves."""
    program = """
import sys
import gateway.app
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
"""
    assert python(program) == "[]"


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)  # as an import that finds nothing
    with pytest.raises(TelemetryUnavailable, match=re.escape("pip install -e '.[otel]'")) as refused:
        make_tracer(Telemetry(endpoint="http://collector:4318/secret-path"))
    assert "collector:4318" in str(refused.value)
    assert "secret-path" not in str(refused.value)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://vendor.example/otlp/v1/traces", "https://vendor.example/otlp/v1/traces"),
    ],
)
def test_an_endpoint_without_a_path_gets_the_usual_one(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url
