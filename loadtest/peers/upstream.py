"""An upstream for any gateway: streams whose text says when it was sent, since fields of our own would be dropped.

The prompt says how many chunks are wanted, 0 for a plain answer, and whether the forbidden word is to be among them:
then it is chunk `PLANTED` and the two behind it, cut as a tokenizer cuts it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from time import monotonic_ns
from typing import cast

import uvloop

from loadtest.dialects import MODEL

PROMPT = "chunks wanted: %d."
WITH_WORD = "with the forbidden word"
PERIOD = 0.05  # seconds between two chunks
PLANTED = 15
MOMENT = re.compile(r"@(\d+);")  # microseconds of the system's clock
_EVERY = 10
_WORDS = ("the", "river", "runs", "slowly", "past", "old", "mills", "and", "nobody", "counts", "boats", "any", "more")
_WANTED = re.compile(rb"chunks wanted: (\d+)")
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_LABELS = {"id": "chatcmpl-peers", "created": 1760000000, "model": MODEL}
_USAGE = {"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29}
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def serve(listener: socket.socket, cores: frozenset[int]) -> None:
    """Answer on `listener` until this process is ended."""
    if cores:
        os.sched_setaffinity(0, cores)
    uvloop.run(_serve(listener))


async def _serve(listener: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(_Answers, sock=listener, backlog=1024)
    await server.serve_forever()


class _Answers(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = bytes(self._received).partition(b"\r\n\r\n")
        if not found:
            return
        length = _LENGTH.search(head)
        if len(body) < (int(length[1]) if length else 0):
            return
        self._received.clear()
        wanted = _WANTED.search(body)
        if wanted is None:
            self._send_whole({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "bench"}]})
        elif not int(wanted[1]):
            message = {"role": "assistant", "content": " ".join(_WORDS)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._send_whole({**_LABELS, "object": "chat.completion", "choices": [choice], "usage": _USAGE})
        else:
            self._transport.write(_STREAM_HEAD)
            self._send_chunk(0, int(wanted[1]), WITH_WORD.encode() in body)

    def _send_whole(self, answer: dict[str, object]) -> None:
        body = json.dumps(answer).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)

    def _send_chunk(self, number: int, wanted: int, with_word: bool) -> None:
        if self._transport.is_closing():
            return
        if number == wanted:
            self._transport.write(_framed(_event({}, "stop")) + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            return
        planted = number - PLANTED
        text = ("12", "MON", "KEYS")[planted] if with_word and 0 <= planted < 3 else f" {_WORDS[number % len(_WORDS)]}"
        if not number % _EVERY:
            text += f" @{monotonic_ns() // 1000};"
        delta = {"content": text} if number else {"role": "assistant", "content": text}
        self._transport.write(_framed(_event(delta, None)))
        asyncio.get_running_loop().call_later(PERIOD, self._send_chunk, number + 1, wanted, with_word)


def _event(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return (
        b"data: " + json.dumps({**_LABELS, "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
