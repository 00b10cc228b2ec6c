"""A client on a raw socket, which reads an answer as strictly as it can and may stop anywhere."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass, field

from tests.support.gateway import question
from tests.support.served import KEY
from tests.support.upstream import Json


@dataclass(slots=True)
class Seen:
    """What came. `end`: whole, closed (before the end) or reset."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes = b""
    end: str = "closed"

    @property
    def payloads(self) -> list[Json]:
        lines = (line[6:] for line in self.body.decode().split("\n") if line.startswith("data: {"))
        return [json.loads(line) for line in lines]

    @property
    def content(self) -> str:
        """Of a stream's deltas, or of the message of a plain answer."""
        if not self.body:
            return ""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            choices = [choice["delta"] for each in self.payloads for choice in each.get("choices", ())]
        else:
            choices = [choice["message"] for choice in json.loads(self.body).get("choices", ())]
        return "".join(choice.get("content") or "" for choice in choices)

    @property
    def summary(self) -> str:
        """In the words of the table: the status, the error's code, and how it ended."""
        if not self.status:
            return self.end
        parts = [str(self.status)]
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            errors = [each["error"].get("code") for each in self.payloads if "error" in each]
            parts += [f"event {code}" for code in errors]
            parts += ["done"] * self.body.rstrip().endswith(b"data: [DONE]")
        elif self.status >= 400 and self.end == "whole":
            parts.append(str(json.loads(self.body)["error"]["code"]))
        return " ".join(parts if self.end == "whole" else [*parts, self.end])


class Client:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, url: str, *, narrow: bool = False) -> Client:
        """`narrow`: the system takes little for it before it is read."""
        host, port = url.removeprefix("http://").split(":")
        raw = socket.socket()
        if narrow:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
        return cls(*await asyncio.open_connection(sock=raw, limit=4096 if narrow else 1 << 20))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read(self) -> Seen:
        """One answer to its end, or to the end of the connection."""
        answer = Seen()
        try:
            answer.raw = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = answer.raw.decode("latin-1").split("\r\n")[:-2]
            answer.status = int(first.split(" ")[1])
            answer.headers = {name.lower(): text for name, text in (line.split(": ", 1) for line in lines)}
            if answer.status == 100:
                return await self.read()
            if "content-length" in answer.headers:
                answer.body = await self.reader.readexactly(int(answer.headers["content-length"]))
            else:
                while size := int(await self.reader.readuntil(b"\r\n"), 16):
                    answer.body += (await self.reader.readexactly(size + 2))[:-2]
                await self.reader.readexactly(2)
            answer.end = "whole"
        except (asyncio.IncompleteReadError, ValueError) as error:
            answer.raw += getattr(error, "partial", b"")
        except ConnectionError:
            answer.end = "reset"
        answer.raw += answer.body
        return answer

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def leave(self, how: str) -> None:
        if how == "reset":
            self.reset()
        else:
            self.close()


def head_of(length: int, *more: str) -> bytes:
    lines = ["Host: localhost", f"Authorization: Bearer {KEY}", "Content-Type: application/json"]
    head = ["POST /v1/chat/completions HTTP/1.1", *lines, f"Content-Length: {length}", *more]
    return "\r\n".join([*head, "", ""]).encode()


def body_of(model: str, *, stream: bool = False, **fields: object) -> bytes:
    return json.dumps({**question("hello", **fields), "model": model, "stream": stream}).encode()


def request_of(model: str, *, stream: bool = False, **fields: object) -> bytes:
    body = body_of(model, stream=stream, **fields)
    return head_of(len(body)) + body
