"""Answers that an upstream compressed, in several members and cut off, on every way through the gateway."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from tests.support.gateway import before, error_of
from tests.support.upstream import DONE, END, MODEL, MODELS, chunk, completion, delta, event, http, sending, stream_head

GZIP = "Content-Encoding: gzip"
SAID = ("one ", "two ", "12MON", "KEYS ", "three")
EVENTS = [event(delta(text)) for text in SAID] + [event(delta(finish="stop")) + DONE]


def members(data: bytes, count: int) -> bytes:
    size = -(-len(data) // count)
    return b"".join(gzip.compress(data[start : start + size]) for start in range(0, len(data), size))


def cut_behind_a_flush(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


BODY = json.dumps(completion("one two 12MONKEYS three")).encode()
BROKEN = {
    "cut off": gzip.compress(BODY)[:-1],
    "cut behind a flush": cut_behind_a_flush(BODY),
    "cut in a second member": gzip.compress(BODY[:50]) + gzip.compress(BODY[50:])[:-9],
    "garbage behind it": gzip.compress(BODY) + b"12MONKEYS",
}


async def test_d16_a_member_for_each_event_of_a_stream() -> None:
    answer = stream_head(GZIP) + b"".join(chunk(gzip.compress(each)) for each in EVENTS) + END
    async with before(sending(answer)) as (gateway, _):
        got = await gateway.stream()
        assert (got.content(), got.done) == ("one two [CENSORED] three", True)


async def test_d16_a_stream_that_is_cut_off_within_its_compression_is_broken() -> None:
    flushed = cut_behind_a_flush(b"".join(EVENTS[:2]))
    for answer in (
        stream_head(GZIP) + chunk(flushed) + END,
        stream_head(GZIP) + chunk(gzip.compress(b"".join(EVENTS[:2])) + b"12MONKEYS") + END,
        stream_head(GZIP) + b"".join(chunk(gzip.compress(each)) for each in EVENTS[:2]) + chunk(b"\x1f\x8b") + END,
    ):
        async with before(sending(answer)) as (gateway, _):
            got = await gateway.stream()
            assert (got.content(), got.done) == ("one two ", False)
            assert got.error is not None
            assert got.error["code"] == "upstream_protocol_error"
            assert (await gateway.logged(1))[0]["error"] == "protocol"


@pytest.mark.parametrize("count", [1, 2, 7])
async def test_d16_plain_answers_errors_and_models_of_several_members(count: int) -> None:
    async with before(sending(http(200, members(BODY, count), "application/json", GZIP))) as (gateway, _):
        answer = await gateway.ask()
        assert answer.json()["choices"][0]["message"]["content"] == "one two [CENSORED] three"
    error = json.dumps({"error": {"message": "not with 12MONKEYS"}}).encode()
    async with before(sending(http(400, members(error, count), "application/json", GZIP))) as (gateway, _):
        assert error_of(await gateway.ask(), 400)["message"] == "not with [CENSORED]"
    listed = http(200, members(json.dumps(MODELS).encode(), count), "application/json", GZIP)
    async with before(sending(), models=listed) as (gateway, _):
        assert [entry["id"] for entry in (await gateway.client.get("/v1/models")).json()["data"]] == [MODEL]


@pytest.mark.parametrize("case", BROKEN)
async def test_d16_what_is_broken_is_a_protocol_error_everywhere(case: str) -> None:
    for status in (200, 400):
        answer = http(status, BROKEN[case], "application/json", GZIP)
        async with before(sending(answer), models=answer) as (gateway, _):
            for refused in (await gateway.ask(), await gateway.client.get("/v1/models")):
                assert error_of(refused, 502)["code"] == "upstream_protocol_error"
                assert "MONKEYS" not in refused.text
