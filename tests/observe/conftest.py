"""A collector of spans."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from tests.support.collector import TIMEOUT, Collector


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here is on this machine; a proxy in the environment is not meant for it."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def collector() -> Iterator[Collector]:
    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiving.open.wait(TIMEOUT)
            receiving.take(self.path, body)
            self.send_response(receiving.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.daemon_threads = True
    receiving = Collector(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiving
    finally:
        receiving.open.set()
        server.shutdown()
        server.server_close()
        thread.join(TIMEOUT)
