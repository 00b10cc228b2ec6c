"""What is wrong with the journal at this moment, and who is told: once when it begins, once when it ends."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from threading import Lock


class Problem(Enum):
    """The ways in which a journal can fail; several may last at the same time."""

    BROKEN = "lines cannot be written"
    FULL = "entries arrive faster than they are written"
    STOPPED = "nothing writes any more"


class Problems:
    """Safe between threads; `tell` is called from the thread in which the change happened."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = Lock()
        self._lasting: dict[Problem, str] = {}

    def __contains__(self, problem: Problem) -> bool:
        return problem in self._lasting

    def __bool__(self) -> bool:
        return bool(self._lasting)

    def begin(self, problem: Problem, text: str) -> None:
        """Told if the problem is new, or has another text than before."""
        with self._lock:
            changed = self._lasting.get(problem) != text
            self._lasting[problem] = text
        # Outside the lock: a slow listener holds up its own thread and no other.
        if changed:
            self._tell(text)

    def end(self, problem: Problem, text: str) -> None:
        """Told if the problem lasted until now."""
        with self._lock:
            lasted = self._lasting.pop(problem, None) is not None
        if lasted:
            self._tell(text)
