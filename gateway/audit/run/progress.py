"""Progress of an audit as data, and the checkpoint file to resume it from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from gateway.audit.run.interrupts import AuditStopped, StopReason
from gateway.audit.searches.best_first import Result
from gateway.audit.searches.checkpoint import Checkpoint, CheckpointError
from gateway.files import write_private

VERSION = 1
MAX_SAVED = 4 * 1024**3  # bytes


@dataclass(frozen=True, slots=True)
class FoundString:
    """A string, and what its line says besides."""

    result: Result
    more: Mapping[str, str] = field(default_factory=dict, repr=False)

    def fields(self) -> dict[str, object]:
        """Those of its line."""
        shown = asdict(self.result)
        shown.pop("prefix")
        return {**self.more, **shown}


class Ended(StrEnum):
    """How an audit ended: nothing is left to be found, or nothing that is likely enough; its limit was reached, its
    time was up, somebody stopped it, or something failed."""

    FINISHED = "finished"
    LEAST = "least"
    LIMIT = "limit"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @staticmethod
    def of(stop: AuditStopped) -> Ended:
        return Ended.TIMEOUT if stop.reason is StopReason.TIMEOUT else Ended.INTERRUPTED


class SearchCounts(Protocol):
    """What a search's summary and an outcome have in common."""

    @property
    def nodes(self) -> int: ...

    @property
    def exact_to(self) -> float | None: ...

    @property
    def prefixes_cut(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTask:
    """What came of a task that is not gone on with. `nodes`, `exact_to` and `prefixes_cut` as in a search's summary."""

    found: tuple[FoundString, ...] = field(repr=False)
    ended: Ended = Ended.FINISHED
    nodes: int = 0
    exact_to: float | None = None
    prefixes_cut: bool = False

    @staticmethod
    def of(found: tuple[FoundString, ...], ended: Ended, part: SearchCounts) -> FinishedTask:
        return FinishedTask(
            found=found, ended=ended, nodes=part.nodes, exact_to=part.exact_to, prefixes_cut=part.prefixes_cut
        )


TaskState: TypeAlias = FinishedTask | Checkpoint  # of a task: what came of it, or where it stands


@dataclass(frozen=True, slots=True)
class SavedAudit:
    """An audit that was stopped: what its finished tasks found, and where the next one was. `later`: the same of tasks
    behind the next, for several can be under way at a time."""

    done: tuple[FinishedTask, ...] = ()
    search: Checkpoint | None = None
    later: Mapping[int, TaskState] = field(default_factory=dict)

    @staticmethod
    def of(states: Mapping[int, TaskState]) -> SavedAudit:
        """From the states of tasks, by their numbers."""
        done: list[FinishedTask] = []
        while isinstance(state := states.get(len(done)), FinishedTask):
            done.append(state)
        return SavedAudit(tuple(done), state, {at: state for at, state in states.items() if at > len(done)})

    def states(self) -> dict[int, TaskState]:
        """Of all tasks that were begun, by their numbers."""
        known: dict[int, TaskState] = {**dict(enumerate(self.done)), **self.later}
        if self.search is not None:
            known[len(self.done)] = self.search
        return known


def save(path: Path, saved: SavedAudit, audit: str) -> None:
    """Write what an audit can be taken up from; `audit` says which one it is. Raises OSError."""
    content = {
        "portcullis_audit": VERSION,
        "audit": audit,
        "done": [_described(done) for done in saved.done],
        "search": None if saved.search is None else _described(saved.search),
        "later": {str(number): _described(state) for number, state in saved.later.items()},
    }
    write_private(path, json.dumps(content).encode())


def read_saved(path: Path, audit: str) -> SavedAudit:
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
        done = tuple(map(_done, content["done"]))
        search = None if content["search"] is None else _checkpoint(content["search"])
        later = {int(number): _state(state) for number, state in content.get("later", {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: no checkpoint of an audit") from None
    return SavedAudit(done, search, later)


def _described(state: TaskState) -> object:
    if isinstance(state, Checkpoint):
        return json.loads(state.encode())
    found = [{"more": dict(each.more), **asdict(each.result)} for each in state.found]
    rest = {"ended": state.ended, "nodes": state.nodes, "exact_to": state.exact_to, "prefixes_cut": state.prefixes_cut}
    return {"found": found, **rest}


def _state(described: Any) -> TaskState:
    return _done(described) if "found" in described else _checkpoint(described)


def _done(described: Any) -> FinishedTask:
    rest = {**described, "found": ()}
    return replace(msgspec.convert(rest, FinishedTask), found=tuple(map(_found, described["found"])))


def _checkpoint(described: Any) -> Checkpoint:
    return Checkpoint.decode(json.dumps(described).encode())


def _found(fields: dict[str, Any]) -> FoundString:
    more = {str(name): str(value) for name, value in fields.pop("more").items()}
    return FoundString(msgspec.convert(fields, Result), more)
