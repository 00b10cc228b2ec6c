"""Scripts for the guard: what an upstream sends goes in, what a client would make of the answer comes out.

`Client` reads as the most forgiving client does: it appends every string that comes twice at one place, whatever the
field is called, files list items under their `index`, and keeps the raw bytes for those who look at nothing else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from gateway.guard.answer import BrokenAnswer, PlainAnswer, StreamAnswer
from gateway.guard.commands import CloseUpstream, Command, RecordFact, SendBytes
from gateway.guard.open import open_guard
from gateway.guard.pseudonyms import Pseudonyms
from gateway.observe.facts import Fact, TextScanned
from gateway.policy.model import Action, Mode, Policy, Rule, Unknown
from gateway.wire.chat import CHAT
from tests.support.compiled import compiled
from tests.support.examples import examples

MAX_EVENT = 4096
MAX_WHOLE = 1 << 16
WORD = "12MONKEYS"
HEAD = {"id": "qz", "object": "chat.completion.chunk", "created": 1, "model": "mz"}


def rule(*words: str, id: str = "r", **given: Any) -> Rule:
    return Rule(id=id, words=words or (WORD,), **given)


def policy(*rules: Rule, **given: Any) -> Policy:
    return Policy(name="p", rules=rules or (rule(),), **given)


BLOCK = policy(rule(action=Action.BLOCK, message="Not shown."))
OBSERVE = policy(mode=Mode.OBSERVE)
REFUSE = policy(unknown=Unknown.REFUSE)
DROP = policy(unknown=Unknown.DROP)


def chunk(delta: Any = None, index: int = 0, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {**HEAD, "choices": [choice], **more}


def calls(*entries: Any, index: int = 0) -> dict[str, Any]:
    return chunk({"tool_calls": list(entries)}, index)


def call(index: int, name: str | None = None, arguments: str | None = None, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "function": {k: v for k, v in function.items() if v is not None}, **more}


def event(value: Any) -> bytes:
    """One event with `value` as JSON (escaped, as most upstreams write it), or as it is if it is bytes."""
    payload = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"data: " + payload + b"\n\n"


def script(*values: Any, done: bool = True) -> bytes:
    return b"".join(map(event, values)) + (b"data: [DONE]\n\n" if done else b"")


def append(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        known = whole.get(name)
        if name in ("index", "type"):
            whole[name] = value
        elif isinstance(known, str) and isinstance(value, str | int | float):
            whole[name] = known + str(value)
        elif isinstance(known, dict) and isinstance(value, dict):
            append(known, value)
        elif isinstance(value, list):
            if not isinstance(known, list):
                known = whole[name] = []
            for position, item in enumerate(value):
                append_item(known, item, position)
        elif isinstance(value, dict):
            whole[name] = {}
            append(whole[name], value)
        elif value is not None:
            whole[name] = value


def append_item(items: list[Any], item: Any, position: int) -> None:
    index = item.get("index", position) if isinstance(item, dict) else len(items)
    index = index if isinstance(index, int) and index >= 0 else position
    while index >= len(items):
        items.append({} if isinstance(item, dict) else None)
    if isinstance(item, dict) and isinstance(items[index], dict):
        append(items[index], item)
    else:
        items[index] = item


class Commanded(ABC):
    """What the guard's commands come to: bytes that are read, facts, and whether the upstream was closed."""

    def __init__(self) -> None:
        self.raw = b""
        self.facts: list[Fact] = []
        self.stopped = False

    def take(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, SendBytes):
                self._read(command.data)
            elif isinstance(command, CloseUpstream):
                self.stopped = True
            elif isinstance(command, RecordFact):
                self.facts.append(command.fact)

    @abstractmethod
    def _read(self, data: bytes) -> None: ...


