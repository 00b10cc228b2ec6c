"""Progress of an audit as data, and the checkpoint file to resume it from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from gateway.audit.run.interrupts import Ended
from gateway.audit.searches.best_first import Result, SearchCounts
from gateway.audit.searches.checkpoint import Checkpoint, CheckpointError
from gateway.files import write_private

VERSION = 2
MAX_SAVED = 4 * 1024**3  # bytes


@dataclass(frozen=True, slots=True)
class FoundString:
    """A string, with the other fields of its line."""

    result: Result
    more: Mapping[str, str] = field(default_factory=dict, repr=False)

    def fields(self) -> dict[str, object]:
        """The fields of its line."""
        shown = asdict(self.result)
        shown.pop("prefix")
        return {**self.more, **shown}


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTask(SearchCounts):
    """The outcome of a task that is finished."""

    found: tuple[FoundString, ...] = field(repr=False)
    ended: Ended = Ended.FINISHED

    @staticmethod
    def of(found: tuple[FoundString, ...], ended: Ended, part: SearchCounts) -> FinishedTask:
        return FinishedTask(
            found=found, ended=ended, nodes=part.nodes, exact_to=part.exact_to, prefixes_cut=part.prefixes_cut
        )


TaskState: TypeAlias = FinishedTask | Checkpoint  # of a task: what came of it, or where it stands


@dataclass(frozen=True, slots=True)
class SavedAudit:
    """A stopped audit: by task number, what finished tasks found, and the state of the others."""

    done: Mapping[int, FinishedTask] = field(default_factory=dict)
    begun: Mapping[int, Checkpoint] = field(default_factory=dict)

    @staticmethod
    def of(states: Mapping[int, TaskState]) -> SavedAudit:
        return SavedAudit(
            {number: state for number, state in states.items() if isinstance(state, FinishedTask)},
            {number: state for number, state in states.items() if isinstance(state, Checkpoint)},
        )

    def states(self) -> dict[int, TaskState]:
        """The states of all tasks that were started."""
        return {**self.done, **self.begun}


class _SavedHead(msgspec.Struct):
    portcullis_audit: int
    audit: str


class _File(_SavedHead):
    saved: SavedAudit


def save(path: Path, saved: SavedAudit, audit: str) -> None:
    """Write the checkpoint of an audit; `audit` identifies it. Raises OSError."""
    # By `json`, which can write half of a surrogate pair in the name of a file.
    content = msgspec.to_builtins(_File(VERSION, audit, saved), str_keys=True)
    write_private(path, json.dumps(content).encode())


def read_saved(path: Path, audit: str) -> SavedAudit:
    """What was saved of an audit. Raises CheckpointError for a file that is none, or one of another audit; OSError if
    it cannot be read."""
    with path.open("rb") as file:
        data = file.read(MAX_SAVED + 1)
    if len(data) > MAX_SAVED:
        raise CheckpointError(f"{path}: larger than {MAX_SAVED} bytes")
    try:
        content = json.loads(data)
        head = msgspec.convert(content, _SavedHead)
        if head.portcullis_audit != VERSION:
            raise CheckpointError(f"{path}: a checkpoint of another version")
        if head.audit != audit:
            raise CheckpointError(f"{path}: a checkpoint of another query, or of other prompts or rules")
        return msgspec.convert(content, _File, str_keys=True).saved
    except CheckpointError:
        raise
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise CheckpointError(f"{path}: no checkpoint of an audit") from None
