"""SIGTERM under load: what runs comes to its end, what is new is sent away, and then the process is gone."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.app import METRICS
from gateway.config import load
from gateway.observe.log import RequestLog
from gateway.serving.acceptor import CLIENT
from gateway.serving.servers import quiet_cancellations, redirect_server_logs
from gateway.serving.workers import supervisor
from tests.support.gateway import TIMEOUT, question
from tests.support.served import KEY, Reading, Tokens, all_speak, configuration, serving, write
from tests.support.upstream import DONE, END, Call, chunk, completion, delta, event, plain, playing, stream_head

STREAMS = 20


@pytest.mark.parametrize("workers", [1, 2])
async def test_running_streams_end_and_new_ones_are_refused(tmp_path: Path, workers: int) -> None:
    path, tokens = tmp_path / "portcullis.yaml", Tokens()
    async with playing(tokens.play) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path, "--workers", str(workers)) as served:
            readings = [Reading() for _ in range(STREAMS)]
            tasks = [asyncio.create_task(served.read(reading)) for reading in readings]
            await all_speak(readings)
            assert (await served.client.get(f"{served.admin}/readyz")).status_code == 200
            served.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(TIMEOUT):
                while (ready := await served.client.get(f"{served.admin}/readyz")).status_code == 200:
                    await asyncio.sleep(0.01)
            assert ready.json()["status"] == "stopping"
            for _ in range(2 * workers):
                refused = await served.ask()
                assert refused.status_code == 503
                assert refused.headers["retry-after"]
                assert refused.json()["error"]["code"] == "overloaded"
            assert not any(reading.ended for reading in readings)
            tokens.ended.set()
            await asyncio.wait_for(asyncio.gather(*tasks), TIMEOUT)
            assert all(reading.done for reading in readings)
            assert await asyncio.wait_for(served.process.wait(), TIMEOUT) == 0
            assert (await served.logged("stopped"))[-1]["drained"] is True


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_grace_period_ends(tmp_path: Path, workers: int) -> None:
    path, tokens = tmp_path / "portcullis.yaml", Tokens()
    async with playing(tokens.play) as upstream:
        listen = {"port": 0, "admin": {"port": 0}, "drain_timeout": 0.5}
        write(path, configuration(upstream.base_url, listen=listen))
        async with serving(path, "--workers", str(workers)) as served:
            reading = Reading()
            task = asyncio.create_task(served.read(reading))
            await all_speak([reading])
            served.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(served.process.wait(), TIMEOUT) == 0
            await asyncio.wait_for(task, TIMEOUT)
            assert not reading.done
            assert (await served.logged("stopped"))[-1]["drained"] is False
            cut = (await served.logged("request"))[-1]
            assert (cut["outcome"], cut["error"]) == ("cancelled", "server stops")
            # Which is all there is to say about it: it was no exception of the application.
            assert not [line for line in served.log if line.get("error") == "CancelledError" or "ASGI" in str(line)]
            while tokens.running:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_second_signal_ends_at_once(tmp_path: Path, workers: int) -> None:
    path, tokens = tmp_path / "portcullis.yaml", Tokens()
    async with playing(tokens.play) as upstream:
        listen = {"port": 0, "admin": {"port": 0}, "drain_timeout": 20 * TIMEOUT}
        write(path, configuration(upstream.base_url, listen=listen))
        async with serving(path, "--workers", str(workers)) as served:
            reading = Reading()
            task = asyncio.create_task(served.read(reading))
            await all_speak([reading])
            served.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(TIMEOUT):
                while (await served.client.get(f"{served.admin}/readyz")).status_code == 200:
                    await asyncio.sleep(0.01)
            served.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(served.process.wait(), TIMEOUT) == 0
            await asyncio.wait_for(task, TIMEOUT)
            assert not reading.done


async def test_a_signal_to_the_whole_group_is_one_signal(tmp_path: Path) -> None:
    """As a terminal sends it, or systemd."""
    path, tokens = tmp_path / "portcullis.yaml", Tokens()
    async with playing(tokens.play) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path, "--workers", "2") as served:
            readings = [Reading() for _ in range(4)]
            tasks = [asyncio.create_task(served.read(reading)) for reading in readings]
            await all_speak(readings)
            for pid in [*served.workers(), served.process.pid]:
                os.kill(pid, signal.SIGTERM)
            async with asyncio.timeout(TIMEOUT):
                while (await served.client.get(f"{served.admin}/readyz")).status_code == 200:
                    await asyncio.sleep(0.01)
            heard = [len(reading.data) for reading in readings]
            while any(len(reading.data) == before for reading, before in zip(readings, heard, strict=True)):
                assert not any(reading.ended for reading in readings)
                await asyncio.sleep(0.01)
            tokens.ended.set()
            await asyncio.wait_for(asyncio.gather(*tasks), TIMEOUT)
            assert all(reading.done for reading in readings)
            assert await asyncio.wait_for(served.process.wait(), TIMEOUT) == 0


@dataclass
class Comers:
    """Clients that come one after the other, each with a connection of its own, and look around before they ask."""

    url: str
    statuses: list[int] = field(default_factory=list)
    cut_off: list[str] = field(default_factory=list)

    async def come(self) -> None:
        """Until the address is closed."""
        host, port = self.url.removeprefix("http://").split(":")
        body = json.dumps(question("hello")).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        while True:
            try:
                reader, writer = await asyncio.open_connection(host, int(port))
            except ConnectionError:
                return
            try:
                await asyncio.sleep(0.05)
                if isinstance(reader.exception(), ConnectionResetError):
                    return  # the system's own: the address was closed before anybody accepted
                writer.write(head)
                writer.write(body)
                answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT)
                self.statuses.append(int(answer.split(b" ")[1]))
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                self.cut_off.append(repr(error))
            finally:
                writer.close()


@pytest.mark.parametrize("workers", [1, 3])
async def test_who_comes_while_it_ends_is_refused_and_not_cut_off(tmp_path: Path, workers: int) -> None:
    """Workers end one after the other, as their last streams do."""
    path = tmp_path / "portcullis.yaml"
    ends = [asyncio.Event() for _ in range(workers)]
    streams: list[Call] = []

    async def play(call: Call) -> None:
        if not call.body.get("stream"):
            await call.send(plain(completion("hello")))
            return
        streams.append(call)
        end = ends[len(streams) - 1]
        await call.send(stream_head() + chunk(event(delta("hello"))))
        await end.wait()
        await call.send(chunk(event(delta(finish="stop")) + DONE) + END)

    async with playing(play) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path, "--workers", str(workers)) as served:
            readings = [Reading() for _ in range(workers)]
            tasks = [asyncio.create_task(served.read(reading)) for reading in readings]
            await all_speak(readings)
            comers = Comers(served.url)
            coming = [asyncio.create_task(comers.come()) for _ in range(30)]
            async with asyncio.timeout(TIMEOUT):
                while 200 not in comers.statuses:
                    await asyncio.sleep(0.01)
                served.process.send_signal(signal.SIGTERM)
                while 503 not in comers.statuses:
                    await asyncio.sleep(0.01)
                for end in ends:
                    end.set()
                    seen = len(comers.statuses)
                    while len(comers.statuses) < seen + 30 and not all(task.done() for task in coming):
                        await asyncio.sleep(0.01)
                await asyncio.gather(*tasks, *coming)
            assert comers.cut_off == []
            assert all(reading.done for reading in readings)
            assert set(comers.statuses) == {200, 503}
            assert await asyncio.wait_for(served.process.wait(), TIMEOUT) == 0
            assert (await served.logged("stopped"))[-1]["drained"] is True


async def test_a_stop_does_not_wait_for_a_worker_that_is_to_be_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause before its restart is longer here than the test waits."""
    monkeypatch.setattr(supervisor, "FIRST_BACKOFF", 3.0 * TIMEOUT)
    monkeypatch.setattr(supervisor, "MAX_BACKOFF", 3.0 * TIMEOUT)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "scratch" / METRICS))
    (tmp_path / "scratch").mkdir()
    path = tmp_path / "portcullis.yaml"
    write(path, configuration("http://127.0.0.1:9/v1", listen={"port": 0, "drain_timeout": 100 * TIMEOUT}))
    log = io.StringIO()
    listener = socket.create_server(("127.0.0.1", 0))
    supervising = supervisor.Supervisor(
        load(path), 2, RequestLog("json", log), [(CLIENT, listener)], tmp_path / "scratch"
    )
    me = os.getpid()
    children = Path(f"/proc/{me}/task/{me}/children")
    others = set(children.read_text().split())
    ready = asyncio.Event()
    running = asyncio.create_task(supervising.run(None, ready.set))
    await asyncio.wait_for(ready.wait(), TIMEOUT)
    os.kill(int(min(set(children.read_text().split()) - others)), signal.SIGKILL)
    async with asyncio.timeout(TIMEOUT):
        while "worker_died" not in log.getvalue():
            await asyncio.sleep(0.01)
    os.kill(me, signal.SIGTERM)
    assert await asyncio.wait_for(running, TIMEOUT) == signal.SIGTERM
    # What that worker had running was lost before; the stop has cut off nothing.
    assert json.loads(log.getvalue().splitlines()[-1])["drained"] is True


def test_only_cuts_are_unsaid_and_only_while_servers_end() -> None:
    out = io.StringIO()
    redirect_server_logs(RequestLog("json", out))
    logger = logging.getLogger("uvicorn.error")

    def said(error: BaseException) -> bool:
        before = len(out.getvalue())
        logger.error("Exception in ASGI application", exc_info=error)
        return len(out.getvalue()) > before

    with quiet_cancellations():
        assert not said(asyncio.CancelledError("cut off"))
        assert said(RuntimeError("a defect"))
    assert said(asyncio.CancelledError("nobody cuts off now"))
