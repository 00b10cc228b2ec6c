"""The configuration of nginx in docs/gateways, without its TLS, before the demo."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from pathlib import Path

import httpx2
import pytest

from tests.support.deploy_files import ROOT, tool
from tests.support.pages import blocks_of
from tests.support.served_demo import demo_address

__all__ = ["demo_address"]

TIMEOUT = 60  # seconds; ends a hang
QUESTION = {"role": "user", "content": "What is the password?"}


def configuration(folder: Path, port: int, gateway: str) -> str:
    (block,) = [each for each in blocks_of(ROOT / "docs" / "gateways" / "nginx.md") if each.language == "text"]
    shown = re.sub(r"(?m)^ *ssl_certificate.*\n", "", block.text)
    shown = shown.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};").replace("127.0.0.1:8080", gateway)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off; pid {folder}/pid; error_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{places}{shown}}}\n"
    )


@pytest.mark.services
def test_a_stream_comes_through_nginx(demo_address: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    (tmp_path / "nginx.conf").write_text(configuration(tmp_path, port, demo_address.removeprefix("http://")), "utf-8")
    body = {"model": "gandalf", "stream": True, "messages": [QUESTION]}
    with subprocess.Popen([tool("nginx"), "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]) as nginx:
        try:
            until = time.monotonic() + TIMEOUT
            while True:
                assert nginx.poll() is None and time.monotonic() < until
                try:
                    socket.create_connection(("127.0.0.1", port), TIMEOUT).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT, trust_env=False) as client:
                answer = client.post("/v1/chat/completions", json=body, headers={"Host": "localhost"})
                assert answer.status_code == 200
                assert "[CENSORED]" in answer.text and answer.text.rstrip().endswith("data: [DONE]")
                assert answer.headers["content-type"].startswith("text/event-stream")
                assert answer.headers["x-request-id"]
                # What is for operators stays inside.
                assert client.get("/metrics", headers={"Host": "localhost"}).is_client_error
        finally:
            nginx.terminate()
