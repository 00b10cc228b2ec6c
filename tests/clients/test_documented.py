"""The programs of docs/clients, each in the environment that has its packages, against `portcullis demo`."""

from __future__ import annotations

import pytest

from tests.clients.conftest import NODE, NODE_CLIENTS, VENVS, run_program
from tests.support.pages import ROOT, Block, blocks_of

pytestmark = pytest.mark.clients

PAGES = sorted((ROOT / "docs" / "clients").glob("*.md"))
PROGRAMS = [block for page in PAGES for block in blocks_of(page) if block.language in ("python", "js")]
OF_OPENAI_2 = ("instructor", "litellm", "llama_index")


def place(block: Block) -> str:
    return block.place


@pytest.mark.parametrize("block", [block for block in PROGRAMS if block.language == "python"], ids=place)
async def test_a_python_program(block: Block, demo_address: str) -> None:
    venv = "openai-2" if block.text.split()[1].startswith(OF_OPENAI_2) else "openai-3"
    program = block.text.replace("http://127.0.0.1:8080", demo_address)
    printed = await run_program(VENVS / venv / "bin" / "python", "-c", program)
    assert printed.strip() == block.text.strip().splitlines()[-1].removeprefix("# ")


@pytest.mark.usefixtures("node_installed")
@pytest.mark.parametrize("block", [block for block in PROGRAMS if block.language == "js"], ids=place)
async def test_a_node_program(block: Block, demo_address: str) -> None:
    program = block.text.replace("http://127.0.0.1:8080", demo_address)
    printed = await run_program(NODE, "--input-type=module", "--eval", program, directory=NODE_CLIENTS)
    assert printed.strip() == block.text.strip().splitlines()[-1].removeprefix("// ")
