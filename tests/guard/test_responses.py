"""`/responses`: deltas, what repeats them, and whole answers, as the official client puts them together."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.policy.model import Action
from gateway.wire.responses import RESPONSES
from tests.support import response_streams as given
from tests.support.event_client import Received, openai_response, plain, script, sums_of
from tests.support.event_client import stream as play_stream
from tests.support.guard_client import BLOCK, OBSERVE, WORD, policy, rule

SEEN = "[REDACTED]"
Made = Callable[..., given.Item]
TEXTS: list[tuple[Made, str]] = [
    (given.message, "content"),
    (given.refusal, "refusal"),
    (given.reasoning, "reasoning"),
    (given.summary, "reasoning"),
    (given.custom_call, "tool_arguments"),
    (given.code_call, "tool_arguments"),
]
JSONS: list[Made] = [given.function_call, given.mcp_call]


def stream(policy: Any, events: list[Any], **more: Any) -> Received:
    return play_stream(policy, RESPONSES, events, **more)


def text_of(item: dict[str, Any]) -> str:
    parts = [*(item.get("content") or ()), *(item.get("summary") or ())]
    texts = [part.get("text", part.get("refusal")) for part in parts]
    return "".join(texts) if texts else str(item.get("arguments") or item.get("input") or item.get("code") or "")


def cuts(text: str) -> list[list[str]]:
    return [[text[:at], text[at:]] for at in range(len(text) + 1)] + [list(text)]


@pytest.mark.parametrize(("made", "channel"), TEXTS)
def test_a_word_in_any_text_is_taken_out_wherever_it_is_cut(made: Made, channel: str) -> None:
    text = f"a {WORD} b 12MON"
    for pieces in cuts(text):
        client = stream(policy(), given.events(made(*pieces)))
        (item,) = openai_response(client)["output"]
        assert text_of(item) == f"a {SEEN} b 12MON"
        assert WORD not in client.text
        assert client.forwarded(channel) == (len(text), len(text) - len(WORD))


@pytest.mark.parametrize("made", JSONS)
def test_arguments_are_read_as_json(made: Made) -> None:
    text = '{"n": 4111, "a": "x \\u0031\\u0032MONKEYS y", "12MONKEYS": [1]}'
    for pieces in cuts(text):
        client = stream(policy(rule(WORD, "4111")), given.events(made(*pieces)))
        (item,) = openai_response(client)["output"]
        assert json.loads(item["arguments"]) == {"n": SEEN, "a": f"x {SEEN} y", SEEN: [1]}


@pytest.mark.parametrize(("made", "channel"), TEXTS)
def test_what_is_clean_comes_out_at_once_and_as_it_was(made: Made, channel: str) -> None:
    sent = given.events(made("hello ", "wor", "ld"))
    client = stream(policy(), sent)
    for event in sent:
        event.pop("obfuscation", None)
    assert client.events == sent


def test_items_of_all_kinds_side_by_side() -> None:
    items = [made(*f"{WORD} and {WORD}") for made, _ in TEXTS]
    items += [made(*f'{{"a": "{WORD}"}}') for made in JSONS]
    client = stream(policy(), given.events(*items, interleaved=True))
    output = openai_response(client)["output"]
    assert [text_of(item) for item in output[:-2]] == [f"{SEEN} and {SEEN}"] * len(TEXTS)
    assert [json.loads(item["arguments"]) for item in output[-2:]] == [{"a": SEEN}] * 2
    assert WORD not in client.text


def test_repeats_are_what_the_deltas_were() -> None:
    client = stream(policy(), given.events(given.message("x 12MON", "KEYS", " y")))
    done = {event["type"]: event for event in client.events}
    assert done["response.output_text.done"]["text"] == f"x {SEEN} y"
    assert done["response.content_part.done"]["part"]["text"] == f"x {SEEN} y"
    assert done["response.output_item.done"]["item"]["content"][0]["text"] == f"x {SEEN} y"
    deltas = [event["delta"] for event in client.events if event["type"] == "response.output_text.delta"]
    assert deltas == ["x ", SEEN, " y"]


def test_held_text_comes_as_a_delta_before_the_text_ends() -> None:
    client = stream(policy(), given.events(given.message("12MON")))
    at = client.types.index("response.output_text.done")
    assert client.events[at - 1]["type"] == "response.output_text.delta"
    assert client.events[at - 1]["delta"] == "12MON" and client.events[at - 1]["item_id"] == "output_text_1"


@pytest.mark.parametrize("made", [made for made, _ in TEXTS])
def test_text_that_comes_only_at_the_end_is_scanned_whole(made: Made) -> None:
    item = made(f"a {WORD}")
    item.pieces.clear()
    client = stream(policy(), given.events(item))
    (shown,) = client.events[-1]["response"]["output"]
    assert text_of(shown) == f"a {SEEN}" and WORD not in client.text


def test_a_repeat_that_differs_from_the_deltas_is_not_shown() -> None:
    sent = given.events(given.message("clean"))
    for event in sent:
        if event["type"] == "response.output_text.done":
            event["text"] = f"other {WORD}"
        if event["type"] == "response.completed":
            event["response"]["output"][0]["content"][0]["text"] = "yet another"
    client = stream(policy(), sent)
    assert "other" not in client.text and openai_response(client)["output"][0]["content"][0]["text"] == "clean"


@pytest.mark.parametrize(("made", "channel"), TEXTS)
def test_a_block_ends_the_answer_in_order(made: Made, channel: str) -> None:
    for pieces in cuts(f"a {WORD} b"):
        client = stream(BLOCK, given.events(given.message("first"), made(*pieces), given.function_call("{}")))
        last = openai_response(client)
        assert last["status"] == "incomplete" and last["incomplete_details"] == {"reason": "content_filter"}
        assert client.types[-1] == "response.incomplete" and client.stopped
        assert client.types.count("response.output_item.added") == client.types.count("response.output_item.done")
        texts = [text_of(item) for item in last["output"]]
        if channel == "content":
            assert texts == ["first", "a Not shown."]
        else:
            assert texts == ["first", "a ", "Not shown."]
        assert client.scanned.blocked_by == "r"


@pytest.mark.parametrize("made", JSONS)
def test_blocked_arguments_stay_json(made: Made) -> None:
    for pieces in cuts('{"a": ["x", "y 12MONKEYS"]}'):
        client = stream(BLOCK, given.events(made(*pieces)))
        call, message = openai_response(client)["output"]
        assert json.loads(call["arguments"]) == {"a": ["x", "y "]}
        assert message["content"][0]["text"] == "Not shown."


def test_a_block_in_a_name_and_in_a_text_that_comes_whole() -> None:
    client = stream(BLOCK, given.events(given.function_call("{}", name=f"a{WORD}")))
    assert WORD not in client.text and openai_response(client)["status"] == "incomplete"
    item = given.message(f"a {WORD} b")
    item.pieces.clear()
    client = stream(BLOCK, given.events(item))
    assert text_of(openai_response(client)["output"][0]) == "a Not shown."


def test_a_block_without_a_message_and_with_json_content() -> None:
    silent = policy(rule(action=Action.BLOCK))
    client = stream(silent, given.events(given.message(f"a {WORD}")))
    assert text_of(openai_response(client)["output"][0]) == "a "
    client = stream(BLOCK, given.events(given.message(f'{{"a": "b {WORD}"}}')), json_content=True)
    content, refused = openai_response(client)["output"]
    assert json.loads(text_of(content)) == {"a": "b "}
    assert refused["content"] == [{"type": "refusal", "refusal": "Not shown."}]


def test_json_content_is_read_as_json() -> None:
    for pieces in cuts('{"a": "\\u0031\\u0032MONKEYS"}'):
        client = stream(policy(), given.events(given.message(*pieces)), json_content=True)
        assert json.loads(text_of(openai_response(client)["output"][0])) == {"a": SEEN}


def test_observing_and_flagging_change_nothing() -> None:
    sent = given.events(given.message("a 12MON", "KEYS"), given.function_call(f'{{"a": "{WORD}"}}', name=WORD))
    for observed in (OBSERVE, policy(rule(action=Action.FLAG))):
        client = stream(observed, sent)
        if observed is OBSERVE:
            assert client.events == sent
        assert sums_of(client.events).keys() <= sums_of(sent).keys()
        (count,) = {each.channel.value: each for each in client.scanned.matches}.items() & {
            each.channel.value: each for each in client.scanned.matches if each.channel.value == "content"
        }.items()
        assert count[1].count == 1


def test_what_repeats_the_request_is_censored_and_blocks_nothing() -> None:
    echoes = {"instructions": f"never say {WORD}", "metadata": {"a": WORD}, "text": {"format": {"type": "text"}}}
    client = stream(policy(), given.events(given.message("x"), **echoes))
    assert client.events[0]["response"]["instructions"] == f"never say {SEEN}"
    client = stream(BLOCK, given.events(given.message("x"), **echoes))
    assert client.types[-1] == "response.completed" and WORD not in client.text
    assert client.events[-1]["response"]["instructions"] is None
    assert client.events[-1]["response"]["text"] == {"format": {"type": "text"}}


def test_a_whole_response() -> None:
    body = given.response(given.message(f"a {WORD}").done, given.function_call(f'{{"a":"{WORD}"}}').done)
    shown, fact = plain(policy(), RESPONSES, json.dumps({**body, "output_text": f"a {WORD}"}).encode())
    assert text_of(shown["output"][0]) == shown["output_text"] == f"a {SEEN}"
    assert json.loads(shown["output"][1]["arguments"]) == {"a": SEEN}
    shown, fact = plain(BLOCK, RESPONSES, json.dumps(body).encode())
    assert shown["status"] == "incomplete" and shown["incomplete_details"] == {"reason": "content_filter"}
    assert [text_of(item) for item in shown["output"]] == ["a Not shown."] and fact.blocked_by == "r"
    assert plain(OBSERVE, RESPONSES, json.dumps(body).encode())[0] == body


def test_a_stream_becomes_a_whole_response_and_a_whole_response_a_stream() -> None:
    items = [given.message(f"a {WORD}"), given.summary("s"), given.function_call(f'{{"a":"{WORD}"}}')]
    shown, _ = plain(policy(), RESPONSES, script(given.events(*items)))
    whole = given.response(*(item.done for item in items))
    assert shown == plain(policy(), RESPONSES, json.dumps(whole).encode())[0]
    client = play_whole(whole)
    assert openai_response(client) == shown
    assert "response.output_text.delta" in client.types and WORD not in client.text


def play_whole(whole: dict[str, Any]) -> Received:
    from tests.support.event_client import play

    return play(policy(), RESPONSES, json.dumps(whole).encode())


@pytest.mark.parametrize("cut", range(24))
def test_annotations_move_with_the_text(cut: int) -> None:
    text = f"a {WORD} see this end"
    items = [
        {"type": "url_citation", "url": f"https://{WORD}", "title": "t", "start_index": start, "end_index": end}
        for start, end in ((0, 1), (2, 11), (12, 15))
    ]
    item = given.message(text[:cut], text[cut:])
    item.done["content"][0]["annotations"] = items
    item.pieces.append(
        {
            "type": "response.output_text.annotation.added",
            "content_index": 0,
            "annotation_index": 0,
            "annotation": items[2],
        }
    )
    client = stream(policy(), given.events(item))
    moved = [
        {**items[0], "url": f"https://{SEEN}"},
        {**items[2], "url": f"https://{SEEN}", "start_index": 13, "end_index": 16},
    ]
    part = openai_response(client)["output"][0]["content"][0]
    assert part["annotations"] == moved and part["text"][13:16] == "see"
    (added,) = [event for event in client.events if event["type"].endswith("annotation.added")]
    assert added["annotation"] == moved[1]


def test_a_whole_call_that_is_blocked_keeps_its_name_and_is_incomplete() -> None:
    call = {"id": "fc_1", "type": "function_call", "call_id": "c", "arguments": f'{{"a": "so {WORD}"}}', "name": "f"}
    earlier = {**call, "id": "fc_0", "arguments": '{"a": "b"}', "status": "completed"}
    body = json.dumps(given.response(earlier, {**call, "status": "completed"})).encode()
    shown, _ = plain(BLOCK, RESPONSES, body)
    assert shown["output"][0] == earlier
    assert shown["output"][1] == {**call, "arguments": '{"a": "so "}', "status": "incomplete"}


def test_an_id_is_censored_once_wherever_it_is_repeated() -> None:
    """A replacement may itself hold what a rule wants; and clients find an item's text by the id."""
    client = stream(policy(rule("e", "m", replacement="[em]")), given.events(given.message("x")))
    seen = {event["item_id"] for event in client.events if "item_id" in event}
    seen |= {event["item"]["id"] for event in client.events if "item" in event}
    (item,) = openai_response(client)["output"]
    assert seen | {item["id"]} == {"output_t[em]xt_1"}


def test_what_reasoning_holds_leaves_with_its_end_before_the_next_item() -> None:
    client = stream(policy(), given.events(given.reasoning("so 12MON"), given.message("x")))
    types = [(event["type"], event.get("delta")) for event in client.events]
    held = types.index(("response.reasoning_text.delta", "12MON"))
    assert held < types.index(("response.output_text.delta", "x"))
    assert held < types.index(("response.output_item.done", None)) < len(types)
