"""Scripts for the guard of typed events: an upstream's events in, what an official client makes of them out."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from openai._models import construct_type_unchecked
from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from gateway.guard.answer import PlainAnswer, StreamAnswer
from gateway.guard.open import open_guard
from gateway.observe.facts import TextScanned
from gateway.policy.model import Mode, Policy
from gateway.wire.dialect import Dialect
from tests.support.compiled import compiled
from tests.support.guard_client import MAX_EVENT, MAX_WHOLE, Commanded, balanced

Event = dict[str, Any]


def script(events: Iterable[Event]) -> bytes:
    return b"".join(f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


class Received(Commanded):
    """What a client has got."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def _read(self, data: bytes) -> None:
        assert data.endswith(b"\n\n") and not self.stopped
        self.raw += data
        for text in data[:-2].split(b"\n\n"):
            if text == b":":
                continue
            *named, payload = text.split(b"\n")
            event = json.loads(payload.removeprefix(b"data: "))
            kind = event.get("type")
            assert not named or named == [f"event: {kind}".encode()]
            assert named or not (isinstance(kind, str) and kind)
            self.events.append(event)

    @property
    def text(self) -> str:
        """All that there is to read, decoded."""
        return self.raw.decode() + json.dumps([self.events, sums_of(self.events)], ensure_ascii=False)

    @property
    def types(self) -> list[str]:
        return [str(event.get("type")) for event in self.events]

    @property
    def scanned(self) -> TextScanned:
        (fact,) = [fact for fact in self.facts if isinstance(fact, TextScanned)]
        return fact

    @property
    def error(self) -> Event:
        assert self.events[-1]["type"] == "error", self.events[-1]
        return self.events[-1]

    def forwarded(self, channel: str) -> tuple[int, int]:
        """Characters of a channel: scanned and forwarded."""
        counts = [count for count in self.scanned.channels if count.channel.value == channel]
        return sum(count.scanned for count in counts), sum(count.forwarded for count in counts)


def sums_of(events: list[Event]) -> dict[str, str]:
    """Every string of the events, each added to those under the same names and numbers in events of its type: what the
    most forgiving client could put together."""
    sums: dict[str, str] = {}

    def add(path: str, value: Any) -> None:
        if isinstance(value, str):
            sums[path] = sums.get(path, "") + value
        elif isinstance(value, dict):
            for name, item in value.items():
                add(f"{path}/{name}", item)
        elif isinstance(value, list):
            for at, item in enumerate(value):
                add(f"{path}/{at}", item)

    for event in events:
        where = [str(event.get(name)) for name in ("output_index", "content_index", "summary_index", "index")]
        delta = event.get("delta")
        kinds = [str(each.get("type")) for each in (event, delta) if isinstance(each, dict)]
        add("/".join([*kinds, *where]), event)
    return sums


def answer_for(policy: Policy, dialect: Dialect, *, json_content: bool = False) -> StreamAnswer:
    guard = open_guard(dialect, compiled(policy), 1, ("mz",), json_content=json_content)
    return StreamAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE, dialect=dialect)


def play(policy: Policy, dialect: Dialect, *reads: bytes, fail: Event | None = None, **given: Any) -> Received:
    answer, client = answer_for(policy, dialect, **given), Received()
    for number, data in enumerate(reads):
        client.take(answer.feed(data, float(number)))
    client.take(answer.close(99.0) if fail is None else answer.fail(fail, 99.0))
    assert answer.done
    assert balanced(client.scanned), client.scanned
    numbers = [event["sequence_number"] for event in client.events if "sequence_number" in event]
    assert policy.mode is Mode.OBSERVE or numbers == sorted(set(numbers))
    return client


def stream(policy: Policy, dialect: Dialect, events: Iterable[Event], **given: Any) -> Received:
    """All events in one read; then byte by byte, which must not differ."""
    data = script(copy.deepcopy(list(events)))
    client = play(policy, dialect, data, **given)
    slowly = play(policy, dialect, *(data[at : at + 1] for at in range(len(data))), **given)
    assert slowly.raw.replace(b":\n\n", b"") == client.raw
    return client


def plain(policy: Policy, dialect: Dialect, *reads: bytes, **given: Any) -> tuple[Event, TextScanned]:
    """The body for a client that asked for it whole."""
    guard = open_guard(dialect, compiled(policy), 1, ("mz",), **given)
    answer = PlainAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE, dialect=dialect)
    for data in reads:
        answer.feed(data, 0.0)
    body = json.loads(answer.close(1.0))
    assert balanced(guard.counts.fact())
    return body, guard.counts.fact()


def openai_response(client: Received) -> Event:
    """What the official client has at the end of a stream: its own sum of the events, and the last response."""
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    last: Any = None
    for event in client.events:
        parsed: Any = construct_type_unchecked(type_=ResponseStreamEvent, value=event)
        state.handle_event(parsed)
        if event["type"] in ("response.completed", "response.incomplete", "response.failed"):
            last = event["response"]
    for done, item in state._completed_output.items():
        assert item.to_dict(warnings=False) == last["output"][done]
    for at, item in state._output_items.items():  # what the client has added up itself
        if item.type == "message":
            for part, shown in zip(item.content, last["output"][at]["content"], strict=True):
                assert part.type != "output_text" or part.text == shown["text"]
        if item.type == "function_call":
            assert item.arguments == last["output"][at]["arguments"]
    assert_deltas_add_up(client.events)
    return dict(last)


def assert_deltas_add_up(events: list[Event]) -> None:
    """What repeats a text is the sum of its deltas, if it had any."""
    sums: dict[tuple[Any, ...], str] = {}
    for event in events:
        stem, _, role = event["type"].rpartition(".")
        place = (stem, *(event.get(f"{name}_index") for name in ("output", "content", "summary")))
        if role == "delta" and isinstance(event.get("delta"), str):
            sums[place] = sums.get(place, "") + event["delta"]
        elif role == "done" and place in sums:
            texts = [event[name] for name in ("text", "refusal", "arguments", "input", "code") if name in event]
            assert texts == [sums[place]]


def anthropic_message(client: Received) -> Event:
    """The official client's sum of the events."""
    message: Any = None
    buffers: dict[int, bytes] = {}
    for event in client.events:
        if event["type"] not in ("ping", "message_stop"):
            parsed: Any = construct_type_unchecked(type_=RawMessageStreamEvent, value=event)
            message = accumulate_event(event=parsed, current_snapshot=message, json_bufs=buffers)
    return dict(message.to_dict(warnings=False))
