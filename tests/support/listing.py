"""An upstream that lists its models."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def listing_upstream(status: int, body: bytes, path: str = "/v1") -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server that answers `GET /models` below `path` with `body`, and anything else with 404; gives its base URL, and
    path and key of what was asked."""
    asked: list[tuple[str, str | None]] = []

    class Upstream(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            known = self.path == f"{path}/models"
            self.send_response(status if known else 404)
            self.send_header("Content-Length", str(len(body) if known else 0))
            self.end_headers()
            self.wfile.write(body if known else b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{path}", asked
    finally:
        server.shutdown()
        server.server_close()


def models(*names: object) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode()
