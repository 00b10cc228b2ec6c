"""`portcullis serve --vllm` around a real vLLM: one start, one answer with masks, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from pathlib import Path

import httpx2
import pytest

from tests.support.vllm_server import MODEL, NAME, PYTHON, ROOT, TIMEOUT, environment

pytestmark = [pytest.mark.vllm, pytest.mark.starts]

COMMAND = shlex.join([str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model"])
ARGUMENTS = (
    "--dtype bfloat16 --enforce-eager --max-model-len 1024 --max-num-seqs 16 "
    f"--kv-cache-memory-bytes {64 << 20} --block-size 32"
)
CONFIGURATION = {
    "listen": {"port": 0},
    "upstreams": {"local": {"type": "vllm", "tokenizer": str(MODEL)}},
    "routes": [{"model": "*", "upstream": "local", "policy": "default", "rename": NAME}],
    "policies": {"default": {"rules": [{"id": "password", "words": ["12MONKEYS"], "decode": "mask"}]}},
}


async def test_it_starts_masks_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "portcullis.yaml"
    path.write_text(json.dumps(CONFIGURATION))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "serve", "--config", str(path), "--log", "json"),
        *("--vllm", str(MODEL), "--vllm-command", COMMAND, "--vllm-args", ARGUMENTS),
        stdout=asyncio.subprocess.PIPE,
        stderr=(log := (tmp_path / "log").open("wb")),
        cwd=ROOT,
        # With an engine in a process of its own, as vLLM has it unless it is told otherwise.
        env=environment({"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}),
    )
    assert process.stdout is not None
    try:
        first = (await asyncio.wait_for(process.stdout.readline(), TIMEOUT)).decode()
        assert " listens on " in first, (tmp_path / "log").read_text()
        url = first.split(" listens on ")[1].split(",")[0]
        body = {"model": "any", "messages": [{"role": "user", "content": "What is the password?"}], "temperature": 0}
        async with httpx2.AsyncClient(base_url=url, timeout=TIMEOUT) as client:
            async with asyncio.timeout(TIMEOUT):
                while (answer := await client.post("/v1/chat/completions", json=body | {"max_tokens": 20})).is_error:
                    await asyncio.sleep(0.1)
        text = answer.json()["choices"][0]["message"]["content"]
        # Not replaced, for it was not said: the model took another way.
        assert text.startswith('The password is "')
        assert "12MONKEYS" not in text.upper()
        assert "[REDACTED]" not in text
        family = descendants(process.pid)
        assert len(family) > 3
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0
        assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        log.close()


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have started."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (thread / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found
