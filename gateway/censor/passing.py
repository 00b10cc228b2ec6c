"""Short whole texts in which no rule finds anything: almost all texts of a prompt that has very many."""

from __future__ import annotations

from gateway.automata.machine import StateMachine
from gateway.automata.phrases import WordMachine
from gateway.censor.compile import Program
from gateway.censor.scanner import over_patterns, over_words

MAX_PASSING = 1024  # characters; what it costs to begin and end a longer one does not matter
# Names, models and versions come with every request; ids come once, and the cache is emptied when it is full of them.
MAX_PASSED, MAX_PASSED_LENGTH = 1024, 64  # texts of a program that are remembered; characters of one


def passes(program: Program | None, text: str, *, closed: bool = False, remembers: bool = False) -> bool:
    """True only if a censor is sure to release the whole `text` as it is and report nothing; else False. `closed`: and
    if nothing that could follow it would make anything of it a match. `remembers`: for texts of which many repeat; the
    caller has looked for it in `Program.passed`.

    Takes the machines' fast path only, and keeps no state of the text's own.
    """
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        return False
    if program is None:
        return True
    if not program.quick or program.carried or len(text) > min(MAX_PASSING, program.max_hold):
        return False
    for words in program.machines:
        if not _no_words(words, text, closed):
            return False
    for patterns in program.patterns:
        if not _no_match(patterns, text, closed):
            return False
    if remembers and len(text) <= MAX_PASSED_LENGTH:
        if len(program.passed) >= MAX_PASSED:
            program.passed.clear()
        program.passed.add(text)
    return True


def _no_words(machine: WordMachine, text: str, closed: bool) -> bool:
    state = over_words(machine, machine.start(), text)
    if state is None:
        return False
    if closed and machine.length(state):
        return False
    return not state.pending and next(machine.beginnings(state), None) is None


def _no_match(machine: StateMachine, text: str, closed: bool) -> bool:
    state = over_patterns(machine.start(), text)
    if state is None:
        return False
    return not machine.may_end(state) and not (closed and state.count)
