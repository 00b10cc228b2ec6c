"""The bench of whole requests, without a gateway: its upstream answers what is asked for, and what is wrong is seen."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from loadtest import request_bench, request_upstream
from loadtest.request_bench import ROWS, Cost, Row
from loadtest.script import FORBIDDEN
from loadtest.targets import Running, TargetError


async def load(row: Row, *, guarded: bool = False) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(request_upstream._Answers, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await request_bench._run(replace(row, requests=8, at_once=3), Running(port, None, guarded=guarded))


@pytest.mark.parametrize("row", [row for row in ROWS if row.chunks < 2], ids=lambda row: row.name)
async def test_every_request_is_answered(row: Row) -> None:
    await load(row)


async def test_chunks_come_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_upstream, "PAUSE", 0.0)
    await load(Row("many", 30, kept=True, requests=8))


async def test_a_word_that_comes_out_of_a_guard_is_seen() -> None:
    await load(replace(request_bench._CHECK, requests=8), guarded=False)
    with pytest.raises(TargetError, match="came out"):
        await load(request_bench._CHECK, guarded=True)


def test_chunks_have_the_fields_of_openais() -> None:
    *_, last = request_upstream._chunks(3, "text")
    event = json.loads(last.partition(b"data: ")[2].partition(b"\n")[0])
    assert {"service_tier", "system_fingerprint", "usage", "obfuscation"} <= event.keys()
    assert event["choices"][0].keys() == {"index", "delta", "logprobs", "finish_reason"}
    assert FORBIDDEN.encode() not in last


def test_the_table_has_the_least_the_median_and_the_most() -> None:
    lines = request_bench.table({("a", "b"): [Cost(300, 1000), Cost(100, 500), Cost(200, 700)]}).splitlines()
    assert lines[1].split() == ["a", "b", "100", "200", "300", "2000"]
