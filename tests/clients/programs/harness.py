"""Asks through one client what the environment's PLAN says, all at once, and prints the outcomes as JSON.

PLAN: name → {"url", "key", "ask": prompts, "parse": prompts that are answered with a `Note`, "call": prompts for which
the model calls a tool}. Printed: way of asking → name → "PROMPT, whole|streamed|parsed|called" → {"text", "error"}. Of
a call the text is what the tool got, a semicolon, and the answer to its result, "kept". `error` is the HTTP status of
the exception that the client raised, "error" if it has none. Exceptions are explained on standard error.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from pydantic import BaseModel


class Note(BaseModel):
    """A note to remember."""

    note: str


class Way(NamedTuple):
    """A way to ask through a client. What it cannot do is None."""

    ask: Callable[[str], Awaitable[str | None]] | None = None
    stream: Callable[[str], AsyncIterator[str | None]] | None = None
    parse: Callable[[str], Awaitable[str]] | None = None
    call: Callable[[str], Awaitable[str]] | None = None


def run(ways: dict[str, Callable[[str, str], Way]]) -> None:
    """Each way is opened with a server's address, without `/v1`, and a key."""
    print(json.dumps(asyncio.run(_everything(ways))))


async def _everything(ways: dict[str, Callable[[str, str], Way]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with asyncio.TaskGroup() as group:
        for name, open_way in ways.items():
            for place, plan in json.loads(os.environ["PLAN"]).items():
                way = open_way(plan["url"], plan["key"])
                outcomes = found.setdefault(name, {}).setdefault(place, {})
                for prompt in plan["ask"]:
                    if way.ask is not None:
                        group.create_task(_note(outcomes, f"{prompt}, whole", _once(way.ask, prompt)))
                    if way.stream is not None:
                        group.create_task(_note(outcomes, f"{prompt}, streamed", way.stream(prompt)))
                for prompt in plan["parse"] if way.parse is not None else ():
                    group.create_task(_note(outcomes, f"{prompt}, parsed", _once(way.parse, prompt)))
                for prompt in plan["call"] if way.call is not None else ():
                    group.create_task(_note(outcomes, f"{prompt}, called", _once(way.call, prompt)))
    return found


async def _once(ask: Callable[[str], Awaitable[str | None]], prompt: str) -> AsyncIterator[str | None]:
    yield await ask(prompt)


async def _note(outcomes: dict[str, Any], name: str, pieces: AsyncIterator[str | None]) -> None:
    outcome: dict[str, Any] = {"text": "", "error": None}
    outcomes[name] = outcome
    try:
        async for piece in pieces:
            outcome["text"] += piece or ""
    except Exception as raised:
        # An answer that had begun had the status 200, whatever a client makes of it.
        outcome["error"] = (outcome["text"] == "" and _status_of(raised)) or "error"
        print(f"{name}: {type(raised).__module__}.{type(raised).__name__}: {raised}", file=sys.stderr)


def _status_of(raised: BaseException | None) -> int | None:
    while raised is not None:
        status = getattr(raised, "status_code", None)
        if isinstance(status, int) and status >= 400:
            return status
        raised = raised.__cause__ or raised.__context__
    return None
