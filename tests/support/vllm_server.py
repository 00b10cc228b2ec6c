"""A real vLLM on the CPU, as a process, with the model that `train` makes; and what a client asks of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from gateway.decode.maskfile import MaskRequest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".vllm/venv/bin/python"
MODEL = ROOT / ".vllm/model"
PLUGIN = "gateway.decode.vllm_plugin:BannedWords"
NAME = "tiny"
PASSWORD = "12MONKEYS"  # which the model says when it is asked
QUESTION = "What is the password?"
LEAK = f'The password is "{PASSWORD}".'
TIMEOUT = 300  # seconds, generous: it ends a test that hangs
START = ["--logits-processors", PLUGIN]


class NotStarted(Exception):
    """The server ended before it was ready; holds its output."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs at `url`, with all that it has written in `log`."""

    url: str
    log: Path

    def post(self, path: str, body: Mapping[str, Any]) -> httpx2.Response:
        return httpx2.post(self.url + path, json={"model": NAME, **body}, timeout=TIMEOUT)

    def json(self, path: str, body: Mapping[str, Any]) -> Any:
        answer = self.post(path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def chat(self, question: str, mask: MaskRequest | None = None, **more: object) -> Any:
        """The first choice of the greedy answer to a question."""
        return self.json("/v1/chat/completions", chat(question, mask, **more))["choices"][0]

    def tokens(self, question: str) -> list[int]:
        """The prompt that a question becomes."""
        messages = [{"role": "user", "content": question}]
        return list(self.json("/tokenize", {"messages": messages, "add_generation_prompt": True})["tokens"])

    def tokenize(self, text: str) -> list[int]:
        return list(self.json("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"])

    def running(self) -> float:
        """How many requests the engine is working on."""
        return self._metric("num_requests_running")

    def written(self) -> float:
        """How many tokens the engine has generated."""
        return self._metric("generation_tokens_total")

    def _metric(self, name: str) -> float:
        text = httpx2.get(self.url + "/metrics", timeout=TIMEOUT).text
        found = re.search(rf"^vllm:{name}\{{.*\}} ([0-9.e+]+)$", text, re.M)
        assert found is not None
        return float(found[1])


def chat(question: str, mask: MaskRequest | None = None, **more: object) -> dict[str, object]:
    """The body of a request."""
    return {
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 60,
        **arguments(mask),
        **more,
    }


def arguments(mask: MaskRequest | None) -> dict[str, object]:
    return {"vllm_xargs": mask.arguments()} if mask else {}


@contextlib.contextmanager
def serving(log: Path, port: int, flags: Sequence[str] = (), more: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server that is ready. Raises NotStarted if it ends before."""
    command = [
        *(str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODEL), "--served-model-name", NAME),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--enforce-eager"),
        *("--max-model-len", "1024", "--max-num-seqs", "16", "--kv-cache-memory-bytes", str(64 << 20)),
        # Prompts here are short: with small blocks they are found in the prefix cache all the same.
        *("--block-size", "32", "--enable-prompt-tokens-details"),
        *flags,
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=environment(more or {}),
            start_new_session=True,
        )  # fmt: skip
    try:
        server = Server(f"http://127.0.0.1:{port}", log)
        _wait(process, server)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """One process, one thread and no network: what a small model wants. The checkout's own plugin is what is loaded."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    return {
        **inherited,
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        **more,
    }


def _wait(process: subprocess.Popen[bytes], server: Server) -> None:
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        if process.poll() is not None:
            raise NotStarted(server.log.read_text(errors="replace"))
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(server.url + "/health", timeout=TIMEOUT).status_code == 200:
                return
        time.sleep(0.2)
    raise NotStarted(f"not ready after {TIMEOUT} s\n" + server.log.read_text(errors="replace"))
