"""What a fault is, and what is looked at after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from tests.faults.speech import Speech

if TYPE_CHECKING:
    from tests.faults.client import Seen
    from tests.faults.world import World

DEADLINE = 60.0  # seconds for anything that is quick; what is not back by then hangs

Counts = Mapping[str, int]


@dataclass(slots=True)
class Trial:
    """One run of a fault: what it may use, and what it noticed."""

    world: World
    rng: Random
    speech: Speech
    received: list[str] = field(default_factory=list)  # all that clients got
    wrong: list[str] = field(default_factory=list)
    also: Counter[str] = field(default_factory=Counter)  # counted besides, where how many is known only now

    def got(self, answer: Seen) -> None:
        """To be searched for the word, as it came and with its deltas joined."""
        self.received.append(answer.raw.decode("utf-8", "replace"))
        if answer.end == "whole":
            self.received.append(answer.content)

    def expect(self, what: str, got: object, wanted: object) -> None:
        if got != wanted:
            self.wrong.append(f"{what}: {got!r}, not {wanted!r}")

    def require(self, true: object, what: str) -> None:
        if not true:
            self.wrong.append(what)


Act = Callable[[Trial], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the table. `act` does it; `gets` says what the client should get; `counted` is what metrics and log have
    of it, and nothing else. `sample`: it is part of the short form. `slow`: it takes longer than a few seconds.

    `setting` is the gateway that it needs, by name; `ends`: the gateway is gone after it, and is started again.
    """

    name: str
    side: str
    does: str
    gets: str
    act: Act
    counted: Counts = field(default_factory=dict)
    sample: bool = False
    slow: bool = False
    setting: str = "plain"
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a fault. No times are in it, so that a seed gives the same table again."""

    fault: Fault
    leaked: int
    hung: int
    counted: bool
    gauges: int
    recovered: bool
    wrong: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not (self.leaked or self.hung or self.gauges or self.wrong) and self.counted and self.recovered


def failed(status: int, error: str, *, stream: bool = False) -> Counts:
    """An answer that the upstream failed: one request, one failure of the upstream, one line of the log."""
    return {f"status {200 if stream else status}": 1, f"upstream {error}": 1, f"failed: {error}": 1}


def answered(count: int = 1, outcome: str = "redacted") -> Counts:
    return {"status 200": count, outcome: count}


def cancelled(why: str = "client left", status: int = 499) -> Counts:
    return {f"status {status}": 1, f"cancelled: {why}": 1}


def total(*counts: Counts) -> Counts:
    added: Counter[str] = Counter()
    for each in counts:
        added.update(each)
    return added
