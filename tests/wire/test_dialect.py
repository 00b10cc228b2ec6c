"""What holds for every dialect, whatever its endpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.wire import chunks, sse
from gateway.wire.dialect import BLOCKED, Dialect
from gateway.wire.dialects import DIALECTS, SERVED

CHATS = [dialect for dialect in DIALECTS if dialect.events is None]
EACH = pytest.mark.parametrize("dialect", CHATS, ids=lambda dialect: dialect.path)


def event_of(dialect: Dialect, text: str) -> dict[str, Any]:
    return {"id": "a", "choices": [dialect.content.choice(text)]}


def test_each_has_a_path_of_its_own() -> None:
    assert len({dialect.path for dialect in SERVED}) == len(SERVED)


@EACH
def test_the_place_of_content_is_where_the_guard_reads_it(dialect: Dialect) -> None:
    (choice,) = dialect.chunk_to_chat(event_of(dialect, "text"))["choices"]
    assert choice["delta"] == {"content": "text"} and choice["index"] == 0


@EACH
def test_what_the_guard_lets_through_comes_out_as_it_came_in(dialect: Dialect) -> None:
    event = event_of(dialect, "text")
    assert dialect.to_wire(dialect.chunk_to_chat(event_of(dialect, "text"))) == event
    assert (
        json.loads(dialect.encoder().events(dialect.chunk_to_chat(event_of(dialect, "text"))).removeprefix(b"data: "))
        == event
    )


@EACH
def test_content_is_read_and_replaced_in_its_place(dialect: Dialect) -> None:
    place, choice = dialect.content, dialect.content.choice("a")
    place.put(choice, "b")
    assert choice == place.choice("b") and place.text(choice) == "b"
    assert place.empty(choice) and not place.others(choice)
    bare: dict[str, Any] = {}
    assert place.text(bare) is None
    place.put(bare, "c")
    assert place.text(bare) == "c"


@EACH
def test_a_block_ends_a_choice_and_the_end_is_recognised(dialect: Dialect) -> None:
    (choice,) = dialect.to_wire(chunks.chunk({}, [chunks.part(1, {}, BLOCKED)]))["choices"]
    assert (choice["index"], choice["finish_reason"]) == (1, BLOCKED)
    (end,) = sse.Decoder(100).feed(dialect.end)
    assert dialect.is_end(end)
    (error,) = sse.Decoder(100).feed(dialect.encoder().error({"error": {"message": "m"}}))
    assert not dialect.is_end(error) and json.loads(error.data) == {"error": {"message": "m"}}


@EACH
def test_every_field_of_the_prompt_is_read(dialect: Dialect) -> None:
    body = {"messages": [{"content": "a"}], "prediction": {"content": "a"}, "prompt": ["a"]}
    given = {name: value for name, value in body.items() if name in dialect.prompt_fields}
    assert dialect.count_prompts(given) == 1
    assert {part.field for part in dialect.prompt_texts(given)} == dialect.prompt_fields - {"model"}
    for part in dialect.prompt_texts(given):
        assert [slot.holder[slot.key] for slot in part.slots if slot.channel == "content"] == ["a"]
