"""The hot path, where a read is guarded and written in its own callback: it is taken, and gives way when it must."""

from __future__ import annotations

import asyncio
import gc
import re
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.censor.stream import Censor
from gateway.guard.answer import StreamAnswer
from gateway.guard.bytes_path import BytesPath, is_native
from gateway.policy.model import Rule
from gateway.proxy import hotpath
from gateway.proxy.downstream.cycle import RequestCycle
from gateway.proxy.hotpath import BodyWriter, HotPath, hot_path_problem
from gateway.proxy.relay import Relay
from tests.support.gateway import TIMEOUT, before
from tests.support.served import configuration, serving, write
from tests.support.upstream import (
    DONE,
    END,
    Call,
    Play,
    chunk,
    completion,
    delta,
    event,
    plain,
    sending,
    stream,
    stream_head,
)

WORDS = [f"word{number} " for number in range(40)]


@pytest.fixture(params=["python", *(["c"] if is_native() else [])])
def taken(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[bool]:
    """Whether each read that was offered to the hot path was taken."""
    found: list[bool] = []
    take, opened = HotPath._on_data, hotpath.READ_PATH

    def noting(self: HotPath, data: bytes) -> bool:
        found.append(take(self, data))
        return found[-1]

    class Noting:
        """`ReadPath`."""

        def __init__(self, *given: Any) -> None:
            assert opened is not None
            self.path = opened(*given)

        def feed(self, data: bytes) -> bytes | None:
            self.path.events = self.events
            rest = self.path.feed(data)
            found.extend([True] * (rest is None))
            return rest

        events: BytesPath | None = None
        failure = property(lambda self: self.path.failure)

    monkeypatch.setattr(HotPath, "_on_data", noting)
    monkeypatch.setattr(hotpath, "READ_PATH", Noting if request.param == "c" else None)
    return found


def one_by_one(texts: Sequence[str], end: bytes | None = chunk(event(delta(finish="stop")) + DONE) + END) -> Play:
    """Every text in a write of its own, with a pause after it: behind a large one longer each time it is asked for.
    `end` None: then nothing until the gateway leaves."""
    tries = count()

    async def play(call: Call) -> None:
        pause = 0.1 * next(tries)
        await call.send(stream_head())
        for text in texts:
            await call.send(chunk(event(delta(text))))
            await asyncio.sleep(0.005 if len(text) < 1000 else pause)
        if end is None:
            await call.hang()
        else:
            await call.send(end)

    return play


TRIES = 20


def test_the_installed_uvicorn_has_the_internals_that_the_hot_path_relies_on() -> None:
    assert hot_path_problem() is None


async def test_that_can_be_found_out_within_a_loop_too() -> None:
    assert hot_path_problem() is None


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_log_has_one_line_about_it_at_the_start(tmp_path: Path, workers: str) -> None:
    path = tmp_path / "portcullis.yaml"
    write(path, configuration("http://127.0.0.1:9/v1"))
    async with serving(path, "--workers", workers) as served:
        (line,) = await served.logged("hot_path")
        assert (line["on"], line["reason"], line["native"]) == (True, None, is_native())


async def other_send(self: Any, message: Any) -> None:
    if message["type"] == "http.response.body":
        self.transport.write(b"4\r\ndata\r\n0;other\r\n")


async def waiting_send(self: Any, message: Any) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("attribute", "value", "problem"),
    [
        ("send", other_send, "its `send` is not the one that is known"),  # it does not set `chunked_encoding`
        ("send", waiting_send, "its `send` waits"),
        ("__init__", lambda self, **_: None, "AttributeError: "),
        ("__init__", lambda self: None, "TypeError: "),
    ],
)
def test_what_is_different_in_another_uvicorn_is_named(
    monkeypatch: pytest.MonkeyPatch, attribute: str, value: Any, problem: str
) -> None:
    monkeypatch.setattr(RequestResponseCycle, attribute, value)
    assert (hot_path_problem() or "").startswith(problem)


def test_another_framing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BodyWriter, "of", lambda send: BodyWriter(send.__self__))
    monkeypatch.setattr(RequestResponseCycle, "send", other_send)
    monkeypatch.setattr(RequestResponseCycle, "disconnected", False, raising=False)
    assert hot_path_problem() == "it writes a chunk in another way"


async def test_reads_take_the_hot_path(taken: list[bool]) -> None:
    async with before(one_by_one([*WORDS, "12MON", "KEYS ", *WORDS])) as (gateway, _):
        answer = await gateway.stream()
        assert answer.content() == "".join(WORDS) + "[CENSORED] " + "".join(WORDS)
        assert answer.finish() == "stop"
        assert answer.done
        # Reads may fall together on a busy machine; the first that has something to show never takes this way.
        assert taken.count(True) > len(WORDS) // 2
        metrics = await gateway.metrics()
        metrics.assert_covered()
        line = (await gateway.logged(1))[0]
        assert line["outcome"] == "redacted"


