"""Exact number of strings of a language, and uniform sampling of them.

The automata are deterministic, so strings are paths to accepting states and can be counted without being listed. Every
live state reaches one, so a language is infinite exactly if there is a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.audit.language.automaton import AutomatonTooLarge, Dfa

MAX_COUNTS = 4_000_000


def cardinality(automaton: Dfa) -> int | None:
    """The number of strings; None for infinitely many. Raises AutomatonTooLarge."""
    counts = {0: 0}
    path = [(automaton.start, _targets(automaton, automaton.start))]
    on_path = {automaton.start}
    while path:
        state, targets = path[-1]
        target = next(targets, None)
        if target is None:
            path.pop()
            on_path.discard(state)
            following = sum((high - low + 1) * counts[target] for low, high, target in automaton.arcs(state))
            counts[state] = automaton.accepting(state) + following
        elif target in on_path:
            return None
        elif target not in counts:
            on_path.add(target)
            path.append((target, _targets(automaton, target)))
    return counts[automaton.start]


def _targets(automaton: Dfa, state: int) -> Iterator[int]:
    return iter([target for *_, target in automaton.arcs(state)])


@dataclass(frozen=True, slots=True)
class PathCounts:
    """Numbers of strings by length: `counts[n][state]` strings of at most `longest` bytes in all continue from a state
    that n bytes reach."""

    automaton: Dfa
    counts: tuple[dict[int, int], ...]

    @property
    def total(self) -> int:
        """The number of strings."""
        return self.count(self.automaton.start, 0)

    def count(self, state: int, read: int) -> int:
        """How many strings continue from a state after `read` bytes."""
        return self.counts[read].get(state, 0) if read < len(self.counts) else 0

    def draw(self, below: Callable[[int], int]) -> bytes:
        """One of the strings, each as likely as any other. `below(n)` draws a number from 0 to n - 1, which is the
        string's place in the order of bytes. Raises ValueError if there are none."""
        if not self.total:
            raise ValueError("there is no string to draw")
        text = bytearray()
        state, drawn = self.automaton.start, below(self.total)
        while drawn >= self.automaton.accepting(state):
            drawn -= self.automaton.accepting(state)
            for low, high, target in self.automaton.arcs(state):
                each = self.count(target, len(text) + 1)
                if drawn < each * (high - low + 1):
                    byte, drawn = divmod(drawn, each)
                    text.append(low + byte)
                    state = target
                    break
                drawn -= each * (high - low + 1)
        return bytes(text)


def path_counts(automaton: Dfa, longest: int) -> PathCounts:
    """The counts for strings of at most `longest` bytes. Raises AutomatonTooLarge for more than `MAX_COUNTS` numbers: a
    state has one for each number of bytes that reaches it."""
    layers = [{automaton.start}]
    left = MAX_COUNTS
    while layers[-1] and len(layers) <= longest:
        layers.append({target for state in layers[-1] for *_, target in automaton.arcs(state)})
        left -= len(layers[-1])
        if left < 0:
            raise AutomatonTooLarge(
                f"counting the strings of up to {longest:,} bytes takes more than {MAX_COUNTS:,} numbers: "
                "allow fewer bytes, or narrow the pattern"
            )
    counts: list[dict[int, int]] = []
    after: dict[int, int] = {}
    for layer in reversed(layers):
        after = {
            state: automaton.accepting(state)
            + sum((high - low + 1) * after.get(target, 0) for low, high, target in automaton.arcs(state))
            for state in layer
        }
        counts.append(after)
    return PathCounts(automaton, tuple(reversed(counts)))
