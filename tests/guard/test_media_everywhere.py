"""Media in requests and answers of every dialect: never changed, and whatever else stands beside them is text."""

from __future__ import annotations

import base64
import copy
import json
import random
from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.guard.answer import StreamAnswer
from gateway.guard.open import open_guard
from gateway.guard.prompt import guard_prompt
from gateway.policy.model import Action, Direction, Policy, Rule
from gateway.wire.chat import CHAT
from gateway.wire.dialect import Dialect
from gateway.wire.message_events import MESSAGE_EVENTS
from gateway.wire.messages import MESSAGES
from gateway.wire.response_events import RESPONSE_EVENTS
from gateway.wire.responses import RESPONSES
from tests.support import event_client
from tests.support.guard_client import WORD, chunk, completion, plain, play, script

Json = dict[str, Any]
SEEN = "[REDACTED]"
NOISE = random.Random(1).randbytes(1300)
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + NOISE).decode()
SOUND = base64.b64encode(NOISE).decode()
URL = f"data:image/png;base64,{PICTURE}"
BOTH = frozenset(Direction)
RULES = Policy(
    name="p",
    rules=(Rule(id="kj", words=("kj", WORD), replacement=SEEN, apply_to=BOTH),),
)
assert all("kj" in payload.lower() for payload in (PICTURE, SOUND))
# Text that calls itself media, and the same censored.
TEXT = base64.b64encode(f"See {WORD} and no other.".encode()).decode()
CENSORED = base64.b64encode(f"See {SEEN} and no other.".encode()).decode()
POSING = {
    f"data:text/plain;base64,{TEXT}": f"data:text/plain;base64,{CENSORED}",
    f"data:image/png;base64,{TEXT}": f"data:image/png;base64,{CENSORED}",
    f"data:image/svg+xml;base64,{TEXT}": f"data:image/svg+xml;base64,{CENSORED}",
    f"data:image/png;base64,see {WORD} and no other": f"data:image/png;base64,see {SEEN} and no other",
    f"data:text/plain;base64,see {WORD} and no other": f"data:text/plain;base64,see {SEEN} and no other",
    f"data:text/plain;base64,{WORD}xyz": f"data:text/plain;base64,{SEEN}xyz",
    f"https://a.b/{WORD}.png": f"https://a.b/{SEEN}.png",
}  # fmt: skip


def source(media_type: str, data: str) -> Json:
    return {"type": "base64", "media_type": media_type, "data": data}


# Parts with media, by dialect: what stands where a part of a user's message does.
ASKED: dict[Dialect, dict[str, Json]] = {
    CHAT: {
        "image_url": {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        "image_url, a string": {"type": "image_url", "image_url": URL},
        "video_url": {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{SOUND}"}},
        "audio_url": {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{SOUND}"}},
        "input_audio": {"type": "input_audio", "input_audio": {"data": SOUND, "format": "pcm16"}},
        "file": {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{SOUND}"}},
        "image": {"type": "image", "image": PICTURE},
        "inline_data": {"inline_data": {"mime_type": "audio/L16", "data": SOUND}},
        "unknown": {"type": "a_new_type", "image_url": {"url": URL}},
    },
    RESPONSES: {
        "input_image": {"type": "input_image", "image_url": URL},
        "input_file": {"type": "input_file", "file_data": f"data:application/pdf;base64,{SOUND}"},
        "input_audio": {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}},
    },
    MESSAGES: {
        "image": {"type": "image", "source": source("image/png", PICTURE)},
        "document": {"type": "document", "source": source("application/pdf", SOUND)},
        "in a result": {"type": "tool_result", "content": [{"type": "image", "source": source("image/png", PICTURE)}]},
    },
}
EACH_PART = [(dialect, part) for dialect, parts in ASKED.items() for part in parts.values()]


def forwarded(dialect: Dialect, body: Json, policy: Policy = RULES) -> Json:
    guarded = guard_prompt(body, compile_policy(policy), None, dialect)
    assert guarded.rule is None and guarded.refusal is None
    return body


def asking(dialect: Dialect, *parts: Json) -> Json:
    message = {"role": "user", "content": list(parts)}
    return {"model": "m", "input" if dialect is RESPONSES else "messages": [message]}


@pytest.mark.parametrize(("dialect", "part"), EACH_PART)
def test_media_in_requests_are_never_changed(dialect: Dialect, part: Json) -> None:
    body = asking(dialect, part)
    assert forwarded(dialect, copy.deepcopy(body)) == body


IMAGE = {"type": "input_image", "image_url": URL}
WHOLE_REQUESTS: dict[str, tuple[Dialect, Json]] = {
    "images of a message": (CHAT, {"messages": [{"role": "user", "content": "x", "images": [PICTURE]}]}),
    "a part as an item": (RESPONSES, {"input": [{"type": "input_image", "image_url": URL}]}),
    "variables": (RESPONSES, {"prompt": {"id": "p", "variables": {"a": {"type": "input_image", "image_url": URL}}}}),
    "a screenshot": (
        RESPONSES,
        {"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": URL}}]},
    ),
    "outputs": (
        RESPONSES,
        {"input": [{"type": "code_interpreter_call", "outputs": [{"type": "image", "url": URL}], "code": "x"}]},
    ),
    "a result": (RESPONSES, {"input": [{"type": "function_call_output", "output": [IMAGE]}]}),
    "a picture made": (RESPONSES, {"input": [{"type": "image_generation_call", "id": "x", "result": PICTURE}]}),
    "a tool": (RESPONSES, {"tools": [{"type": "image_generation", "input_image_mask": {"image_url": URL}}]}),
    "beside": (CHAT, {"messages": [{"role": "user", "content": "x"}], "zq": {"type": "image", "data": PICTURE}}),
    "the system": (MESSAGES, {"system": [{"type": "image", "source": source("image/png", PICTURE)}], "messages": []}),
}  # fmt: skip


