import asyncio
import os
import shutil
from pathlib import Path

import pytest

# `demo_address`: a `portcullis demo`, for the whole package.
from tests.support.served_demo import demo_address

__all__ = ["demo_address"]

NODE_CLIENTS = Path(__file__).parent / "node"
NODE = NODE_CLIENTS / "node_modules" / ".bin" / "node"
VENVS = Path(__file__).resolve().parents[2] / ".clients"
# litellm fetches prices and headers when it is imported, unless it is told not to.
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True"}
RUN_TIMEOUT = 120  # seconds


async def run_program(
    *command: str | Path, directory: Path | None = None, asked: bytes | None = None, **environment: str
) -> str:
    """What a client's program prints, which may read `asked`. Its standard error is shown where the test fails."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env={**os.environ, **OFFLINE, **environment},
        stdin=None if asked is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(asked), RUN_TIMEOUT)
    finally:
        if process.returncode is None:
            process.kill()
    print(errors.decode())
    assert process.returncode == 0
    assert b"12MONKEYS" not in out + errors
    return out.decode()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here is on this machine; a proxy in the environment is not meant for it."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def node_installed() -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed: Node's clients were NOT tested; install Node.js to run this")
    assert (NODE_CLIENTS / "node_modules").exists(), "the clients are not installed: run tests/clients/install"
