"""SIGTERM under load: what runs comes to its end, what is new is sent away, and then the process is gone."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.http.gateway import PATIENCE
from tests.http.upstream import playing
from tests.serving.served import Reading, Tokens, all_speak, configuration, serving, write

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
            async with asyncio.timeout(PATIENCE):
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
            await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
            assert all(reading.done for reading in readings)
            assert await asyncio.wait_for(served.process.wait(), PATIENCE) == 0
            assert (await served.logged("stopped"))[-1]["drained"] is True


@pytest.mark.parametrize("workers", [1, 2])
async def test_patience_ends(tmp_path: Path, workers: int) -> None:
    path, tokens = tmp_path / "portcullis.yaml", Tokens()
    async with playing(tokens.play) as upstream:
        listen = {"port": 0, "admin": {"port": 0}, "drain_timeout": 0.5}
        write(path, configuration(upstream.base_url, listen=listen))
        async with serving(path, "--workers", str(workers)) as served:
            reading = Reading()
            task = asyncio.create_task(served.read(reading))
            await all_speak([reading])
            served.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(served.process.wait(), PATIENCE) == 0
            await asyncio.wait_for(task, PATIENCE)
            assert not reading.done
            assert (await served.logged("stopped"))[-1]["drained"] is False
            while tokens.running:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_second_signal_ends_at_once(tmp_path: Path, workers: int) -> None:
    path, tokens = tmp_path / "portcullis.yaml", Tokens()
    async with playing(tokens.play) as upstream:
        listen = {"port": 0, "admin": {"port": 0}, "drain_timeout": 20 * PATIENCE}
        write(path, configuration(upstream.base_url, listen=listen))
        async with serving(path, "--workers", str(workers)) as served:
            reading = Reading()
            task = asyncio.create_task(served.read(reading))
            await all_speak([reading])
            served.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                while (await served.client.get(f"{served.admin}/readyz")).status_code == 200:
                    await asyncio.sleep(0.01)
            served.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(served.process.wait(), PATIENCE) == 0
            await asyncio.wait_for(task, PATIENCE)
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
            async with asyncio.timeout(PATIENCE):
                while (await served.client.get(f"{served.admin}/readyz")).status_code == 200:
                    await asyncio.sleep(0.01)
            heard = [len(reading.data) for reading in readings]
            while any(len(reading.data) == before for reading, before in zip(readings, heard, strict=True)):
                assert not any(reading.ended for reading in readings)
                await asyncio.sleep(0.01)
            tokens.ended.set()
            await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
            assert all(reading.done for reading in readings)
            assert await asyncio.wait_for(served.process.wait(), PATIENCE) == 0
