"""Texts that pass without a censor of their own: a censor would have left them alone, too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.censor.compile import Program, compile_policy
from gateway.censor.detectors import DETECTORS
from gateway.censor.passing import MAX_PASSED, MAX_PASSED_LENGTH, MAX_PASSING, passes
from gateway.censor.stream import Censor
from gateway.policy.model import Action, Channel, Direction, Policy, Rule
from tests.censor.near_misses import NEAR_MISSES, SURROUNDINGS, VALUES
from tests.support.examples import examples
from tests.support.random_policies import ALPHABETS, policies

pytestmark = pytest.mark.usefixtures("steps")

PATTERNS = (r"ab+c?", r"a\b", r"^a", r"b$", r"\bab\b", r"[ab]{2,3}", r"(?i)ab", r"\d\d")


def program_of(policy: Policy) -> Program | None:
    return compile_policy(policy).program(Direction.OUTPUT, Channel.CONTENT)


def leaves_alone(program: Program | None, text: str) -> bool:
    censor = Censor(program)
    out = censor.feed(text) + censor.finish()
    return out == text and not censor.matches and not censor.overflows and not censor.changed and not censor.blocked


@given(st.data(), st.sampled_from(ALPHABETS))
@settings(max_examples=examples(400))
def test_d26_what_passes_is_left_alone_by_words(data: st.DataObject, alphabet: str) -> None:
    program = program_of(data.draw(policies(alphabet)))
    for text in data.draw(st.lists(st.text(alphabet + "\ud83d", max_size=8), max_size=8)):
        assert not passes(program, text) or leaves_alone(program, text)


@given(
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3),
    st.lists(st.text("aAbc 1\u200b\uff41\ud83d", max_size=8), max_size=8),
    st.sampled_from(list(Action)),
    st.sampled_from([0, 2]),
    st.sampled_from([2, 4, 1024]),
)
@settings(max_examples=examples(400))
def test_d26_what_passes_is_left_alone_by_patterns(
    chosen: list[str], texts: list[str], action: Action, guard: int, max_hold: int
) -> None:
    rules = [Rule(id=f"r{at}", pattern=each, action=action, guard_tail=guard) for at, each in enumerate(chosen)]
    program = program_of(Policy(name="p", rules=tuple(rules), max_hold=max_hold))
    for text in texts:
        assert not passes(program, text) or leaves_alone(program, text)


@pytest.mark.parametrize("name", DETECTORS)
def test_d26_what_passes_is_left_alone_by_detectors(name: str) -> None:
    program = program_of(Policy(name="p", rules=(Rule(id="r", detector=name),)))
    introduction = DETECTORS[name].introduction
    for detector, value in [*VALUES, *((name, value) for value in NEAR_MISSES[name])]:
        if detector == name:
            for text in (each.format(introduction + value) for each in SURROUNDINGS):
                assert not passes(program, text) or leaves_alone(program, text)
                assert not passes(program, text) or (detector, value) not in VALUES


PASSING = ("", "a", "hello there", "user", "{}", "é", "你好", "The quick brown fox jumps over the lazy dog.")
NOT_PASSING = ("a 12MONKEYS b", "12MONKEY", "12M\u200bONKEYS", "lone \ud83d", "call 12", "x" * (MAX_PASSING + 1))
RULES = (
    Rule(id="word", words=("12MONKEYS",), secret=True),
    Rule(id="edge", words=("12",), whole_word=True),
    Rule(id="mail", detector="email"),
)


@pytest.mark.parametrize("text", PASSING)
def test_d26_ordinary_texts_pass(text: str) -> None:
    assert passes(program_of(Policy(name="p", rules=RULES)), text)


@pytest.mark.parametrize("text", NOT_PASSING)
def test_d26_what_is_found_or_may_be_does_not_pass(text: str) -> None:
    assert not passes(program_of(Policy(name="p", rules=RULES)), text)


def test_d26_without_rules_all_passes_but_surrogates() -> None:
    assert passes(None, "12MONKEYS" * 1000)
    assert not passes(None, "\ud83d")


def test_what_is_remembered_is_short_and_bounded_and_passes() -> None:
    program = program_of(Policy(name="p", rules=(Rule(id="r", words=("secret",)),)))
    assert program is not None
    texts = ["secret", "a secret", "x" * (MAX_PASSED_LENGTH + 1), "y" * MAX_PASSED_LENGTH]
    assert [passes(program, text, remembers=True) for text in texts] == [False, False, True, True]
    assert program.passed == {texts[3]}
    for at in range(MAX_PASSED):
        assert passes(program, f"id {at}", remembers=True)
        assert len(program.passed) <= MAX_PASSED
    assert passes(program, "a text", remembers=False)
    assert "a text" not in program.passed
