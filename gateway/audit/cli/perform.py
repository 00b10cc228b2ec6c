"""Performs an audit: from parsed options through search, rules, verification and report to the exit status."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import stat
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO

from gateway import exits
from gateway.audit.cli.emit_rules import rules_of, rules_yaml, short_words
from gateway.audit.cli.gateway_client import GatewayClient, GatewayError, GatewaySampling
from gateway.audit.cli.options import MASK
from gateway.audit.cli.plan import Plan, plan_of
from gateway.audit.cli.report import page
from gateway.audit.cli.verify import Verification, through_gateway, through_masks
from gateway.audit.language.automaton import AutomatonTooLarge
from gateway.audit.model import LanguageModel, ModelError
from gateway.audit.models.loading import ModelLoader, model_of, with_absolute_paths
from gateway.audit.query.model import LocalModel, Query, ServedModel
from gateway.audit.run.interrupts import AuditStopped, Ended, Interrupts
from gateway.audit.run.lines import STANDARD_OUTPUT, LineWriter, WriteError
from gateway.audit.run.processes import ProcessPool
from gateway.audit.run.progress import SavedAudit, read_saved, save
from gateway.audit.run.ray import RayPool
from gateway.audit.run.runner import LocalRunner, Outcome, SamplingOutcome, run_sampling
from gateway.audit.run.scheduler import Scheduler, TaskRunner
from gateway.audit.searches.checkpoint import CheckpointError
from gateway.config import ConfigError
from gateway.files import write_private
from gateway.policy.model import Action, Rule
from gateway.policy.value import key_from
from gateway.progress import ProgressMeter

SAMPLES = 20
CLIENT_KEY = "PORTCULLIS_KEY"


def perform(options: argparse.Namespace) -> int:
    """Returns the exit status. Raises ConfigError, KeyboardInterrupt and BrokenPipeError."""
    try:
        with contextlib.ExitStack() as stack:
            return _AuditRun(options, stack).perform()
    except (CheckpointError, ModelError, GatewayError) as error:
        return _status_of(error)


def _print_error(error: Exception | str, status: int) -> int:
    with contextlib.suppress(OSError):  # standard error may be closed; the rest is done all the same
        print(f"portcullis: {error}", file=sys.stderr)
    return status


def _status_of(error: Exception) -> int:
    """Print an error of the model, the gateway or a file, and return its exit status; re-raise any other."""
    match error:
        case CheckpointError():
            return _print_error(error, exits.USAGE)
        case WriteError():
            if error.filename == STANDARD_OUTPUT:
                exits.discard_stdout()
            return _print_error(error, exits.UNWRITTEN)
        case ModelError() | AutomatonTooLarge() | GatewayError():
            return _print_error(error, exits.NO_MODEL)
    raise error


class _AuditRun:
    def __init__(self, options: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self._options = options
        self._plan = plan_of(options)
        self._checkpoint: Path | None = options.checkpoint or options.resume
        _check_apart(options)
        for path in (options.report, options.emit_rules, self._checkpoint):
            _check_place(path)
        self._saved = _saved(options.resume, self._plan)
        self._gateway = self._gateway_client(stack)
        files = [stack.enter_context(_lines_file(options))] if options.out else []
        self._errors: list[Exception] = []  # of what is made in the end; each leaves the rest to be made
        self._stack = stack
        self._workers = stack.enter_context(contextlib.ExitStack())
        self._streams = (*files, sys.stdout)
        self._runner = self._make_runner()
        self._reset_progress()

    def _make_runner(self) -> TaskRunner:
        """The runner of the tasks, with the model loaded."""
        options = self._options
        left = len(self._plan.tasks) - len(self._saved.done)
        resumable = options.checkpoint is not None or options.resume is not None
        load = ModelLoader(with_absolute_paths(self._plan.model), options.device)
        pool: ProcessPool | RayPool
        if options.ray is not None:
            pool = RayPool(options.ray, load, options.processes, max(left, 1), options.device)
        elif (count := min(options.processes or 1, left)) > 1:
            pool = ProcessPool(load, count)
        else:
            return LocalRunner(self._model)
        self._workers.callback(pool.close)
        spread = Scheduler(pool, resumable)
        spread.load()
        return spread

    @cached_property
    def _model(self) -> LanguageModel:
        """Load the model in this process."""
        model = model_of(self._plan.model, self._options.device)
        if close := getattr(model, "close", None):
            self._stack.callback(close)
        return model

    def _reset_progress(self) -> None:
        """Start a new progress meter."""
        self._lines = LineWriter(ProgressMeter(sys.stderr), *self._streams)

    def perform(self) -> int:
        with Interrupts(self._options.timeout) as interrupts:
            outcome = self._run(interrupts)
            self._lines.meter.clear()
            # Under the watch, too: what arrives now finds the checkpoint written.
            self._save(outcome)
        rules = rules_of(
            self._plan.words(outcome.found),
            action=self._options.rules_action or Action.REDACT,
            masked=self._options.rules_mask,
        )
        self._emit(rules)
        verified = None
        stopped = interrupts.interrupted or outcome.ended in (Ended.INTERRUPTED, Ended.FAILED)
        if self._options.verify is not None and not stopped:
            verified = self._verify(outcome, rules)
        summary = outcome.summary()
        if verified is not None:
            summary["verify"] = dict(verified.summary)
        with self._collecting_errors():
            self._lines.write({"summary": summary})
        self._report(outcome, summary)
        status = self._status(outcome, verified)
        return exits.INTERRUPTED if interrupts.interrupted and status in (exits.DONE, exits.FINDINGS) else status

    def _run(self, interrupts: Interrupts) -> Outcome | SamplingOutcome:
        plan = self._plan
        if plan.sampling is not None:
            return run_sampling(plan.sampling, self._model, self._lines, interrupts)
        return self._runner.perform(plan.tasks, self._lines, interrupts, self._saved, _least(self._options))

    def _save(self, outcome: Outcome | SamplingOutcome) -> None:
        """Write the checkpoint, and print how the audit ended if it was stopped early."""
        path, kept = self._checkpoint, "without --checkpoint nothing is kept to continue from"
        if path is not None and isinstance(outcome, Outcome):
            kept = "what there is to continue from could not be written"
            with self._collecting_errors(path):
                save(path, outcome.saved, self._plan.digest)
                kept = f"to continue: --resume {path}"
        if isinstance(outcome.error, BrokenPipeError):
            raise outcome.error
        if outcome.ended in (Ended.FINISHED, Ended.LEAST, Ended.LIMIT):
            return
        why = {
            Ended.TIMEOUT: f"stopped after {self._options.timeout} s",
            Ended.INTERRUPTED: "stopped",
            Ended.FAILED: "failed",
        }[outcome.ended]
        if isinstance(outcome, SamplingOutcome):
            kept = "the samples count all the same"
        _print_error(f"{why}; strings found: {len(outcome.found)}; {kept}", 0)

    def _emit(self, rules: tuple[Rule, ...]) -> None:
        path = self._options.emit_rules
        if path is None:
            return
        with self._collecting_errors(path):
            write_private(path, rules_yaml(rules).encode())
            short = short_words(rules)
            note = f", {short} of them with a word so short that ordinary text may hold it" if short else ""
            _print_error(f"{path}: {len(rules)} rules{note}", 0)

    @contextlib.contextmanager
    def _collecting_errors(self, path: Path | None = None) -> Iterator[None]:
        """Collects errors, to be reported at the end: one output that fails does not prevent the others."""
        try:
            yield
        except (BrokenPipeError, WriteError, ModelError, AutomatonTooLarge) as error:
            self._errors.append(error)
        except OSError as error:
            if path is None:
                raise
            self._errors.append(WriteError(error.errno, error.strerror, str(path)))

    def _report(self, outcome: Outcome | SamplingOutcome, summary: dict[str, object]) -> None:
        if self._options.report is None:
            return
        # The workers are done, and hold the memory that the model needs here.
        self._workers.close()
        plan = self._plan
        name = plan.model.hf if isinstance(plan.model, LocalModel) else plan.model.name
        with self._collecting_errors(self._options.report):
            html = page(
                f"Audit of {name}",
                {**plan.shown, **summary},
                plan.rows(outcome.found, self._model),
                edited=plan.has_edits,
                ranked=plan.ranks,
            )
            write_private(self._options.report, html.encode())

    def _status(self, outcome: Outcome | SamplingOutcome, verified: Verification | None) -> int:
        failed = (outcome.error, verified.error if verified else None, *self._errors)
        # The same error is printed once.
        errors = {str(error): error for error in reversed(failed) if error is not None}
        statuses = [_status_of(error) for error in reversed(errors.values())]
        if statuses:
            return statuses[0]
        ends = (outcome.ended, verified.ended if verified else None)
        if Ended.INTERRUPTED in ends:
            return exits.INTERRUPTED
        if verified is not None and verified.still:
            return exits.STILL_FOUND
        return exits.FINDINGS if self._options.fail_on_findings and outcome.found else exits.DONE

    # -- verification --------------------------------------------------------------------------------------------------

    def _gateway_client(self, stack: contextlib.ExitStack) -> GatewayClient | None:
        url = self._options.verify
        if url is None or url == MASK:
            return None
        served = self._plan.model
        name = self._options.name or (served.name if isinstance(served, ServedModel) else None)
        if name is None:
            raise ConfigError("command line", "--verify", "a gateway needs the name of a model: give --name")
        return stack.enter_context(contextlib.closing(GatewayClient(url, name, key_from(os.environ, CLIENT_KEY))))

    def _verify(self, outcome: Outcome | SamplingOutcome, rules: tuple[Rule, ...]) -> Verification:
        self._reset_progress()
        with Interrupts(self._options.timeout) as interrupts:
            try:
                return self._verify_with(outcome, rules, interrupts)
            except AuditStopped as stop:
                return Verification(ended=stop.ended, summary={"ended": str(stop.ended)})
            except GatewayError as error:
                summary = {"through": "gateway", "ended": str(Ended.FAILED)}
                return Verification(ended=Ended.FAILED, summary=summary, error=error)
            finally:
                self._lines.meter.clear()

    def _verify_with(
        self, outcome: Outcome | SamplingOutcome, rules: tuple[Rule, ...], interrupts: Interrupts
    ) -> Verification:
        plan = self._plan
        if self._gateway is None:
            enforced = plan.enforced(rules)
            if not enforced:
                return Verification(summary={"through": "mask", "still": 0, "others": 0})
            return through_masks(plan, enforced, self._runner, self._lines, interrupts, _least(self._options))
        looked_for = rules if plan.matcher is None else plan.matcher.rules
        if not looked_for or not outcome.found:
            return Verification(summary={"through": "gateway", "still": 0, "questions": 0})
        return through_gateway(
            plan, outcome.found, looked_for, self._gateway, self._gateway_sampling, self._lines, interrupts
        )

    def _gateway_sampling(self, query: Query) -> GatewaySampling:
        return GatewaySampling(
            samples=self._options.verify_samples or SAMPLES,
            max_tokens=query.decoding.max_tokens,
            temperature=query.decoding.temperature or 1.0,
            top_p=query.decoding.top_p,
        )


def _least(options: argparse.Namespace) -> float:
    return -math.inf if options.least is None else math.log(options.least)


def _saved(path: Path | None, plan: Plan) -> SavedAudit:
    if path is None:
        return SavedAudit()
    try:
        return read_saved(path, plan.digest)
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be read: {error.strerror}") from None


def _check_apart(options: argparse.Namespace) -> None:
    """No file is written that another option reads or writes; a checkpoint may replace the one that is resumed.
    Raises ConfigError."""
    names = {name: getattr(options, name) for name in ("config", "prompts", "resume", *_WRITTEN)}
    files = [(f"--{name.replace('_', '-')}", path) for name, path in names.items() if path is not None]
    known = {path.resolve(): "a query" for path in options.queries}
    for option, path in files:
        other = known.setdefault(path.resolve(), option)
        if other != option and {other, option} != {"--checkpoint", "--resume"} and _is_or_becomes_file(path):
            raise ConfigError(str(path), "", f"is named twice: as {other}, and as {option}")


_WRITTEN = ("out", "report", "emit_rules", "checkpoint")


def _is_or_becomes_file(path: Path) -> bool:
    """Is it a file, or will it be one? Unlike a device, a file is overwritten."""
    return path.is_file() or not path.exists()


def _check_place(path: Path | None) -> None:
    """Check, before the model is called, that the file can be written. Raises ConfigError."""
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(str(path), "", "cannot be written: its folder does not exist, or it is a folder itself")
    if not _is_or_becomes_file(path):
        raise ConfigError(str(path), "", "cannot be written: it is a device or a pipe, not a file")
    beside = path.with_name(f".{path.name}.{os.getpid()}")  # as the file itself is going to be written
    try:
        os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        beside.unlink()
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be written: {error.strerror}") from None


def _private(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        with contextlib.suppress(PermissionError):  # it was there, is somebody else's, and they let us write
            os.fchmod(descriptor, 0o600)
    return descriptor


@contextlib.contextmanager
def _lines_file(options: argparse.Namespace) -> Iterator[IO[str]]:
    """The file for the lines, readable by its owner only; a resumed audit appends."""
    mode = "w" if options.resume is None else "a"
    try:
        file = open(options.out, mode, encoding="utf-8", opener=_private)  # noqa: SIM115
    except OSError as error:
        raise ConfigError(str(options.out), "", f"cannot be written: {error.strerror}") from None
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # each line was flushed, and what failed then is said
            file.close()
