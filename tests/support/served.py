"""`portcullis serve` as a process, in front of an upstream played in the test; and streams that are watched."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import httpx2

from tests.support.forked import AsyncForked
from tests.support.gateway import TIMEOUT, Metrics, http_client, question
from tests.support.upstream import DONE, END, Call, Play, chunk, delta, event, stream_head

KEY = "sk-of-the-client"
Process: TypeAlias = asyncio.subprocess.Process | AsyncForked


def many_sockets() -> None:
    """Clients and upstream are in the test's own process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def configuration(base_url: str, replacement: str = "[CENSORED]", **more: object) -> dict[str, object]:
    """As JSON, which is YAML."""
    rule = {"id": "password", "words": ["12MONKEYS"], "replacement": replacement}
    return {
        "listen": {"port": 0, "admin": {"port": 0}, "drain_timeout": TIMEOUT},
        "auth": {"keys": [KEY]},
        "upstreams": {"played": {"base_url": base_url}},
        "routes": [{"model": "*", "upstream": "played", "policy": "default"}],
        "policies": {"default": {"rules": [rule]}},
        "limits": {"max_streams": 5000},
        **more,
    }


def write(path: Path, content: object) -> None:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


@dataclass
class Tokens:
    """An upstream whose streams continue until `ended`: a token every `pause` seconds, a password among them."""

    pause: float = 0.02
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    running: int = 0

    async def play(self, call: Call) -> None:
        self.running += 1
        try:
            await call.send(stream_head())
            number = 0
            while not self.ended.is_set():
                await call.send(chunk(event(delta(f"{number} " if number % 5 else "12MONKEYS "))))
                number += 1
                await asyncio.sleep(self.pause)
            await call.send(chunk(event(delta(finish="stop")) + DONE) + END)
        finally:
            self.running -= 1


@dataclass
class Reading:
    """What one client reads of its stream."""

    status: int = 0
    data: bytearray = field(default_factory=bytearray)
    ended: bool = False

    @property
    def text(self) -> str:
        payloads = [line[6:] for line in self.data.decode().splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"] for payload in payloads for choice in json.loads(payload).get("choices", ())]
        return "".join(delta.get("content") or "" for delta in deltas)

    @property
    def done(self) -> bool:
        return self.ended and b"[DONE]" in self.data


@dataclass
class Served:
    process: Process
    url: str
    admin: str
    log: list[dict[str, object]]
    client: httpx2.AsyncClient

    async def read(self, reading: Reading) -> None:
        """Open a stream and read it to its end, however it comes."""
        host, port = self.url.removeprefix("http://").split(":")
        body = json.dumps(question("hello", stream=True)).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(head.encode() + body)
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT)
            reading.status = int(answer.split(b" ")[1])
            while data := await reader.read(65536):
                reading.data += data
                if reading.data.endswith(b"0\r\n\r\n"):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            reading.ended = True
            writer.close()

    async def ask(self, **fields: object) -> httpx2.Response:
        headers = {"authorization": f"Bearer {KEY}"}
        return await self.client.post(f"{self.url}/v1/chat/completions", json=question(**fields), headers=headers)

    async def metrics(self) -> Metrics:
        answer = await self.client.get(f"{self.admin}/metrics")
        assert answer.status_code == 200
        return Metrics(answer.text)

    async def until(self, true: Callable[[Metrics], bool]) -> Metrics:
        """The metrics, when they say so."""
        async with asyncio.timeout(TIMEOUT):
            while not true(metrics := await self.metrics()):
                await asyncio.sleep(0.01)
        return metrics

    async def logged(self, event: str, count: int = 1, timeout: float = TIMEOUT) -> list[dict[str, object]]:
        """The lines of the log about this, when there are so many."""
        async with asyncio.timeout(timeout):
            while len(lines := [line for line in self.log if line["event"] == event]) < count:
                await asyncio.sleep(0.01)
        return lines

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children]


@asynccontextmanager
async def serving(
    path: Path, *arguments: str, command: tuple[str, ...] = (), directory: Path | None = None
) -> AsyncIterator[Served]:
    """`portcullis serve --config PATH …`, from when it says that it listens; killed at the end if it still runs.

    It is forked, or started with `command` where the start itself matters.
    """
    options = ("serve", "--config", str(path), "--log", "json", *arguments)
    process: Process
    if command:
        process = await asyncio.create_subprocess_exec(
            *command,
            *options,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=directory,
            limit=1 << 20,
        )
    else:
        process = await AsyncForked.start(*options, cwd=directory)
    assert process.stdout is not None
    log: list[dict[str, object]] = []
    reading = asyncio.create_task(_follow(process, log))
    try:
        first = (await asyncio.wait_for(process.stdout.readline(), TIMEOUT)).decode()
        assert " listens on " in first, (first, log)
        async with asyncio.timeout(TIMEOUT):
            while not (listening := [line for line in log if line["event"] == "listening"]):
                await asyncio.sleep(0.01)
        admin = str(listening[0]["admin"])
        async with http_client() as client:
            yield Served(process, first.split(" listens on ")[1].split(",")[0], admin, log, client)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        reading.cancel()


async def _follow(process: Process, log: list[dict[str, object]]) -> None:
    assert process.stderr is not None
    while line := await process.stderr.readline():
        text = line.decode()
        log.append(json.loads(text) if text.startswith("{") else {"event": "text", "text": text})


def sockets_of(pid: int) -> int:
    """How many sockets a process has open. Some may be closed while they are counted, and the process may end."""
    count = 0
    with contextlib.suppress(FileNotFoundError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                count += "socket:" in str(link.readlink())
    return count


async def all_speak(readings: list[Reading]) -> None:
    """Every stream has begun to tell something."""
    async with asyncio.timeout(TIMEOUT):
        while not all(reading.ended or b"content" in reading.data for reading in readings):
            await asyncio.sleep(0.01)


__all__ = [
    "KEY",
    "Play",
    "Reading",
    "Served",
    "Tokens",
    "all_speak",
    "configuration",
    "many_sockets",
    "serving",
    "sockets_of",
    "write",
]
