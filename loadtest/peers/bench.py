"""One load for every gateway: streams, then plain answers; the table, the CSV file, the chart and the page.

CPU a chunk     of the gateway's processes while the streams run, divided by the chunks sent, requests included
CPU a request   of plain answers on kept connections, eight at a time
delay           from the moment in a chunk's text to its arrival, of all moments of all streams
memory          resident, in the middle of the streams
came out        streams in which the forbidden word could be read
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import multiprocessing
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from time import monotonic_ns

import httpx2

from loadtest import process
from loadtest.dialects import MODEL
from loadtest.peers.targets import KEY, PEERS, Peer, running, version_of
from loadtest.peers.upstream import MOMENT, PERIOD, PROMPT, WITH_WORD, serve
from loadtest.process import Cores
from loadtest.script import FORBIDDEN
from loadtest.targets import NotInstalledError, Running, TargetError

CHECKED = 5  # streams with the forbidden word
WORD_CHUNKS = 30
AT_ONCE = 8  # plain requests
TIMEOUT = 120.0  # seconds for one answer
WRK_SECONDS = 4
_HEADERS = {"authorization": f"Bearer {KEY}"}


class StreamRefused(Exception):
    """The stream ended with an error event; all that came is in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    streams: int = 40
    chunks: int = 200
    requests: int = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Times in microseconds of CPU, delays in milliseconds, memory in megabytes of 2^20 bytes; None where nothing
    stands in between. `wrk_requests` a second are those of wrk, a generator that is not ours. `note` says why a row is
    empty, or what was wrong."""

    target: str
    version: str = ""
    chunk_us: float | None = None
    request_us: float | None = None
    wrk_requests: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    memory_mb: float | None = None
    came_out: int | None = None
    note: str = ""


@dataclass(slots=True)
class _Streams:
    """`refused`: streams that ended with an error in the place of text."""

    delays: list[float]
    refused: int = 0
    memory: int = 0


def measure(peer: Peer, cores: Cores, load: Load) -> Result:
    """Start the peer, load it, end it."""
    if peer.streams is not None:
        load = replace(load, streams=min(load.streams, peer.streams))
    try:
        with _upstream(cores) as port, running(peer, port, cores.target) as target:
            return asyncio.run(_measure(peer, target, load))
    except (
        NotInstalledError,
        TargetError,
        httpx2.HTTPError,
        ValueError,
        KeyError,
        StreamRefused,
        ExceptionGroup,
    ) as error:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        said = str(error) or f"nothing within {TIMEOUT:g} seconds"
        return Result(target=peer.name, note=f"{type(error).__name__}: {said}"[:300])


async def _measure(peer: Peer, target: Running, load: Load) -> Result:
    limits = httpx2.Limits(max_connections=None)
    url = f"http://127.0.0.1:{target.port}/v1/chat/completions"
    async with httpx2.AsyncClient(timeout=TIMEOUT, trust_env=False, limits=limits, headers=_HEADERS) as client:
        for wanted in (0, 0, 40):  # what is imported and compiled at the first request is not measured
            await _send_request(client, url, wanted, None)
        pids = process.tree(target.pid) if target.pid is not None else []
        cpu = process.cpu_seconds(pids)
        found = _Streams([])
        watching = asyncio.create_task(_watch(pids, load.chunks * PERIOD / 2, found))
        async with asyncio.TaskGroup() as group:
            for number in range(load.streams):
                group.create_task(_stream(client, url, load.chunks, number * PERIOD / load.streams, found))
        streamed = process.cpu_seconds(pids) - cpu
        await watching
        cpu = process.cpu_seconds(pids)
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(_requests(client, url, load.requests // AT_ONCE))
        asked = process.cpu_seconds(pids) - cpu
        came_out = sum([await _comes_out(client, url) for _ in range(CHECKED)])
    delays = sorted(found.delays)
    return Result(
        target=peer.name,
        version=version_of(peer),
        chunk_us=streamed / (load.streams * load.chunks) * 1e6 if pids else None,
        request_us=asked / load.requests * 1e6 if pids else None,
        wrk_requests=await asyncio.to_thread(_wrk, url, target),
        p50_ms=delays[len(delays) // 2] if delays else None,
        p99_ms=delays[len(delays) * 99 // 100] if delays else None,
        memory_mb=found.memory / 1024 if pids else None,
        came_out=came_out,
        note="; ".join(
            [f"{load.streams} streams at once"] * (peer.streams is not None)
            + [f"{found.refused} streams ended with an error"] * bool(found.refused)
        ),
    )


async def _watch(pids: Sequence[int], seconds: float, found: _Streams) -> None:
    await asyncio.sleep(seconds)
    found.memory = process.resident_kb(pids) if pids else 0


async def _stream(client: httpx2.AsyncClient, url: str, chunks: int, wait: float, found: _Streams) -> None:
    await asyncio.sleep(wait)
    try:
        await _send_request(client, url, chunks, found.delays)
    except StreamRefused:
        found.refused += 1


async def _comes_out(client: httpx2.AsyncClient, url: str) -> bool:
    """Can the forbidden word be read in a stream that has it? A stream that is refused shows nothing."""
    try:
        return FORBIDDEN in await _send_request(client, url, WORD_CHUNKS, None, with_word=True)
    except StreamRefused as refused:
        return FORBIDDEN in str(refused)


async def _requests(client: httpx2.AsyncClient, url: str, count: int) -> None:
    for _ in range(count):
        await _send_request(client, url, 0, None)


def _body(chunks: int, *, with_word: bool = False) -> dict[str, object]:
    prompt = PROMPT % chunks + with_word * WITH_WORD
    asked: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": prompt}]}
    return {**asked, "stream": True} if chunks else asked


async def _send_request(
    client: httpx2.AsyncClient, url: str, chunks: int, delays: list[float] | None, *, with_word: bool = False
) -> str:
    """The content of the answer; the delay of each moment in it, as it comes, goes into `delays`. Raises
    `httpx2.HTTPError`, `StreamRefused`, and ValueError for an answer that is none."""
    content, read = "", 0
    async with client.stream("POST", url, json=_body(chunks, with_word=with_word)) as answer:
        answer.raise_for_status()
        if not chunks:
            await answer.aread()
            return str(answer.json()["choices"][0]["message"]["content"])
        async for line in answer.aiter_lines():
            now = monotonic_ns() // 1000
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise StreamRefused(content + line)
            content += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
            for moment in MOMENT.finditer(content, read):
                read = moment.end()
                if delays is not None:
                    delays.append((now - int(moment[1])) / 1000)
    return content


@contextlib.contextmanager
def _upstream(cores: Cores) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        serving = multiprocessing.get_context("spawn").Process(
            target=serve, args=(listener, cores.upstream), daemon=True
        )
        serving.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            serving.kill()
            serving.join()


def _wrk(url: str, target: Running) -> float | None:
    """Plain answers a second by wrk, 16 connections; None where it is not installed or an answer was no 200."""
    if (binary := shutil.which("wrk")) is None or target.pid is None:
        return None
    script = target.directory / "plain.lua"
    headers = "".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in _HEADERS.items())
    body = json.dumps(json.dumps(_body(0)))
    script.write_text(
        f'wrk.method = "POST"\nwrk.headers["content-type"] = "application/json"\n{headers}wrk.body = {body}\n'
    )
    command = [binary, "-t1", "-c16", f"-d{WRK_SECONDS}", "--timeout", "20", "-s", str(script), url]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"Requests/sec: *([\d.]+)", said)
    return float(found[1]) if found and "Non-2xx" not in said else None


# -- what is written ---------------------------------------------------------------------------------------------------

_HEAD = (
    f"{'target':<16}{'version':>9}{'CPU a chunk':>13}{'a request':>11}{'wrk, a s':>10}"
    f"{'p50 ms':>9}{'p99 ms':>9}{'MB':>7}  {'word came out'}"
)


def table(results: Sequence[Result]) -> str:
    """One line for each target; times of CPU in microseconds."""
    return "\n".join([_HEAD, *map(_line, results)])


def _line(result: Result) -> str:
    if result.came_out is None:
        return f"{result.target:<16}{result.note}"

    def number(value: float | None, width: int, places: int = 0) -> str:
        return f"{'-' if value is None else format(value, f',.{places}f'):>{width}}"

    return (
        f"{result.target:<16}{result.version or '-':>9}{number(result.chunk_us, 13)}{number(result.request_us, 11)}"
        f"{number(result.wrk_requests, 10)}{number(result.p50_ms, 9, 1)}{number(result.p99_ms, 9, 1)}"
        f"{number(result.memory_mb, 7)}  {result.came_out} of {CHECKED}{'; ' * bool(result.note)}{result.note}"
    )


def write(folder: Path, results: Sequence[Result], page: str) -> None:
    """`peers.csv`, `peers.md` and, where matplotlib is installed, `peers.png`. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "peers.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Result)])
        writer.writeheader()
        writer.writerows(map(asdict, results))
    with contextlib.suppress(ImportError):
        _draw(folder / "peers.png", results)
    (folder / "peers.md").write_text(page, encoding="utf-8")


def _draw(path: Path, results: Sequence[Result]) -> None:
    import matplotlib as mpl  # type: ignore[import-not-found, unused-ignore]

    mpl.use("Agg")
    from matplotlib import pyplot  # type: ignore[import-not-found, unused-ignore]

    shown = [result for result in results if result.chunk_us is not None]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 0.45 * len(shown) + 1.5), sharey=True)
    names = [result.target for result in shown]
    for axis, key, title in zip(axes, ("chunk_us", "p99_ms"), ("CPU a chunk, µs", "delay p99, ms"), strict=True):
        bars = axis.barh(names, [getattr(result, key) or 0 for result in shown])
        axis.bar_label(bars, fmt="%.0f", padding=3)
        axis.set_xscale("log")
        axis.set_title(title)
        axis.margins(x=0.15)
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


__all__ = ["PEERS", "Load", "Result", "measure", "table", "write"]
