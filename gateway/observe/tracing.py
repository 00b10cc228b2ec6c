"""Requests as two OpenTelemetry spans each, which a thread of the SDK sends over OTLP/HTTP.

OpenTelemetry is an extra: it is imported where it is used, and not while telemetry is off. Spans carry names, numbers
and the requested model, never text of a prompt or an answer, nor a key. No failure in here reaches a request.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.observe.facts import RequestFinished
from gateway.policy.model import Telemetry, Upstream
from gateway.version import __version__, install_hint

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    Attributes = Mapping[str, AttributeValue]

SCOPE = "portcullis"
QUEUED_SPANS = 2048  # waiting for the collector; more are dropped
BATCH_SPANS = 512
BATCH_DELAY = 5.0  # seconds between two batches
EXPORT_TIMEOUT = 10.0  # seconds for one batch, its retries included
PROBLEM_INTERVAL = 60.0  # seconds between two messages about failing exports
MAX_MODEL = 128  # characters of the requested model
MAX_TEXT = 512  # characters of any other value
MAX_RULES = 64  # rules whose matches are counted on a span; those with most matches go first
MAX_TOKENS = 2**63  # larger counts are invalid, and one would make the whole batch unsendable

# What the conventions call the endpoints' operations, where it is not `chat`, by the end of the path.
OPERATIONS = {"completions": "text_completion", "embeddings": "embeddings"}
# A finish reason is the upstream's text; any other than these is replaced.
FINISH_REASONS = frozenset({"stop", "length", "content_filter", "tool_calls", "function_call", "abort"})
# The texts in the SDK's messages that can be shown; any other might quote a header with credentials.
PLAIN_WORDS = frozenset({"Span", "spans", *(status.phrase for status in HTTPStatus)})


def operation_of(path: str) -> str:
    """The operation of an endpoint, named by OpenTelemetry's conventions."""
    return "chat" if path.endswith("/chat/completions") else OPERATIONS.get(path.rpartition("/")[2], "chat")


class TelemetryUnavailable(RuntimeError):
    """Telemetry is configured and OpenTelemetry is not installed."""


def make_tracer(telemetry: Telemetry | None, on_problem: Callable[[str], None] | None = None) -> Tracer | None:
    """The tracer of this process, or None where telemetry is off.

    `on_problem` gets a message about failing exports at most once a minute, from any thread. Raises
    `TelemetryUnavailable` when the extra is missing.
    """
    if telemetry is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise TelemetryUnavailable(
            f"telemetry: OpenTelemetry, which sends traces to {_host_of(telemetry.endpoint)}, cannot be imported. "
            f"Run {install_hint('otel')}, or remove telemetry from the configuration."
        ) from error
    problems = ExportProblems(_host_of(telemetry.endpoint), on_problem or (lambda _: None))
    problems.attach()
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(telemetry.sample)),
        resource=Resource.create({"service.name": telemetry.service, "service.version": __version__}),
        shutdown_on_exit=False,  # `Tracer.close` does it, within a time limit
    )
    exporter = OTLPSpanExporter(endpoint=traces_url(telemetry.endpoint), timeout=EXPORT_TIMEOUT)
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=QUEUED_SPANS,
            schedule_delay_millis=BATCH_DELAY * 1000,
            max_export_batch_size=BATCH_SPANS,
        )
    )
    return Tracer(provider, exporter, problems)


