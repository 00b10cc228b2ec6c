"""An answer read back from its stamped pieces, as a client of the API reads it, and held against the script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httptools
import msgspec

from loadtest.client import Piece
from loadtest.dialects import DIALECTS, Dialect
from loadtest.scenario import Scenario
from loadtest.script import FORBIDDEN, REPLACEMENT, expected_text


@dataclass(slots=True)
class Answer:
    """What one stream delivered.

    `arrivals`: for each chunk the stamp of the upstream's chunk that it was made from and when its last byte arrived,
    both in microseconds of the monotonic clock. The difference is the delay of that token: sockets, the target's work
    and any queue, but not the time for which a guard rightly holds characters, which leave with a later token.
    `stamped`: the endpoint's chunks have such a stamp.
    """

    status: int = 0
    text: str = ""
    finish: str | None = None
    complete: bool = False
    error: str = ""
    stamped: bool = True
    arrivals: list[tuple[int, float]] = field(default_factory=list)


def read(pieces: Sequence[Piece], dialect: Dialect = DIALECTS["chat"]) -> Answer:
    """Decode an answer; whatever is wrong with it is in `error`."""
    reader = _Reader(dialect)
    for moment, data in pieces:
        try:
            reader.feed(moment / 1000, data)
        except (httptools.HttpParserError, ValueError, LookupError, TypeError) as error:
            reader.answer.error = f"not an answer of {dialect.endpoint}: {type(error).__name__}: {error}"
            break
    reader.answer.text = "".join(reader.deltas)
    return reader.answer


class _Reader:
    """The callbacks of the HTTP parser, and the events cut out of the body they deliver."""

    def __init__(self, dialect: Dialect) -> None:
        self.answer = Answer(stamped=dialect is DIALECTS["chat"])
        self._dialect = dialect
        self.deltas: list[str] = []
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""

    def feed(self, moment: float, data: bytes) -> None:
        self._parser.feed_data(data)
        *events, self._body = self._body.replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            self._event(moment, event)

    def on_status(self, status: bytes) -> None:
        self.answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def _event(self, moment: float, event: bytes) -> None:
        data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
        if not data:  # a comment, such as a ping
            return
        if data == b"[DONE]":
            self.answer.complete = True
            return
        chunk = _decode(data)
        if chunk.get("error") is not None:
            self.answer.error = f"the stream carries an error event: {chunk['error']}"
            return
        said = self._dialect.read(chunk)
        if said.stamp is not None:
            self.answer.arrivals.append((said.stamp, moment))
        self.deltas.append(said.delta)
        self.answer.finish = said.finish or self.answer.finish
        self.answer.complete = self.answer.complete or said.last
        if said.repeated is not None and said.repeated != "".join(self.deltas):
            self.answer.error = "an event repeats another text than its deltas have"


def _decode(data: bytes) -> dict[str, Any]:
    try:
        chunk = msgspec.json.decode(data)
    except msgspec.DecodeError:  # a lone surrogate, which only the standard library reads
        chunk = json.loads(data)
    if not isinstance(chunk, dict):
        raise TypeError(f"an event is {type(chunk).__name__}, not an object")
    return chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What one stream's text holds, and what is wrong with the stream; `fault` is empty if nothing is."""

    redactions: int
    leaks: int
    fault: str


def check(answer: Answer, scenario: Scenario, stream: int, *, guarded: bool) -> Check:
    """Hold an answer against the scenario's counts and against its script, character by character."""
    redactions = answer.text.count(REPLACEMENT)
    leaks = answer.text.casefold().count(FORBIDDEN.casefold())
    wanted = (scenario.redactions, 0) if guarded else (0, scenario.redactions)
    expected = expected_text(scenario, stream, guarded=guarded)
    fault = ""
    if answer.error:
        fault = answer.error
    elif answer.status != 200:
        fault = f"status {answer.status}"
    elif (redactions, leaks) != wanted:
        fault = f"{redactions} redactions and {leaks} forbidden words, expected {wanted[0]} and {wanted[1]}"
    elif answer.text != expected:
        place = next((n for n, (a, b) in enumerate(zip(answer.text, expected, strict=False)) if a != b), len(expected))
        here, there = answer.text[place : place + 20], expected[place : place + 20]
        fault = f"the text differs at character {place}: {here!r}, not {there!r}"
    elif not answer.complete or answer.finish != "stop":
        fault = f"the stream did not end as scripted: finish_reason {answer.finish}, complete {answer.complete}"
    elif answer.stamped and len({stamp for stamp, _ in answer.arrivals}) < min(scenario.tokens, 10) / 2:
        fault = "the target rewrites `created`, so that delays cannot be measured"
    return Check(redactions=redactions, leaks=leaks, fault=f"stream {stream}: {fault}" if fault else "")
