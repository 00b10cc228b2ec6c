"""The shortest way of a stream, in Python and in C, writes and counts what the slow path does, however it is cut."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, zip_longest
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.guard import bytes_path
from gateway.guard.answer import StreamAnswer
from gateway.guard.bytes_path import PythonBytesPath
from gateway.guard.chat import ChatGuard
from gateway.guard.commands import Command, RecordFact, SendBytes
from gateway.guard.fast_path import FastPath
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Action, Mode, Policy, Rule, Unknown
from gateway.wire.chunk_template import encode
from gateway.wire.chunks import HEAD_FIELDS
from tests.support.guard_client import HEAD, answer_for, policy, rule
from tests.support.native import native_bytes_path

WORDS = policy(rule(), rule("FORBIDDEN", id="b", action=Action.BLOCK, message="No."), rule("été", "a`b", id="e"))
POLICIES = (
    WORDS,
    replace(WORDS, rules=(*WORDS.rules, Rule(id="p", pattern="[0-9]{4}", replacement="#"))),
    replace(WORDS, max_hold=6),
    replace(
        WORDS, rules=(*WORDS.rules, rule("DEN", "It", id="w", whole_word=True, action=Action.BLOCK, message="No."))
    ),
    replace(WORDS, mode=Mode.OBSERVE),
    replace(WORDS, unknown=Unknown.REFUSE),
)
# Characters that JSON or other readers of lines escape, that fold to several, and that begin another text.
PIECES = (
    *("", "It is ", "12MON", "KEYS", "1", "12", 'a "quote"\n', "back\\slash", "\u2028\x85é", "FORBID", "DEN", "😀"),
    *("été", "e\u0301", "`", "```json\n", '{"a": "12MON', 'KEYS"}', "ﬁ", "\x7f", "word " * 30, "2024"),
)
PADDINGS = (None, "", "a", "k3Xq9", "0" * 40, "a b", 'a\\"', "é")
USAGE = {"prompt_tokens": 9, "total_tokens": 10, "completion_tokens": 1}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "vLLM's": {"object": "chat.completion.chunk", "usage": None},
    "OpenAI's": {"service_tier": "default", "system_fingerprint": "fp_1", "usage": None},
    "vLLM's, counted": {"usage": USAGE},
    "counted before": {"id": "qz", "usage": {**USAGE, "reasoning_tokens": 0, "prompt_tokens_details": None}},
}
LABELS: dict[str, dict[str, Any]] = {
    "clean": {},
    "a match": {"id": "a 12MONKEYS"},
    "half a match": {"model": "12MON", "system_fingerprint": "KEYS"},
    "long": {"system_fingerprint": "f" * 70, "service_tier": "t" * 300},
    "too long": {"system_fingerprint": "f" * 3000},
    "none": {"system_fingerprint": None},
}
BEGINNINGS: dict[str, dict[str, Any]] = {
    "empty": {"role": "assistant", "content": ""},
    "text": {"role": "assistant", "content": "It 12MON", "refusal": None},
    "a match": {"role": "assistant", "content": "FORBIDDEN 12MONKEYS"},
    "another role": {"role": "12MONKEYS", "content": "a"},
    "role": {"role": "assistant"},
    "nothing": {},
    "refusal": {"content": None, "refusal": "FORBID"},
    "JSON": {"role": "assistant", "content": '{"a": "12MON'},
}
# Deltas and why they end.
ENDS: tuple[tuple[dict[str, Any], str | None], ...] = (
    *(({}, "stop"), ({}, "length"), ({"content": ""}, "stop"), ({"content": "KEYS DEN"}, "stop"), ({}, "12MONKEYS")),
    *(({"role": "assistant"}, "stop"), ({"content": "It"}, None), ({}, None), ({}, "")),
    ({"content": "a 12MON", "annotations": [{"start_index": 0, "end_index": 6}]}, None),
)
COUNTED = [name for name, shape in SHAPES.items() if shape.get("usage")]
# Of `created` and what is counted: some are no figure of a template, some no figure at all, some no JSON.
NUMBERS = ("0", "1", "7", "12", "99999999999", "100000000000", "4111111111111111", "-1", "1.0", "1e3", "01", "12MON")
IMPLEMENTATIONS = [PythonBytesPath, *([] if native_bytes_path() is None else [native_bytes_path()])]
BOTH = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=["python", "c"][: len(IMPLEMENTATIONS)])


def event(
    content: str,
    padding: str | None = None,
    shape: str = "plain",
    escaped: bool = True,
    figures: tuple[str, str] = ("1", "1"),
) -> bytes:
    """`figures`: when it was created, and how many tokens there were."""
    choice = {"index": 0, "delta": {"content": content}, "logprobs": None, "finish_reason": None}
    if shape in COUNTED:
        choice["token_ids"] = None
    padded = {} if padding is None else {"obfuscation": "PAD"}
    order = dict.fromkeys(HEAD if shape in COUNTED[:1] else SHAPES[shape])
    text = json.dumps({**order, **HEAD, **SHAPES[shape], "choices": [choice], **padded}, ensure_ascii=escaped)
    for name, figure in zip(('"created": ', '"completion_tokens": '), figures, strict=True):
        text = text.replace(f"{name}1", f"{name}{figure}")
    return b"data: " + text.replace('"PAD"', f'"{padding}"').encode() + b"\n\n"


def around(delta: dict[str, Any], finish: str | None = None, index: int = 0, **labels: Any) -> bytes:
    """An event with any delta."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return b"data: " + json.dumps({**HEAD, **labels, "choices": [choice]}).encode() + b"\n\n"