@pytest.mark.parametrize(("dialect", "body"), WHOLE_REQUESTS.values(), ids=WHOLE_REQUESTS)
def test_media_anywhere_in_requests_are_never_changed(dialect: Dialect, body: Json) -> None:
    assert forwarded(dialect, copy.deepcopy(body)) == body


@pytest.mark.parametrize(("given", "expected"), POSING.items())
@pytest.mark.parametrize(("dialect", "part"), EACH_PART)
def test_text_in_the_place_of_media_is_text_in_requests(
    dialect: Dialect, part: Json, given: str, expected: str
) -> None:
    spelled = json.dumps(part).replace(json.dumps(payload_of(part))[1:-1], "HERE")
    shown = forwarded(dialect, asking(dialect, json.loads(spelled.replace("HERE", given))))
    assert WORD not in json.dumps(shown) and TEXT not in json.dumps(shown)
    assert json.dumps(shown) == json.dumps(asking(dialect, json.loads(spelled.replace("HERE", expected))))


def payload_of(value: Any) -> str:
    """The longest string in a value."""
    if isinstance(value, str):
        return value
    found = [payload_of(each) for each in (value.values() if isinstance(value, dict) else value)]
    return max(found, key=len)


@pytest.mark.parametrize("name", ["filename", "alt", "transcript", "title", "context", "detail"])
@pytest.mark.parametrize(("dialect", "part"), EACH_PART)
def test_what_stands_beside_media_is_text_in_requests(dialect: Dialect, part: Json, name: str) -> None:
    body = forwarded(dialect, asking(dialect, {**copy.deepcopy(part), name: WORD}))
    ((message,),) = [each for each in body.values() if isinstance(each, list)]
    (shown,) = message["content"]
    assert shown == {**part, name: SEEN}


def test_text_that_blocks_in_an_envelope_blocks_the_request() -> None:
    rules = Policy(name="p", rules=(Rule(id="w", words=(WORD,), action=Action.BLOCK, apply_to=BOTH),))
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{TEXT}"}}
    assert guard_prompt(asking(CHAT, part), compile_policy(rules)).rule is not None


# -- answers -----------------------------------------------------------------------------------------------------------

