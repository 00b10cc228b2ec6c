"""The guard's commands to the relay, and the errors that clients get, as plain data."""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.observe.facts import Fact

Failure = dict[str, Any]  # in the shape of OpenAI's errors; none of these texts comes from an upstream


def failure(message: str, code: str, kind: str = "upstream_error") -> Failure:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


GUARD_FAILED = failure("The guard failed; the answer was stopped.", "guard_failed", "server_error")


class SendBytes(NamedTuple):
    """Write these bytes to the client, as they are."""

    data: bytes


class CloseUpstream(NamedTuple):
    """The answer is over: close the upstream, read no more of it."""


class RecordFact(NamedTuple):
    """Hand this fact to the sinks."""

    fact: Fact


Command = SendBytes | CloseUpstream | RecordFact
