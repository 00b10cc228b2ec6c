"""The automaton over bytes against Python's `re`, Python's decoder, and outlines-core's automaton."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gateway.automata import charset
from gateway.automata.bytes import DONE, ByteAutomaton, ByteState, Tail, Utf8
from gateway.automata.charset import ANY, CharSet
from gateway.automata.positions import positions
from gateway.automata.regex import RegexError, parse
from tests.support.examples import examples
from tests.support.expressions import Expression, expressions, matches, texts
from tests.support.outlines import automaton, same_language

MIXED = "a é字😀"
SURROGATES = 0x800


def never_empty(expression: Expression) -> ByteAutomaton:
    try:
        return automaton(expression.ours)
    except RegexError as error:
        assert "matches the empty string" in error.reason
        assume(False)
        raise


def accepts(machine: ByteAutomaton, text: bytes) -> bool:
    return machine.accepting(machine.walk(machine.start(), text))


@settings(max_examples=examples(300), deadline=None)
@given(expressions(MIXED))
@example(Expression(r".\b.", r".\b."))
@example(Expression(r"(?:\b.\B.?)+", r"(?:\b.\B.?)+"))
def test_whole_texts_are_accepted_as_by_re(expression: Expression) -> None:
    machine = never_empty(expression)
    for text in texts(MIXED, 3):
        assert accepts(machine, text.encode()) == (
            text != "" and matches(expression.pythons, False, text, 0, len(text))
        ), text


@settings(max_examples=examples(100), deadline=None)
@given(expressions("a\n "))
@example(Expression("(?m:^)a(?m:$)|a\n(?m:^)a", "(?m:^)a(?m:$)|a\n(?m:^)a"))
@example(Expression(r"(?:.(?m:$)\s)+(?m:^)a", r"(?:.(?m:$)\s)+(?m:^)a"))
def test_e12_whole_texts_of_several_lines_are_accepted_as_by_re(expression: Expression) -> None:
    machine = never_empty(expression)
    for text in texts("a\n ", 4):
        expected = text != "" and matches(expression.pythons, False, text, 0, len(text))
        assert accepts(machine, text.encode()) == expected, text


@settings(max_examples=examples(80), deadline=None)
@given(expressions(MIXED + "\n", portable=True))
def test_it_is_the_automaton_of_outlines_core(expression: Expression) -> None:
    same_language(expression.ours)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?:https?://)?[a-z0-9]+(?:\.[a-z0-9]+)+(?:/[^ ?#\x00]*)?(?:\?[^ #\x00]*)?",
        r"[0-9]{3}-[0-9]{2}-[0-9]{4}",
        r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}",
        r"[^\n\x00]{2,5}x|[^\x00]y",
        "[À-žα-ω一-龥😀-😏]+[^à-ÿ\x00]",
        r"[\x01-\x7f]|[\u0080-\u07ff]{2}|[\u0800-\uffff]{3}|[\U00010000-\U0010ffff]{4}",
        "|".join(f"word{number * number}" for number in range(200)),
    ],
)
def test_patterns_of_practice_are_those_of_outlines_core(pattern: str) -> None:
    same_language(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"a\b[\w ]\Bz|b",
        r"a.\bé.$|[^\W\d]+\b!",
        r"(?:\ba|\B字)+",
        r"a\bb|^a^b|a$b|[\ud800-\udfff]+|x[^\s\S]|c",
        r"\W\b\w\B.",
    ],
)
def test_a_live_state_can_be_completed(pattern: str) -> None:
    machine = automaton(pattern)
    sources: dict[int, list[ByteState]] = {}
    reached, waiting = {id(machine.start()): machine.start()}, [machine.start()]
    while waiting:
        state = waiting.pop()
        for byte in range(256):
            target = machine.step(state, byte)
            sources.setdefault(id(target), []).append(state)
            if id(target) not in reached:
                reached[id(target)] = target
                waiting.append(target)
    waiting = [state for state in reached.values() if machine.accepting(state)]
    completed = {id(state) for state in waiting}
    while waiting:
        for source in sources.get(id(waiting.pop()), ()):
            if id(source) not in completed:
                completed.add(id(source))
                waiting.append(source)
    assert completed == {id(state) for state in reached.values() if machine.live(state)}


@pytest.mark.parametrize("pattern", [r"[^\s\S]", "a$b", "x^", r"a\bb", r"[\ud800-\udfff]"])
def test_what_nothing_matches_is_dead_from_the_start(pattern: str) -> None:
    machine = automaton(pattern)
    assert not machine.live(machine.start())
    assert machine.step(machine.start(), 0x61) is machine.start()


def test_several_patterns_are_one_language() -> None:
    machine = automaton("ab+", r"a\b.c", "é")
    assert [text for text in ("ab", "abb", "a c", "é", "axc", "a", "aé", "") if accepts(machine, text.encode())] == [
        "ab",
        "abb",
        "a c",
        "é",
    ]
    assert not accepts(ByteAutomaton([]), b"a")


def test_contexts_are_part_of_the_whole_text() -> None:
    machine = ByteAutomaton([positions(parse("a+"), before=parse(r"^|\W"), after=parse(r"$|\W"))])
    assert [text for text in ("a", " a", "aa ", "-a-", "ba", "ab", " ") if accepts(machine, text.encode())] == [
        "a",
        " a",
        "aa ",
        "-a-",
    ]


@settings(max_examples=examples(500), deadline=None)
@given(
    st.binary(min_size=1, max_size=6)
    | st.text(min_size=1, max_size=3).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_character_is_what_pythons_decoder_takes(data: bytes) -> None:
    assert accepts(automaton("(?s).+"), data) == decodes(data)


def test_neither_overlong_forms_nor_surrogates_nor_what_is_above() -> None:
    machine = automaton("(?s).")
    edges = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)
    for lead in range(256):
        for length in range(4):
            for rest in product(edges, repeat=length):
                data = bytes([lead, *rest])
                assert accepts(machine, data) == (decodes(data) and len(data.decode()) == 1), data


def decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.integers(0, charset.LAST), st.integers(0, 5000)), min_size=1, max_size=8))
@example([(0, charset.LAST)])
@example([(0xD800, 0)])
@example([(0x7F, 1), (0x7FF, 1), (0xFFFF, 1), (0xD7FF, 0x801)])
def test_a_sets_encodings_are_those_of_its_characters(ranges: list[tuple[int, int]]) -> None:
    chars = CharSet.within((low, min(low + size, charset.LAST)) for low, size in ranges)
    tail = Utf8().encoded(chars)
    assert count(tail) == len(chars - CharSet(((0xD800, 0xDFFF),)))
    for low, high in chars.ranges:
        for code in (low - 1, low, (low + high) // 2, high, high + 1):
            if 0 <= code <= charset.LAST and not 0xD800 <= code <= 0xDFFF:
                assert has(tail, chr(code).encode()) == (chr(code) in chars)


def count(tail: Tail) -> int:
    return 1 if tail is DONE else sum((high - low + 1) * count(rest) for low, high, rest in tail.arcs)


def has(tail: Tail, data: bytes) -> bool:
    reached: Tail | None = tail
    for byte in data:
        reached = None if reached is None else reached.after(byte)
    return reached is DONE


def test_equal_tails_are_one() -> None:
    utf8 = Utf8()
    assert utf8.encoded(CharSet.of("éa字")) is utf8.encoded(CharSet.of("字éa"))
    tails: set[int] = set()
    waiting = [utf8.encoded(ANY)]
    while waiting:
        tail = waiting.pop()
        tails.add(id(tail))
        waiting += (rest for *_, rest in tail.arcs)
    # Besides the whole: one, two or three continuation bytes of any value, the end, and the four lead bytes behind
    # which not every continuation stands.
    assert len(tails) == 9


@pytest.mark.parametrize("cache", [0, 1, 50])
def test_a_small_cache_changes_nothing(cache: int) -> None:
    pattern = r"(?:[ab]*a[ab]{6}|.\b é?)+"
    small, large = automaton(pattern, max_cache=cache), automaton(pattern)
    for text in texts("ab é", 4):
        for repeated in (text, text * 3):
            mine, theirs = small.start(), large.start()
            for byte in repeated.encode():
                mine, theirs = small.step(mine, byte), large.step(theirs, byte)
                assert (small.accepting(mine), small.live(mine)) == (large.accepting(theirs), large.live(theirs))
