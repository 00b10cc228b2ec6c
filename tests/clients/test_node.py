"""The official Node SDK against a real gateway, by `node/scenarios.mjs`.

The SDK asks for a newer Node than systems commonly have, so `npm ci` also brings the package `node`, whose binary
`npm run` finds first. Where there is no Node at all these tests are skipped, and say so.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import running
from tests.support.scenarios import KEY, SCENARIOS, TEXTS, configuration, expected, expected_texts, play
from tests.support.upstream import MODEL, playing

pytestmark = pytest.mark.clients

HERE = Path(__file__).parent / "node"
NPM = shutil.which("npm")
OLDEST_NODE = 22
INSTALL_PATIENCE = 300  # seconds: it downloads the SDK and a Node
RUN_PATIENCE = 120


async def npm(*arguments: str, patience: float, **environment: str) -> str:
    assert NPM is not None
    process = await asyncio.create_subprocess_exec(
        NPM,
        *arguments,
        cwd=HERE,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), patience)
    assert process.returncode == 0, f"npm {' '.join(arguments)}: {errors.decode()}"
    return out.decode()


@pytest.fixture
async def installed() -> None:
    if NPM is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed: the Node SDK was NOT tested; install Node.js to run this")
    wanted = json.loads((HERE / "package.json").read_text())["dependencies"]
    if any(_version_of(name) != version for name, version in wanted.items()):
        await npm("ci", "--no-audit", "--no-fund", patience=INSTALL_PATIENCE)


def _version_of(package: str) -> str | None:
    manifest = HERE / "node_modules" / package / "package.json"
    return json.loads(manifest.read_text())["version"] if manifest.exists() else None


@pytest.mark.usefixtures("installed")
async def test_the_node_client() -> None:
    async with playing(play) as upstream, running(configuration(upstream.base_url)) as gateway:
        fields, text_fields = (
            json.dumps({name: scenario.fields for name, scenario in scenarios.items()})
            for scenarios in (SCENARIOS, TEXTS)
        )
        settings = {"BASE_URL": f"{gateway.url}/v1", "API_KEY": KEY, "MODEL": MODEL}
        settings |= {"SCENARIOS": fields, "TEXTS": text_fields}
        printed = await npm("run", "--silent", "scenarios", patience=RUN_PATIENCE, **settings)
    result: dict[str, Any] = json.loads(printed)
    assert int(result["node"].removeprefix("v").split(".")[0]) >= OLDEST_NODE
    assert result["found"] == expected()
    assert result["texts"] == expected_texts()
    assert result["helper"] == {name: SCENARIOS[name].outcome for name in ("redacted", "blocked", "tools")}
