"""A whole answer that is written past the server's `send`: the same bytes, and the connection stays or ends alike."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from gateway.proxy.downstream.cycle import RequestCycle

HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"2")]


class _Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data


def _cycle(
    method: str = "POST", keep_alive: bool = True, unread: bool = False
) -> tuple[RequestCycle, _Wire, list[int]]:
    wire, ended = _Wire(), list[int]()
    protocol: Any = SimpleNamespace(
        scope={"type": "http", "method": method, "http_version": "1.1", "path": "/"},
        transport=wire,
        flow=FlowControl(wire),
        logger=logging.getLogger("test"),
        access_logger=logging.getLogger("test"),
        access_log=False,
        server_state=SimpleNamespace(default_headers=[(b"date", b"now")]),
        expect_100_continue=False,
        on_response_complete=lambda: ended.append(1),
    )
    cycle = RequestCycle(protocol, keep_alive=keep_alive)
    cycle.more_body = unread
    return cycle, wire, ended


async def _sent(cycle: RequestCycle) -> None:
    await cycle.send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await cycle.send({"type": "http.response.body", "body": b"{}", "more_body": False})


async def test_headers_that_are_released_stay_where_a_head_is_learnt() -> None:
    cycle, _, _ = _cycle()
    headers = cycle.scope["headers"] = cycle.protocol.headers = [(b"host", b"localhost")]
    cycle.release_headers()
    assert not cycle.scope["headers"] and not cycle.protocol.headers
    assert headers == [(b"host", b"localhost")]
    following = cycle.protocol.headers = [(b"host", b"next")]
    cycle.release_headers()
    assert cycle.protocol.headers is following


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("unread", [True, False])
async def test_it_is_what_send_writes(keep_alive: bool, unread: bool) -> None:
    first, expected, told = _cycle(keep_alive=keep_alive, unread=unread)
    await _sent(first)
    second, wire, ended = _cycle(keep_alive=keep_alive, unread=unread)
    assert second.send_response(200, HEADERS, b"{}")
    assert wire.written == expected.written
    assert (second.last, second.response_complete, ended) == (first.last, first.response_complete, told)


async def test_what_only_send_can_do_is_left_to_it() -> None:
    blocked, wire, _ = _cycle()
    blocked.flow.pause_writing()
    gone, _, _ = _cycle()
    gone.disconnected = True
    for cycle in (blocked, gone, _cycle("HEAD")[0]):
        assert not cycle.send_response(200, HEADERS, b"{}")
        assert not cycle.response_started
    assert wire.written == b""
