"""Labels that a client may append to each other: which may follow the ones that came before?

Each label is judged by itself elsewhere; here only matches across the edges between them count, the end of each label
being an end of the text. What came before is a censor's state, so that a label is read once however many came before
it; and since most labels repeat, the states are the states of an automaton whose steps are whole labels, worked out
when they are first needed and kept in a bounded table.
"""

from __future__ import annotations

from collections.abc import Hashable

from gateway.censor.compile import Program
from gateway.censor.stream import Censor

MAX_STEPS = 2048  # that are kept of one answer: some 200 bytes each, and a kilobyte or two where they lead to new text
MAX_LABEL = 256  # characters; steps with longer labels are worked out each time
# A pattern's beginnings are taken again at the end of a label if they are not much longer than the label itself.
CHEAP, CHEAP_FOR_EACH = 64, 4  # characters


class LabelState:
    """What came before, as far as it matters. `after`: where a label leads, None where it makes a match."""

    __slots__ = ("after", "censor")

    def __init__(self, censor: Censor) -> None:
        self.censor = censor
        self.after: dict[str, LabelState | None] = {}


class LabelAutomaton:
    """The automaton of one answer's labels. Begin at `start`."""

    def __init__(self, program: Program | None) -> None:
        self.start = LabelState(Censor(program))
        self._known: dict[Hashable, LabelState] = {self.start.censor.position(): self.start}
        self._steps = 0

    def follow(self, sequence: LabelState, label: str) -> LabelState | None:
        """The sequence with the label behind it; None if it would hold a match that is in no label alone."""
        try:
            return sequence.after[label]
        except KeyError:
            pass
        reached = self._work_out(sequence, label)
        if self._steps < MAX_STEPS and len(label) <= MAX_LABEL:
            self._steps += 1
            sequence.after[label] = reached
        return reached

    def _work_out(self, sequence: LabelState, label: str) -> LabelState | None:
        cheaply = CHEAP + CHEAP_FOR_EACH * len(label)
        censor = sequence.censor.fork()
        censor.feed_exempt(label)
        if censor.changed or censor.blocked is not None or censor.ends_in_match(cheaply):
            sequence.censor.switch_to_exact(cheaply)
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
