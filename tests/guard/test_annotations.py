"""Annotations: their places are those of the text that a client reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.guard.annotations import MAX_SIZE, MAX_WAITING
from gateway.policy.model import Action, Policy
from tests.support.guard_client import (
    BLOCK,
    DROP,
    OBSERVE,
    REFUSE,
    WORD,
    Client,
    chunk,
    completion,
    plain,
    play,
    policy,
    rule,
    stream,
)

SEEN = "[REDACTED]"
TEXT = f"See {WORD} and here or there."


def cited(start: Any, end: Any, **more: Any) -> dict[str, Any]:
    return {"type": "url_citation", "url_citation": {"start_index": start, "end_index": end, "url": "u", **more}}


def citing(phrase: str, text: str = TEXT, **more: Any) -> dict[str, Any]:
    return cited(text.index(phrase), text.index(phrase) + len(phrase), **more)


def shown_by(client: Client) -> list[Any]:
    deltas = [choice["delta"] for value in client.events for choice in value.get("choices", ())]
    return [each for delta in deltas for each in delta.get("annotations") or ()]


def whole(policy: Policy, *annotations: Any, text: str = TEXT) -> list[Any]:
    answer = json.dumps(completion({"content": text, "annotations": list(annotations)})).encode()
    body, _ = plain(policy, answer)
    found: list[Any] = body["choices"][0]["message"]["annotations"]
    assert shown_by(play(policy, answer)) == found
    return found


def phrases(text: str, annotations: list[Any]) -> list[str]:
    places = [each["url_citation"] for each in annotations]
    return [text[each["start_index"] : each["end_index"]] for each in places]


RULES = [
    policy(),
    policy(rule(replacement="")),
    policy(rule(mask="*")),
    policy(rule(), rule("or", id="s")),
    DROP,
    REFUSE,
]


@pytest.mark.parametrize("rules", RULES)
def test_places_move_with_the_text(rules: Policy) -> None:
    wanted = ["See", "here", "there."]
    annotations = [citing(phrase) for phrase in wanted]
    body, _ = plain(rules, json.dumps(completion({"content": TEXT})).encode())
    assert phrases(body["choices"][0]["message"]["content"], whole(rules, *annotations)) == wanted
    for at in range(len(TEXT) + 1):
        for behind in (chunk({"annotations": annotations}), chunk({"annotations": annotations}, finish="stop")):
            client = stream(rules, chunk({"content": TEXT[:at]}), chunk({"content": TEXT[at:]}), behind)
            assert phrases(client.content, shown_by(client)) == wanted


def test_a_place_around_what_was_replaced_is_kept_and_one_inside_is_not() -> None:
    around, inside, half, exactly = citing(f"{WORD} and"), citing("MONK"), citing("KEYS and"), citing(WORD)
    shown = whole(policy(), around, inside, half, exactly, cited(0, 3))
    assert phrases(f"See {SEEN} and", shown) == [f"{SEEN} and", "See"]


def test_places_wait_for_their_text() -> None:
    lists = [chunk({"annotations": [cited(0, 1), cited(0, 7)]}), chunk({"annotations": [cited(0, 1)]})]
    client = stream(policy(), chunk({"content": "a 12MON"}), *lists, chunk({"content": "K"}), chunk(finish="stop"))
    assert phrases(client.content, shown_by(client)) == ["a", "a 12MON", "a"]
    assert sum("annotations" in value["choices"][0]["delta"] for value in client.events) == 1, "in one list"
    held = stream(policy(), chunk({"content": "a 12MON"}), chunk({"annotations": [cited(2, 7)]}), chunk(finish="stop"))
    assert held.content == "a 12MON" and phrases(held.content, shown_by(held)) == ["12MON"]
    cut = stream(policy(), chunk({"content": "a 12"}), chunk({"annotations": [cited(2, 4)]}), done=False)
    assert phrases(cut.content, shown_by(cut)) == ["12"]
    blocked = stream(
        BLOCK, chunk({"content": "a 12"}), chunk({"annotations": [cited(2, 4)]}), chunk({"content": "MONKEYS"})
    )
    assert blocked.content == "a Not shown." and shown_by(blocked) == []


@pytest.mark.parametrize(
    "place", [(0, 900), (-1, 2), (3, 2), ("0", 2), (0, None), (0.0, 2.0), (True, 2), (0, 4111111111111111)]
)
def test_places_that_are_none_are_left_out(place: tuple[Any, Any]) -> None:
    assert whole(policy(), cited(*place), cited(0, 3)) == [cited(0, 3)]


def test_texts_in_them_are_scanned() -> None:
    assert whole(policy(), citing("here", title=f"x {WORD}")) == [
        citing("here", f"See {SEEN} and here", title=f"x {SEEN}")
    ]
    body, _ = plain(
        policy(rule(action=Action.BLOCK)),
        json.dumps(completion({"content": "a", "annotations": [cited(0, 1, title=WORD)]})).encode(),
    )
    assert WORD not in json.dumps(body)


def test_those_without_a_place_stay_as_they_are() -> None:
    other = {"type": "file_citation", "file_citation": {"file_id": "f"}}
    assert whole(policy(), other) == [other] and whole(policy(), "x", 5, None) == ["x", 5, None]
    client = stream(policy(), chunk({"annotations": [cited(5, 9)]}), chunk(finish="stop"))
    assert shown_by(client) == [cited(5, 9)] and not client.content


def test_observed_ones_do_not_move() -> None:
    values = [chunk({"content": TEXT}), chunk({"annotations": [citing("here")]}), chunk(finish="stop")]
    assert stream(OBSERVE, *values).events == values


def test_content_whose_places_are_not_known_has_none() -> None:
    text = json.dumps({"a": WORD})
    client = stream(policy(), chunk({"content": text, "annotations": [cited(0, 1), "x"]}), json_content=True)
    assert shown_by(client) == ["x"]


def test_what_waits_is_bounded() -> None:
    large = cited(2, 4, title="x" * MAX_SIZE)
    values = [chunk({"annotations": [cited(2, 4)] * 20}) for _ in range(MAX_WAITING // 20 + 1)]
    client = stream(policy(), chunk({"content": "a 12"}), *values, chunk(finish="stop"))
    assert len(shown_by(client)) <= MAX_WAITING
    answer = json.dumps(completion({"content": "a 12", "annotations": [large]})).encode()
    assert shown_by(play(policy(), answer)) in ([], [large])
