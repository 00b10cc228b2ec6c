"""Facts as log lines, one for each request, as JSON or for a console. Facts have no scanned text in them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from gateway.observe.facts import LEFT, Fact, GuardFailed, MaskJudged, Reloaded, RequestFinished, TextScanned


class RequestLog:
    """Writes lines to `out`. `style` is `json` or `console`."""

    def __init__(self, style: str = "json", out: TextIO | None = None) -> None:
        self.style = style
        self._out = out if out is not None else sys.stderr

    def record(self, fact: Fact) -> None:
        match fact:
            case RequestFinished():
                self._write("request", request_fields(fact))
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
            line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": name, **fields}
            text = msgspec.json.encode(line).decode()
        else:
            shown = " ".join(
                f"{key}={_one_line(value)}" for key, value in fields.items() if value not in (None, {}, "")
            )
            text = f"{datetime.now(UTC):%H:%M:%S} {name} {shown}"
        try:
            self._out.write(text + "\n")
            self._out.flush()
        except (OSError, ValueError):
            return  # a closed or full log never stops a stream


def _one_line(value: Any) -> str:
    """Escaped if not printable: a line break in a value must not forge another line."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def request_fields(fact: RequestFinished) -> dict[str, Any]:
    """The fields of a request's line: sums and names, no text."""
    matches: dict[str, int] = {}
    sums = dict.fromkeys(("scanned", "forwarded", "replaced", "withheld"), 0)
    uncovered: list[str] = []
    for text in fact.scanned:
        for match in text.matches:
            matches[match.rule] = matches.get(match.rule, 0) + match.count
        for count in text.channels:
            for name in sums:
                sums[name] += getattr(count, name)
            if count.missing:
                uncovered.append(count.channel)
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
        "duration_ms": round(fact.duration * 1000, 3),
        "ttft_ms": None if fact.ttft is None else round(fact.ttft * 1000, 3),
        "matches": matches,
        **sums,
        "error": fact.error,
    }
    if fact.tokens is not None:
        fields["prompt_tokens"], fields["completion_tokens"] = fact.tokens
    constraints = {each.outcome: each.count for text in fact.scanned for each in text.constraints}
    if constraints:
        fields["constraints"] = constraints
    if fact.rollbacks:
        fields["rollbacks"] = fact.rollbacks
    if uncovered:
        fields["coverage_errors"] = uncovered
    return fields


def outcome_of(scanned: tuple[TextScanned, ...]) -> str:
    """The outcome of a request by its rules: blocked, redacted, flagged or ok."""
    actions = {match.action for text in scanned for match in text.matches}
    if any(text.blocked_by for text in scanned):
        return "blocked"
    left = any(each.outcome == LEFT for text in scanned for each in text.constraints)
    return "redacted" if actions & {"redact", "pseudonymize"} else "flagged" if actions or left else "ok"
