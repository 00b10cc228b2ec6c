"""Random texts in random channels of random choices, cut at random into deltas and reads, against the oracle.

Names of fields are made of letters that no alphabet of the strategies holds: they are texts too.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.policy.model import Policy
from tests.support.examples import examples
from tests.support.guard_client import Client, answer_for, chunk, completion, event, plain, play, script
from tests.support.oracle import Oracle
from tests.support.random_policies import ALPHABETS, blocks, cut, pieces, policies

Path = tuple[str | int, ...]

FIELDS: list[Path] = [
    ("content",),
    ("reasoning",),
    ("refusal",),
    ("zq",),
    ("zq2", "qz", 0, "zz"),
    ("audio", "transcript"),
    ("tool_calls", 0, "custom", "input"),
    ("tool_calls", 1, "custom", "input"),
]
ARGUMENTS: Path = ("tool_calls", 2, "function", "arguments")


def at(path: Path, text: str) -> Any:
    """The delta that carries `text` at `path`."""
    value: Any = text
    for step in reversed(path):
        value = [{"index": step, **value}] if isinstance(step, int) else {step: value}
    return value


def begun() -> dict[str, Any]:
    """The calls of every path, in order: those that appear out of order would get other numbers."""
    return {"tool_calls": [{"index": number} for number in range(3)]}


def put(message: dict[str, Any], path: Path, text: str) -> None:
    for field, value in at(path, text).items():
        if field == "tool_calls":
            message.setdefault(field, begun()[field])[path[1]].update(value[0])
        else:
            message[field] = value


def read(message: Any, path: Path) -> str:
    for step in path:
        if isinstance(step, int):
            message = next((item for item in message if item.get("index") == step), None)
        else:
            message = message.get(step)
        if message is None:
            return ""
    assert isinstance(message, str)
    return message


@cache
def texts_of(alphabet: str, most: int) -> st.SearchStrategy[dict[tuple[int, Path], str]]:
    places = st.tuples(st.integers(0, 1), st.sampled_from([*FIELDS, ARGUMENTS]))
    return st.dictionaries(places, st.text(alphabet, max_size=12), min_size=1, max_size=most)


@st.composite
def answers(draw: st.DrawFn, most: int = 4) -> tuple[Policy, dict[tuple[int, Path], str], list[Any], list[int]]:
    """A policy, the texts of each place, the chunks of a stream that carries them, and where its bytes are cut."""
    alphabet = draw(st.sampled_from(ALPHABETS))
    policy = draw(policies(alphabet))
    texts = draw(texts_of(alphabet, most))
    waiting: dict[tuple[int, Path], list[str]] = {}
    for place, text in texts.items():
        written = json.dumps({"zq": text}, ensure_ascii=draw(st.booleans())) if place[1] == ARGUMENTS else text
        waiting[place] = pieces(draw, written)
    chunks = [chunk(begun(), index) for index in sorted({index for index, _ in texts})]
    while waiting:
        place = draw(st.sampled_from(sorted(waiting, key=repr)))
        index, path = place
        chunks.append(chunk(at(path, waiting[place].pop(0)), index))
        if not waiting[place]:
            del waiting[place]
    for index in sorted({index for index, _ in texts}):
        if draw(st.booleans()):
            chunks.append(chunk(index=index, finish="stop"))
    cuts = draw(st.lists(st.integers(0, 4000), max_size=6))
    return policy, texts, chunks, cuts


def check(policy: Policy, texts: dict[tuple[int, Path], str], messages: dict[int, Any]) -> None:
    for (index, path), text in texts.items():
        seen = read(messages.get(index, {}), path)
        if path == ARGUMENTS:
            seen = json.loads(seen)["zq"]
        assert seen == Oracle(policy).whole(text)[0]


@settings(max_examples=examples(200), deadline=None)
@given(answers())
def test_every_text_comes_out_as_if_it_had_been_censored_whole(case: tuple[Policy, Any, list[Any], list[int]]) -> None:
    policy, texts, chunks, cuts = case
    assume(not blocks(policy))
    data = script(*chunks)
    client = play(policy, *cut(data, cuts), expected=2)
    assert client.done and not client.errors
    check(policy, texts, client.messages)
    body, _ = plain(policy, *cut(data, cuts), expected=2)
    for choice in body["choices"]:
        for position, entry in enumerate(choice["message"].get("tool_calls") or ()):
            entry["index"] = position
    check(policy, texts, {choice["index"]: choice["message"] for choice in body["choices"]})


@settings(max_examples=examples(120), deadline=None)
@given(answers(most=3))
def test_a_whole_answer_is_the_same_as_a_stream(case: tuple[Policy, Any, list[Any], list[int]]) -> None:
    policy, texts, _, cuts = case
    assume(not blocks(policy))
    messages: list[dict[str, Any]] = [{}, {}]
    for (index, path), text in texts.items():
        put(messages[index], path, json.dumps({"zq": text}) if path == ARGUMENTS else text)
    data = json.dumps(completion(*messages)).encode()
    body, _ = plain(policy, *cut(data, cuts), expected=2)
    check(policy, texts, {choice["index"]: choice["message"] for choice in body["choices"]})
    client = play(policy, *cut(data, cuts), expected=2)
    check(policy, texts, client.messages)


@st.composite
def single_texts(draw: st.DrawFn) -> tuple[Policy, Path, list[str]]:
    alphabet = draw(st.sampled_from(ALPHABETS))
    policy = draw(policies(alphabet))
    return policy, draw(st.sampled_from(FIELDS)), pieces(draw, draw(st.text(alphabet, max_size=14)))


@settings(max_examples=examples(250), deadline=None)
@given(single_texts())
def test_one_text_with_blocks_comes_out_as_the_oracle_says(case: tuple[Policy, Path, list[str]]) -> None:
    policy, path, parts = case
    expected, report, blocked = Oracle(policy).whole("".join(parts))
    client = play(policy, script(chunk(begun()), *(chunk(at(path, part)) for part in parts), chunk(finish="stop")))
    assert read(client.messages.get(0, {}), path) == expected
    assert client.finish == {0: "content_filter" if blocked else "stop"} and client.done
    assert sum(match.count for match in client.scanned.matches) == len(report)
    assert (client.scanned.blocked_by is not None) == blocked
    message: dict[str, Any] = {}
    put(message, path, "".join(parts))
    body, fact = plain(policy, json.dumps(completion(message)).encode())
    assert read(body["choices"][0]["message"], path) == expected
    assert body["choices"][0]["finish_reason"] == ("content_filter" if blocked else "stop")
    assert (fact.blocked_by is not None) == blocked


@settings(max_examples=examples(300), deadline=None)
@given(single_texts())
def test_content_waits_no_longer_than_the_oracle_says(case: tuple[Policy, Path, list[str]]) -> None:
    policy, _, parts = case
    assume(policy.rules)
    answer, client, read_so_far = answer_for(policy), Client(), ""
    for part in parts:
        read_so_far += part
        client.take(answer.feed(event(chunk({"content": part})), 0.0))
        assert client.content == Oracle(policy).released(read_so_far)