class Tracer:
    """Starts the spans of requests. Made by `make_tracer`."""

    def __init__(self, provider: TracerProvider, exporter: SpanExporter, problems: ExportProblems) -> None:
        self._provider = provider
        self._exporter = exporter
        self._tracer = provider.get_tracer(SCOPE, __version__)
        self.contained = problems.contained
        self._problems = problems

    def start_request(
        self, *, path: str, traceparent: str | None, tracestate: str | None, request_id: str
    ) -> RequestSpan:
        """The SERVER span of a POST to the endpoint `path`. Never raises.

        `traceparent` and `tracestate` are the client's headers; malformed ones count as none. A client's trace decides
        whether the span is recorded; without one, `Telemetry.sample` does.
        """
        from opentelemetry.trace import INVALID_SPAN, SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        span: Span = INVALID_SPAN
        with self._problems.contained():
            attributes = {
                "http.request.method": "POST",
                "http.route": path,
                "url.path": path,
                "url.scheme": "http",
                "portcullis.request_id": request_id,
            }
            headers = {"traceparent": traceparent, "tracestate": tracestate}
            parent = TraceContextTextMapPropagator().extract(headers, _empty_context())
            span = self._tracer.start_span(f"POST {path}", parent, SpanKind.SERVER, attributes)
        return RequestSpan(self, span, operation_of(path))

    def start_call_span(self, server: Span, name: str, attributes: Attributes) -> Span:
        """The CLIENT span of a request's call to an upstream."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        return self._tracer.start_span(name, set_span_in_context(server, _empty_context()), SpanKind.CLIENT, attributes)

    def close(self, timeout: float) -> None:
        """Send what is queued and stop; what is not sent in `timeout` seconds is lost. Blocks that long at most."""
        closing = threading.Thread(target=self._shut_down, name="telemetry-close", daemon=True)
        closing.start()
        closing.join(timeout)
        if closing.is_alive():
            self._problems.note(f"the last spans were not sent within {timeout:g} s")
            with self._problems.contained():
                self._exporter.shutdown()  # ends its wait between retries

    def _shut_down(self) -> None:
        with self._problems.contained():
            self._provider.shutdown()
        self._problems.detach()


class RequestSpan:
    """The spans of one request: SERVER for the client's, CLIENT below it for the call to the upstream, failovers
    included. Methods never raise; `finish` comes last."""

    def __init__(self, tracer: Tracer, server: Span, operation: str) -> None:
        self._tracer = tracer
        self._server = server
        self._operation = operation
        self._call: Span | None = None
        self._call_name = operation
        self._call_attributes: Attributes = {"gen_ai.operation.name": operation}
        self._first_byte: float | None = None

    def headers(self) -> dict[str, str]:
        """`traceparent` and `tracestate` for the upstream: the context of the CLIENT span, which the first call starts.
        A request that never goes to an upstream has no such span."""
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        with self._tracer.contained():
            if self._call is None:
                self._call = self._tracer.start_call_span(self._server, self._call_name, self._call_attributes)
            TraceContextTextMapPropagator().inject(carrier, set_span_in_context(self._call, _empty_context()))
        return carrier

    def routed(self, model: str, route: str, policy: str, upstream: Upstream) -> None:
        """The requested `model` matched the glob `route` and goes to `upstream`. Called again for each failover."""
        with self._tracer.contained():
            shown = _printable(model, MAX_MODEL)
            self._call_name = f"{self._operation} {shown}"
            self._call_attributes = {
                "gen_ai.operation.name": self._operation,
                "gen_ai.provider.name": upstream.type,
                "gen_ai.request.model": shown,
                "portcullis.route": _printable(route, MAX_TEXT),
                "portcullis.policy": policy,
                "portcullis.upstream": upstream.name,
                **_server_of(upstream.base_url),
            }
            _set(self._server, {"gen_ai.request.model": shown})
            if self._call is not None:
                self._call.update_name(self._call_name)
                _set(self._call, self._call_attributes)

    def first_byte(self, seconds: float) -> None:
        """The first of a streamed answer arrived `seconds` after the request."""
        self._first_byte = seconds

    def retried(self, upstream: str, kind: str) -> None:
        """The upstream failed before its first byte and another attempt follows; `kind` as in `UpstreamFailed`."""
        with self._tracer.contained():
            span = self._call if self._call is not None else self._server
            span.add_event("portcullis.retry", {"portcullis.upstream": upstream, "error.type": kind})

    def finish(self, fact: RequestFinished, usage: tuple[int, int] | None, finish_reasons: Sequence[str]) -> None:
        """End both spans. `usage`: prompt and completion tokens as the upstream counted them; `finish_reasons`: one
        for each choice."""
        with self._tracer.contained():
            if self._server.is_recording():
                self._describe(fact, usage, finish_reasons)
        for span in (self._call, self._server):
            with self._tracer.contained():
                if span is not None:
                    span.end()

    def _describe(self, fact: RequestFinished, usage: tuple[int, int] | None, finish_reasons: Sequence[str]) -> None:
        common: dict[str, AttributeValue] = {"portcullis.policy": fact.policy, "portcullis.outcome": fact.outcome}
        common |= {f"portcullis.matches.{rule}": count for rule, count in _matches(fact)}
        server = {**common, "http.response.status_code": fact.status, "portcullis.route": fact.route}
        if fact.error is not None:
            server["portcullis.error"] = fact.error
        error = fact.error if fact.outcome == "failed" else None
        # By convention the refusal of a client's request is no error of the server.
        _set(self._server, server, error=None if 400 <= fact.status < 500 else error)
        if self._call is None:
            return
        call = dict(common)
        if fact.stream:
            call["gen_ai.request.stream"] = True
            if self._first_byte is not None:
                call["gen_ai.response.time_to_first_chunk"] = self._first_byte
        for name, tokens in zip(("input", "output"), usage or (), strict=False):
            if 0 <= tokens < MAX_TOKENS:
                call[f"gen_ai.usage.{name}_tokens"] = tokens
        if finish_reasons:
            reasons = [reason if reason in FINISH_REASONS else "other" for reason in finish_reasons]
            call["gen_ai.response.finish_reasons"] = reasons
        _set(self._call, call, error=error)


class ExportProblems(logging.Handler):
    """Reports failures to export spans to `host` at most once a minute; failures in between are counted.

    A log handler, because the SDK logs its failures, batch by batch, and to standard error if nothing handles them.
    """

    def __init__(self, host: str, report: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._host = host
        self._report = report
        self._now = now
        self._lock = threading.Lock()
        self._quiet_until = float("-inf")
        self._suppressed = 0

    def attach(self) -> None:
        logging.getLogger("opentelemetry").addHandler(self)

    def detach(self) -> None:
        logging.getLogger("opentelemetry").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        # Other parts of OpenTelemetry warn about clients' headers, which the operator cannot change.
        if record.name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")):
            self.note(_message_of(record))

    def note(self, what: str) -> None:
        """Never raises."""
        with self._lock:
            now = self._now()
            if now < self._quiet_until:
                self._suppressed += 1
                return
            self._quiet_until = now + PROBLEM_INTERVAL
            suppressed, self._suppressed = self._suppressed, 0
        more = f"; {suppressed} more messages before this one" if suppressed else ""
        with contextlib.suppress(Exception):
            self._report(
                f"telemetry: spans to {self._host} may be lost: {what}{more}. Requests are not affected. "
                "Check that a collector takes OTLP over HTTP there."
            )

    @contextlib.contextmanager
    def contained(self) -> Iterator[None]:
        """Suppresses every exception and reports its type; its text may quote a request."""
        try:
            yield
        except Exception as error:
            self.note(f"{type(error).__name__} while a span was written")


def traces_url(endpoint: str) -> str:
    """The URL for traces: `endpoint` itself if it has a path, else with OTLP's path for them."""
    return endpoint if urlsplit(endpoint).path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"


