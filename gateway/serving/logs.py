"""Warnings and errors of uvicorn and asyncio, as lines of our log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Iterator

from gateway.observe.log import RequestLog


class _ServerLog(logging.Handler):
    """Logs only type and place of an exception: its text may quote scanned text."""

    def __init__(self, log: RequestLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        where = None
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            where = type(error).__name__ + (f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else "")
        message = record.getMessage().strip().partition("\n")[0]
        self._log.event("server", level=record.levelname.lower(), message=message, error=where)


def redirect_server_logs(log: RequestLog) -> None:
    """Send their warnings and errors to `log`, and nowhere else."""
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [_ServerLog(log)]
        logger.propagate = False


@contextlib.contextmanager
def quiet_cancellations() -> Iterator[None]:
    """While servers end: cut-off requests are logged as such, so uvicorn need not log each as an exception."""
    logger = logging.getLogger("uvicorn.error")
    logger.addFilter(_is_no_cancellation)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_cancellation)


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
