"""What the guard asks its performer to do, as plain data."""

from __future__ import annotations

from typing import NamedTuple

from gateway.observe.facts import Fact


class Send(NamedTuple):
    """Write these bytes to the client, as they are."""

    data: bytes


class Stop(NamedTuple):
    """The answer is over: close the upstream, read no more of it."""


class Record(NamedTuple):
    """Hand this fact to the sinks."""

    fact: Fact


Command = Send | Stop | Record
