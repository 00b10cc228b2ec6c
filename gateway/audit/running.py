"""Searches as they are performed: lines as they come, how far it is, what is kept when it ends before its end."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, Any

from gateway.audit.attended import Attended, Reason, Stop, Watch
from gateway.audit.checkpoint import Checkpoint, CheckpointError
from gateway.audit.law import Model
from gateway.audit.report import line
from gateway.audit.sample import Estimate, Sample, Sampling
from gateway.audit.search import Progress, Result, Search, Summary

EVERY = 10.0  # seconds between two lines of progress in a log
OFTEN = 0.2  # and on a terminal
VERSION = 1
MAX_SAVED = 4 * 1024**3  # bytes


class Ended(StrEnum):
    """How an audit ended: nothing is left to be found, or nothing that is likely enough; its limit was reached, its
    time was up, somebody stopped it, or something failed."""

    FINISHED = "finished"
    LEAST = "least"
    LIMIT = "limit"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


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


@dataclass(frozen=True, slots=True)
class Task:
    """One search. `start` begins it, or goes on with it; `more` is what a line says besides its result."""

    start: Callable[[Model, Callable[[Progress], None], Checkpoint | None], Search]
    more: Callable[[Result], Mapping[str, str]] = lambda _: {}


@dataclass(frozen=True, slots=True)
class Saved:
    """An audit that was stopped: what its finished tasks found, and where the next one was."""

    done: tuple[tuple[Found, ...], ...] = ()
    search: Checkpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an audit. `found`: of all tasks, in order; `saved`: what to go on from; `error`: what failed.
    `exact_to` and `prefixes_cut` as in a search's summary, the worst of all tasks."""

    ended: Ended
    found: tuple[Found, ...]
    saved: Saved
    nodes: int
    seconds: float
    exact_to: float | None
    prefixes_cut: bool
    error: Exception | None = None

    def summary(self) -> dict[str, object]:
        return {
            "strings": len(self.found),
            "ended": str(self.ended),
            "nodes": self.nodes,
            "seconds": round(self.seconds, 3),
            "exact_to": self.exact_to,
            "prefixes_cut": self.prefixes_cut,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What came of drawing. `found`: the samples that are strings of the language; `estimate`: of the probability that
    the model says one, None before anything was drawn."""

    ended: Ended
    found: tuple[Found, ...]
    samples: int
    seconds: float
    estimate: Estimate | None
    error: Exception | None = None

    def summary(self) -> dict[str, object]:
        return {
            "samples": self.samples,
            "strings": len({found.result.text for found in self.found}),
            "ended": str(self.ended),
            "seconds": round(self.seconds, 3),
            "estimate": None if self.estimate is None else asdict(self.estimate),
        }


class Lines:
    """JSON lines on some streams."""

    def __init__(self, meter: Meter, *streams: IO[str]) -> None:
        self._meter, self._streams = meter, streams

    def write(self, fields: Mapping[str, object]) -> None:
        """One line, at once."""
        text = line(fields) + "\n"
        self._meter.clear()
        for stream in self._streams:
            stream.write(text)
            stream.flush()


class Meter:
    """A line that says how far it is, in numbers: rewritten on a terminal, else a new one from time to time."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._terminal = stream.isatty()
        self._begin = self._last = clock()
        self._shown = False

    def show(self, text: Callable[[float], str]) -> None:
        """If it is time for it; `text` gets the seconds since the beginning."""
        now = self._clock()
        if now - self._last < (OFTEN if self._terminal else EVERY):
            return
        self._last = now
        begin, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
        self._write(begin + text(now - self._begin) + end)
        self._shown = self._terminal

    def clear(self) -> None:
        """Make room for a line of another stream on the same terminal."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _write(self, text: str) -> None:
        # Nobody may be there to read it any more, and an audit goes on without.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


class _Enough(Exception):
    """What is left is not likely enough."""


class Run:
    """Performs tasks, one after the other. `saved`: what was done before. `least`: strings with a lower log-probability
    are not looked for."""

    def __init__(
        self,
        tasks: Sequence[Task],
        lines: Lines,
        meter: Meter,
        watch: Watch,
        saved: Saved | None = None,
        least: float = -math.inf,
    ) -> None:
        saved = saved or Saved()
        self._tasks, self._lines, self._meter, self._watch, self._least = tasks, lines, meter, watch, least
        self._unlikely = False
        self._ends: list[Ended] = []
        self._done = [tuple(found) for found in saved.done]
        self._resume = saved.search
        self._current: Search | None = None
        self._summaries: list[Summary] = []
        self._printed = sum(map(len, self._done))

    def perform(self, model: Model) -> Outcome:
        """Whatever ends it, what was found is in the outcome. Raises CheckpointError for a checkpoint of something
        else, and KeyboardInterrupt where a second Ctrl-C arrives."""
        begin = time.monotonic()
        error: Exception | None = None
        try:
            for task in self._tasks[len(self._done) :]:
                self._close()
                self._search(task, model)
            ended = next((each for each in (Ended.LIMIT, Ended.LEAST) if each in self._ends), Ended.FINISHED)
        except Stop as stop:
            ended = Ended.TIMEOUT if stop.reason is Reason.TIMEOUT else Ended.INTERRUPTED
        except CheckpointError:
            raise
        except Exception as caught:
            ended, error = Ended.FAILED, caught
        return self._outcome(ended, time.monotonic() - begin, error)

    def _search(self, task: Task, model: Model) -> None:
        search = task.start(Attended(model, self._watch), self._progress, self._resume)
        self._current, self._resume, self._unlikely = search, None, False
        try:
            for result in search:
                if result.logprob < self._least:
                    raise _Enough
                self._printed += 1
                self._lines.write(Found(result, task.more(result)).fields())
                self._watch.check()
            self._ends.append(Ended.FINISHED if search.summary().finished else Ended.LIMIT)
        except _Enough:
            self._ends.append(Ended.LEAST)

    def _close(self) -> None:
        """Before the next task: the one before will not be gone on with. The last one may, up to another limit."""
        if self._current is not None:
            self._summaries.append(self._current.summary())
            self._done.append(self._found_by(self._current, self._tasks[len(self._done)]))
            self._current = None

    def _found_by(self, search: Search, task: Task) -> tuple[Found, ...]:
        return tuple(Found(result, task.more(result)) for result in search.found if result.logprob >= self._least)

    def _progress(self, progress: Progress) -> None:
        self._meter.show(lambda seconds: self._said(progress, seconds))
        self._watch.check()
        # While prefixes are looked for nothing is pending. And strings that came with these paths are given before the
        # next are asked about: so it is enough the second time.
        if progress.pending and progress.best < self._least:
            if self._unlikely:
                raise _Enough
            self._unlikely = True

    def _said(self, progress: Progress, seconds: float) -> str:
        of = f"prompt {len(self._done) + 1} of {len(self._tasks)}, " if len(self._tasks) > 1 else ""
        return (
            f"{of}{progress.nodes:,} nodes, batch {progress.batch}, {self._printed:,} strings "
            f"({self._printed / seconds if seconds else 0:.1f}/s), best pending {progress.best:.3f}"
        )

    def _outcome(self, ended: Ended, seconds: float, error: Exception | None) -> Outcome:
        found = [each for done in self._done for each in done]
        summaries = list(self._summaries)
        # A task that was about to go on stands where it stood.
        checkpoint = self._resume
        if self._current is not None:
            found += self._found_by(self._current, self._tasks[len(self._done)])
            summaries.append(self._current.summary())
            checkpoint = self._current.checkpoint()
        cut = [summary.exact_to for summary in summaries if summary.exact_to is not None]
        return Outcome(
            ended=ended,
            found=tuple(found),
            saved=Saved(tuple(self._done), checkpoint),
            nodes=sum(summary.nodes for summary in summaries),
            seconds=seconds,
            exact_to=max(cut, default=None),
            prefixes_cut=any(summary.prefixes_cut for summary in summaries),
            error=error,
        )


def draw(begin: Callable[[Model], Sampling], model: Model, lines: Lines, meter: Meter, watch: Watch) -> Drawn:
    """Perform a sampling. Whatever ends it, what was drawn is kept."""
    since = time.monotonic()
    found: list[Found] = []
    drawn = 0
    ended, error, sampling = Ended.FINISHED, None, None
    try:
        sampling = begin(Attended(model, watch))
        for sample in sampling:
            drawn += 1
            lines.write({name: value for name, value in asdict(sample).items() if name != "prefix"})
            if sample.text is not None:
                found.append(Found(_drawn(sample, sample.text)))
            meter.show(partial(_drawing, drawn))
            watch.check()
    except Stop as stop:
        ended = Ended.TIMEOUT if stop.reason is Reason.TIMEOUT else Ended.INTERRUPTED
    except Exception as caught:
        ended, error = Ended.FAILED, caught
    return Drawn(
        ended=ended,
        found=tuple(found),
        samples=drawn,
        seconds=time.monotonic() - since,
        estimate=sampling.estimate() if sampling is not None and drawn else None,
        error=error,
    )


def _drawing(drawn: int, seconds: float) -> str:
    return f"{drawn:,} samples ({drawn / seconds if seconds else 0:.1f}/s)"


def _drawn(sample: Sample, text: str) -> Result:
    return Result(text, sample.tokens, sample.logprob, sample.prefix_logprob, sample.logprob, 1, sample.prefix)


# -- files -------------------------------------------------------------------------------------------------------------


def write_private(path: Path, data: bytes) -> None:
    """Write a file anew, all or nothing, for its owner only: what a model says can be what nobody should read. Raises
    OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def save(path: Path, saved: Saved, audit: str) -> None:
    """Write what an audit can be taken up from; `audit` says which one it is. Raises OSError."""
    content = {
        "portcullis_audit": VERSION,
        "audit": audit,
        "done": [[{"more": dict(found.more), **asdict(found.result)} for found in done] for done in saved.done],
        "search": None if saved.search is None else json.loads(saved.search.encode()),
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
        search = content["search"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: no checkpoint of an audit") from None
    return Saved(done, None if search is None else Checkpoint.decode(json.dumps(search).encode()))


def _found(fields: dict[str, Any]) -> Found:
    more = {str(name): str(value) for name, value in fields.pop("more").items()}
    return Found(Result(**{**fields, "tokens": tuple(map(int, fields["tokens"]))}), more)
