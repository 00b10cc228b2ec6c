"""Codex without a terminal, a process for each question: a provider of its own, and what chat upstreams have."""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncIterator
from typing import Any

from commands import Refused, lines_of
from harness import Way, run

# A search is OpenAI's own tool.
_CONFIG = """
model = "gpt-5-codex"
model_provider = "portcullis"
web_search = "disabled"

[model_providers.portcullis]
name = "Portcullis"
base_url = "{url}/v1"
env_key = "PORTCULLIS_KEY"
request_max_retries = 0
stream_max_retries = 0
"""


def responses(url: str, key: str) -> Way:
    async def items(prompt: str) -> list[dict[str, Any]]:
        arguments = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt)
        config = {".codex/config.toml": _CONFIG.format(url=url)}
        lines = await lines_of("codex", *arguments, files=config, PORTCULLIS_KEY=key)
        if lines[-1]["type"] == "turn.failed":
            message = lines[-1]["error"]["message"]
            status = re.search("status:? (\\d+)", message)
            # Of 400 it shows the body alone.
            raise Refused(message, int(status[1]) if status else 400 if message.startswith("{") else None)
        return [line["item"] for line in lines if line["type"] == "item.completed"]

    async def stream(prompt: str) -> AsyncIterator[str]:
        for item in await items(prompt):
            if item["type"] == "agent_message":
                yield item["text"]

    async def call(prompt: str) -> str:
        found = await items(prompt)
        commands = [shlex.split(item["command"])[-1] for item in found if item["type"] == "command_execution"]
        return f"{commands[0]}; {found[-1]['text']}"

    return Way(None, stream, None, call)


run({"responses": responses})
