"""The official Node SDK against a real gateway, by `node/scenarios.mjs`.

The SDK asks for a newer Node than systems commonly have, so `npm ci` also brings the package `node`, whose binary is
run. Where there is no Node at all these tests are skipped, and say so.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.conftest import NODE, NODE_CLIENTS, run_program
from tests.support.gateway import running
from tests.support.scenarios import KEY, SCENARIOS, TEXTS, configuration, expected, expected_texts, play
from tests.support.upstream import MODEL, playing

pytestmark = pytest.mark.clients

OLDEST_NODE = 22


@pytest.mark.usefixtures("node_installed")
async def test_the_node_client() -> None:
    async with playing(play) as upstream, running(configuration(upstream.base_url)) as gateway:
        fields, text_fields = (
            json.dumps({name: scenario.fields for name, scenario in scenarios.items()})
            for scenarios in (SCENARIOS, TEXTS)
        )
        settings = {"BASE_URL": f"{gateway.url}/v1", "API_KEY": KEY, "MODEL": MODEL}
        settings |= {"SCENARIOS": fields, "TEXTS": text_fields}
        printed = await run_program(NODE, NODE_CLIENTS / "scenarios.mjs", **settings)
    result: dict[str, Any] = json.loads(printed)
    assert int(result["node"].removeprefix("v").split(".")[0]) >= OLDEST_NODE
    assert result["found"] == expected()
    assert result["texts"] == expected_texts()
    assert result["helper"] == {name: SCENARIOS[name].outcome for name in ("redacted", "blocked", "tools")}
