"""The outputs of the gateway: the journal's file, and traces. A part of `gateway.policy.model`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Fsync(StrEnum):
    """When a journal's lines are forced to the disk: with every batch, once a second, or by the system."""

    ALWAYS = "always"
    SECOND = "second"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The file of decisions; `max_size` in bytes; with `chain` its lines are signed and chained."""

    path: str
    key: str = field(repr=False)
    fsync: Fsync = Fsync.SECOND
    max_size: int = 100 * 1024 * 1024
    keep: int = 10
    required: bool = False
    chain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Traces over OTLP/HTTP to `endpoint`; `sample` is the share of requests that begin a trace of their own."""

    endpoint: str
    service: str = "portcullis"
    sample: float = 1.0
