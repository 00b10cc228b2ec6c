"""What bounds the stream's pattern machine: the work that a pattern may cause, and how much of it is remembered."""

from __future__ import annotations

import random

import pytest

from gateway.automata import machine, patterns
from gateway.automata.nfa import Hit, NfaSimulation
from gateway.automata.patterns import Pattern, PatternMachine, refuse_costly, work
from gateway.automata.positions import positions
from gateway.automata.regex import RegexError, parse
from gateway.censor.lens import Lens
from gateway.censor.pattern_cursor import PatternCursor
from gateway.censor.window import Window
from gateway.policy.model import Fold


def work_of(pattern: str) -> int:
    return work(positions(parse(pattern)))


@pytest.mark.parametrize(
    "pattern, steps",
    [
        ("a", 2),  # to begin and to end
        ("abc", 2),
        ("[ab]{3}", 4),
        ("[ab]{1,3}", 6),
        ("x[ab]{3}", 4),
        (".a|.b|.c", 5),  # each of the letters begins three ways, and continues and ends another
        ("[a-m][k-z]", 3),
        (r"[^a]b|\wc", 4),
    ],
)
def test_work_is_that_of_the_character_that_causes_most(pattern: str, steps: int) -> None:
    assert work_of(pattern) == steps


def test_many_ways_that_any_character_begins_are_refused() -> None:
    many = "|".join(f".{chr(0x4E00 + number)}" for number in range(patterns.MAX_WORK))
    with pytest.raises(RegexError, match=f"can need {patterns.MAX_WORK + 2} steps"):
        refuse_costly(positions(parse(many)))


def test_as_many_different_characters_as_a_pattern_may_have_are_little_work() -> None:
    assert work_of("".join(chr(0x4E00 + number) for number in range(10_000))) == 2


def test_what_is_remembered_is_bounded_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_ENTRIES", 500)
    bounded = PatternMachine([Pattern(positions(parse("a[ab]{40}c")), tag=0)], Lens(frozenset()).fold)
    cursor = PatternCursor(bounded, 1024, Window(1024), lambda start, end: False)
    chosen, scanned = random.Random(4), 0
    for _ in range(3000):
        text = "".join(chosen.choices("ab", k=chosen.randint(1, 60))) + " "
        reached = cursor.try_quickly(text, scanned)
        if reached is not None:
            cursor.advance(reached, scanned)
        else:
            for at, char in enumerate(text, start=scanned + 1):
                cursor.step(char, at)
            cursor.return_to_quick(scanned + len(text))
        scanned += len(text)
        assert sum(1 + len(state.entries) for state in bounded._states.values()) <= 500


def test_the_steps_of_the_nfa_are_bounded_and_those_used_again_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    fold, pattern = Lens(frozenset()).fold, Pattern(positions(parse("a[ab]{30}c")), tag=0)
    text = "".join(random.Random(6).choices("abc", weights=(9, 9, 1), k=3000))

    def hits(bounded: PatternMachine, texts: list[str]) -> list[Hit]:
        nfa = NfaSimulation(bounded, 1024, bounded.start(), 0)
        found = []
        for offset, char in enumerate("".join(texts)):
            found += nfa.step(char, offset, max(0, offset - 100))
            kept = {**bounded.nfa_steps, **bounded.older_nfa_steps}
            assert sum(1 + len(key[0]) + len(step.reached) for key, step in kept.items()) <= machine.MAX_NFA_ENTRIES
        return found

    unbounded = [hit[1:] for hit in hits(PatternMachine([pattern], fold), [text])]
    monkeypatch.setattr(machine, "MAX_NFA_ENTRIES", 2000)
    bounded = PatternMachine([pattern], fold)
    assert [hit[1:] for hit in hits(bounded, [text])] == unbounded != []

    again, computed = "c" * 3 + "ab" * 10 + "c" * 3, []
    compute = NfaSimulation._compute_step
    monkeypatch.setattr(NfaSimulation, "_compute_step", lambda *given: computed.append(given) or compute(*given))
    hits(bounded, [again] * 2)
    for at in range(0, 400, 20):
        hits(bounded, [text[at : at + 20]])
        computed.clear()
        hits(bounded, [again])
        assert not computed


def test_a_text_leads_where_its_characters_do_and_is_remembered_if_it_is_short() -> None:
    fold = Lens(frozenset()).fold
    for text in ("ab", "a" * machine.MAX_LEAP, "a" * (machine.MAX_LEAP + 1)):
        start = PatternMachine([Pattern(positions(parse("a[ab]{3}c")), tag=0)], fold).start()
        leap, stepped = start.machine.leap(start, text), start
        for char in text:
            stepped = stepped[char]
        assert leap is not None and leap.state is stepped
        assert [begin for begin, _ in leap.moves] == list(range(max(len(text) - 4, 0), len(text)))[: stepped.count]
        assert (text in start.leaps) == (len(text) <= machine.MAX_LEAP)


def test_a_text_through_the_lens_keeps_its_places() -> None:
    machine = PatternMachine([], Lens(frozenset({Fold.WIDTH, Fold.INVISIBLE})).fold)
    assert machine.folded_text("a b").text == "a b"
    text, at = machine.folded_text("x\u200b\ufb01\uff11!")
    assert text == "xfi1!"
    assert [text[at[place] :] for place in range(5)] == ["xfi1!", "fi1!", "fi1!", "1!", "!"]
