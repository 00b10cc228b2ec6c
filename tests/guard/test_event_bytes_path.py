"""The shortest way of typed events, native and translated, in Python and in C: what it sends, counts and keeps is what
the slow path does, however the stream is cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace as changed
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.guard import bytes_path
from gateway.guard.answer import StreamAnswer
from gateway.guard.bytes_path import PythonBytesPath
from gateway.guard.commands import Command, SendBytes, failure
from gateway.guard.events import EventGuard
from gateway.guard.fast_path import EventFastPath, FastPath
from gateway.guard.open import open_guard
from gateway.policy.model import Action, Mode, Policy, Rule, Unknown
from gateway.wire import sse
from gateway.wire.chat import CHAT
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from gateway.wire.translation.chat_answer import TranslatingEncoder
from tests.support.compiled import compiled
from tests.support.native import native_bytes_path

WORDS = Policy(
    name="p",
    rules=(
        Rule(id="r", words=("12MONKEYS",), replacement="[CENSORED]"),
        Rule(id="b", words=("FORBIDDEN",), action=Action.BLOCK, message="No."),
        Rule(id="e", words=("été", "a`b"), replacement="#"),
    ),
)
POLICIES = (
    WORDS,
    changed(WORDS, rules=(*WORDS.rules, Rule(id="p", pattern="[0-9]{4}|A.{1,3}B", replacement="#"))),
    changed(WORDS, max_hold=9),
    changed(WORDS, mode=Mode.OBSERVE),
    changed(WORDS, unknown=Unknown.REFUSE),
)
PIECES = (
    *("", "It is ", "12MON", "KEYS", "1", 'a "quote"\n', "back\\slash", "\u2028\x85é", "FORBID", "DEN", "😀", "été"),
    *("e\u0301", "`", "```json\n", '{"a": "12MON', 'KEYS"}', "\x7f", "word " * 30, "2024", "A\ud800", "B", "12MONKEYS"),
)
PADDINGS = (None, "", "a", "k3Xq9", "a b", 'a\\"', "é")
NUMBERS = (None, 0, 7, 99999999999, 100000000000, -1, 1.5, "12MON")
# Events among the deltas, and fields that a delta has besides its own, by their names in `scripted`.
OTHERS = ("ping", "part", "item", "unknown", "thought")
ODD: tuple[dict[str, Any], ...] = (
    *({"x": "12MONKEYS"}, {"index": 1}, {"item_id": "other"}, {"output_index": -1}, {"content_index": 3}),
    *({"logprobs": [{"token": "a"}]}, {"sequence_number": 4111111111111111}, {"type": "12MON"}, {"logprobs": None}),
)
LINES = (
    "event: {}\n",
    "event: {}\n",
    "event: {}\n",
    "",
    "event:{}\n",
    "event: other\n",
    ": comment\nevent: {}\n",
    "id: 1\n",
)
IMPLEMENTATIONS = [PythonBytesPath, *([] if native_bytes_path() is None else [native_bytes_path()])]
BOTH = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=["python", "c"][: len(IMPLEMENTATIONS)])
WAYS = {
    "responses": (RESPONSES, RESPONSES),
    "messages": (MESSAGES, MESSAGES),
    "responses-over-chat": (CHAT, RESPONSES),
    "messages-over-chat": (CHAT, MESSAGES),
}
EACH_WAY = pytest.mark.parametrize("way", WAYS)
BODY = {"model": "m", "input": "x", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
ENDINGS = ("close", "fail", "cancel")
Event = dict[str, Any]


@dataclass
class Step:
    """One event of a script: a piece of a text, or one of `OTHERS`. `number`: where events have one."""

    text: str = ""
    other: str = ""
    padding: str | None = None
    number: Any = None
    more: Any = None
    line: str = LINES[0]


# -- scripts -----------------------------------------------------------------------------------------------------------


def scripted(upstream: Dialect, steps: Sequence[Step], escaped: bool = True, compact: bool = True) -> list[bytes]:
    """The events of an upstream, as bytes."""
    make = {CHAT.path: chunks, RESPONSES.path: response, MESSAGES.path: message}[upstream.path]
    written = []
    for number, (made, step) in enumerate(make(steps)):
        event = {**made, **(step.more or {})} if "delta" in made or "choices" in made else made
        if upstream is RESPONSES:
            event["sequence_number"] = number if step.number is None else step.number
        if upstream is CHAT and step.number is not None:
            event["created"] = step.number
        if step.padding is not None and upstream is not MESSAGES:
            event["obfuscation"] = "PAD"
        text = json.dumps(
            event, ensure_ascii=escaped or "\ud800" in step.text, separators=(",", ":") if compact else None
        )
        line = "" if upstream is CHAT else step.line.format(event.get("type"))
        written.append(f"{line}data: {text.replace('PAD', step.padding or '')}\n\n".encode())
    return written


def chunks(steps: Sequence[Step]) -> Iterator[tuple[Event, Step]]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas: list[tuple[Event, str | None, Step]] = [({"role": "assistant", "content": ""}, None, Step())]
    for step in steps:
        given = {"reasoning_content" if step.other == "thought" else "content": step.text}
        deltas.append((given, None, step))
    for delta, finish, step in [*deltas, ({}, "stop", Step())]:
        choice = {"index": 1 if step.other == "item" else 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        counts = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
        usage = counts if step.other == "part" else None
        yield {**head, "choices": [choice], "usage": usage, **({"q": "z"} if step.other == "unknown" else {})}, step


def message(steps: Sequence[Step]) -> Iterator[tuple[Event, Step]]:
    begun = {"id": "msg_1", "type": "message", "role": "assistant", "model": "mz", "content": []}
    yield {"type": "message_start", "message": {**begun, "usage": {"input_tokens": 1, "output_tokens": 1}}}, Step()
    index, thinks = -1, False
    for at, step in enumerate([Step(other="item"), *steps]):
        if step.other in ("item", "part", "thought"):
            if at and thinks:
                delta = {"type": "signature_delta", "signature": "c2lnbmF0dXJlIG9mIGl0"}
                yield {"type": "content_block_delta", "index": index, "delta": delta}, Step()
            if at:
                yield {"type": "content_block_stop", "index": index}, step
            index, thinks = index + 1, step.other == "thought"
            block = {"type": "thinking", "thinking": "", "signature": ""} if thinks else {"type": "text", "text": ""}
            yield {"type": "content_block_start", "index": index, "content_block": block}, step
        elif step.other:
            yield {"type": step.other}, step
        delta = (
            {"type": "thinking_delta", "thinking": step.text} if thinks else {"type": "text_delta", "text": step.text}
        )
        yield {"type": "content_block_delta", "index": index, "delta": delta}, step
    yield {"type": "content_block_stop", "index": index}, Step()
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}, Step()
    yield {"type": "message_stop"}, Step()


def response(steps: Sequence[Step]) -> Iterator[tuple[Event, Step]]:
    begun = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "mz", "output": []}
    yield {"type": "response.created", "response": begun}, Step()
    item, part, thinks = -1, -1, False
    for at, step in enumerate([Step(other="item"), *steps]):
        if step.other in ("item", "thought", "part"):
            where = {"item_id": f"it_{item}", "output_index": item, "content_index": part}
            if at:
                yield (
                    {
                        "type": "response.content_part.done",
                        **where,
                        "part": {
                            "type": "output_text",
                            "text": "",
                        },
                    },
                    step,
                )
            if step.other != "part":
                if at:
                    yield (
                        {"type": "response.output_item.done", "output_index": item, "item": {"id": f"it_{item}"}},
                        step,
                    )
                item, part, thinks = item + 1, -1, step.other == "thought"
                kind = {"type": "reasoning", "summary": []} if thinks else {"type": "message", "role": "assistant"}
                value = {"id": f"it_{item}", "status": "in_progress", "content": [], **kind}
                yield {"type": "response.output_item.added", "output_index": item, "item": value}, step
            part += 1
            where = {"item_id": f"it_{item}", "output_index": item, "content_index": part}
            opened = {"type": "reasoning_text" if thinks else "output_text", "text": ""}
            yield {"type": "response.content_part.added", **where, "part": opened}, step
        elif step.other:
            yield {"type": step.other}, step
        where = {"item_id": f"it_{item}", "output_index": item, "content_index": part}
        kind, more = ("reasoning_text", {}) if thinks else ("output_text", {"logprobs": []})
        yield {"type": f"response.{kind}.delta", **where, "delta": step.text, **more}, step
    yield {"type": "response.completed", "response": {**begun, "status": "completed"}}, Step()


# -- ways --------------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """`commands` for each read; `kept`: what is remembered of the texts, and counted; `taken`: the bytes that took the
    shortest way."""

    commands: list[list[Command]]
    kept: Any
    taken: int = 0

    @property
    def shown(self) -> list[Any]:
        """What a parser reads of them."""
        return [
            [list(map(parsed, each.data.split(b"\n\n"))) if isinstance(each, SendBytes) else each for each in read]
            for read in ([each for each in read if each != SendBytes(b"")] for read in self.commands)
        ]


def parsed(event: bytes) -> Any:
    line, _, data = event.rpartition(b"\n")
    return (line, json.loads(data[6:])) if data.startswith(b"data: {") else event


def fed(
    policy: Policy, way: str, reads: list[bytes], implementation: Any, left: int | None = None, ending: str = "close"
) -> Result:
    """`implementation`: None for none, "slow" for no fast path at all. `left`: characters that may be kept."""
    upstream, client = WAYS[way]
    answer_id = patch("gateway.wire.translation.chat_answer.uuid.uuid4", lambda: SimpleNamespace(hex="0"))
    encoder = None if upstream is client or client.translation is None else client.translation.encoder(BODY)
    guard = open_guard(upstream, compiled(policy), 1, ("mz",))
    answer = StreamAnswer(guard, max_event=1 << 12, max_whole=1 << 16, dialect=upstream, encoder=encoder)
    tally = encoder._answer.tally if isinstance(encoder, TranslatingEncoder) else None
    tally = guard.tally if isinstance(guard, EventGuard) else tally
    assert tally is not None
    tally.left = tally.left if left is None else left
    if implementation == "slow":
        answer._fast = None
    taken = 0

    class Counted:
        def __init__(self, *given: Any) -> None:
            self.path = implementation(*given)

        def feed(self, data: bytes, now: float) -> bytes | None:
            nonlocal taken
            sent: bytes | None = self.path.feed(data, now)
            taken += len(data) if sent is not None else len(data) - len(self.path.rest)
            self.sent, self.rest = self.path.sent, self.path.rest
            return sent

        def write_back(self) -> None:
            self.path.write_back()

    without: tuple[Any, ...] = ()
    if implementation is None:
        without = tuple(patch.object(each, "bytes_path", lambda *_: None) for each in (EventFastPath, FastPath))
    with ExitStack() as patches:
        for each in (patch.object(bytes_path, "IMPLEMENTATION", Counted), answer_id, *without):
            patches.enter_context(each)
        commands = play(answer, reads, ending)
    places = guard._texts.places if isinstance(guard, EventGuard) else {}
    texts = {place: ("".join(text.shown), text.exact, text.ahead, text.closed) for place, text in places.items()}
    return Result(commands, (texts, tally.left, tally.number, guard.usage, guard.reasons), taken)


def play(answer: StreamAnswer, reads: list[bytes], ending: str) -> list[list[Command]]:
    commands = [answer.feed(read, float(number)) for number, read in enumerate(reads)]
    now = float(len(reads))
    if ending == "cancel":
        return [*commands, answer.cancel()]
    return [
        *commands,
        answer.close(now) if ending == "close" else answer.fail(failure("It ended.", "upstream_failed"), now),
    ]


def assert_equal(policy: Policy, way: str, reads: list[bytes], implementation: Any, **given: Any) -> Result:
    found, other, slow = (fed(policy, way, reads, each, **given) for each in (implementation, None, "slow"))
    assert (found.commands, found.kept) == (other.commands, other.kept)
    assert (found.shown, found.kept) == (slow.shown, slow.kept)
    return found


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(ends)]


# -- tests -------------------------------------------------------------------------------------------------------------

STEPS = st.builds(
    Step,
    text=st.sampled_from(PIECES),
    other=st.sampled_from([*[""] * 9, *OTHERS]),
    padding=st.sampled_from([None] * 9 + list(PADDINGS)),
    number=st.sampled_from([None] * 9 + list(NUMBERS)),
    more=st.sampled_from([None] * 15 + list(ODD)),
    line=st.sampled_from(["event: {}\n"] * 9 + list(LINES)),
)


@BOTH
@EACH_WAY
@given(
    policy=st.sampled_from(POLICIES),
    steps=st.lists(STEPS, max_size=12),
    padding=st.none() | st.sampled_from(PADDINGS[1:4]),
    escaped=st.booleans(),
    compact=st.booleans(),
    cuts=st.none() | st.lists(st.integers(0, 9000), max_size=6),
    noise=st.lists(st.tuples(st.integers(0, 9000), st.sampled_from(b'\n\r"\\`\x00\xffa1{},: ')), max_size=2),
    left=st.none() | st.integers(0, 1500),
    ending=st.sampled_from(ENDINGS),
)
def test_what_comes_out_is_what_the_other_ways_write(
    implementation: Any,
    way: str,
    policy: Policy,
    steps: list[Step],
    padding: str | None,
    escaped: bool,
    compact: bool,
    cuts: list[int] | None,
    noise: list[tuple[int, int]],
    left: int | None,
    ending: str,
) -> None:
    if padding is not None:
        steps = [changed(step, padding=step.padding or padding) for step in steps]
    events = scripted(WAYS[way][0], [Step("Once "), Step("upon "), *steps], escaped, compact)
    events = events if ending == "close" else events[:-3]
    if cuts is not None or noise:
        data = bytearray(b"".join(events))
        for place, byte in noise:
            data[place % len(data)] = byte
        events = cut(bytes(data), cuts or [])
    assert_equal(policy, way, events, implementation, left=left, ending=ending)


@BOTH
@EACH_WAY
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_cut_of_a_stream_comes_out_the_same(implementation: Any, way: str, ending: str) -> None:
    texts = ("Once ", "upon ", "a 12MON", "day", "12MON", "KEYS", " é", "on", "a")
    events = scripted(WAYS[way][0], [Step(text, padding="k3") for text in texts])
    while ending != "close" and b'"a"' not in events[-1]:
        events.pop()
    data = b"".join(events)
    for place in range(len(data)):
        found, other = (fed(WORDS, way, cut(data, [place]), each, ending=ending) for each in (implementation, None))
        assert (found.commands, found.kept) == (other.commands, other.kept)


@BOTH
@EACH_WAY
@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_most_of_a_stream_takes_it(implementation: Any, way: str, together: int, padded: bool) -> None:
    steps = [Step(f"word {at} ", padding="x" * (at % 9) if padded else None) for at in range(60)]
    events = scripted(WAYS[way][0], steps, compact=not padded)
    reads = [b"".join(events[at : at + together]) for at in range(0, len(events), together)]
    found = assert_equal(WORDS, way, reads, implementation)
    assert found.taken > 0.85 * sum(len(each) for each in events if b"word " in each)
    assert b"word 59 " in b"".join(each.data for read in found.commands for each in read if isinstance(each, SendBytes))


@BOTH
@EACH_WAY
def test_each_text_of_an_answer_takes_it(implementation: Any, way: str) -> None:
    steps = [Step("word ", other="" if at % 20 else "item") for at in range(1, 60)]
    if WAYS[way][0] is CHAT:
        steps = [changed(step, other="") for step in steps]
    events = scripted(WAYS[way][0], steps)
    found = assert_equal(WORDS, way, events, implementation)
    assert found.taken > 40 * min(len(each) for each in events if b'"word "' in each)


@BOTH
@EACH_WAY
def test_a_text_that_is_too_long_to_be_kept_is_refused(implementation: Any, way: str) -> None:
    events = scripted(WAYS[way][0], [Step("Once "), *[Step("a word, ")] * 9, Step("held 12MON"), *[Step("a ")] * 9])
    whole = fed(WORDS, way, events, implementation)
    used = fed(WORDS, way, events, implementation, left=1 << 20).kept[1]
    for left in range((1 << 20) - used + 9):
        assert_equal(WORDS, way, events, implementation, left=left)
    assert fed(WORDS, way, events, implementation, left=(1 << 20) - used).shown == whole.shown


@BOTH
def test_a_number_that_is_out_of_range_is_left_to_the_slow_path(implementation: Any) -> None:
    for first in (bytes_path.MAX_NUMBER - 3, bytes_path.MAX_NUMBER, 1 << 63, 1 << 70):
        events = scripted(RESPONSES, [Step("Once ")] * 9)
        guard = open_guard(RESPONSES, compiled(WORDS), 1, ("mz",))
        assert isinstance(guard, EventGuard)
        answer = StreamAnswer(guard, max_event=1 << 12, max_whole=1 << 16, dialect=RESPONSES)
        with patch.object(bytes_path, "IMPLEMENTATION", implementation):
            answer.feed(events[0], 0.0)
            guard.tally.number = first
            commands = [each for event in events[1:] for each in answer.feed(event, 0.0)]
        sent = [
            parsed(event)[1]
            for each in commands
            for event in each.data.split(b"\n\n")[:-1]
            if isinstance(each, SendBytes)
        ]
        assert [each["sequence_number"] for each in sent] == list(range(first, first + len(sent))) and len(sent) > 9


@pytest.mark.skipif(native_bytes_path() is None, reason="there is no compiler")
def test_the_one_in_c_refuses_a_record_that_it_cannot_use() -> None:
    native, opened = native_bytes_path(), list[tuple[Any, ...]]()

    def noting(*given: Any) -> Any:
        opened.append(given)
        return native(*given)

    events = scripted(RESPONSES, [Step("Once ")] * 4)
    with patch.object(bytes_path, "IMPLEMENTATION", noting):
        guard = open_guard(RESPONSES, compiled(WORDS), 1, ("mz",))
        answer = StreamAnswer(guard, max_event=1 << 12, max_whole=1 << 16, dialect=RESPONSES)
        for event in events[:-1]:
            answer.feed(event, 0.0)
    given, event = opened[-1], events[-2]
    for wrong in (None, 1, (), (1, 2)):
        with pytest.raises((TypeError, ValueError)):
            native(*given[:13], wrong, *given[14:])
    tally, keep, place = given[13]
    for record in (
        (object(), keep, place),
        (tally, 5, place),
        (tally, keep, object()),
        (SimpleNamespace(left="many", number=1), keep, place),
        (SimpleNamespace(left=99, number=-1), keep, place),
        (SimpleNamespace(left=99, number=1 << 70), keep, place),
    ):
        broken = native(*given[:13], record, *given[14:])
        with pytest.raises((AttributeError, TypeError, ValueError, OverflowError)):
            broken.feed(event, 0.0)
            broken.write_back()
    for wrong_part in ({"line": "text"}, {"line": None}, {"order": b"\x09" * len(given[0].order)}):
        names = [name for kind in type(given[0]).__mro__ for name in getattr(kind, "__slots__", ())]
        template = SimpleNamespace(**{name: getattr(given[0], name) for name in names} | wrong_part)
        with pytest.raises((TypeError, ValueError)):
            native(template, *given[1:])
    assert sse.EVENT_END in native(*given).feed(event, 0.0)
