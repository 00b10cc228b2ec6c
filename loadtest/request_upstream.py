"""An upstream whose answers cost it next to nothing: a JSON answer, a stream of one chunk, or one of many.

A number in the prompt says how many chunks are wanted, 0 an answer that is no stream. The text is prose without a
match, unless the prompt asks for the forbidden word. Chunks have all the fields that OpenAI's have, `obfuscation` too,
and come one by one, `PAUSE` seconds apart, or as many as the prompt says.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
from functools import cache
from typing import cast

import uvloop

from loadtest.dialects import MODEL
from loadtest.scenario import Scenario
from loadtest.script import FORBIDDEN, tokens

PAUSE = 0.02  # seconds between two chunks of a stream
PROMPT = "chunks wanted: %d."
WITH_WORD = "with the forbidden word"
_WANTED = re.compile(rb"chunks wanted: (\d+)")
WITH_PAUSE = "seconds between them: %d."
_PAUSE = re.compile(rb"seconds between them: (\d+)")
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"openai-processing-ms: 212\r\nopenai-version: 2020-10-01\r\ntransfer-encoding: chunked\r\n\r\n"
)
_PLAIN_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nopenai-processing-ms: 212\r\n"
    b"openai-version: 2020-10-01\r\ncontent-length: %d\r\n\r\n"
)
_LABELS = {"id": "chatcmpl-BxZ0fKJq2", "created": 1760000000, "model": MODEL, "service_tier": "default"}
_USAGE = {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29}
PROSE = Scenario(
    name="requests", streams=1, rate=1, tokens=400, text="prose", planted=0, redactions=0, baselines=(), words=()
)
_TEXT = "".join(tokens(PROSE, 1)[:20])


def serve(listener: socket.socket, cores: frozenset[int]) -> None:
    """Answer on `listener` until this process is ended."""
    if cores:
        os.sched_setaffinity(0, cores)
    uvloop.run(_serve(listener))


async def _serve(listener: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(_Answers, sock=listener, backlog=1024)
    await server.serve_forever()


class _Answers(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not separator or (length and len(body) < int(length[1])):
            return
        self._received = b""
        found = _WANTED.search(body)
        wanted = int(found[1]) if found else 0
        text = f"{FORBIDDEN} {_TEXT}" if WITH_WORD.encode() in body else _TEXT
        first, *following = [_plain(text)] if wanted == 0 else _chunks(wanted, text)
        self._transport.write(first)
        if following:
            asked = _PAUSE.search(body)
            self._send(following, 0, int(asked[1]) if asked else PAUSE)

    def _send(self, parts: list[bytes], place: int, pause: float) -> None:
        if place and not self._transport.is_closing():
            self._transport.write(parts[place - 1])
        if place < len(parts):
            asyncio.get_running_loop().call_later(pause, self._send, parts, place + 1, pause)


@cache
def _plain(text: str) -> bytes:
    message = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    answer = {**_LABELS, "object": "chat.completion", "choices": [choice], "usage": _USAGE, "system_fingerprint": None}
    body = json.dumps(answer).encode()
    return _PLAIN_HEAD % len(body) + body


@cache
def _chunks(count: int, text: str) -> list[bytes]:
    """What is written at a time. The first has the head with it, the last the end."""
    texts = [text] if count == 1 else tokens(PROSE, 0)[:count]
    parts = [
        _chunk({"role": "assistant", "content": piece, "refusal": None} if not place else {"content": piece})
        for place, piece in enumerate(texts)
    ]
    parts[0] = _STREAM_HEAD + parts[0]
    parts[-1] += _chunk({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    return parts


def _chunk(delta: dict[str, object], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    event = {**_LABELS, "object": "chat.completion.chunk", "system_fingerprint": "fp_560af6e559", "choices": [choice]}
    event |= {"usage": None, "obfuscation": "".join(random.choices("abcdefghijkXYZ0123456789", k=random.randrange(12)))}
    data = b"data: %s\n\n" % json.dumps(event, separators=(",", ":")).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)
