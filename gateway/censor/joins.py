"""Labels that a client may append to each other: which ones would make a match with those before?

Each label is judged by itself elsewhere; here only matches across the edges between them count, the end of each label
being an end of the text. What came before is a censor's state, so that a label is read once however many came before
it; and since most labels repeat, the states are the states of an automaton whose steps are whole labels, computed
when they are first needed and kept in a bounded table.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy

from gateway.censor.compile import Program
from gateway.censor.stream import Censor

MAX_STEPS = 2048  # that are kept of one answer: some 200 bytes each, and a kilobyte or two where they lead to new text
MAX_LABEL = 256  # characters; steps with longer labels are computed each time
# A pattern's beginnings are taken again at the end of a label if they are not much longer than the label itself.
CHEAP, CHEAP_FOR_EACH = 64, 4  # characters


class _LabelCensor(Censor):
    """A text in which nothing was found so far, that several others continue from."""

    __slots__ = ()

    def fork(self) -> _LabelCensor:
        """An independent copy, whose reports begin here."""
        other = copy(self)
        other._scanner, other.releaser = self._scanner.fork(self.releaser.base), self.releaser.fork()
        other.matches, other.seen = [], []
        return other

    def ends_in_match(self, cheaply: int) -> bool:
        """If the text ended here, would anything be replaced or blocked? See `Scanner.would_hold_at_end`."""
        return bool(self.releaser.queue) or self._scanner.would_hold_at_end(cheaply)

    def switch_to_exact(self, cheaply: int) -> None:
        """As `ends_in_match` does for patterns' texts of more than `cheaply` characters."""
        for cursor in self._scanner.patterns:
            if cursor.repeated(self.scanned) > cheaply:
                cursor.switch_to_exact(self.scanned)

    def position(self) -> Hashable | None:
        """Equal for texts without matches that no later text can tell apart; None where that is not known. Holds as
        long as the censor is kept."""
        scanner, releaser = self._scanner, self.releaser
        if self._high or releaser.queue or scanner.readings or any(cursor.jumps for cursor in scanner.literals):
            return None
        patterns = tuple([cursor.position(scanner.scanned) for cursor in scanner.patterns])
        states = tuple([id(cursor.state) for cursor in scanner.literals])
        exempt = tuple(scanner.exempt_after(releaser.base))
        return None if None in patterns else (states, patterns, len(releaser.held), exempt)


class LabelState:
    """What came before, as far as it matters. `after`: where a label leads, None where it makes a match."""

    __slots__ = ("after", "censor")

    def __init__(self, censor: _LabelCensor) -> None:
        self.censor = censor
        self.after: dict[str, LabelState | None] = {}


class LabelAutomaton:
    """The automaton of one answer's labels. Begin at `start`."""

    def __init__(self, program: Program | None) -> None:
        self.start = LabelState(_LabelCensor(program))
        self._known: dict[Hashable, LabelState] = {self.start.censor.position(): self.start}
        self._steps = 0

    def follow(self, state: LabelState, label: str) -> LabelState | None:
        """The state with the label behind it; None if it would hold a match that is in no label alone."""
        try:
            return state.after[label]
        except KeyError:
            pass
        reached = self._compute(state, label)
        if self._steps < MAX_STEPS and len(label) <= MAX_LABEL:
            self._steps += 1
            state.after[label] = reached
        return reached

    def _compute(self, state: LabelState, label: str) -> LabelState | None:
        cheaply = CHEAP + CHEAP_FOR_EACH * len(label)
        censor = state.censor.fork()
        censor.feed_exempt(label)
        if censor.changed or censor.blocked is not None or censor.ends_in_match(cheaply):
            state.censor.switch_to_exact(cheaply)
            return None
        position = censor.position()
        if position is None:
            return LabelState(censor)
        known = self._known.get(position)
        if known is None:
            known = LabelState(censor)
            if len(self._known) < MAX_STEPS:
                self._known[position] = known
        return known
