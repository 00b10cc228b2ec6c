"""Stopping an audit by signals and by a timeout, also during a call of the model.

A signal may arrive anywhere. In the middle of a search's own work it would tear that apart, so there it only leaves a
note, and the search stops when it asks its model next.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from types import FrameType, TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.audit.model import LanguageModel

RAISED = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


class Ended(StrEnum):
    """How an audit ended: everything was found, or everything that is likely enough; its limit was reached, its
    time was up, it was stopped, or something failed."""

    FINISHED = "finished"
    LEAST = "least"
    LIMIT = "limit"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class AuditStopped(BaseException):
    """The audit is stopped; `ended` says how. A BaseException, as KeyboardInterrupt, so that handlers of errors do not
    catch it."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended)
        self.ended = ended


class Interrupts:
    """Stops an audit after `timeout` seconds (None: never), and by SIGINT and SIGTERM, or the `signals` given instead.
    A second SIGINT raises KeyboardInterrupt wherever it arrives. Signals are handled by the main thread only;
    elsewhere only `stop` has an effect."""

    def __init__(self, timeout: float | None = None, signals: Iterable[int] = RAISED) -> None:
        self._timeout, self._signals = timeout, tuple(signals)
        self._ended: Ended | None = None
        self._interruptible = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                self._before[number] = signal.signal(number, self._on_signal)
            if self._timeout is not None:
                signal.setitimer(signal.ITIMER_REAL, self._timeout)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises AuditStopped if the audit is to be stopped."""
        if self._ended is not None:
            raise AuditStopped(self._ended)

    @property
    def interrupted(self) -> bool:
        """Was it stopped by a signal or `stop`, even if all work was done already?"""
        return self._ended is Ended.INTERRUPTED

    def stop(self) -> None:
        """Stop the audit before its next call of the model, as a signal does. From any thread."""
        self._ended = self._ended or Ended.INTERRUPTED

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A stop takes effect at once within the block."""
        self.check()
        self._interruptible = True
        try:
            # What arrived between the check and now.
            self.check()
            yield
        finally:
            self._interruptible = False

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and self._ended is Ended.INTERRUPTED:
            raise KeyboardInterrupt
        self._ended = (self._ended or Ended.TIMEOUT) if number == signal.SIGALRM else Ended.INTERRUPTED
        if self._interruptible:
            self._interruptible = False
            raise AuditStopped(self._ended)


class InterruptibleModel:
    """A model whose calls can be interrupted."""

    def __init__(self, model: LanguageModel, interrupts: Interrupts) -> None:
        interruptible = interrupts.interruptible()
        self.vocabulary = model.vocabulary
        self.encode = model.encode
        self.context = interruptible(model.context)
        self.require_top_k = interruptible(model.require_top_k)
        self.logprobs_of = interruptible(model.logprobs_of)
        self._rows = interruptible(model.__call__)

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> NDArray[np.floating[Any]]:
        return self._rows(prefixes)