class Ways:
    """Nothing but the slow path."""

    def repeat(self, data: bytes, most: int = 0) -> None:
        pass

    learn = bytes_path = repeat
    framing = 0


@lru_cache(10_000)
def received(event: bytes) -> Any:
    return json.loads(event[6:]) if event.startswith(b"data: {") else event


def shown(commands: list[list[Command]], ignored: tuple[str, ...] = ("created",)) -> list[list[Any]]:
    """What a parser reads of them, in place of bytes. A chunk of the guard's own making has the labels and `created` of
    the last one that took the slow path."""

    def parsed(event: bytes) -> Any:
        read = received(event)
        return read if isinstance(read, bytes) else {k: v for k, v in read.items() if k not in ignored}

    return [
        [list(map(parsed, each.data.split(b"\n\n"))) if isinstance(each, SendBytes) else each for each in read]
        for read in commands
    ]


def fed(policy: Policy, reads: list[bytes], implementation: Any) -> tuple[list[list[Command]], int]:
    """The commands for each read, and how many bytes took the shortest way; none where there is no implementation."""
    answer, taken = answer_for(policy), 0
    assert isinstance(answer, StreamAnswer)
    if implementation is Ways:
        answer._fast = cast(FastPath, Ways())

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

    given: Any = patch.object(bytes_path, "IMPLEMENTATION", Counted)
    if implementation in (None, Ways):
        given = patch.object(FastPath, "bytes_path", lambda *_: None)
    with given:
        commands = [answer.feed(read, float(number)) for number, read in enumerate(reads)]
        commands.append(answer.close(float(len(reads))))
    usage.append(answer._guard.usage)
    return commands, taken


usage: list[Any] = []  # of the last answers


def assert_equal(policy: Policy, reads: list[bytes], *implementations: Any, damaged: bool = False) -> None:
    """To a parser, and in all counts, as on the slow path; to the byte where the next way has the same encoder."""
    usage.clear()
    general, other, *shortest = (fed(policy, reads, way)[0] for way in (Ways, None, *implementations))
    ignored = HEAD_FIELDS if damaged else ("created",)
    expected, labels = shown(general, ignored), labels_in(general)
    for way, commands in zip((None, *implementations), (other, *shortest), strict=True):
        assert shown(commands, ignored) == expected, way
        assert labels_in(commands) <= labels, way
        assert usage[0] is not None or commands == other, way
    assert all(each == usage[0] for each in usage)