def _host_of(endpoint: str) -> str:
    """Host and port alone, since a path may be a token."""
    parts = urlsplit(endpoint)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _server_of(base_url: str) -> dict[str, AttributeValue]:
    parts = urlsplit(base_url)
    if not parts.hostname:
        return {}
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {"server.address": parts.hostname, "server.port": port}


def _empty_context() -> Context:
    """A context without the current span of a program that embeds the gateway."""
    from opentelemetry.context import Context

    return Context()


def _matches(fact: RequestFinished) -> list[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for text in fact.scanned:
        for match in text.matches:
            counts[match.rule] += match.count
    return counts.most_common(MAX_RULES)


def _set(span: Span, attributes: Attributes, error: str | None = None) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attributes(
        {name: _printable(value, MAX_TEXT) if isinstance(value, str) else value for name, value in attributes.items()}
    )
    if error is not None:
        span.set_attribute("error.type", _printable(error.replace(" ", "_"), MAX_TEXT))
        span.set_status(StatusCode.ERROR)


def _printable(text: str, longest: int) -> str:
    """Printable text of bounded length: a lone surrogate in one span would make its whole batch unsendable."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text[:longest])


def _message_of(record: logging.LogRecord) -> str:
    """The SDK's message, with only such values filled in as can hold no credentials."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    message = str(record.msg)
    with contextlib.suppress(TypeError, ValueError):
        message = message % tuple(_without_text(argument) for argument in arguments)
    raised = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
    return f"{message.rstrip('.')} {raised}".rstrip()


def _without_text(argument: object) -> object:
    if isinstance(argument, BaseException):
        return type(argument).__name__
    return argument if isinstance(argument, int | float) or argument in PLAIN_WORDS else "…"
