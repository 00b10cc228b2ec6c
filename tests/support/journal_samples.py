"""Entries, and a journal's files read in the most naive way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gateway.journal.entries import BeginEntry, MatchEntry, RequestEntry
from gateway.journal.files import journal_files
from gateway.policy.model import Journal

KEY = "a key of the journal"
SECRET = "12monkeys"
TIMEOUT = 60  # seconds until a test that hangs fails; nothing is measured

MATCH = MatchEntry(
    time=1_767_268_800.25,
    request_id="req_1",
    key_name="app",
    route="gpt-*",
    policy="default",
    direction="output",
    rule="password",
    action="redact",
    channel="content",
    choice=0,
    offset=17,
    length=9,
    seen=SECRET,
)
BEGIN = BeginEntry(
    time=1_767_268_800.125,
    request_id="req_1",
    key_name="app",
    route="gpt-*",
    policy="default",
)
REQUEST = RequestEntry(
    time=1_767_268_801.5,
    request_id="req_1",
    key_name="app",
    route="gpt-*",
    policy="default",
    upstream="openai",
    status=200,
    outcome="redacted",
    stream=True,
    duration=1.25,
)


def journal_at(path: Path, **properties: Any) -> Journal:
    return Journal(path=str(path), key=KEY, **properties)


def matches(count: int, first: int = 0, **properties: Any) -> list[MatchEntry]:
    """Entries that tell themselves apart by their offset."""
    return [replace(MATCH, offset=number, **properties) for number in range(first, first + count)]


def offsets(path: Path) -> list[int]:
    """The offsets in one file, in order; every line of it must be whole."""
    return [json.loads(line)["offset"] for line in path.read_text("utf-8").splitlines()]


def all_offsets(path: Path) -> list[int]:
    """The offsets in all files of the journal, sorted."""
    return sorted(offset for file in journal_files(path) for offset in offsets(file))


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)
