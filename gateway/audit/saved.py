"""What an audit found so far and where it stands, as a file to go on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gateway.audit.checkpoint import Checkpoint, CheckpointError
from gateway.audit.search import Result
from gateway.files import write_private

VERSION = 1
MAX_SAVED = 4 * 1024**3  # bytes


@dataclass(frozen=True, slots=True)
class Found:
    """A string, and what its line says besides."""

    result: Result
    more: Mapping[str, str] = field(default_factory=dict, repr=False)

    def fields(self) -> dict[str, object]:
        """Those of its line."""
        shown = asdict(self.result)
        shown.pop("prefix")
        return {**self.more, **shown}


State: TypeAlias = tuple[Found, ...] | Checkpoint  # of a task: what it found, if it is done, or where it stands


@dataclass(frozen=True, slots=True)
class Saved:
    """An audit that was stopped: what its finished tasks found, and where the next one was. `later`: the same of tasks
    behind the next, for several can be under way at a time."""

    done: tuple[tuple[Found, ...], ...] = ()
    search: Checkpoint | None = None
    later: Mapping[int, State] = field(default_factory=dict)

    @staticmethod
    def of(states: Mapping[int, State]) -> Saved:
        """From the states of tasks, by their numbers."""
        done: list[tuple[Found, ...]] = []
        while isinstance(found := states.get(len(done)), tuple):
            done.append(found)
        return Saved(tuple(done), found, {at: state for at, state in states.items() if at > len(done)})

    def states(self) -> dict[int, State]:
        """Of all tasks that were begun, by their numbers."""
        known: dict[int, State] = {**dict(enumerate(self.done)), **self.later}
        if self.search is not None:
            known[len(self.done)] = self.search
        return known


def save(path: Path, saved: Saved, audit: str) -> None:
    """Write what an audit can be taken up from; `audit` says which one it is. Raises OSError."""
    content = {
        "portcullis_audit": VERSION,
        "audit": audit,
        "done": [_described(found) for found in saved.done],
        "search": None if saved.search is None else _described(saved.search),
        "later": {str(number): _described(state) for number, state in saved.later.items()},
    }
    write_private(path, json.dumps(content).encode())


def read_saved(path: Path, audit: str) -> Saved:
    """What was saved of an audit. Raises CheckpointError for a file that is none, or one of another audit; OSError if
    it cannot be read."""
    with path.open("rb") as file:
        data = file.read(MAX_SAVED + 1)
    if len(data) > MAX_SAVED:
        raise CheckpointError(f"{path}: larger than {MAX_SAVED} bytes")
    try:
        content: Any = json.loads(data)
        if content["portcullis_audit"] != VERSION:
            raise CheckpointError(f"{path}: a checkpoint of another version")
        if content["audit"] != audit:
            raise CheckpointError(f"{path}: a checkpoint of another query, or of other prompts or rules")
        done = tuple(tuple(map(_found, each)) for each in content["done"])
        search = None if content["search"] is None else _checkpoint(content["search"])
        later = {int(number): _state(state) for number, state in content.get("later", {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: no checkpoint of an audit") from None
    return Saved(done, search, later)


def _described(state: State) -> object:
    if isinstance(state, Checkpoint):
        return json.loads(state.encode())
    return [{"more": dict(found.more), **asdict(found.result)} for found in state]


def _state(described: Any) -> State:
    return tuple(map(_found, described)) if isinstance(described, list) else _checkpoint(described)


def _checkpoint(described: Any) -> Checkpoint:
    return Checkpoint.decode(json.dumps(described).encode())


def _found(fields: dict[str, Any]) -> Found:
    more = {str(name): str(value) for name, value in fields.pop("more").items()}
    return Found(msgspec.convert(fields, Result), more)
