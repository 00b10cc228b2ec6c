"""The shortest way of a stream, in Python and in C, writes and counts what the general way does, however it is cut."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.guard import bytes_path
from gateway.guard.answer import StreamAnswer
from gateway.guard.bytes_path import PythonBytesPath
from gateway.guard.commands import Command, RecordFact, SendBytes
from gateway.guard.fast_path import FastPath
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Action, Policy, Rule
from gateway.wire.chunk_template import encode
from tests.support.guard_client import HEAD, answer_for, policy, rule
from tests.support.native import native_bytes_path

WORDS = policy(rule(), rule("FORBIDDEN", id="b", action=Action.BLOCK, message="No."), rule("été", "a`b", id="e"))
POLICIES = (
    WORDS,
    replace(WORDS, rules=(*WORDS.rules, Rule(id="p", pattern="[0-9]{4}", replacement="#"))),
    replace(WORDS, max_hold=6),
)
# Characters that JSON or other readers of lines escape, that fold to several, and that begin another text.
PIECES = (
    *("", "It is ", "12MON", "KEYS", "1", "12", 'a "quote"\n', "back\\slash", "\u2028\x85é", "FORBID", "DEN", "😀"),
    *("été", "e\u0301", "`", "```json\n", '{"a": "12MON', 'KEYS"}', "ﬁ", "\x7f", "word " * 30, "2024"),
)
PADDINGS = (None, "", "a", "k3Xq9", "0" * 40, "a b", 'a\\"', "é")
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "vLLM's": {"object": "chat.completion.chunk", "usage": None},
    "OpenAI's": {"service_tier": "default", "system_fingerprint": "fp_1", "usage": None},
}
IMPLEMENTATIONS = [PythonBytesPath, *([] if native_bytes_path() is None else [native_bytes_path()])]
BOTH = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=["python", "c"][: len(IMPLEMENTATIONS)])


def event(content: str, padding: str | None = None, shape: str = "plain", escaped: bool = True) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "logprobs": None, "finish_reason": None}
    padded = {} if padding is None else {"obfuscation": "PAD"}
    text = json.dumps({**HEAD, **SHAPES[shape], "choices": [choice], **padded}, ensure_ascii=escaped)
    return b"data: " + text.replace('"PAD"', f'"{padding}"').encode() + b"\n\n"


def fed(policy: Policy, reads: list[bytes], implementation: Any) -> tuple[list[list[Command]], int]:
    """The commands for each read, and how many bytes took the shortest way; none where there is no implementation."""
    answer, taken = answer_for(policy), 0
    assert isinstance(answer, StreamAnswer)

    class Counted:
        def __init__(self, *given: Any) -> None:
            self.path = implementation(*given)

        def feed(self, data: bytes, now: float) -> bytes | None:
            nonlocal taken
            sent: bytes | None = self.path.feed(data, now)
            taken += len(data) if sent is not None else len(data) - len(self.path.rest)
            self.sent, self.rest = self.path.sent, self.path.rest
            return sent

    given = patch.object(bytes_path, "IMPLEMENTATION", Counted)
    if implementation is None:
        given = patch.object(FastPath, "bytes_path", lambda *_: None)
    with given:
        commands = [answer.feed(read, float(number)) for number, read in enumerate(reads)]
        commands.append(answer.close(float(len(reads))))
    return commands, taken


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(ends)]


@BOTH
@given(
    policy=st.sampled_from(POLICIES),
    pieces=st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(PADDINGS)), max_size=14),
    shape=st.sampled_from(list(SHAPES)),
    padded=st.booleans(),
    escaped=st.booleans(),
    cuts=st.lists(st.integers(0, 6000), max_size=8),
    noise=st.lists(st.tuples(st.integers(0, 6000), st.sampled_from(b'\n\r"\\`\x00\xffa1{},: ')), max_size=2),
    whole=st.booleans(),
)
def test_what_comes_out_is_what_the_general_way_writes(
    implementation: Any,
    policy: Policy,
    pieces: list[tuple[str, str | None]],
    shape: str,
    padded: bool,
    escaped: bool,
    cuts: list[int],
    noise: list[tuple[int, int]],
    whole: bool,
) -> None:
    events = [event("Once ", "a" * padded if padded else None, shape, escaped)] * 2
    events += [event(piece, padding if padded else None, shape, escaped) for piece, padding in pieces]
    data = bytearray(b"".join(events))
    for place, byte in noise:
        data[place % len(data)] = byte
    reads = cut(bytes(data), cuts)
    if whole and not noise:
        reads = events
    assert fed(policy, reads, implementation)[0] == fed(policy, reads, None)[0]


@BOTH
def test_every_cut_of_a_stream_comes_out_the_same(implementation: Any) -> None:
    events = [event(text, "k3") for text in ("Once ", "upon ", "a 12MON", "day", "12MON", "KEYS", " é", "a")]
    data = b"".join(events)
    for place in range(len(data)):
        reads = cut(data, [place])
        assert fed(WORDS, reads, implementation)[0] == fed(WORDS, reads, None)[0]


@BOTH
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("together", [1, 3])
def test_most_of_a_stream_takes_it(implementation: Any, shape: str, padded: bool, together: int) -> None:
    events = [event(f"word {number} ", "x" * (number % 9) if padded else None, shape) for number in range(60)]
    reads = [b"".join(events[at : at + together]) for at in range(0, 60, together)]
    commands, taken = fed(WORDS, reads, implementation)
    assert taken > 0.9 * sum(map(len, reads))
    sent = b"".join(command.data for each in commands for command in each if isinstance(command, SendBytes))
    assert b"word 59" in sent


@BOTH
def test_it_is_taken_again_behind_an_event_that_took_another(implementation: Any) -> None:
    odd = event("12MON") + event("KEYS ") + b": comment\n\n" + event("`a` ")
    reads = [event("Once "), event("upon "), odd, *(event("a ") for _ in range(20))]
    assert fed(WORDS, reads, implementation)[1] > 18 * len(event("a "))


@BOTH
def test_a_larger_event_than_the_bound_is_refused(implementation: Any) -> None:
    reads = [event("Once "), event("upon "), event("word " * 1000), event("a ")]
    assert fed(WORDS, reads, implementation)[0] == fed(WORDS, reads, None)[0]


@BOTH
@pytest.mark.parametrize("fault", [RuntimeError("quotes 12MONKEYS"), ValueError("quotes 12MONKEYS")])
def test_a_failure_within_it_fails_closed(implementation: Any, fault: Exception) -> None:
    def failing(text: str) -> bytes:
        if '"' in text:
            raise fault
        return encode(text)

    answer = answer_for(WORDS)
    with patch.object(bytes_path, "IMPLEMENTATION", implementation), patch.object(bytes_path, "encode", failing):
        answer.feed(event("Once "), 0.0)
        answer.feed(b": comment\n\n" + event("held 12MON"), 0.0)
        commands = answer.feed(event('a "'), 0.0)
    (failed,) = (each.fact for each in commands if isinstance(each, RecordFact) and isinstance(each.fact, GuardFailed))
    # Nor does what was sent before come out again.
    assert not any(b"held" in each.data for each in commands if isinstance(each, SendBytes))
    assert failed.policy == "p" and "12MONKEYS" not in repr(commands) and answer.done


@pytest.mark.skipif(native_bytes_path() is None, reason="there is no compiler")
def test_the_one_in_c_refuses_what_it_cannot_use() -> None:
    native = native_bytes_path()
    with pytest.raises(TypeError):
        native.__new__(native).feed(b"", 0.0)
    opened: list[tuple[Any, ...]] = []

    def noting(*given: Any) -> Any:
        opened.append(given)
        return native(*given)

    with patch.object(bytes_path, "IMPLEMENTATION", noting):
        answer_for(WORDS).feed(event("Once ") * 3, 0.0)
    given = opened[-1]
    path = native(*given)
    for arguments in ((), (b"a",), ("a", 0.0), (b"a", 0), (b"a", 0.0, 1)):
        with pytest.raises(TypeError):
            path.feed(*arguments)
    assert path.feed(b"", 0.0) == b"" and path.feed(b"\n\n", 0.0) is None and path.rest == b"\n\n"
    for place, wrong in ((0, "text"), (0, b""), (14, object()), (15, object()), (16, "many")):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            native(*given[:place], wrong, *given[place + 1 :])
    for place in (5, 6, 7, 8, 9):  # what is no text, count, scanner, cursor or releaser
        with pytest.raises((AttributeError, TypeError)):
            native(*given[:place], object(), *given[place + 1 :]).feed(event("a "), 0.0)
    cycle = [path]
    cycle.append(cycle)
    del cycle, path
    gc.collect()
