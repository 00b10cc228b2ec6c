"""A program that stands in for vLLM, and behaves as a file says.

    python stand_in.py FOLDER MODEL [OPTION ...]

FOLDER/behaviour.json is read at every start; each start is written to FOLDER/start-N.json. Uses Python's own library
only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SLEEP = ["sleep", "1000"]


class Server(ThreadingHTTPServer):
    key: str


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(200, {})
        elif not self.has_key():
            self.answer(401, {"error": "Unauthorized"})
        else:
            self.answer(200, {"object": "list", "data": [{"id": "stand-in", "object": "model"}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.has_key():
            self.answer(401, {"error": "Unauthorized"})
            return
        text = f"{request['model']} says 12MONKEYS."
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self.answer(200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})

    def has_key(self) -> bool:
        return self.headers["authorization"] == f"Bearer {self.server.key}"

    def answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    told = json.loads((folder / "behaviour.json").read_text())
    if told.get("ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    children = []
    if told.get("children"):
        children.append(subprocess.Popen(SLEEP).pid)
        children.append(subprocess.Popen(SLEEP, start_new_session=True).pid)
    write_start(
        folder, {"pid": os.getpid(), "children": children, "arguments": arguments, "environment": {**os.environ}}
    )
    for line in told.get("writes", ()):
        print(line)
    for _ in range(told.get("floods", 0)):
        print("x" * 1023)
    sys.stdout.flush()
    if "exits" in told:
        return int(told["exits"])
    while "waits_for" in told and not (folder / told["waits_for"]).exists():
        time.sleep(0.01)
    server = Server(("127.0.0.1", int(arguments[arguments.index("--port") + 1])), Handler)
    server.key = told.get("key", os.environ["VLLM_API_KEY"])
    server.serve_forever()
    return 0


def write_start(folder: Path, content: object) -> None:
    """In one step, for those who look."""
    number = len(list(folder.glob("start-*.json")))
    (folder / "new").write_text(json.dumps(content))
    (folder / "new").rename(folder / f"start-{number}.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
