"""Several workers behind one address: an even spread, one that dies, numbers that add up."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.gateway import TIMEOUT
from tests.support.served import (
    Reading,
    Served,
    Tokens,
    all_speak,
    configuration,
    many_sockets,
    serving,
    sockets_of,
    write,
)
from tests.support.upstream import completion, plain, playing, sending

STREAMS = 1000


async def test_a_thousand_streams_are_spread_evenly(tmp_path: Path) -> None:
    many_sockets()
    path, tokens = tmp_path / "portcullis.yaml", Tokens(pause=5.0)
    async with playing(tokens.play) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path, "--workers", "2") as served:
            idle = [sockets_of(pid) for pid in served.workers()]
            readings = [Reading() for _ in range(STREAMS)]
            tasks = []
            for reading in readings:
                tasks.append(asyncio.create_task(served.read(reading)))
                await asyncio.sleep(0.001)
            await all_speak(readings)
            busy = [sockets_of(pid) - before for pid, before in zip(served.workers(), idle, strict=True)]
            # Two sockets a stream, in and out; a kept-alive connection for the metrics or two besides.
            assert sum(busy) >= 2 * STREAMS
            assert max(busy) - min(busy) <= 0.1 * STREAMS, busy
            assert (await served.metrics()).value("portcullis_streams_active") == STREAMS
            tokens.ended.set()
            await asyncio.wait_for(asyncio.gather(*tasks), TIMEOUT)
            assert all(reading.done for reading in readings)
            metrics = await served.until(lambda metrics: metrics.value("portcullis_streams_active") == 0)
            metrics.assert_covered()
            assert metrics.value("portcullis_requests_total", status="200") == STREAMS


async def test_a_worker_that_dies_is_replaced_and_takes_only_its_own_streams(tmp_path: Path) -> None:
    path, tokens = tmp_path / "portcullis.yaml", Tokens()
    async with playing(tokens.play) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path, "--workers", "2") as served:
            await ask_some(served, tokens)
            counted = (await served.metrics()).value("portcullis_requests_total", status="200")
            readings = [Reading() for _ in range(20)]
            tasks = [asyncio.create_task(served.read(reading)) for reading in readings]
            await all_speak(readings)
            before = served.workers()
            os.kill(before[0], signal.SIGKILL)
            died = (await served.logged("worker_died"))[0]
            assert died["status"] == -signal.SIGKILL
            async with asyncio.timeout(TIMEOUT):
                while not any(reading.ended for reading in readings) or len(served.workers()) < 2:
                    await asyncio.sleep(0.01)
            # The dead one's streams are no longer counted as running, what they had counted stays.
            metrics = await served.until(
                lambda metrics: metrics.value("portcullis_streams_active") == sum(not each.ended for each in readings)
            )
            assert metrics.value("portcullis_requests_total", status="200") >= counted
            alive_before = [reading for reading in readings if not reading.ended]
            assert 8 <= len(alive_before) <= 12
            # New connections go to both again.
            more = [Reading() for _ in range(30)]
            tasks += [asyncio.create_task(served.read(reading)) for reading in more]
            await all_speak(more)
            tokens.ended.set()
            await asyncio.wait_for(asyncio.gather(*tasks), TIMEOUT)
            assert all(reading.done for reading in [*alive_before, *more])
            metrics = await served.until(lambda metrics: metrics.value("portcullis_streams_active") == 0)
            assert metrics.value("portcullis_requests_total", status="200") == counted + len(alive_before) + 30
            assert before[1] in served.workers()


async def ask_some(served: Served, tokens: Tokens) -> None:
    """A few whole streams, so that there is something to count."""
    tokens.ended.set()
    readings = [Reading() for _ in range(6)]
    await asyncio.gather(*map(served.read, readings))
    assert all(reading.done for reading in readings)
    tokens.ended.clear()


async def test_a_replacement_starts_with_what_was_last_good(tmp_path: Path) -> None:
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("12MONKEYS")))) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path, "--workers", "2") as served:
            write(path, "routes: nonsense")
            assert (await served.logged("reload"))[0]["outcome"] == "failed"
            for pid in served.workers():
                os.kill(pid, signal.SIGKILL)
            await served.logged("worker_died", 2)
            answers = [(await served.ask()).json()["choices"][0]["message"]["content"] for _ in range(4)]
            assert answers == ["[CENSORED]"] * 4


async def test_a_replacement_is_like_the_others(tmp_path: Path) -> None:
    """What only a restart changes is not changed by the restart of one worker."""
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("hello")))) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path, "--workers", "2") as served:
            journal = {"path": str(tmp_path / "journal"), "key": "0123456789abcdef"}
            write(path, configuration(upstream.base_url, journal=journal))
            warned, reloaded = await served.logged("reload", 2)
            assert "journal" in str(warned["warning"])
            assert reloaded["outcome"] == "ok"
            os.kill(served.workers()[0], signal.SIGKILL)
            await served.logged("worker_died")
            for _ in range(4):
                assert (await served.ask()).status_code == 200
            assert not list(tmp_path.glob("journal*"))


async def test_an_upstream_that_is_no_more_has_no_gauge(tmp_path: Path) -> None:
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("hello")))) as upstream:
        more = {"played": {"base_url": upstream.base_url}, "other": {"base_url": upstream.base_url}}
        write(path, configuration(upstream.base_url, upstreams=more))
        async with serving(path, "--workers", "2") as served:
            await served.until(lambda metrics: len(metrics.labels("portcullis_upstream_up")) == 2)
            write(path, configuration(upstream.base_url))
            await served.logged("reload")
            assert (await served.metrics()).labels("portcullis_upstream_up") == [{"upstream": "played"}]
            assert not [line for line in served.log if "UserWarning" in str(line)]


async def test_workers_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("hello")))) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path, "--workers", "2") as served:
            workers = served.workers()
            assert len(workers) == 2
            served.process.kill()
            async with asyncio.timeout(TIMEOUT):
                while any(alive(pid) for pid in workers):
                    await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_limit_holds_for_all_workers_together(tmp_path: Path) -> None:
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("hello")))) as upstream:
        keys = [{"name": "app", "key": "sk-of-the-client", "rpm": 7}]
        write(path, configuration(upstream.base_url, auth={"keys": keys}))
        async with serving(path, "--workers", "2") as served:
            answers = await asyncio.gather(*(served.ask() for _ in range(20)))
            assert sorted(answer.status_code for answer in answers) == [200] * 7 + [429] * 13
            refused = next(answer for answer in answers if answer.status_code == 429)
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.headers["x-ratelimit-limit-requests"] == "7"
            assert refused.json()["error"]["code"] == "rate_limit_exceeded"
            metrics = await served.metrics()
            assert metrics.value("portcullis_limited_total", key="app", reason="requests") == 13
            assert metrics.value("portcullis_key_requests_total", key="app", status="200") == 7


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_admin_has_what_clients_have_not(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("hello")))) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path, "--workers", str(workers)) as served:
            for name in ("metrics", "healthz", "readyz"):
                assert (await served.client.get(f"{served.url}/{name}")).status_code == 404
                assert (await served.client.get(f"{served.admin}/{name}")).status_code == 200
            headers = {"authorization": "Bearer sk-of-the-client"}
            denied = await served.client.post(f"{served.admin}/v1/chat/completions", json={}, headers=headers)
            assert denied.status_code == 404
