"""Requests that schemathesis makes of the served OpenAPI document, right ones and wrong ones, to a real gateway."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.examples import examples
from tests.support.served import KEY, configuration, serving, write

pytestmark = pytest.mark.services

# What an upstream asks for besides is not in the document: it may refuse what the document allows.
LEFT_OUT = "positive_data_acceptance"


async def test_every_answer_is_as_the_document_says(tmp_path: Path) -> None:
    write(tmp_path / "portcullis.json", configuration("", listen={"port": 0}, upstreams={"played": {"type": "demo"}}))
    async with serving(tmp_path / "portcullis.json") as served:
        process = await asyncio.create_subprocess_exec(
            *(Path(sys.executable).with_name("schemathesis"), "run", f"{served.url}/openapi.json"),
            *("--header", f"Authorization: Bearer {KEY}", "--exclude-checks", LEFT_OUT, "--phases", "coverage,fuzzing"),
            *("--seed", "1", "--max-examples", str(examples(40)), "--continue-on-failure", "--no-color"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed = (await process.communicate())[0].decode()
        assert process.returncode == 0, printed
        metrics = (await served.client.get(f"{served.url}/metrics")).text
        assert not any(defect in metrics for defect in ("guard_failures_total{", "coverage_errors_total{", '"500"'))
