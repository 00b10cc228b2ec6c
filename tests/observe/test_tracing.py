"""Spans as a collector gets them, over real OTLP/HTTP: what is in them, what is not, and what a collector can break."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.observe import tracing
from gateway.observe.facts import MatchCount, TextScanned
from gateway.policy.model import Telemetry, Upstream
from tests.support.collector import PATH, Collector, attributes, begin, finished, tracer_for
from tests.support.completions import PATH as TEXT_PATH
from tests.support.completions import ask as ask_text
from tests.support.completions import completed
from tests.support.completions import streamed as text_stream
from tests.support.gateway import PASSWORD, UPSTREAM_KEY, config_for, question, running
from tests.support.upstream import MODEL, completion, plain, playing, sending, stream

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
PARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"
UNSAMPLED_PARENT = f"00-{TRACE_ID}-{PARENT_ID}-00"
CLIENT_KEY = "a-key-of-a-client"
OPENAI = Upstream(name="openai", base_url="https://api.example.com/v1", api_key=UPSTREAM_KEY)
LOCAL = Upstream(name="local", base_url="http://127.0.0.1:8000/v1")
SCANNED = (
    TextScanned("default", "input", matches=(MatchCount("password", "redact", "content", 1),)),
    TextScanned(
        "default",
        "output",
        matches=(MatchCount("password", "redact", "reasoning", 2), MatchCount("cards", "flag", "content", 4)),
    ),
)


def sent_up(headers: dict[str, str]) -> tuple[str, str, int]:
    """The trace id, span id and flags of a `traceparent`."""
    found = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", headers["traceparent"])
    assert found
    return found[1], found[2], int(found[3], 16)


# -- what a request looks like -----------------------------------------------------------------------------------------


def test_a_request_is_two_spans_below_the_clients(collector: Collector) -> None:
    with tracer_for(collector.endpoint) as tracer:
        span = begin(tracer, PARENT, "vendor=1")
        span.routed("gpt-5", "gpt-*", "default", OPENAI)
        headers = span.headers()
        span.first_byte(0.25)
        span.finish(finished(outcome="redacted", scanned=SCANNED), (12, 34), ["stop", "content_filter"])
    trace_id, call_id, flags = sent_up(headers)
    assert (trace_id, flags & 1, headers["tracestate"]) == (TRACE_ID, 1, "vendor=1")
    server, client = collector.server, collector.client
    assert {server.trace_id.hex(), client.trace_id.hex()} == {TRACE_ID}
    assert server.parent_span_id.hex() == PARENT_ID
    assert client.parent_span_id == server.span_id
    assert client.span_id.hex() == call_id
    assert (server.name, client.name) == (f"POST {PATH}", "chat gpt-5")
    judged = {
        "portcullis.route": "gpt-*",
        "portcullis.policy": "default",
        "portcullis.outcome": "redacted",
        "portcullis.matches.password": 3,
        "portcullis.matches.cards": 4,
    }
    assert attributes(server) == judged | {
        "http.request.method": "POST",
        "http.route": PATH,
        "url.path": PATH,
        "url.scheme": "http",
        "http.response.status_code": 200,
        "gen_ai.request.model": "gpt-5",
        "portcullis.request_id": "req-1",
    }
    assert attributes(client) == judged | {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ["stop", "content_filter"],
        "gen_ai.response.time_to_first_chunk": 0.25,
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 34,
        "server.address": "api.example.com",
        "server.port": 443,
        "portcullis.upstream": "openai",
    }
    assert {server.status.code, client.status.code} == {Status.STATUS_CODE_UNSET}
    assert collector.paths == {"/v1/traces"}
    assert {resource["service.name"] for resource in collector.resources} == {"guard"}


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_request_through_the_gateway(collector: Collector, streamed: bool) -> None:
    answer = f"a planted answer with {PASSWORD}"
    play = sending(stream(answer) if streamed else plain(completion(answer)))
    async with playing(play) as upstream:
        config = replace(
            config_for(upstream.base_url, keys=(CLIENT_KEY,)), telemetry=Telemetry(endpoint=collector.endpoint)
        )
        async with running(config) as gateway:
            headers = {"authorization": f"Bearer {CLIENT_KEY}", "traceparent": PARENT, "tracestate": "vendor=1"}
            answered = await gateway.post(question("a planted prompt", stream=streamed), headers)
        received = upstream.asked.request.headers
    assert answered.status_code == 200
    server, client = collector.server, collector.client  # the gateway has stopped, and what it had is sent
    assert sent_up(received)[:2] == (TRACE_ID, client.span_id.hex())
    assert received["tracestate"] == "vendor=1"
    assert (server.parent_span_id.hex(), client.parent_span_id) == (PARENT_ID, server.span_id)
    assert client.name == f"chat {MODEL}"
    shown = attributes(client)
    assert shown["portcullis.matches.password"] == 1
    assert shown["portcullis.outcome"] == "redacted"
    assert shown["gen_ai.response.finish_reasons"] == ["stop"]
    if not streamed:
        assert (shown["gen_ai.usage.input_tokens"], shown["gen_ai.usage.output_tokens"]) == (3, 5)
    assert f"http://{shown['server.address']}:{shown['server.port']}/v1" == upstream.base_url
    exported = b"".join(collector.raw)
    for secret in ("planted", PASSWORD, CLIENT_KEY, UPSTREAM_KEY):
        assert secret.encode() not in exported


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_text_completion_is_an_operation_of_its_own(collector: Collector, streamed: bool) -> None:
    async with playing(sending(text_stream("a") if streamed else plain(completed("a")))) as upstream:
        config = replace(config_for(upstream.base_url), telemetry=Telemetry(endpoint=collector.endpoint))
        async with running(config) as gateway:
            assert (await ask_text(gateway, "a planted prompt", stream=streamed)).status_code == 200
    server, client = collector.server, collector.client
    assert (server.name, client.name) == (f"POST {TEXT_PATH}", f"text_completion {MODEL}")
    shown = attributes(client)
    assert shown["gen_ai.operation.name"] == "text_completion" and attributes(server)["http.route"] == TEXT_PATH
    assert shown["gen_ai.response.finish_reasons"] == ["stop"]
    assert b"planted" not in b"".join(collector.raw)


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/completions", "text_completion"),
        ("/v1/responses", "chat"),
        ("/v1/embeddings", "embeddings"),
        ("/openai/deployments/{deployment}/chat/completions", "chat"),
        ("/openai/deployments/{deployment}/completions", "text_completion"),
    ],
)
def test_the_operation_of_an_endpoint(path: str, operation: str) -> None:
    assert tracing.operation_of(path) == operation


def test_another_upstream_may_answer_in_place_of_the_first(collector: Collector) -> None:
    with tracer_for(collector.endpoint) as tracer:
        span = begin(tracer)
        span.routed("gpt-5", "gpt-*", "default", OPENAI)
        first = span.headers()
        span.retried("openai", "connect")
        assert span.headers() == first
        span.routed("gpt-5", "gpt-*", "default", LOCAL)
        span.finish(finished(upstream="local", stream=False), None, ["stop"])
    client = attributes(collector.client)
    assert (client["portcullis.upstream"], client["server.address"], client["server.port"]) == (
        "local",
        "127.0.0.1",
        8000,
    )
    (retry,) = collector.client.events
    assert (retry.name, attributes(retry)) == (
        "portcullis.retry",
        {"portcullis.upstream": "openai", "error.type": "connect"},
    )
    assert not {"gen_ai.request.stream", "gen_ai.usage.input_tokens"} & client.keys()


def test_the_call_is_named_when_the_model_is_known(collector: Collector) -> None:
    with tracer_for(collector.endpoint) as tracer:
        span = begin(tracer)
        span.headers()
        span.routed("gpt-5", "gpt-*", "default", OPENAI)
        span.finish(finished(), None, [])
    assert collector.client.name == "chat gpt-5"
    assert attributes(collector.client)["server.address"] == "api.example.com"


def test_a_request_that_goes_to_no_upstream_is_one_span(collector: Collector) -> None:
    with tracer_for(collector.endpoint) as tracer:
        span = begin(tracer)
        fact = finished(route="none", upstream="none", status=404, outcome="failed", error="model_not_found")
        span.finish(fact, None, [])
    (only,) = collector.spans
    assert (only.kind, only.status.code) == (Span.SPAN_KIND_SERVER, Status.STATUS_CODE_UNSET)
    shown = attributes(only)
    assert (shown["portcullis.error"], shown["http.response.status_code"]) == ("model_not_found", 404)
    assert not {"gen_ai.request.model", "error.type"} & shown.keys()


@pytest.mark.parametrize(
    ("changed", "server_error", "client_error"),
    [
        ({"status": 502, "outcome": "failed", "error": "connect"}, "connect", "connect"),
        ({"status": 200, "outcome": "failed", "error": "reset"}, "reset", "reset"),
        ({"status": 429, "outcome": "failed", "error": "upstream status 429"}, None, "upstream_status_429"),
        ({"status": 200, "outcome": "cancelled", "error": "client left"}, None, None),
        ({"status": 200, "outcome": "blocked"}, None, None),
    ],
)
def test_failures_are_errors_of_whose_they_are(
    collector: Collector, changed: dict[str, Any], server_error: str | None, client_error: str | None
) -> None:
    with tracer_for(collector.endpoint) as tracer:
        span = begin(tracer)
        span.routed("gpt-5", "gpt-*", "default", OPENAI)
        span.headers()
        span.finish(finished(**changed), None, [])
    for found, error in ((collector.server, server_error), (collector.client, client_error)):
        assert attributes(found).get("error.type") == error
        assert (found.status.code == Status.STATUS_CODE_ERROR) == (error is not None)
        assert attributes(found)["portcullis.outcome"] == changed["outcome"]


# -- which requests, below which trace ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "traceparent", "recorded"),
    [(0.0, None, 0), (0.0, PARENT, 2), (1.0, None, 2), (1.0, UNSAMPLED_PARENT, 0)],
)
def test_the_parent_decides_and_else_the_share(
    collector: Collector, sample: float, traceparent: str | None, recorded: int
) -> None:
    with tracer_for(collector.endpoint, sample) as tracer:
        span = begin(tracer, traceparent)
        span.routed("gpt-5", "gpt-*", "default", OPENAI)
        trace_id, span_id, flags = sent_up(span.headers())
        span.finish(finished(), (1, 2), ["stop"])
    assert len(collector.spans) == recorded
    assert flags & 1 == (recorded > 0)
    # The upstream's spans belong to the trace even where ours are not recorded.
    assert (trace_id == TRACE_ID) == (traceparent is not None)
    assert span_id != PARENT_ID


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "nonsense",
        PARENT.upper(),
        PARENT[:-1],
        f"ff-{TRACE_ID}-{PARENT_ID}-01",
        f"00-{'0' * 32}-{PARENT_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"{PARENT}-more",
        "0" * 600,
        "\xff\udcff",
    ],
)
def test_a_malformed_parent_is_none(collector: Collector, traceparent: str) -> None:
    told: list[str] = []
    with tracer_for(collector.endpoint, on_problem=told.append) as tracer:
        span = begin(tracer, traceparent, "vendor=1")
        trace_id, _, _ = sent_up(headers := span.headers())
        span.finish(finished(), None, [])
    assert collector.server.parent_span_id == b""
    assert trace_id == collector.server.trace_id.hex() != TRACE_ID
    assert "tracestate" not in headers
    assert told == []  # what clients send is no problem of the operator's


@pytest.mark.parametrize("tracestate", ["=", "a" * 600, "vendor=\x00", "\xff"])
def test_a_malformed_state_does_not_cost_the_parent(collector: Collector, tracestate: str) -> None:
    told: list[str] = []
    with tracer_for(collector.endpoint, on_problem=told.append) as tracer:
        span = begin(tracer, PARENT, tracestate)
        headers = span.headers()
        span.finish(finished(), None, [])
    assert collector.server.parent_span_id.hex() == PARENT_ID
    assert "tracestate" not in headers
    assert told == []


# -- what is never in a span -------------------------------------------------------------------------------------------


def test_no_text_of_an_answer_and_no_key_is_exported(collector: Collector) -> None:
    with tracer_for(collector.endpoint) as tracer:
        span = begin(tracer)
        span.routed("m" * 128 + "TAIL", "*", "default", OPENAI)
        span.headers()
        span.finish(finished(), None, ["stop", "the answer was 12MONKEYS"])
    assert collector.client.name == "chat " + "m" * 128
    assert attributes(collector.client)["gen_ai.response.finish_reasons"] == ["stop", "other"]
    exported = b"".join(collector.raw)
    for planted in (b"TAIL", b"12MONKEYS", UPSTREAM_KEY.encode()):
        assert planted not in exported


def test_strange_values_lose_no_span(collector: Collector) -> None:
    """A single value that protobuf cannot hold would cost the spans of all requests in the batch."""
    told: list[str] = []
    with tracer_for(collector.endpoint, on_problem=told.append) as tracer:
        for model in ("\ud83d", "two\nlines", "plain"):
            span = begin(tracer)
            span.routed(model, "*", "default", OPENAI)
            span.headers()
            span.finish(finished(), (2**80, -1), [])
    clients = [span for span in collector.spans if span.kind == Span.SPAN_KIND_CLIENT]
    assert [span.name for span in clients] == ["chat \ufffd", "chat two\ufffdlines", "chat plain"]
    assert not any(name.startswith("gen_ai.usage") for span in clients for name in attributes(span))
    assert told == []


def test_many_rules_do_not_push_out_the_rest(collector: Collector) -> None:
    counts = tuple(MatchCount(f"rule-{number}", "flag", "content", number + 1) for number in range(500))
    with tracer_for(collector.endpoint) as tracer:
        begin(tracer).finish(finished(scanned=(TextScanned("default", "output", matches=counts),)), None, [])
    shown = attributes(collector.server)
    matched = {name for name in shown if name.startswith("portcullis.matches.")}
    assert matched == {f"portcullis.matches.rule-{number}" for number in range(500 - tracing.MAX_RULES, 500)}
    assert shown["http.route"] == PATH


def test_a_defect_of_ours_is_told_by_its_type_alone(collector: Collector) -> None:
    told: list[str] = []
    with tracer_for(collector.endpoint, on_problem=told.append) as tracer:
        span = begin(tracer)
        span.finish(finished(scanned=("12MONKEYS",)), None, [])
    assert len(collector.spans) == 1
    (text,) = told
    assert "AttributeError while a span was written" in text
    assert "12MONKEYS" not in text
