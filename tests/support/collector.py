"""A collector of spans that takes OTLP/HTTP on a real socket, and what is in the spans that it has got."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gateway.observe.facts import RequestFinished
from gateway.observe.tracing import RequestSpan, Tracer, make_tracer
from gateway.policy.model import Telemetry

TIMEOUT = 30  # seconds, generous: it ends a test that hangs
PATH = "/v1/chat/completions"


def finished(**changed: Any) -> RequestFinished:
    usual: dict[str, Any] = {
        "request_id": "req-1",
        "path": PATH,
        "route": "gpt-*",
        "policy": "default",
        "upstream": "openai",
        "status": 200,
        "outcome": "ok",
        "stream": True,
        "duration": 1.0,
    }
    return RequestFinished(**{**usual, **changed})


class Collector:
    """An OTLP/HTTP receiver. It answers with `status`, and not before `open` is set."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.paths: set[str] = set()
        self.raw: list[bytes] = []
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.status = 200
        self.open = threading.Event()
        self.open.set()

    def take(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        self.raw.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append({pair.key: value_of(pair.value) for pair in resource.resource.attributes})
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def span(self, kind: Any) -> Span:
        (found,) = (span for span in self.spans if span.kind == kind)
        return found

    @property
    def server(self) -> Span:
        return self.span(Span.SPAN_KIND_SERVER)

    @property
    def client(self) -> Span:
        return self.span(Span.SPAN_KIND_CLIENT)


@contextmanager
def tracer_for(
    endpoint: str, sample: float = 1.0, on_problem: Callable[[str], None] | None = None, timeout: float = TIMEOUT
) -> Iterator[Tracer]:
    tracer = make_tracer(Telemetry(endpoint=endpoint, service="guard", sample=sample), on_problem)
    assert tracer is not None
    try:
        yield tracer
    finally:
        tracer.close(timeout)


def begin(tracer: Tracer, traceparent: str | None = None, tracestate: str | None = None) -> RequestSpan:
    return tracer.start_request(path=PATH, traceparent=traceparent, tracestate=tracestate, request_id="req-1")


def value_of(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(entry) for entry in value.array_value.values]
    return getattr(value, kind or "string_value")


def attributes(span: Any) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in span.attributes}
