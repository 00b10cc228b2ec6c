"""Answers that are kept for the requests that refer to them: whose they are, how long, and how much of them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.proxy.stored import ITEM_COST, RETENTION, StoredAnswers
from gateway.wire import json
from gateway.wire.dialect import BadRequest

Json = dict[str, Any]
HI = {"role": "user", "content": "hi"}
GIVEN = [json.encode(HI)]
LIMIT = 1000


def item(name: str, text: str = "said") -> Json:
    part = {"type": "output_text", "text": text}
    return {"type": "message", "id": f"msg_{name}", "role": "assistant", "content": [part]}


def reference(name: str) -> Json:
    return {"type": "item_reference", "id": f"msg_{name}"}


def response(name: str, text: str = "said") -> Json:
    return {"id": f"resp_{name}", "output": [item(name, text)]}


def stored(*names: str, capacity: int = 10**6) -> tuple[StoredAnswers, list[float]]:
    now = [0.0]
    answers = StoredAnswers(capacity, lambda: now[0])
    for name in names:
        answers.keep("key", GIVEN, response(name))
    return answers, now


def is_kept(answers: StoredAnswers, name: str, owner: str = "key") -> bool:
    """Both ways to refer to it agree."""
    by_item = answers.written_out(owner, {"input": [reference(name)]}, LIMIT)["input"] == [item(name)]
    try:
        answers.written_out(owner, {"input": "x", "previous_response_id": f"resp_{name}"}, LIMIT)
    except BadRequest as refused:
        assert (refused.param, refused.code) == ("previous_response_id", "previous_response_not_found")
        assert not by_item
        return False
    assert by_item
    return True


def test_what_a_request_refers_to_is_written_out() -> None:
    answers, _ = stored("a", "b")
    body = {"model": "m", "input": [reference("a"), HI, reference("b")]}
    assert answers.written_out("key", body, LIMIT) == {"model": "m", "input": [item("a"), HI, item("b")]}
    body = {"model": "m", "input": "and?", "previous_response_id": "resp_a"}
    conversation = [HI, item("a"), {"role": "user", "content": "and?"}]
    assert answers.written_out("key", body, LIMIT) == {"model": "m", "input": conversation}


@pytest.mark.parametrize(
    "body",
    [
        {"input": "hi"},
        {"input": [HI, reference("unknown"), {"type": "item_reference", "id": 3}, {"type": "item_reference"}, 3]},
        {"input": [HI], "previous_response_id": None},
        {"input": 3},
        {"input": {"type": "item_reference", "id": "msg_a"}},
        {},
    ],
)
def test_a_request_that_refers_to_nothing_stays_as_it_is(body: Json) -> None:
    answers, _ = stored("a")
    assert answers.written_out("key", body, LIMIT) is body


@pytest.mark.parametrize("previous", ["resp_x", ["resp_a"], {}, 3])
def test_an_unknown_answer_is_refused_or_left(previous: Any) -> None:
    answers, _ = stored("a")
    body = {"input": "x", "previous_response_id": previous}
    if not previous:
        assert answers.written_out("key", body, LIMIT) is body
        return
    with pytest.raises(BadRequest, match="No answer with this id"):
        answers.written_out("key", body, LIMIT)


def test_another_key_finds_nothing() -> None:
    answers, _ = stored("a")
    assert is_kept(answers, "a")
    assert not is_kept(answers, "a", "other")


def test_an_answer_is_kept_for_its_time() -> None:
    answers, now = stored("a")
    now[0] = RETENTION - 1
    answers.keep("key", GIVEN, response("b"))
    assert is_kept(answers, "a")
    now[0] = RETENTION
    assert not is_kept(answers, "a") and is_kept(answers, "b")
    now[0] = 2 * RETENTION
    assert not is_kept(answers, "b")
    assert (answers._size, answers._items) == (0, {})


def test_the_oldest_give_way() -> None:
    size = len(GIVEN[0]) + len(json.encode(item("a"))) + 3 * ITEM_COST
    answers, _ = stored(*"abc", capacity=2 * size)
    assert [name for name in "abc" if is_kept(answers, name)] == ["b", "c"]
    answers.keep("key", GIVEN, response("d", "x" * 2 * size))
    assert not any(is_kept(answers, name) for name in "abcd")
    assert (answers._size, answers._items) == (0, {})


def test_references_write_out_no_more_than_a_body_may_have() -> None:
    answers, _ = stored("a")
    size = len(json.encode(item("a")))
    body = {"input": [reference("a")] * 3}
    assert len(answers.written_out("key", body, 3 * size)["input"]) == 3
    for refused in (body, {"input": [reference("a")] * 2, "previous_response_id": "resp_a"}):
        with pytest.raises(BadRequest) as raised:
            answers.written_out("key", refused, 3 * size - 1)
        assert raised.value.param == "input"
