"""How far back a match may have begun: a number of characters that its lens sees, and a number that it does not."""

from __future__ import annotations

from collections import deque
from copy import copy

# Characters: of those that a lens makes vanish, so many may be held within a match besides the `max_hold` that it
# sees. With four bytes each they are 64 KB a text.
MAX_UNSEEN = 16_384
_NO_RUNS: deque[tuple[int, int]] = deque(maxlen=0)  # of most windows: one of its own would take 0.7 kB


class Window:
    """The end of one text in which a match through one lens may lie.

    A start is in it while at most `max_seen` characters from there on do not vanish, and at most `max_unseen` do.
    `start` is the first offset that may be one. Runs of vanishing characters are kept while they are in the window, so
    at most `max_seen` + 1 of them.
    """

    __slots__ = ("_max_seen", "_max_unseen", "_runs", "_unseen", "start")

    def __init__(self, max_seen: int, max_unseen: int = MAX_UNSEEN) -> None:
        self._max_seen = max_seen
        self._max_unseen = max_unseen
        self._runs = _NO_RUNS  # original offsets [begin, end)
        self._unseen = 0  # characters in the runs
        self.start = 0

    def fork(self) -> Window:
        """A window that continues by itself from here."""
        other = copy(self)
        other._runs = self._runs.copy() if self._runs else _NO_RUNS
        return other

    def advance(self, consumed: int, vanishes: bool) -> int:
        """Take the `consumed`-th character, and any before it that did not vanish; returns `start` as it was."""
        before = self.start
        if vanishes:
            if self._runs and self._runs[-1][1] == consumed - 1:
                self._runs[-1] = self._runs[-1][0], consumed
            else:
                self._runs = self._runs or deque()
                self._runs.append((consumed - 1, consumed))
            self._unseen += 1
        start = before
        # Characters to drop from the front until few enough are left.
        while (over := consumed - start - self._unseen - self._max_seen) > 0 or self._unseen > self._max_unseen:
            if not self._runs:
                start += over
                break
            begin, end = self._runs[0]
            if start < begin:
                start = begin if self._unseen > self._max_unseen else min(begin, start + over)
            else:
                self._runs.popleft()
                self._unseen -= end - begin
                start = end
        self.start = start
        return before