def labels_in(commands: list[list[Command]]) -> set[tuple[str, str]]:
    """The labels that a parser reads of them."""
    chunks = [each for read in shown(commands) for sent in read if isinstance(sent, list) for each in sent]
    parsed = [chunk for chunk in chunks if isinstance(chunk, dict)]
    return {(name, str(chunk[name])) for chunk in parsed for name in HEAD_FIELDS if name in chunk and name != "created"}


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(ends)]


@BOTH
@given(
    policy=st.sampled_from(POLICIES),
    pieces=st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(PADDINGS)), max_size=14),
    shape=st.sampled_from(list(SHAPES)),
    figures=st.lists(st.tuples(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS)), max_size=14),
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
    figures: list[tuple[str, str]],
    padded: bool,
    escaped: bool,
    cuts: list[int],
    noise: list[tuple[int, int]],
    whole: bool,
) -> None:
    events = [event("Once ", "a" * padded if padded else None, shape, escaped)] * 2
    events += [
        event(piece, padding if padded else None, shape, escaped, given)
        for (piece, padding), given in zip_longest(pieces, figures[: len(pieces)], fillvalue=("2", "2"))
    ]
    data = bytearray(b"".join(events))
    for place, byte in noise:
        data[place % len(data)] = byte
    reads = cut(bytes(data), cuts)
    if whole and not noise:
        reads = events
    assert_equal(policy, reads, implementation, damaged=bool(noise))


@pytest.mark.parametrize("shape", ["plain", "vLLM's, counted"])
def test_every_cut_of_a_stream_comes_out_the_same(shape: str) -> None:
    texts = ("Once ", "upon ", "a 12MON", "day", "12MON", "KEYS", " é", "a")
    data = b"".join(event(text, "k3", shape, figures=(str(at), str(at * 9))) for at, text in enumerate(texts))
    for place in range(len(data)):
        assert_equal(WORDS, cut(data, [place]), *IMPLEMENTATIONS)


@BOTH
@given(
    policy=st.sampled_from(POLICIES),
    labels=st.lists(st.sampled_from(list(LABELS)), min_size=3, max_size=3),
    first=st.sampled_from(list(BEGINNINGS)),
    pieces=st.lists(st.sampled_from(PIECES), max_size=4),
    ends=st.lists(st.sampled_from(ENDS), max_size=3),
    indices=st.lists(st.sampled_from([0, 0, 0, 1, -1]), min_size=10, max_size=10),
    done=st.booleans(),
    cuts=st.none() | st.lists(st.integers(0, 4000), max_size=4),
)
def test_a_stream_begins_and_ends_as_on_the_general_way(
    implementation: Any,
    policy: Policy,
    labels: list[str],
    first: str,
    pieces: list[str],
    ends: list[tuple[dict[str, Any], str | None]],
    indices: list[int],
    done: bool,
    cuts: list[int] | None,
) -> None:
    deltas = [(BEGINNINGS[first], None), *(({"content": piece}, None) for piece in pieces), *ends]
    named = [labels[0], *labels[1:], *[labels[2]] * 10]
    events = [
        around(delta, finish, index, **LABELS[name])
        for (delta, finish), index, name in zip(deltas, indices, named, strict=False)
    ]
    events += [b"data: [DONE]\n\n"] * done
    assert_equal(policy, events if cuts is None else cut(b"".join(events), cuts), implementation)


