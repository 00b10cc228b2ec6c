"""The text parts of one item of `/responses`, and the blocks of a message of `/messages`, are one text."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.guard.event_parts import MAX_WAITING
from gateway.policy.model import Action, Channel, Policy, Rule
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from tests.support import message_streams as blocks
from tests.support import response_streams as items
from tests.support.event_client import anthropic_message, openai_response, plain, play, script, stream
from tests.support.examples import examples
from tests.support.guard_client import OBSERVE, WORD, policy, rule
from tests.support.oracle_parts import replaced

SEEN = "[REDACTED]"
Json = dict[str, Any]
EACH = pytest.mark.parametrize("dialect", [RESPONSES, MESSAGES], ids=lambda dialect: dialect.path)


def pieces_of(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def streamed(dialect: Dialect, parts: list[str], size: int = 99) -> list[Json]:
    """One message with these text parts, as a stream."""
    if dialect is MESSAGES:
        return blocks.events(*(blocks.text(*pieces_of(text, size)) for text in parts))
    where = {"item_id": "msg_1", "output_index": 0}
    begun = {"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    events: list[Json] = [{"type": "response.output_item.added", "output_index": 0, "item": begun}]
    for at, text in enumerate(parts):
        here = {**where, "content_index": at}
        empty, whole = ({"type": "output_text", "text": each, "annotations": []} for each in ("", text))
        events.append({"type": "response.content_part.added", **here, "part": empty})
        deltas = pieces_of(text, size)
        events += [{"type": "response.output_text.delta", **here, "delta": each} for each in deltas]
        events.append({"type": "response.output_text.done", **here, "text": text})
        events.append({"type": "response.content_part.done", **here, "part": whole})
    done = whole_of(RESPONSES, parts)
    events.append({"type": "response.output_item.done", "output_index": 0, "item": done["output"][0]})
    created = {"type": "response.created", "response": items.response(status="in_progress")}
    numbered = [created, *events, {"type": "response.completed", "response": done}]
    return [{**copy.deepcopy(event), "sequence_number": at} for at, event in enumerate(numbered)]


def whole_of(dialect: Dialect, parts: list[str]) -> Json:
    if dialect is MESSAGES:
        return blocks.message(*({"type": "text", "text": text} for text in parts))
    content = [{"type": "output_text", "text": text, "annotations": []} for text in parts]
    return items.response(
        {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": content}
    )


def texts_in(dialect: Dialect, answer: Json) -> list[str]:
    content = answer["content"] if dialect is MESSAGES else answer["output"][0]["content"]
    return [part["text"] for part in content]


def shown(dialect: Dialect, parts: list[str], given: Policy, size: int = 99) -> list[str]:
    """What comes out of the parts, which is the same whole, streamed, and added up."""
    client = play(given, dialect, script(streamed(dialect, parts, size)))
    body = openai_response(client) if dialect is RESPONSES else anthropic_message(client)
    added = texts_in(dialect, body)
    body, _ = plain(given, dialect, json.dumps(whole_of(dialect, parts)).encode())
    assert texts_in(dialect, body) == added
    body, _ = plain(given, dialect, script(streamed(dialect, parts, size)))
    assert texts_in(dialect, body) == added
    return added


@EACH
@pytest.mark.parametrize("cut", range(len(WORD) + 1))
def test_a_word_over_two_parts_is_replaced_where_it_begins(dialect: Dialect, cut: int) -> None:
    parts = [f"so {WORD[:cut]}", f"{WORD[cut:]}, no"]
    expected = replaced(parts, [WORD], SEEN)
    assert expected == [["so ", f"{SEEN}, no"], [f"so {SEEN}", ", no"]][cut > 0]
    for size in (1, 2, 99):
        assert shown(dialect, parts, policy(), size) == expected
    stream(policy(), dialect, streamed(dialect, parts, 2))


LETTERS = st.text("ab1", max_size=5)
WORDS = st.sets(st.text("ab1", min_size=1, max_size=5), min_size=1, max_size=3)


@EACH
@given(parts=st.lists(LETTERS, min_size=2, max_size=5), words=WORDS, size=st.integers(1, 3))
@settings(max_examples=examples(60), deadline=None)
def test_what_comes_out_is_what_a_naive_reading_says(
    dialect: Dialect, parts: list[str], words: set[str], size: int
) -> None:
    content = frozenset({Channel.CONTENT})
    rules = policy(*(Rule(id=word, words=(word,), channels=content) for word in sorted(words)))
    assert shown(dialect, parts, rules, size) == replaced(parts, sorted(words), SEEN)


@EACH
@pytest.mark.parametrize(
    "parts",
    [["b", "b", "b1"], ["b", "bb", "b1"], ["b", "b", "", "b1b"], ["b", "b", "b", "b", "b", "1"], ["bb", "b", "2"]],
)
def test_a_beginning_that_another_part_proves_wrong(dialect: Dialect, parts: list[str]) -> None:
    """What decides the first part is read ahead of its turn, and the next part continues from there."""
    rules = policy(Rule(id="word", words=("bb1",), channels=frozenset({Channel.CONTENT})))
    for size in (1, 2, 99):
        assert shown(dialect, parts, rules, size) == replaced(parts, ["bb1"], SEEN)


@EACH
def test_events_come_in_their_order(dialect: Dialect) -> None:
    events = streamed(dialect, ["so 12M", "", "ON", "12MONKEYS", "x"])
    client = stream(policy(), dialect, events)
    place = "index" if dialect is MESSAGES else "content_index"
    kinds = [(event["type"], event.get(place)) for event in client.events]
    closers = ("done", "stop")
    firsts = {at: kinds.index(each) for each in kinds if each[0].endswith(("added", "start")) for at in [each[1]]}
    for kind, at in kinds:
        if at is not None and kind.endswith(closers):
            assert at + 1 not in firsts or kinds.index((kind, at)) < firsts[at + 1]
    assert [each for each in kinds if "delta" not in each[0]] == [
        (event["type"], event.get(place)) for event in events if "delta" not in event["type"]
    ] or dialect is MESSAGES


@EACH
@pytest.mark.parametrize("cut", range(1, len(WORD)))
def test_a_block_over_two_parts(dialect: Dialect, cut: int) -> None:
    rules = policy(rule(action=Action.BLOCK, message="No."))
    parts = [f"so {WORD[:cut]}", f"{WORD[cut:]}, no"]
    client = stream(rules, dialect, streamed(dialect, parts, 3))
    assert client.stopped and ", no" not in client.text
    body = openai_response(client) if dialect is RESPONSES else anthropic_message(client)
    assert texts_in(dialect, body) == ["so No."]
    body, _ = plain(rules, dialect, json.dumps(whole_of(dialect, parts)).encode())
    assert texts_in(dialect, body) == ["so No."]


@EACH
def test_a_block_in_the_second_part_leaves_the_first(dialect: Dialect) -> None:
    rules = policy(rule(action=Action.BLOCK, message="No."), rule("12MOVE", id="s"))
    client = stream(rules, dialect, streamed(dialect, ["so 12MO", f" and {WORD}"]))
    body = openai_response(client) if dialect is RESPONSES else anthropic_message(client)
    assert texts_in(dialect, body) == ["so 12MO", " and No."]


@EACH
def test_the_end_of_the_answer_releases_what_waits(dialect: Dialect) -> None:
    assert shown(dialect, ["so 12MON", "KE"], policy()) == ["so 12MON", "KE"]
    events = streamed(dialect, ["so 12MON", "KE"])
    for length in range(4, len(events)):
        client = play(policy(), dialect, script(events[:length]))
        assert WORD not in client.text
        whole = "".join(json.dumps(event) for event in client.events)
        assert "12MON" in whole or length < 5


@EACH
def test_an_event_between_two_parts_waits_too(dialect: Dialect) -> None:
    events = streamed(dialect, ["so 12MON", "KEYS"])
    for at in range(len(events)):
        noted = [*events[:at], {"type": "ping"} if dialect is MESSAGES else status(events), *events[at:]]
        assert WORD not in play(policy(), dialect, script(noted)).text


def status(events: list[Json]) -> Json:
    return {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "x", "sequence_number": 0}


def test_a_text_that_a_block_begins_with_goes_on_with_the_one_before() -> None:
    events = blocks.events(blocks.text("so 12MON"), blocks.text(" x"))
    events[5]["content_block"] = {"type": "text", "text": "KEYS"}
    assert events[4]["type"] == "content_block_stop"
    body = anthropic_message(stream(policy(), MESSAGES, events))
    assert texts_in(MESSAGES, body) == [f"so {SEEN}", " x"]


def test_a_tool_ends_a_text() -> None:
    events = blocks.events(blocks.text("so 12MON"), blocks.tool_use('{"a": 1}'), blocks.text("KEYS"))
    body = anthropic_message(stream(policy(), MESSAGES, events))
    assert [part.get("text") for part in body["content"]] == ["so 12MON", None, "KEYS"]


def test_what_waits_is_bounded() -> None:
    parts = ["so 12MON", *[""] * MAX_WAITING, "KEYS"]
    client = play(policy(), MESSAGES, script(streamed(MESSAGES, parts)))
    assert WORD not in client.text
    stopped = next(event for event in client.events if event["type"] == "content_block_stop")
    assert stopped["index"] == 0


@EACH
def test_parts_are_only_observed(dialect: Dialect) -> None:
    events = streamed(dialect, ["so 12MON", "KEYS"])
    client = stream(OBSERVE, dialect, events)
    assert client.events == events
    assert [match.count for match in client.scanned.matches] == [1]


def test_annotations_of_parts_keep_their_places() -> None:
    note = {"type": "url_citation", "start_index": 0, "end_index": 2, "url": "https://a.b", "title": "x"}
    answer = whole_of(RESPONSES, ["ab 12MON", "KEYS", "x", "ab"])
    for part in answer["output"][0]["content"]:
        part["annotations"] = [dict(note)]
    body, _ = plain(policy(), RESPONSES, json.dumps(answer).encode())
    content = body["output"][0]["content"]
    assert [part["annotations"] for part in content] == [[note], [], [], [note]]
    assert [part["text"] for part in content] == [f"ab {SEEN}", "", "x", "ab"]
