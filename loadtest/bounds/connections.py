"""What a client without a key can do below the requests, on many connections at a time. Each attack is bounded in
bytes and seconds, and ends by itself.

    python -m loadtest.bounds.connections PORT NAME

It is a process of its own, so that it does not keep the client waiting whose delay is measured. Prints the bytes sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from itertools import repeat

CONNECTIONS = 300
SECONDS = 6.0
_PIECE = 16 * 1024
_REOPEN = 2.0  # seconds before a connection that was closed is opened again
_MOST = 8 * 1024 * 1024  # bytes that one connection sends at most

_POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
_GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"

Attack = tuple[bytes, bytes]  # what is sent once, what is sent again and again

ATTACKS: Mapping[str, Attack] = {
    "heads without an end, long values": (_GET[:-2] + b"x: " + b"a" * 60_000, b""),
    "heads without an end, short headers": (_GET[:-2] + b"a: b\r\n" * 10_000, b""),
    "heads without an end, empty headers": (_GET[:-2] + b"a:\r\n" * 15_000, b""),
    "headers for ever": (_GET[:-2], b"a: b\r\n" * 500),
    "one header for ever": (_GET[:-2] + b"x: ", b"a" * _PIECE),
    "a request line for ever": (b"GET /", b"a" * _PIECE),
    "trailers for ever": (_POST + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", b"a: b\r\n" * 2000),
    "one trailer for ever": (_POST + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ", b"a" * _PIECE),
    "pipelined requests": (b"", _GET * 200),
    "pipelined requests that are refused": (b"", (_POST + b"content-length: 2\r\n\r\n{}") * 100),
    "a body after the answer": (_POST + b"content-length: 100000000\r\n\r\n", b"a" * _PIECE),
    "chunks of one byte": (_POST + b"transfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 2000),
    "chunk extensions": (_POST + b"transfer-encoding: chunked\r\n\r\n1;", b"a" * _PIECE),
    "white space": (b"", b"\r\n" * 5000),
    "an offer to upgrade": (b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nupgrade: h2c\r\n\r\n" * 100),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00" * 512),
}


async def attack(name: str, port: int) -> int:
    """Keep `CONNECTIONS` connections busy with it for `SECONDS`; those that the gateway closes are opened again.

    Returns how many bytes were sent.
    """
    first, again = ATTACKS[name]
    return sum(await asyncio.gather(*(_keep(port, first, again) for _ in range(CONNECTIONS))))


async def _keep(port: int, first: bytes, again: bytes) -> int:
    end = asyncio.get_running_loop().time() + SECONDS
    sent = [0]
    while (left := end - asyncio.get_running_loop().time()) > 0:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(left):
                await _one(port, first, again, sent)
        await asyncio.sleep(_REOPEN)
    return sent[0]


async def _one(port: int, first: bytes, again: bytes, sent: list[int]) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        # Nothing is read: answers wait in the kernel, as they do for a client that does not care.
        for data in (first, *repeat(again, _MOST // max(1, len(again)) if again else 0)):
            writer.write(data)
            sent[0] += len(data)
            await writer.drain()
            await asyncio.sleep(0.01)
        await asyncio.sleep(SECONDS)
    finally:
        writer.transport.abort()


if __name__ == "__main__":
    print(asyncio.run(attack(sys.argv[2], int(sys.argv[1]))))
