"""The scanner in C against the one in Python: after every piece of any text both are in the same place."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.automata.literals import LINE_ENDS
from gateway.automata.machine import MAX_LEAP
from gateway.automata.pattern_states import UNDECIDED
from gateway.censor.compile import Program, compile_policy
from gateway.censor.detectors import DETECTORS
from gateway.censor.passing import passes
from gateway.censor.scanner import Scanner
from gateway.policy.model import Channel, Direction, Fold, Policy, Rule
from loadtest.patterns import PATTERNS
from tests.support.examples import examples
from tests.support.native import SCANNER, WALK, native_module, stepping

pytestmark = pytest.mark.skipif(native_module(SCANNER) is None, reason="there is no compiler")

ALPHABET = "aAbBß \n-_1200@.\u200b\u2028\uff21中"
WORDS = ("ab", "a b", "bab", "aaaa", "b-1", "ß中", "a" * 20)
BITS = (
    "call +49 30 1234567",
    "a@b.example",
    "PROJ-12",
    "password = x",
    "4111 1111 1111 1111",
    "eyJ",
    "a" * 19,
    "<secret>",
)
pieces = st.lists(st.one_of(st.text(ALPHABET, max_size=2 * MAX_LEAP), st.sampled_from(BITS)), max_size=8)


@cache
def program(kind: str, max_hold: int) -> Program:
    rules = [Rule(id="words", words=WORDS)]
    if kind != "words":
        rules.append(Rule(id="whole", words=("ba", "a_b"), whole_word=True, fold=frozenset({Fold.CASE}), guard_tail=1))
        rules += [Rule(id=name, pattern=pattern) for name, pattern in PATTERNS.items()]
    if kind == "detectors":
        rules += [Rule(id=name, detector=name) for name in DETECTORS]
    compiled = compile_policy(Policy(name="p", rules=tuple(rules), max_hold=max_hold))
    found = compiled.program(Direction.OUTPUT, Channel.CONTENT)
    assert found is not None
    return found


def place(scanner: Scanner) -> tuple[Any, ...]:
    words = [(cursor.position(), cursor.folded, cursor.jumps) for cursor in scanner.literals]
    patterns = [(cursor.position(scanner.scanned), cursor.is_open) for cursor in scanner.patterns]
    return scanner.scanned, scanner.live_start(), scanner.is_open, words, patterns


@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from(["words", "patterns", "detectors"]), st.sampled_from([1024, 40, 24]), pieces)
def test_after_every_piece_both_are_in_the_same_place(kind: str, max_hold: int, texts: list[str]) -> None:
    """Either may decline what it has not seen before: then single steps lead there."""
    searched = program(kind, max_hold)
    in_python, in_c = Scanner(searched), Scanner(searched)
    for text in texts:
        taken = []
        for scanner, native in ((in_python, False), (in_c, True)):
            with stepping(native):
                live = scanner.scan_quickly(text)
            if live is not None:
                taken.append(live)
                continue
            for char in text:
                scanner.step(char)
            scanner.pop_runs(ended=False)
            scanner.return_to_quick()
        assert len(set(taken)) <= 1
        assert place(in_c) == place(in_python)


@pytest.mark.parametrize("kind", ["words", "patterns", "detectors"])
def test_prose_is_taken_as_a_whole(kind: str) -> None:
    with stepping(native=True):
        scanner, text = Scanner(program(kind, 1024)), "Nora mends clocks; concat is no b, and nobody calls. "
        assert [scanner.scan_quickly(text[at : at + 4]) for at in range(0, len(text), 4)].count(None) == 0


def test_what_is_no_whole_word_is_taken_once_single_steps_have_shown_it() -> None:
    rules = (Rule(id="whole", words=("cat",), whole_word=True),)
    searched = compile_policy(Policy(name="p", rules=rules)).program(Direction.OUTPUT, Channel.CONTENT)
    with stepping(native=True):
        scanner = Scanner(searched)
        assert scanner.scan_quickly("concat category ") is None
        for char in "concat category ":
            scanner.step(char)
        assert Scanner(searched).scan_quickly("concat category ") == 0


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(["words", "patterns", "detectors"]), pieces, st.booleans())
def test_both_pass_the_same_texts(kind: str, texts: list[str], closed: bool) -> None:
    for text in texts:
        with stepping(native=False):
            expected = passes(program(kind, 1024), text, closed=closed)
        with stepping(native=True):
            assert passes(program(kind, 1024), text, closed=closed) == expected


@pytest.mark.parametrize("char", sorted(LINE_ENDS))
def test_a_line_break_behind_the_blank_of_a_word_is_remarkable_to_both(char: str) -> None:
    for native in (False, True):
        with stepping(native):
            fresh = compile_policy(Policy(name="p", rules=(Rule(id="words", words=("a bcd",)),)))
            scanner = Scanner(fresh.program(Direction.OUTPUT, Channel.CONTENT))
            assert scanner.scan_quickly("x") == 0
            assert scanner.scan_quickly(f"a{char}") is None


def test_what_is_of_another_type_is_refused() -> None:
    steps, walk = native_module(SCANNER), native_module(WALK)
    with stepping(native=True):
        scanner = Scanner(program("patterns", 1024))
        machine: Any = scanner.literals[0].machine
        for wrong in (None, b"a"):
            with pytest.raises(TypeError):
                scanner.scan_quickly(wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                machine.walk(machine.start(), wrong)
        for name, values in (("literals", (None, [None])), ("patterns", (None, [None]))):
            for value in values:
                broken = scanner.fork(0)
                setattr(broken, name, value)
                with pytest.raises((AttributeError, TypeError)):
                    broken.scan_quickly("a")
        start = machine.start()
        for quick in (
            None,
            (),
            (None, None, ""),
            (None, [None], ""),
            (None, [], ""),
            (UNDECIDED, [], ""),
            (start, [(0, start)], 7),
        ):
            broken = scanner.fork(0)
            broken.patterns[0]._quick = quick  # type: ignore[assignment]
            with pytest.raises((AttributeError, TypeError, SystemError)):
                broken.scan_quickly("a")
            with pytest.raises((AttributeError, KeyError, TypeError, SystemError)):
                broken.scan_quickly("x" * (MAX_LEAP + 1))
        for leap in ((), (None,), (UNDECIDED, None), (UNDECIDED, (None,)), (UNDECIDED, ((7, None),))):
            broken, state = scanner.fork(0), SimpleNamespace(leaps={"x": leap})
            broken.patterns[0]._quick = state, [], ""  # type: ignore[assignment]
            with pytest.raises((AttributeError, TypeError, SystemError, IndexError)):
                broken.scan_quickly("x")
            assert broken.scanned == 0
    for wrong_call in (lambda: steps.over_words(machine, machine.start()), lambda: steps.over_patterns(UNDECIDED, b"")):
        with pytest.raises(TypeError):
            wrong_call()
    for method_of, given_ in ((steps.method_of, (None, UNDECIDED)), (walk.method_of, (None,))):
        with pytest.raises(TypeError):
            method_of(*given_)