class Client(Commanded):
    """What a client has read so far of a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []
        self.messages: dict[int, dict[str, Any]] = {}
        self.finish: dict[int, str] = {}
        self.errors: list[Any] = []
        self.usage: Any = None
        self.done = False

    def _read(self, data: bytes) -> None:
        assert data.endswith(b"\n\n"), "the guard sends whole events"
        assert not self.stopped, "nothing comes after CloseUpstream"
        self.raw += data
        for text in data[:-2].split(b"\n\n"):
            if text == b":":
                continue
            assert not self.done, "nothing comes after [DONE]"
            assert text.startswith(b"data: ") and b"\n" not in text
            if text == b"data: [DONE]":
                self.done = True
            else:
                self._add(json.loads(text[6:]))

    def _add(self, value: Any) -> None:
        self.events.append(value)
        if not isinstance(value, dict):
            return
        if value.get("error"):
            self.errors.append(value["error"])
            return
        self.usage = value.get("usage") or self.usage
        for choice in value["choices"]:
            index = choice.get("index", 0)
            assert index not in self.finish, "a choice has ended but once"
            append(self.messages.setdefault(index, {}), choice["delta"])
            if choice.get("finish_reason"):
                self.finish[index] = choice["finish_reason"]

    @property
    def content(self) -> str:
        return str(self.messages.get(0, {}).get("content") or "")

    @property
    def text(self) -> str:
        """All that there is to read, decoded: everything a raw reader could search."""
        return self.raw.decode() + json.dumps([self.events, self.messages], ensure_ascii=False)

    @property
    def scanned(self) -> TextScanned:
        facts = [fact for fact in self.facts if isinstance(fact, TextScanned)]
        assert len(facts) == 1, "the books are closed once"
        return facts[0]


def answer_for(
    policy: Policy,
    expected: int = 1,
    known: tuple[str, ...] = ("mz",),
    pseudonyms: Pseudonyms | None = None,
    json_content: bool = False,
) -> StreamAnswer:
    guard = open_guard(CHAT, compiled(policy), expected, known, pseudonyms=pseudonyms, json_content=json_content)
    return StreamAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE)


def play(
    policy: Policy,
    *reads: bytes,
    expected: int = 1,
    fail: dict[str, Any] | None = None,
    pseudonyms: Pseudonyms | None = None,
    json_content: bool = False,
) -> Client:
    """Feed the reads, then end the upstream: in an orderly way, or with the failure `fail`."""
    answer = answer_for(policy, expected, pseudonyms=pseudonyms, json_content=json_content)
    client = Client()
    for number, data in enumerate(reads):
        client.take(answer.feed(data, float(number)))
    client.take(answer.close(99.0) if fail is None else answer.fail(fail, 99.0))
    assert answer.done
    assert answer.feed(b"data: {}\n\n", 100.0) == answer.close(100.0) == answer.fail({}, 100.0) == answer.cancel() == []
    assert balanced(client.scanned)
    return client


def stream(
    policy: Policy,
    *values: Any,
    expected: int = 1,
    done: bool = True,
    pseudonyms: Pseudonyms | None = None,
    json_content: bool = False,
) -> Client:
    """One event for each value, all in one read; then the same byte by byte, or what is long by a few of them, which
    must not differ."""
    data = script(*values, done=done)
    given: dict[str, Any] = {"expected": expected, "pseudonyms": pseudonyms, "json_content": json_content}
    client = play(policy, data, **given)
    size = 1 + len(data) // examples(16_000)
    slowly = play(policy, *(data[at : at + size] for at in range(0, len(data), size)), **given)
    assert slowly.raw.replace(b":\n\n", b"") == client.raw.replace(b":\n\n", b"")
    return client


def plain(
    policy: Policy,
    *reads: bytes,
    expected: int = 1,
    pseudonyms: Pseudonyms | None = None,
    json_content: bool = False,
) -> tuple[dict[str, Any], TextScanned]:
    """The body for a client that asked for it whole; its books."""
    guard = open_guard(CHAT, compiled(policy), expected, ("mz",), pseudonyms=pseudonyms, json_content=json_content)
    answer = PlainAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE)
    for data in reads:
        answer.feed(data, 0.0)
    body = json.loads(answer.close(1.0))
    assert balanced(guard.counts.fact())
    return body, guard.counts.fact()


def broken(policy: Policy, *reads: bytes) -> dict[str, Any]:
    """The error that a plain request gets instead of an answer."""
    try:
        body, _ = plain(policy, *reads)
    except BrokenAnswer as error:
        return dict(error.failure["error"])
    raise AssertionError(f"no error but {body}")


def completion(*messages: Any, **more: Any) -> dict[str, Any]:
    choices = [{"index": index, "message": message, "finish_reason": "stop"} for index, message in enumerate(messages)]
    return {**HEAD, "object": "chat.completion", "choices": choices, **more}


def balanced(fact: TextScanned) -> bool:
    return all(count.missing == 0 for count in fact.channels)


def at(client: Client, *path: Any) -> Any:
    value: Any = client.messages[0]
    for step in path:
        value = value[step]
    return value
