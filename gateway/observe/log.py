"""Facts as log lines, one for each request, as JSON or for a console. Facts have no scanned text in them."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from typing import Any, BinaryIO, TextIO

import msgspec

from gateway.observe.facts import LEFT, Fact, GuardFailed, MaskJudged, Reloaded, RequestFinished, TextScanned

MAX_PARTS = 256  # combinations of names in the lines of requests, of which the encoded form is kept
_LINE = (
    b'{"time":"%b","event":"request","request_id":"%b",%b,"duration_ms":%r,"ttft_ms":%b,"matches":{},'
    b'"scanned":%d,"forwarded":%d,"replaced":%d,"withheld":%d,%b,"prompt_tokens":%d,"completion_tokens":%d}\n'
)
_NAMES = ("path", "status", "outcome", "stream", "route", "policy", "upstream", "model", "key")  # in this order
_PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]+")  # as it is in JSON


class RequestLog:
    """Writes lines to `out`. `style` is `json` or `console`."""

    def __init__(self, style: str = "json", out: TextIO | None = None) -> None:
        self.style = style
        self._out = out if out is not None else sys.stderr
        # A line of JSON is bytes: past the text layer it need not be decoded and encoded once more.
        self._bytes: BinaryIO | None = getattr(self._out, "buffer", None)
        self._second = (-1, "")  # the last one that was written, as it stands in a line
        self._names: dict[tuple[object, ...], tuple[bytes, bytes]] = {}  # of requests, as they stand in a line

    def record(self, fact: Fact) -> None:
        if type(fact) is TextScanned:
            return
        match fact:
            case RequestFinished():
                line = self._usual(fact) if self.style == "json" and self._bytes is not None else None
                if line is None:
                    self._write("request", request_fields(fact))
                else:
                    self._put(line, "")
            case GuardFailed(policy, where):
                self._write("guard_failed", {"policy": policy, "where": where})
            case Reloaded(outcome, reason):
                self._write("reload", {"outcome": outcome, "reason": reason})
            case MaskJudged(upstream, policy, state, reason):
                self._write("mask", {"upstream": upstream, "policy": policy, "state": state, "reason": reason})

    def event(self, name: str, **fields: Any) -> None:
        """A line that is not about one request, such as a start or a stop."""
        self._write(name, fields)

    def _write(self, name: str, fields: dict[str, Any]) -> None:
        if self.style == "json":
            # Not in one dictionary with the fields: that would be made a second time.
            beginning = msgspec.json.encode({"time": self._time(), "event": name})[:-1]
            line = b"%b,%b\n" % (beginning, msgspec.json.encode(fields)[1:]) if fields else beginning + b"}\n"
            text = "" if self._bytes is not None else line.decode()
        else:
            line = b""
            shown = " ".join(
                f"{key}={_one_line(value)}" for key, value in fields.items() if value not in (None, {}, "")
            )
            text = f"{datetime.now(UTC):%H:%M:%S} {name} {shown}\n"
        self._put(line, text)

    def _put(self, line: bytes, text: str) -> None:
        try:
            if self._bytes is not None and not text:
                self._bytes.write(line)
                self._bytes.flush()
            else:
                self._out.write(text)
                self._out.flush()
        except (OSError, ValueError):
            return  # a closed or full log never stops a stream

    def _usual(self, fact: RequestFinished) -> bytes | None:
        """The line of a request of which there are only sums to tell, as `request_fields` has it; None for others."""
        tokens = fact.tokens
        if tokens is None or fact.rollbacks or not _PLAIN_ID.fullmatch(fact.request_id):
            return None
        scanned = forwarded = replaced = withheld = 0
        for text in fact.scanned:
            if text.matches or text.constraints:
                return None
            for count in text.channels:
                scanned += count.scanned
                forwarded += count.forwarded
                replaced += count.replaced
                withheld += count.withheld
                if count.missing:
                    return None
        asked = (fact.path, fact.status, fact.outcome, fact.stream, fact.model, fact.key)
        names = self._names.get(key := (*asked, fact.route, fact.policy, fact.upstream, fact.error))
        if names is None:
            fields = request_fields(fact)
            encoded = msgspec.json.encode({name: fields[name] for name in _NAMES})[1:-1]
            if len(self._names) >= MAX_PARTS:
                self._names.clear()
            names = self._names[key] = encoded, b'"error":%b' % msgspec.json.encode(fact.error)
        ttft = b"null" if fact.ttft is None else b"%r" % _milliseconds(fact.ttft)
        sums = (_milliseconds(fact.duration), ttft, scanned, forwarded, replaced, withheld)
        return _LINE % (self._time().encode(), fact.request_id.encode(), names[0], *sums, names[1], *tokens)

    def _time(self) -> str:
        """Now, as `isoformat` has it, of which the seconds are the same for many lines."""
        now = time.time()
        second, shown = self._second
        if int(now) != second:
            second = int(now)
            shown = datetime.fromtimestamp(second, UTC).isoformat()
            self._second = second, shown
        return f"{shown[:19]}.{int((now - second) * 1000):03d}{shown[19:]}"


def _one_line(value: Any) -> str:
    """Escaped if not printable: a line break in a value must not forge another line."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def request_fields(fact: RequestFinished) -> dict[str, Any]:
    """The fields of a request's line: sums and names, no text."""
    matches: dict[str, int] = {}
    constraints: dict[str, int] = {}
    scanned = forwarded = replaced = withheld = 0
    uncovered: list[str] = []
    for text in fact.scanned:
        for match in text.matches:
            matches[match.rule] = matches.get(match.rule, 0) + match.count
        for count in text.channels:
            scanned += count.scanned
            forwarded += count.forwarded
            replaced += count.replaced
            withheld += count.withheld
            if count.missing:
                uncovered.append(count.channel)
        if text.constraints:
            constraints.update(text.constraints)
    fields: dict[str, Any] = {
        "request_id": fact.request_id,
        "path": fact.path,
        "status": fact.status,
        "outcome": fact.outcome,
        "stream": fact.stream,
        "route": fact.route,
        "policy": fact.policy,
        "upstream": fact.upstream,
        "model": fact.model,
        "key": fact.key,
        "duration_ms": _milliseconds(fact.duration),
        "ttft_ms": None if fact.ttft is None else _milliseconds(fact.ttft),
        "matches": matches,
        "scanned": scanned,
        "forwarded": forwarded,
        "replaced": replaced,
        "withheld": withheld,
        "error": fact.error,
    }
    if fact.tokens is not None:
        fields["prompt_tokens"], fields["completion_tokens"] = fact.tokens
    if constraints:
        fields["constraints"] = constraints
    if fact.rollbacks:
        fields["rollbacks"] = fact.rollbacks
    if uncovered:
        fields["coverage_errors"] = uncovered
    return fields


def _milliseconds(seconds: float) -> float:
    """To a thousandth of one. `round` takes ten times as long."""
    return int(seconds * 1_000_000 + 0.5) / 1000


def outcome_of(scanned: tuple[TextScanned, ...]) -> str:
    """The outcome of a request by its rules: blocked, redacted, flagged or ok."""
    actions: set[str] = set()
    left = False
    for text in scanned:
        if text.blocked_by:
            return "blocked"
        if text.matches:
            actions.update([match.action for match in text.matches])
        left = left or LEFT in text.constraints
    return "redacted" if actions & {"redact", "pseudonymize"} else "flagged" if actions or left else "ok"
