"""Media in answers: pictures pass as they are, whatever words their base64 spells; all else in such a part is text."""

from __future__ import annotations

import base64
import json
import random
import re
from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.guard import media
from gateway.guard.channels import ChannelCounts, InvalidAnswer
from gateway.guard.media import PayloadText
from gateway.policy.model import Action, Channel, Direction
from tests.support.guard_client import (
    OBSERVE,
    broken,
    chunk,
    completion,
    event,
    plain,
    play,
    policy,
    rule,
    script,
    stream,
)

SEEN = "[REDACTED]"
RULES = policy(rule("is", "12MONKEYS"))
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(1500)).decode()
URL = f"data:image/png;base64,{PICTURE}"
TEXT = base64.b64encode(b"see 12MONKEYS, and no more than that. " * 3).decode()
assert "is" in PICTURE.lower()


def images(*items: Any) -> dict[str, Any]:
    return {"images": [{"index": index, **item} for index, item in enumerate(items)]}


def image(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


SHOWN: dict[str, tuple[Any, Any]] = {
    "a url": (images(image(URL)), images(image(URL))),
    "base64": (images({"b64_json": PICTURE, "type": "image"}), images({"b64_json": PICTURE, "type": "image"})),
    "a part": ({"content": [{"index": 0, **image(URL)}]}, {"content": [{"index": 0, **image(URL)}]}),
    "what it shows": (images(image(URL, alt="12MONKEYS")), images(image(URL, alt=SEEN))),
    "a name": (images(image(URL, name="is.png")), images(image(URL, name=f"{SEEN}.png"))),
    "an address": (images(image("https://a.b/12MONKEYS.png")), images(image(f"https://a.b/{SEEN}.png"))),
    "plain text": (images(image("data:text/plain,12MONKEYS")), images(image("data:text/plain,%5BREDACTED%5D"))),
    "plain text, clean": (images(image("data:text/plain,12 m")), images(image("data:text/plain,12 m"))),
    "too short": (images(image("data:image/png;base64,12MONKEYS")), images(image(f"data:image/png;base64,{SEEN}"))),
    "elsewhere": ({"content": PICTURE[:60]}, None),
}  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), SHOWN.values(), ids=SHOWN)
def test_e2_media_in_answers_are_no_text(given: Any, expected: Any) -> None:
    if expected is None:
        expected = {"content": re.sub("(?i)is", SEEN, given["content"])}
        assert expected != given
    client = play(RULES, script(chunk(given), chunk(finish="stop")))
    assert client.messages[0] == expected and client.done
    body, _ = plain(RULES, json.dumps(completion(given)).encode())
    assert body["choices"][0]["message"] == expected


@pytest.mark.parametrize(
    "head", ["data:image/svg+xml;base64,", "data:text/html;base64,", "data:application/json;base64,", ""]
)
def test_e2_text_in_an_envelope_is_censored_in_it(head: str) -> None:
    client = play(RULES, script(chunk(images(image(head + TEXT))), chunk(finish="stop")))
    (shown,) = client.messages[0]["images"]
    body, _ = plain(RULES, json.dumps(completion(images(image(head + TEXT)))).encode())
    assert body["choices"][0]["message"]["images"] == [shown]
    assert shown["type"] == "image_url"
    _, _, payload = shown["image_url"]["url"].rpartition(",")
    assert base64.b64decode(payload).decode() == f"see {SEEN}, and no more than that. " * 3


def test_e2_text_in_an_envelope_can_block() -> None:
    blocking = policy(rule(action=Action.BLOCK, message="No."))
    for values in ([chunk(images(image(f"data:text/plain;base64,{TEXT}"))), chunk(finish="stop")],):
        client = stream(blocking, *values)
        assert client.finish == {0: "content_filter"} and TEXT not in client.text and client.content == "No."


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
@pytest.mark.parametrize("value", [URL, PICTURE])
def test_e2_media_in_pieces_pass_as_they_are(value: str, size: int) -> None:
    pieces = [value[at : at + size] for at in range(0, len(value), size)]
    first, *rest = (chunk(images({**image(piece)})) for piece in pieces)
    client = play(RULES, script(first, *rest, chunk(finish="stop")))
    assert client.messages[0]["images"][0]["image_url"]["url"] == value


