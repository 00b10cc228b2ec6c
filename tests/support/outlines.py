"""Our automaton over bytes beside that of outlines-core."""

from __future__ import annotations

import outlines_core

from gateway.automata.bytes import ByteAutomaton
from gateway.automata.positions import positions
from gateway.automata.regex import parse


def automaton(*patterns: str, **limits: int) -> ByteAutomaton:
    return ByteAutomaton([positions(parse(pattern)) for pattern in patterns], **limits)


def same_language(pattern: str) -> None:
    """Both automata side by side: no pair of states that is reached together differs in what it accepts or refuses.

    A NUL, which the pattern does not match, ends every text: in outlines-core 0.2 a text that can end can only continue
    to longer ones that can end at every byte, and only by ways that the pattern prefers.
    """
    pattern = rf"(?:{pattern})\x00"
    machine = automaton(pattern)
    end_of_text = 256
    vocabulary = outlines_core.Vocabulary(end_of_text, {bytes([byte]): [byte] for byte in range(256)})
    index = outlines_core.Index(pattern, vocabulary)
    steps = index.get_transitions()
    met: set[tuple[int, int]] = set()
    waiting = [(machine.start(), index.get_initial_state())]
    while waiting:
        mine, theirs = waiting.pop()
        if (id(mine), theirs) in met:
            continue
        met.add((id(mine), theirs))
        assert machine.accepting(mine) == index.is_final_state(theirs)
        for byte in range(256):
            target = machine.step(mine, byte)
            assert machine.live(target) == (byte in steps[theirs])
            if machine.live(target):
                waiting.append((target, steps[theirs][byte]))