DOCUMENT = {"type": "document", "title": "x", "source": source("application/pdf", SOUND)}
FETCHED = {"type": "web_fetch_result", "url": "https://a.b/c", "content": DOCUMENT}
# Objects of answers that hold media: items of a response, blocks of a message.
OF_CODE = {"type": "code_interpreter_call", "id": "a", "code": "x"}
SCREEN = {"type": "computer_screenshot", "image_url": URL}
ANSWERED: dict[Dialect, dict[str, Json]] = {
    RESPONSES: {
        "a picture": {"type": "image_generation_call", "id": "a", "status": "completed", "result": PICTURE},
        "outputs": {**OF_CODE, "outputs": [{"type": "image", "url": URL}]},
        "a part": {"type": "message", "id": "a", "content": [{"type": "output_image", "image_url": URL}]},
        "a result": {"type": "computer_call_output", "id": "a", "output": SCREEN},
    },
    MESSAGES: {
        "a document": {"type": "web_fetch_tool_result", "tool_use_id": "a", "content": FETCHED},
        "a picture": {"type": "image", "source": source("image/png", PICTURE)},
        "a result": {"type": "mcp_tool_result", "content": [{"type": "image", "source": source("image/png", PICTURE)}]},
    },
}
EACH_OBJECT = [(dialect, each) for dialect, objects in ANSWERED.items() for each in objects.values()]


def answer_with(dialect: Dialect, value: Json) -> Json:
    if dialect is RESPONSES:
        return {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [value]}
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [value],
        "stop_reason": "end_turn",
    }


def shown_of(dialect: Dialect, value: Json) -> list[Any]:
    """The object as it is in a whole answer, in a stream, and in a whole answer that came as a stream."""
    table = RESPONSE_EVENTS if dialect is RESPONSES else MESSAGE_EVENTS
    field = "output" if dialect is RESPONSES else "content"
    answer = answer_with(dialect, value)
    events = list(table.as_events(copy.deepcopy(answer)))
    body, _ = event_client.plain(RULES, dialect, json.dumps(answer).encode())
    client = event_client.play(RULES, dialect, event_client.script(events))
    begun = [event["content_block"] for event in client.events if event["type"] == "content_block_start"]
    streamed = client.events[-1]["response"] if dialect is RESPONSES else {field: begun}
    together, _ = event_client.plain(RULES, dialect, event_client.script(events))
    return [each[field][0] for each in (body, streamed, together)]


@pytest.mark.parametrize(("dialect", "value"), EACH_OBJECT)
def test_media_in_answers_of_events_are_never_changed(dialect: Dialect, value: Json) -> None:
    assert shown_of(dialect, value) == [value] * 3


@pytest.mark.parametrize(("given", "expected"), POSING.items())
@pytest.mark.parametrize(("dialect", "value"), EACH_OBJECT)
def test_text_in_the_place_of_media_is_text_in_answers(
    dialect: Dialect, value: Json, given: str, expected: str
) -> None:
    spelled = json.dumps(value).replace(json.dumps(payload_of(value))[1:-1], "HERE")
    shown = shown_of(dialect, json.loads(spelled.replace("HERE", given)))
    assert shown == [json.loads(spelled.replace("HERE", expected))] * 3


def test_text_in_an_envelope_blocks_answers_of_events() -> None:
    rules = Policy(name="p", rules=(Rule(id="w", words=(WORD,), action=Action.BLOCK, message="No."),))
    for dialect, value in EACH_OBJECT:
        spelled = json.dumps(value).replace(json.dumps(payload_of(value))[1:-1], f"data:image/png;base64,{TEXT}")
        answer = answer_with(dialect, json.loads(spelled))
        body, _ = event_client.plain(rules, dialect, json.dumps(answer).encode())
        assert TEXT not in json.dumps(body) and "No." in json.dumps(body)


@pytest.mark.parametrize("part", [*ASKED[CHAT].values(), *ASKED[MESSAGES].values()])
def test_media_in_answers_of_chats_are_never_changed(part: Json) -> None:
    for message in ({"content": [part]}, {"content": "x", "zq": {"a": [part]}}):
        body, _ = plain(RULES, json.dumps(completion(copy.deepcopy(message))).encode())
        assert body["choices"][0]["message"] == message
        client = play(RULES, script(chunk(copy.deepcopy(message)), chunk(finish="stop")))
        assert client.messages[0] == message


