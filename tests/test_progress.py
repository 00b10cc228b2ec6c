"""Progress of work that cannot say how far it is; the audit's tests have the rest of `gateway.progress`."""

from __future__ import annotations

import io
import threading

import pytest

from gateway import progress
from gateway.progress import shown_while_slow


class Written(io.StringIO):
    """A stream of which one can wait for the first progress."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal
        self.shown = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        if "so far" in text:
            self.shown.set()
        return super().write(text)


@pytest.mark.parametrize(("terminal", "before", "after"), [(True, "\r\x1b[K", "\r\x1b[K"), (False, "", "\n")])
def test_slow_work_shows_progress(terminal: bool, before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for interval in ("TERMINAL_INTERVAL", "LOG_INTERVAL"):
        monkeypatch.setattr(progress, interval, 0.001)
    stream = Written(terminal=terminal)
    with shown_while_slow(stream, lambda seconds: f"{seconds:.0f} s so far"):
        assert stream.shown.wait(60)
    assert stream.getvalue().startswith(f"{before}0 s so far")
    assert stream.getvalue().endswith(after)


@pytest.mark.parametrize("terminal", [True, False])
def test_quick_work_shows_none_and_a_failure_is_passed_on(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TERMINAL_INTERVAL", 60.0)
    stream = Written(terminal=terminal)
    with pytest.raises(ValueError, match="failed"), shown_while_slow(stream, str):
        raise ValueError("failed")
    assert stream.getvalue() == ""
