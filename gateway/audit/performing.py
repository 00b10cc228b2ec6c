"""An audit from its options to its exit status: it is performed, and what is wanted is made of what was found."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO

from gateway.audit.attended import Stop, Watch
from gateway.audit.automaton import TooLarge
from gateway.audit.checkpoint import CheckpointError
from gateway.audit.deployed import Deployed, GatewayError, Sampling
from gateway.audit.law import Model, ModelError
from gateway.audit.loading import Loading, anywhere, complete, model_of
from gateway.audit.on_ray import Ray
from gateway.audit.options import MASK
from gateway.audit.plans import Plan, plan_of
from gateway.audit.processes import Processes
from gateway.audit.query import LocalModel, Query, ServedModel
from gateway.audit.report import page
from gateway.audit.rules import rules_of, short_words, written
from gateway.audit.running import Drawn, Ended, Lines, Meter, Outcome, Performer, draw
from gateway.audit.saved import Saved, read_saved, save
from gateway.audit.spread import Spread
from gateway.audit.tasks import Here
from gateway.audit.verifying import Verified, through_gateway, through_masks
from gateway.files import write_private
from gateway.policy.load import ConfigError
from gateway.policy.model import Action, Rule

DONE, STILL_SAID, USAGE, FINDINGS, NO_MODEL, INTERRUPTED = 0, 1, 2, 3, 75, 130
SAMPLES = 20
CLIENT_KEY = "PORTCULLIS_KEY"


def perform(options: argparse.Namespace) -> int:
    """Returns the exit status. Raises ConfigError, KeyboardInterrupt and BrokenPipeError."""
    try:
        with contextlib.ExitStack() as stack:
            return _Audit(options, stack).perform()
    except CheckpointError as error:
        return _said(error, USAGE)
    except ModelError as error:
        return _said(error, NO_MODEL)


def _said(error: Exception | str, status: int) -> int:
    print(f"portcullis: {error}", file=sys.stderr)
    return status


class _Audit:
    def __init__(self, options: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self._options = options
        self._plan = plan_of(options)
        for path in (options.report, options.emit_rules, options.checkpoint):
            _check_folder(path)
        self._saved = _saved(options.resume, self._plan)
        files = [stack.enter_context(_lines_file(options))] if options.out else []
        self._gateway = self._deployed(stack)
        self._wanted = complete(self._plan.model, self._plan.queries[0].source)
        self._stack = stack
        self._workers = stack.enter_context(contextlib.ExitStack())
        self._streams = (*files, sys.stdout)
        self._performer = self._begun()
        self._measure()

    def _begun(self) -> Performer:
        """Where the tasks are performed, with the model loaded there."""
        options, done = self._options, self._saved.states().values()
        left = len(self._plan.tasks) - sum(isinstance(state, tuple) for state in done)
        keeps = options.checkpoint is not None or options.resume is not None
        load = Loading(anywhere(self._wanted), options.device)
        place: Processes | Ray
        if options.ray is not None:
            place = Ray(options.ray, load, options.processes, max(left, 1), options.device)
        elif (count := min(options.processes or 1, left)) > 1:
            place = Processes(load, count)
        else:
            return Here(self._model)
        self._workers.enter_context(place)
        spread = Spread(place, keeps)
        spread.load()
        return spread

    @cached_property
    def _model(self) -> Model:
        """In this process."""
        model = model_of(self._wanted, self._options.device)
        if close := getattr(model, "close", None):
            self._stack.callback(close)
        return model

    def _measure(self) -> None:
        """From now on."""
        self._meter = Meter(sys.stderr)
        self._lines = Lines(self._meter, *self._streams)

    def perform(self) -> int:
        with Watch(self._options.timeout) as watch:
            outcome = self._ask(watch)
        self._meter.clear()
        self._keep(outcome)
        rules = rules_of(
            self._plan.words(outcome.found),
            action=self._options.rules_action or Action.REDACT,
            masked=self._options.rules_mask,
        )
        self._emit(rules)
        verified = None
        if self._options.verify is not None and outcome.ended not in (Ended.INTERRUPTED, Ended.FAILED):
            verified = self._verify(outcome, rules)
        summary = outcome.summary()
        if verified is not None:
            summary["verify"] = dict(verified.summary)
        self._report(outcome, summary)
        self._lines.write({"summary": summary})
        return self._status(outcome, verified)

    def _ask(self, watch: Watch) -> Outcome | Drawn:
        plan = self._plan
        if plan.sampling is not None:
            return draw(plan.sampling, self._model, self._lines, self._meter, watch)
        least = _least(self._options)
        return self._performer.perform(plan.tasks, self._lines, self._meter, watch, self._saved, least)

    def _keep(self, outcome: Outcome | Drawn) -> None:
        """Write the checkpoint, and say how it ended if that was before the end."""
        path = self._options.checkpoint or self._options.resume
        if path is not None and isinstance(outcome, Outcome):
            save(path, outcome.saved, self._plan.digest)
        if isinstance(outcome.error, BrokenPipeError):
            raise outcome.error
        if outcome.ended in (Ended.FINISHED, Ended.LEAST, Ended.LIMIT):
            return
        why = {
            Ended.TIMEOUT: f"stopped after {self._options.timeout} s",
            Ended.INTERRUPTED: "stopped",
            Ended.FAILED: "failed",
        }[outcome.ended]
        kept = "without --checkpoint nothing is kept to go on from"
        if path is not None:
            kept = f"to go on: --resume {path}"
        if isinstance(outcome, Drawn):
            kept = "the samples count all the same"
        _said(f"{why}; strings found: {len(outcome.found)}; {kept}", 0)

    def _emit(self, rules: tuple[Rule, ...]) -> None:
        path = self._options.emit_rules
        if path is None:
            return
        write_private(path, written(rules).encode())
        short = short_words(rules)
        note = f", {short} of them with a word so short that ordinary text may hold it" if short else ""
        _said(f"{path}: {len(rules)} rules{note}", 0)

    def _report(self, outcome: Outcome | Drawn, summary: dict[str, object]) -> None:
        if self._options.report is None:
            return
        # They have what memory there is, and are done.
        self._workers.close()
        plan = self._plan
        name = plan.model.hf if isinstance(plan.model, LocalModel) else plan.model.name
        html = page(
            f"Audit of {name}",
            {**plan.shown, **summary},
            plan.rows(outcome.found, self._model),
            edited=plan.asks_for_edits,
            ranked=plan.ranks,
        )
        write_private(self._options.report, html.encode())

    def _status(self, outcome: Outcome | Drawn, verified: Verified | None) -> int:
        for error in (outcome.error, verified.error if verified else None):
            if isinstance(error, ModelError | TooLarge | GatewayError):
                return _said(error, NO_MODEL)
            if error is not None:
                raise error
        ends = (outcome.ended, verified.ended if verified else None)
        if Ended.INTERRUPTED in ends:
            return INTERRUPTED
        if verified is not None and verified.still:
            return STILL_SAID
        return FINDINGS if self._options.fail_on_findings and outcome.found else DONE

    # -- asked again ---------------------------------------------------------------------------------------------------

    def _deployed(self, stack: contextlib.ExitStack) -> Deployed | None:
        url = self._options.verify
        if url is None or url == MASK:
            return None
        served = self._plan.model
        name = self._options.name or (served.name if isinstance(served, ServedModel) else None)
        if name is None:
            raise ConfigError("command line", "--verify", "a gateway is asked for a model by name: give --name")
        return stack.enter_context(Deployed(url, name, os.environ.get(CLIENT_KEY)))

    def _verify(self, outcome: Outcome | Drawn, rules: tuple[Rule, ...]) -> Verified:
        self._measure()
        with Watch(self._options.timeout) as watch:
            try:
                return self._ask_again(outcome, rules, watch)
            except Stop as stop:
                ended = Ended.of(stop)
                return Verified(still=0, ended=ended, summary={"ended": str(ended)})
            except GatewayError as error:
                summary = {"through": "gateway", "ended": str(Ended.FAILED)}
                return Verified(still=0, ended=Ended.FAILED, summary=summary, error=error)
            finally:
                self._meter.clear()

    def _ask_again(self, outcome: Outcome | Drawn, rules: tuple[Rule, ...], watch: Watch) -> Verified:
        plan = self._plan
        if self._gateway is None:
            enforced = plan.enforced(rules)
            if not enforced:
                return Verified(still=0, ended=Ended.FINISHED, summary={"through": "mask", "still": 0, "others": 0})
            least = _least(self._options)
            return through_masks(plan, enforced, self._performer, self._lines, self._meter, watch, least)
        looked_for = rules if plan.judge is None else plan.judge.rules
        if not looked_for or not outcome.found:
            return Verified(still=0, ended=Ended.FINISHED, summary={"through": "gateway", "still": 0, "questions": 0})
        return through_gateway(plan, outcome.found, looked_for, self._gateway, self._drawn_by, self._lines, watch)

    def _drawn_by(self, query: Query) -> Sampling:
        return Sampling(
            samples=self._options.verify_samples or SAMPLES,
            max_tokens=query.decoding.max_tokens,
            temperature=query.decoding.temperature or 1.0,
            top_p=query.decoding.top_p,
        )


def _least(options: argparse.Namespace) -> float:
    return -math.inf if options.least is None else math.log(options.least)


def _saved(path: Path | None, plan: Plan) -> Saved:
    if path is None:
        return Saved()
    try:
        return read_saved(path, plan.digest)
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be read: {error.strerror}") from None


def _check_folder(path: Path | None) -> None:
    """Before anything is asked: is there a place for the file?"""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError(str(path), "", "cannot be written: its folder is not there, or it is one itself")


@contextlib.contextmanager
def _lines_file(options: argparse.Namespace) -> Iterator[IO[str]]:
    """The file for the lines, its owner's only; those of an audit that goes on are added."""
    more = os.O_APPEND if options.resume is not None else os.O_TRUNC
    try:
        descriptor = os.open(options.out, os.O_WRONLY | os.O_CREAT | more, 0o600)
    except OSError as error:
        raise ConfigError(str(options.out), "", f"cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        yield file