# Fields that no protocol names, in which servers send what they made.
MADE: dict[str, Json] = {
    "image": {"image": PICTURE},
    "an object": {"image": {"b64_json": PICTURE}},
    "b64_json": {"b64_json": PICTURE},
    "inline_data": {"inline_data": {"mime_type": "image/png", "data": PICTURE}},
    "inlineData": {"inlineData": {"mimeType": "audio/L16", "data": SOUND}},
    "video": {"video": {"url": URL}},
    "by its type": {"attachments": [{"mime_type": "audio/L16", "data": SOUND}]},
    "a blob": {"resource": {"uri": "a://b", "mimeType": "image/png", "blob": PICTURE}},
    "an URL in any field": {"zq": URL},
    "an URL within": {"zq": {"a": URL}},
    "a known format in any field": {"zq": PICTURE},
    "a known format within": {"zq": {"a": [PICTURE]}},
    "the content of a file": {"files": [{"name": "a.png", "content": PICTURE}]},
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_media_in_unknown_fields_are_never_changed(made: Json) -> None:
    given = {"role": "assistant", "content": "x", **made}
    asked = {"model": "m", "messages": [copy.deepcopy(given)], **copy.deepcopy(made)}
    assert forwarded(CHAT, asked) == {"model": "m", "messages": [given], **made}
    around = {**completion(copy.deepcopy(given)), **copy.deepcopy(made)}
    around["choices"][0] |= copy.deepcopy(made)
    body, _ = plain(RULES, json.dumps(around).encode())
    for shown in (body, body["choices"][0], body["choices"][0]["message"]):
        assert {name: shown.get(name) for name in made} == made
    client = play(RULES, script(chunk(copy.deepcopy(given)), chunk(finish="stop")))
    assert client.messages[0] == given
    for dialect in (RESPONSES, MESSAGES):
        item = {"type": "zq_item", **made}
        body, _ = event_client.plain(RULES, dialect, json.dumps(answer_with(dialect, copy.deepcopy(item))).encode())
        assert body["output" if dialect is RESPONSES else "content"] == [item]


@pytest.mark.parametrize("payload", [URL, PICTURE], ids=["an URL", "a known format"])
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_media_in_pieces_in_an_unknown_field_are_never_changed(size: int, payload: str) -> None:
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
    client = play(RULES, script(*(chunk({"zq": piece}) for piece in pieces), chunk(finish="stop")))
    assert client.messages[0] == {"zq": payload}


def test_text_in_unknown_fields_waits_for_no_url() -> None:
    client = play(RULES, script(chunk({"zq": "dat"}), chunk({"zq": "e"}), chunk({"image": "a picture "})))
    assert client.messages[0] == {"zq": "date", "image": "a picture "}
    client = play(RULES, script(chunk({"zq": "/9j"}), chunk({"zq": "o"}), chunk({"a": "R0lGODdh "})))
    assert client.messages[0] == {"zq": "/9jo", "a": "R0lGODdh "}


@pytest.mark.parametrize(("given", "expected"), POSING.items())
def test_text_in_the_place_of_media_in_unknown_fields_is_text(given: str, expected: str) -> None:
    for made in ({"image": given}, {"zq": {"image": {"url": given}}}):
        body, _ = plain(RULES, json.dumps({**completion({"content": "x", **made}), **made}).encode())
        spelled = json.dumps(made).replace(json.dumps(given)[1:-1], json.dumps(expected)[1:-1])
        message = body["choices"][0]["message"]
        assert [{name: shown[name] for name in made} for shown in (body, message)] == [json.loads(spelled)] * 2


@pytest.mark.parametrize("name", ["source", "data", "blob", "zq"])
def test_letters_without_blanks_in_unknown_fields_are_text(name: str) -> None:
    letters = f"ThePasswordThatYouAskedForIsReally{WORD}AndThatIsAllOfIt"
    body, _ = plain(RULES, json.dumps({**completion({"content": "x", name: letters}), name: letters}).encode())
    assert WORD not in json.dumps(body)


def test_a_label_that_the_protocol_names_is_no_media() -> None:
    value = "R0lGODlhAQABAIAAAAUEBAAA" + "12MONKEYS" + "AAA" * 13
    for name, gone in (("id", True), ("thumbnail", False)):
        guard = open_guard(
            RESPONSES, compile_policy(Policy(name="p", rules=(Rule(id="r", words=("12MONKEYS",)),))), 1, ("m",)
        )
        answer = StreamAnswer(guard, max_event=1 << 12, max_whole=1 << 16, dialect=RESPONSES)
        response = {"object": "response", "status": "in_progress", "model": "m", "output": [], name: value}
        event = json.dumps({"type": "response.created", "response": response})
        sent = repr(answer.feed(f"data: {event}\n\n".encode(), 0.0))
        assert ("12MONKEYS" not in sent) is gone
