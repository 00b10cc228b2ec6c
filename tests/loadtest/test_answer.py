"""Answers are read however they are cut, and every way of being wrong is noticed."""

import dataclasses
import json

import pytest

from loadtest.answer import Answer, check, read
from loadtest.dialects import DIALECTS, chunk
from loadtest.scenario import load
from loadtest.script import VARIANTS, expected_text, tokens

SCENARIO = next(scenario for scenario in load()[0] if scenario.quick)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def events() -> list[bytes]:
    script = [chunk(None), *(chunk(delta) for delta in tokens(SCENARIO, 0)), chunk("", finish="stop")]
    return [b"%s%d%s" % (before, number, after) for number, (before, after) in enumerate(script)] + [
        b"data: [DONE]\n\n"
    ]


def body(parts: list[bytes]) -> bytes:
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 1000, 10**9])
def test_an_answer_in_pieces_of_any_size(size: int) -> None:
    stream = body(events())
    answer = read([(at * 1000, stream[at : at + size]) for at in range(0, len(stream), size)])
    assert (answer.status, answer.finish, answer.complete, answer.error) == (200, "stop", True, "")
    assert answer.text == "".join(tokens(SCENARIO, 0))
    assert [stamp for stamp, _ in answer.arrivals] == list(range(SCENARIO.tokens + 2))
    assert check(answer, SCENARIO, 0, guarded=False).fault == ""


def test_an_event_arrives_with_its_last_byte() -> None:
    stream = HEAD + b"%x\r\n%s" % (len(events()[0]), events()[0])
    answer = read([(5_000, stream[:-1]), (9_000, stream[-1:])])
    assert answer.arrivals == [(0, 9.0)]


def test_comments_and_crlf_are_read() -> None:
    answer = read([(0, body([b": ping\r\n\r\n", events()[1].replace(b"\n", b"\r\n")]))])
    assert answer.text == tokens(SCENARIO, 0)[0]


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ndata: 1\n\n",
        body([b"data: {}\n\n"]),
        body([b"data: {\n\n"]),
        body([b'data: {"error": {"message": "no"}}\n\n']),
        b"not http\r\n\r\n",
    ],
)
def test_something_else_is_an_error(stream: bytes) -> None:
    assert read([(0, stream)]).error


@pytest.mark.parametrize("name", [name for name in DIALECTS if name != "chat"])
@pytest.mark.parametrize("size", [7, 10**9])
def test_answers_of_other_endpoints(name: str, size: int) -> None:
    dialect = DIALECTS[name]
    script = dialect.script(tokens(SCENARIO, 0))
    assert len(script) == SCENARIO.tokens + 2  # as many chunks as chat's
    stream = body([before for before, _ in script])
    answer = read([(at, stream[at : at + size]) for at in range(0, len(stream), size)], dialect)
    assert check(answer, SCENARIO, 0, guarded=False).fault == ""
    cut = read([(0, body([before for before, _ in script[:-1]]))], dialect)
    assert "did not end" in check(cut, SCENARIO, 0, guarded=False).fault


def test_a_text_that_is_repeated_wrongly_is_an_error() -> None:
    script = DIALECTS["responses"].script(tokens(SCENARIO, 0))
    answer = read([(0, body([before for before, _ in (script[0], *script[2:])]))], DIALECTS["responses"])
    assert "another text" in answer.error


def good() -> Answer:
    return read([(0, body(events()))])


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"status": 502}, "status 502"),
        ({"text": good().text + "x"}, "differs at character"),
        (
            {"text": good().text.replace("12MONKEYS", "[CENSORED]", 1)},
            "1 redactions and 2 forbidden words, expected 0 and 3",
        ),
        ({"complete": False}, "did not end"),
        ({"finish": "length"}, "finish_reason length"),
        ({"arrivals": [(1, 2.0)] * 100}, "rewrites"),
        ({"error": "broken"}, "broken"),
    ],
)
def test_a_fault_is_noticed(change: dict[str, object], part: str) -> None:
    found = check(dataclasses.replace(good(), **change), SCENARIO, VARIANTS, guarded=False)
    assert found.fault.startswith(f"stream {VARIANTS}: ")
    assert part in found.fault


def test_a_guarded_answer() -> None:
    answer = dataclasses.replace(good(), text=expected_text(SCENARIO, 0, guarded=True))
    found = check(answer, SCENARIO, 0, guarded=True)
    assert (found.fault, found.redactions, found.leaks) == ("", 3, 0)
    assert check(good(), SCENARIO, 0, guarded=True).leaks == 3


def test_a_chunk_is_what_the_api_sends() -> None:
    before, after = chunk(" word")
    assert before.startswith(b"data: ")
    assert after.endswith(b"\n\n")
    event = json.loads((before + b"123" + after).removeprefix(b"data: "))
    assert event["created"] == 123
    assert event["choices"] == [{"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}]
