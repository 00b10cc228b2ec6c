"""A configuration that changes under load: by signal, by file, by the swap of a ConfigMap."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.support.gateway import TIMEOUT
from tests.support.served import Reading, Served, Tokens, all_speak, configuration, many_sockets, serving, write
from tests.support.upstream import completion, plain, playing, sending

STREAMS = 200
RELOADS = 100


async def answer_of(served: Served) -> str:
    content: str = (await served.ask()).json()["choices"][0]["message"]["content"]
    return content


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_hundred_reloads_under_load_lose_no_stream(tmp_path: Path, workers: int) -> None:
    many_sockets()
    tokens = Tokens(pause=0.2)
    path = tmp_path / "portcullis.yaml"
    async with playing(tokens.play) as upstream:
        write(path, configuration(upstream.base_url, "[0]"))
        async with serving(path, "--workers", str(workers), "--no-watch") as served:
            readings = [Reading() for _ in range(STREAMS)]
            tasks = [asyncio.create_task(served.read(reading)) for reading in readings]
            await all_speak(readings)
            for number in range(1, RELOADS + 1):
                good = configuration(upstream.base_url, f"[{number}]")
                write(path, good if number % 2 else {**good, "routes": []})
                served.process.send_signal(signal.SIGHUP)
                await served.logged("reload", number)
            outcomes = [line["outcome"] for line in await served.logged("reload", RELOADS)]
            assert outcomes == ["ok", "failed"] * (RELOADS // 2)
            metrics = await served.until(lambda metrics: metrics.value("portcullis_config_reloads_total") >= RELOADS)
            assert metrics.value("portcullis_config_reloads_total", outcome="ok") == RELOADS // 2
            assert metrics.value("portcullis_config_reloads_total", outcome="failed") == RELOADS // 2
            assert metrics.value("portcullis_streams_active") == STREAMS
            late = Reading()
            tasks.append(asyncio.create_task(served.read(late)))
            await all_speak([late])
            tokens.ended.set()
            await asyncio.wait_for(asyncio.gather(*tasks), TIMEOUT)
            assert all(reading.done for reading in readings)
            # A stream keeps the rules that it began with; the last good ones hold for what comes after.
            assert all("[0]" in reading.text and "[99]" not in reading.text for reading in readings)
            assert "[99]" in late.text
            assert "[0]" not in late.text
            metrics = await served.until(lambda metrics: metrics.value("portcullis_streams_active") == 0)
            metrics.assert_covered()
            assert metrics.value("portcullis_requests_total", status="200") == STREAMS + 1
            assert "MONKEYS" not in str(served.log)


async def test_a_broken_file_is_named_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("12MONKEYS")))) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path) as served:
            write(path, configuration(upstream.base_url, policies={"other": {"rules": []}}))
            failed = (await served.logged("reload"))[0]
            assert failed["outcome"] == "failed"
            assert "routes[0].policy" in str(failed["reason"])
            assert await answer_of(served) == "[CENSORED]"
            path.unlink()
            assert (await served.logged("reload", 2))[1]["outcome"] == "failed"
            assert await answer_of(served) == "[CENSORED]"
            write(path, configuration(upstream.base_url, "[BACK]"))
            assert (await served.logged("reload", 3))[2]["outcome"] == "ok"
            assert await answer_of(served) == "[BACK]"


async def test_a_list_of_words_beside_the_file_is_watched(tmp_path: Path) -> None:
    path, lists = tmp_path / "portcullis.yaml", tmp_path / "lists"
    lists.mkdir()
    write(lists / "words.txt", "apple\n")
    async with playing(sending(plain(completion("apple pear")))) as upstream:
        rules = [{"id": "fruit", "words_file": "lists/words.txt"}]
        write(path, configuration(upstream.base_url, policies={"default": {"rules": rules}}))
        async with serving(path) as served:
            assert await answer_of(served) == "[REDACTED] pear"
            # As editors do it: a new file in the old one's place.
            write(lists / "new", "pear\n")
            (lists / "new").rename(lists / "words.txt")
            await served.logged("reload")
            assert await answer_of(served) == "apple [REDACTED]"


async def test_the_swap_of_a_config_map_is_seen(tmp_path: Path) -> None:
    """Kubernetes mounts a ConfigMap as links into a directory that is swapped by renaming a link."""
    async with playing(sending(plain(completion("12MONKEYS")))) as upstream:
        for number, replacement in enumerate(["[OLD]", "[NEW]"]):
            (tmp_path / f"..{number}").mkdir()
            write(tmp_path / f"..{number}" / "portcullis.yaml", configuration(upstream.base_url, replacement))
        (tmp_path / "..data").symlink_to("..0")
        path = tmp_path / "portcullis.yaml"
        path.symlink_to("..data/portcullis.yaml")
        async with serving(path) as served:
            assert await answer_of(served) == "[OLD]"
            (tmp_path / "..tmp").symlink_to("..1")
            (tmp_path / "..tmp").replace(tmp_path / "..data")
            await served.logged("reload")
            assert await answer_of(served) == "[NEW]"


async def test_what_only_a_restart_changes_is_said(tmp_path: Path) -> None:
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("12MONKEYS")))) as upstream:
        write(path, configuration(upstream.base_url))
        async with serving(path) as served:
            changed = configuration(upstream.base_url, "[NEW]", state="redis://:secret-of-redis@127.0.0.1/0")
            write(path, changed)
            lines = await served.logged("reload", 2)
            assert "state" in str(lines[0]["warning"])
            assert lines[1]["outcome"] == "ok"
            assert "secret-of-redis" not in str(served.log)
            assert await answer_of(served) == "[NEW]"


async def test_a_route_to_another_upstream_takes_effect_and_running_streams_stay(tmp_path: Path) -> None:
    path, tokens = tmp_path / "portcullis.yaml", Tokens()
    async with playing(tokens.play) as old, playing(sending(plain(completion("of the new one")))) as new:
        write(path, configuration(old.base_url))
        async with serving(path) as served:
            reading = Reading()
            task = asyncio.create_task(served.read(reading))
            await all_speak([reading])
            write(path, configuration(new.base_url))
            await served.logged("reload")
            assert await answer_of(served) == "of the new one"
            tokens.ended.set()
            await asyncio.wait_for(task, TIMEOUT)
            assert reading.done


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_reload_cannot_open_an_address_that_stays(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("hello")))) as upstream:
        listen = {"host": "0.0.0.0", "port": 0, "admin": {"port": 0}}
        write(path, configuration(upstream.base_url, listen=listen))
        async with serving(path, "--workers", str(workers), "--no-watch") as served:
            url = served.url.replace("0.0.0.0", "127.0.0.1")
            # Sound on the loopback, where the new file would listen; but the old address stays.
            opened = configuration(upstream.base_url, listen={"port": 0})
            del opened["auth"]
            write(path, opened)
            served.process.send_signal(signal.SIGHUP)
            lines = await served.logged("reload")
            assert lines[-1]["outcome"] == "failed"
            assert "listen.host" in str(lines[-1]["reason"])
            assert (await served.client.get(f"{url}/v1/models")).status_code == 401
