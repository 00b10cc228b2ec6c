"""The journal that a running gateway writes, as the tests of its requests read it."""

from __future__ import annotations

import asyncio
import hmac
import json
from pathlib import Path
from typing import Any

from gateway.policy.model import Journal
from tests.support.gateway import TIMEOUT

HMAC_KEY = "a key that the journal's texts are kept under"
Line = dict[str, Any]


def journal_at(directory: Path, *, required: bool = False) -> Journal:
    return Journal(path=str(directory / "journal.jsonl"), key=HMAC_KEY, required=required)


def hmac_of(seen: str) -> str:
    return hmac.new(HMAC_KEY.encode(), seen.encode(), "sha256").hexdigest()[:32]


def lines_in(directory: Path) -> list[Line]:
    """Those that are complete: the last one may be being written."""
    path = directory / "journal.jsonl"
    whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
    return [json.loads(line) for line in whole.splitlines()]


async def journalled(directory: Path, requests: int) -> tuple[list[Line], list[Line]]:
    """The lines of matches and those of requests, once there are `requests` of these; there must not be more."""
    async with asyncio.timeout(TIMEOUT):
        while sum(line["type"] == "request" for line in lines_in(directory)) < requests:
            await asyncio.sleep(0.01)
    lines = lines_in(directory)
    found = [[line for line in lines if line["type"] == kind] for kind in ("match", "request")]
    assert len(found[1]) == requests
    return found[0], found[1]
