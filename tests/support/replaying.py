"""An HTTP server on a real socket that answers every request with the bytes it was last given."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Replay:
    """`answer` is the body of the next answers, `status` and `content_type` go with it."""

    def __init__(self) -> None:
        self.base_url = ""
        self.status = 200
        self.content_type = "text/event-stream"
        self.answer = b""


@contextmanager
def replaying() -> Iterator[Replay]:
    replay = Replay()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(replay.status)
            self.send_header("content-type", replay.content_type)
            self.send_header("content-length", str(len(replay.answer)))
            self.end_headers()
            self.wfile.write(replay.answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    replay.base_url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield replay
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
