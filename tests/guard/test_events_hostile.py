"""Upstreams of typed events that break their protocol: nothing leaks, nothing fails, nothing grows without end."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.guard.answer import BrokenAnswer
from gateway.guard.channels import MAX_TEXTS
from gateway.guard.client_answer import MAX_OPEN
from gateway.guard.commands import SendBytes
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Action
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from tests.support import message_streams, response_streams
from tests.support.event_client import (
    Received,
    answer_for,
    anthropic_message,
    openai_response,
    plain,
    play,
    script,
    stream,
)
from tests.support.guard_client import BLOCK, DROP, OBSERVE, REFUSE, WORD, policy, rule

SEEN = "[REDACTED]"
Event = dict[str, Any]
DIALECTS = [RESPONSES, MESSAGES]
REDACT = policy()


def sample(dialect: Dialect, word: str = WORD) -> list[Event]:
    """A stream with a word in each text, cut in two."""
    a, b = word[:5], word[5:]
    if dialect is MESSAGES:
        made = message_streams
        return made.events(made.thinking("x " + a, b), made.text("x " + a, b), made.tool_use('{"a":"x ' + a, b + '"}'))
    items = response_streams
    return items.events(
        items.reasoning("x " + a, b),
        items.summary("x " + a, b),
        items.message("x " + a, b),
        items.function_call('{"a":"x ' + a, b + '"}'),
        items.custom_call("x " + a, b),
    )


def of_type(events: list[Event], kind: str) -> Event:
    return next(event for event in events if event["type"] == kind)


def assert_safe(client: Received) -> None:
    assert WORD not in client.text
    assert not [fact for fact in client.facts if isinstance(fact, GuardFailed)]


# -- any value anywhere ------------------------------------------------------------------------------------------------

VALUES: list[Any] = [None, 7, -1, 4111.5, True, "", "x", WORD, [], {}, [WORD, 1], {"a": WORD}, {WORD: "x"}, [[WORD]]]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


def put(event: Event, path: tuple[Any, ...], value: Any) -> None:
    holder: Any = event
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.path)
@pytest.mark.parametrize("guarding", [REDACT, BLOCK, DROP, OBSERVE], ids=["redact", "block", "drop", "observe"])
def test_any_value_in_the_place_of_any_other(dialect: Dialect, guarding: Any) -> None:
    sent = sample(dialect)
    for at, event in enumerate(sent):
        for number, path in enumerate(places(event)):
            value = VALUES[(at + 7 * number) % len(VALUES)]
            changed = copy.deepcopy(sent)
            put(changed[at], path, copy.deepcopy(value))
            client = play(guarding, dialect, script(changed))
            if guarding is OBSERVE:
                assert client.events[:1] == changed[:1]
            else:
                assert_safe(client)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.path)
def test_any_event_left_out_said_twice_or_moved(dialect: Dialect) -> None:
    sent = sample(dialect)
    for at in range(len(sent)):
        assert_safe(play(policy(), dialect, script(sent[:at] + sent[at + 1 :])))
        assert_safe(play(policy(), dialect, script(sent[: at + 1] + sent[at:])))
        assert_safe(play(BLOCK, dialect, script(sent[at:] + sent[:at])))


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.path)
def test_a_stream_that_breaks_off_anywhere(dialect: Dialect) -> None:
    sent = sample(dialect)
    reason = {"error": {"message": "The upstream closed the connection.", "code": "upstream_reset"}}
    for at in range(1, len(sent)):
        assert_safe(play(policy(), dialect, script(sent[:at])))
        client = play(policy(), dialect, script(sent[:at]), fail=reason)
        assert_safe(client)
        assert client.types[-1] == "error" or of_type(sent, client.types[-1])


def test_what_is_held_comes_out_before_the_error() -> None:
    sent = response_streams.events(response_streams.message("a 12MON"))
    at = next(at for at, event in enumerate(sent) if event["type"] == "response.output_text.done")
    client = play(policy(), RESPONSES, script(sent[:at]), fail={"error": {"message": "gone", "code": "x"}})
    assert [event["delta"] for event in client.events if "delta" in event] == ["a ", "12MON"]
    fields = {"code": "x", "message": "gone", "param": None}
    error = {"message": "gone", "code": "x"}
    assert client.error == {"type": "error", **fields, "error": error, "sequence_number": 6}
    sent = message_streams.events(message_streams.text("a 12MON"))
    client = play(policy(), MESSAGES, script(sent[:4]), fail={"error": {"message": "gone", "code": "x"}})
    assert client.events[-2]["delta"]["text"] == "12MON"
    error = {"type": "api_error", "message": "gone", "details": {"error_code": "x"}}
    assert client.error == {"type": "error", "error": error}


# -- what the protocol forbids -----------------------------------------------------------------------------------------


def refused(dialect: Dialect, events: list[Event]) -> str:
    return str(stream(policy(), dialect, events).error)


def test_a_delta_of_an_item_that_is_not_open() -> None:
    sent = [event for event in sample(RESPONSES) if event["type"] != "response.output_item.added"]
    assert "not open" in refused(RESPONSES, sent)
    sent = [event for event in sample(MESSAGES) if event["type"] != "content_block_start"]
    assert "not open" in refused(MESSAGES, sent)


def test_items_out_of_order_and_said_twice() -> None:
    sent = sample(RESPONSES)
    added = of_type(sent, "response.output_item.added")
    assert "out of order" in refused(RESPONSES, [*sent[:3], {**added, "output_index": 0}])
    assert "out of order" in refused(RESPONSES, [*sent[:2], {**added, "output_index": 1}])
    assert "out of order" in refused(MESSAGES, [sent for sent in sample(MESSAGES) if sent.get("index") != 0])


def test_an_item_has_one_id_whatever_events_say() -> None:
    sent = response_streams.events(response_streams.message("12MON", "KEYS"), response_streams.message("x"))
    for number, event in enumerate(sent):
        if "item_id" in event:
            event["item_id"] = f"other_{number % 2}"
    client = stream(policy(), RESPONSES, sent)
    last = openai_response(client)
    first, second = (item["id"] for item in last["output"])
    assert first != second  # both came as `output_text_1`: clients would take their texts for one
    ids = {event["item_id"] for event in client.events if event.get("output_index") == 1 and "item_id" in event}
    assert ids == {second}


def test_nothing_comes_after_the_end() -> None:
    for dialect in DIALECTS:
        sent = sample(dialect)
        assert stream(policy(), dialect, [*sent, *sent]).events == stream(policy(), dialect, sent).events


def test_missing_ends_are_no_leak_and_no_error() -> None:
    sent = [event for event in sample(RESPONSES) if not event["type"].endswith(".done")]
    client = stream(policy(), RESPONSES, sent)
    assert_safe(client)
    assert client.types[-1] == "response.completed"
    sent = [event for event in sample(MESSAGES) if event["type"] != "content_block_stop"]
    assert anthropic_message(stream(policy(), MESSAGES, sent))["content"][1]["text"] == f"x {SEEN}"


def test_an_item_that_comes_only_when_it_is_done() -> None:
    done = response_streams.message(f"a {WORD}").done
    sent = response_streams.events()
    sent.insert(2, {"type": "response.output_item.done", "output_index": 0, "item": done})
    client = stream(policy(), RESPONSES, sent)
    assert client.events[2]["item"]["content"][0]["text"] == f"a {SEEN}"
    client = stream(BLOCK, RESPONSES, sent)
    assert client.events[-1]["response"]["output"][0]["content"][0]["text"] == "a Not shown."


def test_an_answer_in_the_middle_of_which_a_line_has_several_parts() -> None:
    sent = sample(RESPONSES)
    data = script(sent).replace(b', "delta"', b',\ndata: "delta"')
    assert play(policy(), RESPONSES, data).events == stream(policy(), RESPONSES, sent).events


def test_content_that_an_answer_repeats_is_scanned_as_one_text() -> None:
    items = [response_streams.message(text) for text in (WORD[:5], WORD[5:])]
    whole = response_streams.response(*(item.done for item in items), output_text="x")
    assert plain(policy(), RESPONSES, json.dumps(whole).encode())[0]["output_text"] == SEEN
    assert plain(BLOCK, RESPONSES, json.dumps(whole).encode())[0]["status"] == "incomplete"
    client = stream(policy(), RESPONSES, response_streams.events(*items, output_text="x"))
    assert client.events[-1]["response"]["output_text"] == SEEN


@pytest.mark.parametrize("cut", range(1, len(WORD)))
def test_signatures_in_pieces(cut: int) -> None:
    sent = message_streams.events(message_streams.thinking("x"))
    at = next(at for at, event in enumerate(sent) if event.get("delta", {}).get("type") == "signature_delta")
    deltas = [{"type": "signature_delta", "signature": text} for text in (WORD[:cut], WORD[cut:])]
    sent[at : at + 1] = [{**sent[at], "delta": delta} for delta in deltas]
    assert_safe(stream(policy(), MESSAGES, sent))


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.path)
def test_labels_that_clients_append_to_those_before(dialect: Dialect) -> None:
    sent = sample(dialect, "some words")
    for at, event in enumerate(sent[:-1]):
        holder = "delta" if isinstance(event.get("delta"), dict) else None
        pair = [copy.deepcopy(event) for _ in range(2)]
        for each, text in zip(pair, (WORD[:5], WORD[5:]), strict=True):
            (each[holder] if holder else each)["title"] = text
        client = play(policy(), dialect, script([*sent[:at], *pair, *sent[at + 1 :]]))
        shown = [each.get(holder, {}) if holder else each for each in client.events]
        assert WORD not in "".join(str(each.get("title", "")) for each in shown)


@pytest.mark.parametrize("kind", ["new", None, "zqtext", "output_zqtext"])
@pytest.mark.parametrize("cut", range(1, len(WORD)))
def test_text_of_a_part_of_another_type_goes_on(kind: str | None, cut: int) -> None:
    rules = policy(rule(), rule("zq", id="z", replacement=""))
    begun = {"type": kind, "text": WORD[:cut]}
    sent = message_streams.events(message_streams.text(WORD[cut:]))
    of_type(sent, "content_block_start")["content_block"] = begun
    client = stream(rules, MESSAGES, sent)
    shown = [event.get("content_block") or event.get("delta") or {} for event in client.events if "index" in event]
    assert "".join(each.get("text", "") for each in shown) == SEEN
    sent = response_streams.events(response_streams.message(WORD[cut:]))
    of_type(sent, "response.content_part.added")["part"] = begun
    client = stream(rules, RESPONSES, sent)
    parts = [event["part"]["text"] for event in client.events if event["type"] == "response.content_part.added"]
    deltas = [event["delta"] for event in client.events if event["type"] == "response.output_text.delta"]
    assert "".join([*parts, *deltas]) == SEEN


def test_no_event_becomes_one_of_a_known_type() -> None:
    rules = policy(rule(), rule("zq", id="z", replacement=""))
    sent = response_streams.events(response_streams.message(WORD[5:]))
    delta = of_type(sent, "response.output_text.delta")
    at, forged = sent.index(delta), {**delta, "delta": WORD[:5]}
    named = {name: value for name, value in forged.items() if name != "type"}
    for each in ({**forged, "type": "response.output_zqtext.delta"}, {**named, "tyzqpe": delta["type"]}):
        client = stream(rules, RESPONSES, [*sent[:at], each, *sent[at:]])
        assert [event["delta"] for event in client.events if "delta" in event] == [WORD[5:]]


# -- what no version knows ---------------------------------------------------------------------------------------------

UNKNOWN = {"type": "response.new.delta", "output_index": 0, "delta": "x 12MON", "new": {"a": WORD}}


def test_events_of_unknown_types() -> None:
    sent = response_streams.events(response_streams.message("x"))
    sent[4:4] = [UNKNOWN, {**UNKNOWN, "delta": "KEYS"}]
    client = stream(policy(), RESPONSES, sent)
    assert_safe(client)
    assert client.types.count("response.new.delta") == 2 and client.scanned.unknown_events == 2
    client = stream(DROP, RESPONSES, sent)
    assert "response.new.delta" not in client.types and client.scanned.unknown_events == 2
    assert "unknown: refuse" in str(stream(REFUSE, RESPONSES, sent).error)


@pytest.mark.parametrize("cut", range(1, len(WORD)))
def test_hosted_shells_say_what_they_print_in_pieces(cut: int) -> None:
    kind = "response.shell_call_output_content.delta"
    pieces = [
        {"type": kind, "output_index": 0, "command_index": 0, "delta": {"stdout": text}}
        for text in (WORD[:cut], WORD[cut:])
    ]
    assert_safe(stream(policy(), RESPONSES, [*response_streams.events()[:2], *pieces]))


def test_unknown_fields_are_scanned_dropped_or_refused() -> None:
    sent = response_streams.events(response_streams.message("x"))
    of_type(sent, "response.output_item.done")["item"]["new"] = {"deep": [WORD, {"y": WORD}]}
    client = stream(policy(), RESPONSES, sent)
    assert_safe(client)
    assert of_type(client.events, "response.output_item.done")["item"]["new"] == {"deep": [SEEN, {"y": SEEN}]}
    assert "new" not in of_type(stream(DROP, RESPONSES, sent).events, "response.output_item.done")["item"]
    assert "unknown: refuse" in str(stream(REFUSE, RESPONSES, sent).error)


def test_strays_are_scanned() -> None:
    for dialect in DIALECTS:
        answer = script(sample(dialect)[:1]) + b'data: ["' + WORD.encode() + b'"]\n\n'
        commands = answer_for(policy(), dialect).feed(answer, 0.0)
        out = b"".join(command.data for command in commands if isinstance(command, SendBytes))
        assert WORD.encode() not in out and SEEN.encode() in out


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_texts_are_bounded() -> None:
    sent = response_streams.events(response_streams.message("x"))
    added = of_type(sent, "response.output_item.added")
    delta = of_type(sent, "response.output_text.delta")
    many = [{**delta, "content_index": at} for at in range(MAX_TEXTS + 1)]
    client = play(policy(), RESPONSES, script([sent[0], added, *many]))
    assert str(MAX_TEXTS) in client.error["message"]


def test_what_may_be_repeated_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.guard.event_texts.MAX_KEPT", 2000)
    for dialect, text in ((RESPONSES, response_streams.message), (MESSAGES, message_streams.text)):
        made: Any = response_streams if dialect is RESPONSES else message_streams
        client = play(policy(), dialect, script(made.events(text(*["x" * 100] * 30))))
        assert "2000 characters" in str(client.error)


@pytest.mark.parametrize("value", [{"k": [[]] * 200}, {"k": [True] * 400}], ids=["lists", "truths"])
def test_what_the_ends_of_a_message_bring_is_bounded(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setattr("gateway.guard.event_texts.MAX_KEPT", 20_000)
    sent = message_streams.events(message_streams.text("x"))
    for name in ("delta", "usage"):
        ends = [{"type": "message_delta", "delta": {}, name: {f"k{at}": value["k"]}} for at in range(50)]
        assert "20000 characters" in play(policy(), MESSAGES, script([*sent[:-1], *ends])).error["error"]["message"]


def test_the_objects_that_are_open_are_bounded() -> None:
    sent = response_streams.events()
    item = {"type": "message", "content": []}
    many = [{"type": "response.output_item.added", "output_index": at, "item": item} for at in range(MAX_OPEN + 1)]
    client = play(policy(), RESPONSES, script([sent[0], *many]))
    assert str(MAX_OPEN) in client.error["message"] and len(client.events) == MAX_OPEN + 2


def test_an_id_that_every_event_would_repeat_is_bounded() -> None:
    sent = response_streams.events(response_streams.message("x"))
    added = of_type(sent, "response.output_item.added")
    added["item"]["id"] = "x" * 2000
    assert "id" in play(policy(), RESPONSES, script(sent)).error["message"]


def test_errors_in_a_stream_and_instead_of_an_answer() -> None:
    failed = {"type": "error", "code": "server_error", "message": f"it said {WORD}", "param": None}
    client = stream(policy(), RESPONSES, [*response_streams.events()[:2], failed])
    assert client.error["message"] == f"it said {SEEN}" and client.error["code"] == "server_error"
    error = {"type": "overloaded_error", "message": f"it said {WORD}", "details": {"error_code": "x", "why": [WORD]}}
    failed = {"type": "error", "error": error}
    client = stream(policy(), MESSAGES, [*message_streams.events()[:2], failed])
    assert client.error["error"]["message"] == f"it said {SEEN}"
    assert client.error["error"]["details"] == {"error_code": "x", "why": [SEEN]}
    with pytest.raises(BrokenAnswer) as raised:
        plain(policy(), MESSAGES, json.dumps(failed).encode())
    assert raised.value.failure["error"]["message"] == f"it said {SEEN}"


def test_a_response_that_failed_is_an_answer() -> None:
    failed = response_streams.response(status="failed", error={"code": "server_error", "message": f"a {WORD}"})
    client = stream(
        policy(), RESPONSES, [*response_streams.events()[:2], {"type": "response.failed", "response": failed}]
    )
    assert client.events[-1]["response"]["error"] == {"code": "server_error", "message": f"a {SEEN}"}
    assert plain(policy(), RESPONSES, json.dumps(failed).encode())[0]["error"]["message"] == f"a {SEEN}"


def test_payloads_pass_and_what_could_be_read_as_text_does_not() -> None:
    picture = "iVBORw0KGgo" + "AAAA" * 20 + "AAAAA"
    opaque = "gAAAAAB" + "_x-9" * 20 + "A"
    for result, shown in ((picture, picture), (f"a {WORD}", f"a {SEEN}")):
        item = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": result}
        thought = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": opaque}
        body, _ = plain(policy(), RESPONSES, json.dumps(response_streams.response(item, thought)).encode())
        assert body["output"][0]["result"] == shown and body["output"][1]["encrypted_content"] == opaque


def test_flags_do_not_change_a_stream() -> None:
    for dialect in DIALECTS:
        flagged = stream(policy(rule(action=Action.FLAG)), dialect, sample(dialect))
        assert flagged.types[-1] in ("response.completed", "message_stop")
        assert flagged.scanned.blocked_by is None and len(flagged.scanned.matches) > 1