@pytest.mark.parametrize("text", ["It is ", "It is 12MON", ""])
def test_a_stream_of_one_chunk_takes_no_general_way(text: str) -> None:
    with patch.object(ChatGuard, "chunk", side_effect=AssertionError):
        commands, _ = fed(WORDS, [around({"role": "assistant", "content": text}), around({}, "stop")], None)
    assert text in "".join(
        choice["delta"].get("content", "")
        for read in shown(commands)
        for sent in read
        if isinstance(sent, list)
        for each in sent[:-1]
        for choice in each.get("choices", ())
    )


@BOTH
@pytest.mark.parametrize("shape", ["plain", "vLLM's, counted"])
@pytest.mark.parametrize("numbers", list(zip(NUMBERS, reversed(NUMBERS), strict=True)))
def test_a_number_that_may_be_text_is_scanned(implementation: Any, shape: str, numbers: tuple[str, str]) -> None:
    cards = replace(WORDS, rules=(*WORDS.rules, rule("4111111111111111", id="card")))
    events = [event("a ", None, shape, figures=given) for given in (("1", "1"), ("2", "2"), numbers, ("3", "3"))]
    assert_equal(cards, events, implementation)
    assert_equal(cards, [b"".join(events)], implementation)
    assert not any("4111111111111111" in str(each) for each in fed(cards, events, implementation)[0])


@BOTH
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("together", [1, 3])
def test_most_of_a_stream_takes_it(implementation: Any, shape: str, padded: bool, together: int) -> None:
    events = [
        event(f"word {at} ", "x" * (at % 9) if padded else None, shape, figures=(str(1700000000 + at), str(at)))
        for at in range(60)
    ]
    reads = [b"".join(events[at : at + together]) for at in range(0, 60, together)]
    commands, taken = fed(WORDS, reads, implementation)
    assert taken > 0.9 * sum(map(len, reads))
    sent = b"".join(command.data for each in commands for command in each if isinstance(command, SendBytes))
    for at, each in enumerate(map(json.loads, sent.replace(b"data: ", b"").split(b"\n\n")[:-1])):
        assert each["created"] == 1700000000 + at and each["choices"][0]["delta"] == {"content": f"word {at} "}
        assert shape not in COUNTED or each["usage"]["completion_tokens"] == at
    assert at == 59


@BOTH
def test_it_is_taken_again_behind_an_event_that_took_another(implementation: Any) -> None:
    odd = event("12MON") + event("KEYS ") + b": comment\n\n" + event("`a` ")
    reads = [event("Once "), event("upon "), odd, *(event("a ") for _ in range(20))]
    assert fed(WORDS, reads, implementation)[1] > 18 * len(event("a "))


@BOTH
def test_a_larger_event_than_the_bound_is_refused(implementation: Any) -> None:
    reads = [event("Once "), event("upon "), event("word " * 1000), event("a ")]
    assert_equal(WORDS, reads, implementation)


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
    for place, wrong in ((0, b""), (11, object()), (12, object()), (13, "kept"), (14, "many")):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            native(*given[:place], wrong, *given[place + 1 :])
    for wrong_part in (
        {"around": ("a", b"b")},
        {"around": (b"",) * 10},
        {"kinds": b"x" * len(given[0].kinds)},
        {"kinds": b"f" * len(given[0].kinds)},
        {"kinds": b"c"},
        {"order": b"\x07" * len(given[0].order)},
        {"shown": (), "order": b""},
        {"bare": (b"",), "bare_order": b"\x00"},
        {"counted": (0, 9)},
        {"counted": "both"},
    ):
        template = SimpleNamespace(**{name: getattr(given[0], name) for name in given[0].__slots__} | wrong_part)
        with pytest.raises((TypeError, ValueError)):
            native(template, *given[1:])
    for place in (2, 3, 4, 5, 6, 7):  # what is no text, count, scanner, cursor, releaser or function
        broken = native(*given[:place], object(), *given[place + 1 :])
        with pytest.raises((AttributeError, TypeError)):
            broken.feed(event("a "), 0.0)
            broken.write_back()
    cycle = [path]
    cycle.append(cycle)
    del cycle, path
    gc.collect()