def payload(*pieces: str) -> list[str]:
    text = PayloadText(ChannelCounts(compile_policy(RULES), Direction.OUTPUT), Channel.CONTENT, 0)
    return [*map(text.feed, pieces), text.finish()]


def test_e2_what_begins_as_media_must_stay_it() -> None:
    with pytest.raises(InvalidAnswer, match="continues as something else"):
        payload(URL, ", 12MONKEYS")
    client = stream(RULES, chunk(images(image(URL[:800]))), chunk(images(image(", 12MONKEYS"))))
    assert client.errors[0]["code"] == "upstream_protocol_error" and "12MONKEYS" not in client.text
    assert broken(RULES, script(chunk(images(image(URL[:800]))), chunk(images(image("!")))))


def test_e2_pictures_without_numbers_follow_each_other() -> None:
    other = f"data:text/plain;base64,{TEXT}"
    events = [chunk({"images": [image(url)]}) for url in (URL, URL[:800], other)]
    client = play(RULES, script(*events, chunk(finish="stop")))
    urls = [
        item["image_url"]["url"] for each in client.events for item in each["choices"][0]["delta"].get("images", ())
    ]
    assert urls[:2] == [URL, URL[:800]] and not client.errors
    assert SEEN in base64.b64decode(urls[-1].rpartition(",")[2]).decode()


def test_e2_text_in_base64_is_known_as_text_however_it_is_cut() -> None:
    text = base64.b64encode("12MONKÉYS é 12MONKEYS ".encode() * 8).decode()
    for head in ("", "data:application/octet-stream;base64,"):
        whole = payload(head + text)[-1]
        assert SEEN in base64.b64decode(whole.removeprefix(head)).decode()
        for size in (1, 5, 47, 48, 49, 64, 100):
            assert "".join(payload(*(f"{head}{text}"[at : at + size] for at in range(0, 400, size)))) == whole
    utf16 = base64.b64encode(("12MONKEYS " * 20).encode("utf-16")).decode()
    assert "".join(payload(*(utf16[at : at + 52] for at in range(0, len(utf16), 52)))) == payload(utf16)[-1] != utf16


def test_e2_text_waits_for_nothing() -> None:
    assert payload("h", "ttps", "://a", ".b/", "12M", "ONKEYS") == ["", "", "https://a", ".b/", "", SEEN, ""]


def test_e2_what_may_be_text_in_base64_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_HELD", len(TEXT))
    assert payload(TEXT[:-4], TEXT[-4:])[-1]
    with pytest.raises(InvalidAnswer, match=f"more than {len(TEXT)} characters"):
        payload(TEXT, "QUFB")


def test_e2_a_picture_that_is_held_is_decoded_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time when it has doubled, not with each piece."""
    calls: list[int] = []
    known = media.foresee
    monkeypatch.setattr(media, "foresee", lambda value, declared: calls.append(len(value)) or known(value, declared))
    payload(*(TEXT * 20)[: 4 * 500])
    assert sum(calls) < 10 * 2000


def test_e2_media_are_only_observed_as_media() -> None:
    observed = policy(rule("is", "12MONKEYS"), mode=OBSERVE.mode)
    message = {**images(image(URL)), "audio": {"data": PICTURE[:400], "transcript": "x"}}
    client = stream_once(observed, message)
    assert client.messages[0] == message and not client.scanned.matches


def stream_once(rules: Any, message: Any) -> Any:
    return play(rules, event(chunk(message)) + event(chunk(finish="stop")))
