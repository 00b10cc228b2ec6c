"""Claude Code without a terminal, a process for each question. Its tool is `Bash`, which is not allowed to run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from commands import Refused, lines_of
from harness import Way, run

_QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "0"}


def _way(url: str, **key: str) -> Way:
    async def lines(prompt: str, *options: str) -> list[dict[str, Any]]:
        shown = ("--output-format", "stream-json", "--verbose", "--include-partial-messages")
        return await lines_of(
            "claude", "-p", prompt, *shown, *options, files={}, ANTHROPIC_BASE_URL=url, **key, **_QUIET
        )

    async def stream(prompt: str) -> AsyncIterator[str]:
        found = await lines(prompt, "--tools", "")
        for line in found:
            delta = line.get("event", {}).get("delta", {})
            if delta.get("type") == "text_delta":
                yield delta["text"]
        _result(found)

    async def call(prompt: str) -> str:
        found = await lines(prompt, "--tools", "Bash")
        blocks = [block for line in found if line["type"] == "assistant" for block in line["message"]["content"]]
        commands = [block["input"]["command"] for block in blocks if block["type"] == "tool_use"]
        return f"{commands[0]}; {_result(found)['result']}"

    return Way(None, stream, None, call)


def _result(lines: list[dict[str, Any]]) -> dict[str, Any]:
    last = lines[-1]
    if last["is_error"]:
        raise Refused(last["result"], last.get("api_error_status"))
    return last


run({"a key": lambda url, key: _way(url, ANTHROPIC_API_KEY=key)})
