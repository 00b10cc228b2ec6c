"""A gateway that answers as a test says, on a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


Play = Callable[[str, Json], tuple[int, bytes]]


class Asked(list[tuple[str, Json, str | None]]):
    """The path, the body and the key of each request."""


@contextmanager
def gateway(play: Play) -> Iterator[tuple[str, Asked]]:
    """A server on a real socket that answers what `play` makes of path and body."""
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append((self.path, body, self.headers["authorization"]))
            status, answer = play(self.path, body)
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def choices(*texts: str) -> tuple[int, bytes]:
    said = [{"index": at, "text": text, "finish_reason": "stop"} for at, text in enumerate(texts)]
    return 200, json.dumps({"choices": said}).encode()
