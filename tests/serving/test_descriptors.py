"""A gateway that runs out of file descriptors: connections wait, and the operator is shown why."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.gateway import TIMEOUT
from tests.support.served import configuration, serving, write

DESCRIPTORS = 64  # for each process; one without connections has some 25 open
CLIENTS = 150
LIMITED = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$0" "$@"', sys.executable, "-m", "gateway.cli")


@pytest.mark.parametrize("workers", [1, 2])
async def test_d19_out_of_descriptors_connections_wait_and_it_is_logged(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "portcullis.yaml"
    write(path, configuration("http://127.0.0.1:9/v1"))
    async with serving(path, "--workers", str(workers), command=LIMITED) as served:
        host, port = served.url.removeprefix("http://").split(":")
        clients = [await asyncio.open_connection(host, int(port)) for _ in range(CLIENTS)]
        for _, writer in clients:
            writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        line = (await served.logged("server"))[0]
        assert (line["level"], line["message"]) == ("warning", "accept: Too many open files")
        for reader, writer in clients:
            assert await asyncio.wait_for(reader.readline(), TIMEOUT) == b"HTTP/1.1 401 Unauthorized\r\n"
            writer.close()
        metrics = await served.metrics()
        assert metrics.value("portcullis_accept_failures_total", reason="EMFILE") > 0
        served.process.terminate()
        assert await asyncio.wait_for(served.process.wait(), TIMEOUT) == 0
        assert len([each for each in served.log if each["event"] == "server"]) <= 1 + workers