async def test_a_large_event_leaves_it_and_comes_back(taken: list[bool]) -> None:
    large = "lorem 12MONKEYS " * 6000
    async with before(one_by_one([*WORDS, large, *WORDS])) as (gateway, _):
        # On a busy machine the reads behind the large one may fall together: then it is tried again.
        for _ in range(TRIES):
            taken.clear()
            answer = await gateway.stream()
            assert answer.content() == "".join(WORDS) + large.replace("12MONKEYS", "[CENSORED]") + "".join(WORDS)
            assert False in taken
            if True in taken[taken.index(False) :]:
                break
        else:
            pytest.fail("no read behind the large one took the hot path")


async def test_patterns_leave_it_sooner(taken: list[bool]) -> None:
    number = Rule(id="n", pattern="[0-9]+", replacement="#")
    large = "a1 " * 1500  # fewer bytes than words may have here
    async with before(one_by_one([*WORDS, large, *WORDS]), rules=(number,)) as (gateway, _):
        text = "".join(WORDS) + large + "".join(WORDS)
        assert (await gateway.stream()).content() == re.sub("[0-9]+", "#", text)
        assert False in taken and True in taken


async def test_a_block_ends_it(taken: list[bool]) -> None:
    async with before(one_by_one([*WORDS, "FORBIDDEN"], None)) as (gateway, upstream):
        answer = await gateway.stream()
        assert answer.content() == "".join(WORDS) + " (stopped)"
        assert answer.finish() == "content_filter"
        assert answer.done
        await asyncio.wait_for(upstream.asked.conversation.client_left.wait(), TIMEOUT)
        assert True in taken


@pytest.mark.usefixtures("taken")
async def test_an_upstream_that_breaks_off_within_it_is_reported() -> None:
    async def play(call: Call) -> None:
        await one_by_one([*WORDS, "held 12MON"], b"")(call)
        call.conversation.writer.transport.abort()

    async with before(play) as (gateway, _):
        answer = await gateway.stream()
        assert answer.content() == "".join(WORDS) + "held 12MON"
        assert answer.error is not None
        assert not answer.done


async def test_a_defect_of_the_censor_fails_closed(monkeypatch: pytest.MonkeyPatch, taken: list[bool]) -> None:
    feed = Censor.feed

    def breaking(self: Censor, text: str) -> str:
        if "trigger" in text:
            raise RuntimeError("quotes 12MONKEYS")
        return feed(self, text)

    monkeypatch.setattr(Censor, "feed", breaking)
    async with before(one_by_one([*WORDS, "held 12MON", "`trigger"], None)) as (gateway, upstream):
        answer = await gateway.stream()
        assert answer.content() == "".join(WORDS) + "held "
        assert answer.error is not None
        assert answer.error["code"] == "guard_failed"
        assert "MONKEYS" not in answer.response.text + gateway.log.getvalue()
        await asyncio.wait_for(upstream.asked.conversation.client_left.wait(), TIMEOUT)
        assert True in taken


async def test_a_defect_around_the_guard_fails_closed(monkeypatch: pytest.MonkeyPatch, taken: list[bool]) -> None:
    repeat = StreamAnswer.repeat

    def breaking(self: StreamAnswer, *given: Any) -> Any:
        if b"`" in given[0]:
            raise RuntimeError("quotes 12MONKEYS")
        return repeat(self, *given)

    monkeypatch.setattr(StreamAnswer, "repeat", breaking)
    async with before(one_by_one([*WORDS, "`", *WORDS], None)) as (gateway, upstream):
        answer = await gateway.stream()
        assert answer.error is not None and answer.error["code"] == "guard_failed" and not answer.done
        while not upstream.asked.conversation.writer.is_closing():
            await asyncio.sleep(0.01)
        line = (await gateway.logged(2))[1]
        assert (line["outcome"], line["error"]) == ("failed", "guard_failed")
        assert (await gateway.metrics()).value("portcullis_guard_failures_total", policy="default") == 1


async def test_an_answer_in_one_read_needs_no_hot_path() -> None:
    async with before(sending(stream("Hello ", "12MONKEYS"))) as (gateway, _):
        assert (await gateway.stream()).content() == "Hello [CENSORED]"


@pytest.mark.parametrize("kind", ["plain", "stream", "refused"])
async def test_a_request_leaves_nothing_to_the_garbage_collector(kind: str) -> None:
    """What it was made of goes with it, as no cycle of references is left: else each request would pay for collections,
    and its texts would stay until one."""

    def kept() -> list[str]:
        return [type(each).__name__ for each in gc.get_objects() if isinstance(each, RequestCycle | Relay | HotPath)]

    play = one_by_one(["one ", "two "]) if kind == "stream" else sending(plain(completion("fine")))
    async with before(play) as (gateway, _):
        gc.collect()
        gc.disable()
        try:
            was = Counter(kept())
            for _ in range(8):
                if kind == "refused":
                    await gateway.post({"model": "m"})
                elif kind == "stream":
                    assert (await gateway.stream()).content() == "one two "
                else:
                    await gateway.ask()
            await asyncio.sleep(0.05)
            left = Counter(kept()) - was
        finally:
            gc.enable()
    assert left["RequestCycle"] <= 1  # a connection knows its last one
    assert left["Relay"] == left["HotPath"] == 0
