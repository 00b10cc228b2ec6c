"""Characters that a lens makes vanish do not use up `max_hold`, have a bound of their own, and hide no secret."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.censor.stream import Censor
from gateway.censor.window import MAX_UNSEEN, Window
from gateway.policy.model import DEFAULT_MAX_HOLD, Action, Channel, Direction, Fold, Overflow, Policy, Rule
from tests.support.compiled import compiled
from tests.support.examples import examples

SPACE = "\u200b"
MARKS = frozenset({Fold.CASE, Fold.ACCENTS})
SECRET = Rule(id="r", words=("12MONKEYS",), replacement="<>", secret=True)
RULES = {
    "word": (Rule(id="r", words=("12MONKEYS",), replacement="<>"), SPACE),
    "secret": (SECRET, SPACE),
    "whole word": (Rule(id="r", words=("12MONKEYS",), replacement="<>", whole_word=True), SPACE),
    "tag characters": (Rule(id="r", words=("12MONKEYS",), replacement="<>"), "\U000e0041"),
    "soft hyphens and joiners": (Rule(id="r", words=("12MONKEYS",), replacement="<>"), "\xad\u200d\u2060\ufe0f"),
    "marks": (Rule(id="r", words=("12MONKEYS",), replacement="<>", fold=MARKS), "\u0301\u0336\u20dd"),
    "pattern": (Rule(id="r", pattern="12MON[A-Z]{4}", replacement="<>"), SPACE),
    "pattern and marks": (Rule(id="r", pattern="12MON[A-Z]{4}", replacement="<>", fold=MARKS), "\u0301"),
}


def through(rule: Rule, text: str, size: int = 1000, on_overflow: Overflow = Overflow.RELEASE) -> tuple[str, Censor]:
    policy = Policy(name="p", rules=(rule,), on_overflow=on_overflow)
    censor = Censor(compiled(policy).program(Direction.OUTPUT, Channel.CONTENT))
    out = []
    for at in range(0, len(text), size):
        out.append(censor.feed(text[at : at + size]))
        assert censor.held <= DEFAULT_MAX_HOLD + MAX_UNSEEN
    return "".join(out) + censor.finish(), censor


@pytest.mark.parametrize("count", [1, 1014, 1015, 1016, 1024, 10_000, MAX_UNSEEN])
@pytest.mark.parametrize("name", RULES)
def test_d34_vanishing_characters_within_a_match_do_not_hide_it(name: str, count: int) -> None:
    rule, filler = RULES[name]
    filler = (filler * count)[:count]
    for size in (1, 7, 100_000) if count < 2000 else (997,):
        out, censor = through(rule, f"a 12MON{filler}KEYS.", size)
        assert out == "a <>."
        assert [match[1:3] for match in censor.matches] == [(2, 11 + count)]
        assert censor.overflows == 0


@pytest.mark.parametrize("name", RULES)
def test_d34_they_may_stand_between_all_characters_of_a_match(name: str) -> None:
    rule, filler = RULES[name]
    each = (filler * 1200)[:1200]
    assert through(rule, f"a {each.join('12MONKEYS')}.")[0] == "a <>."


def test_d34_digits_of_a_card_may_be_as_far_apart() -> None:
    rule = Rule(id="r", detector="credit_card", replacement="<>")
    assert through(rule, f"pay {(SPACE * 800).join('4111111111111111')}.")[0] == "pay <>."


@pytest.mark.parametrize("count", [MAX_UNSEEN + 1, 10**6])
def test_d34_a_secret_is_not_released_past_their_bound(count: int) -> None:
    out, censor = through(SECRET, f"a 12MON{SPACE * count}KEYS.")
    assert out.replace(SPACE, "") == "a <>KEYS."
    assert censor.overflows == 1
    assert [match[1:3] for match in censor.matches] == [(2, 7 + MAX_UNSEEN)]


@pytest.mark.parametrize(
    ("on_overflow", "shown"),
    [(Overflow.RELEASE, "a 12MONKEYS."), (Overflow.REDACT, "a <>KEYS."), (Overflow.BLOCK, "a ")],
)
def test_d34_past_their_bound_the_policy_decides_for_what_is_no_secret(on_overflow: Overflow, shown: str) -> None:
    rule = Rule(id="r", words=("12MONKEYS",), replacement="<>")
    for size in (1, 1000):
        out, censor = through(rule, f"a 12MON{SPACE * (MAX_UNSEEN + 1)}KEYS.", size, on_overflow)
        assert out.replace(SPACE, "") == shown
        assert censor.overflows == 1


def test_d34_a_secret_longer_than_max_hold_is_not_released_either() -> None:
    policy = Policy(name="p", rules=(Rule(id="r", words=("12MONKEYS",), replacement="<>", secret=True),), max_hold=5)
    censor = Censor(compiled(policy).program(Direction.OUTPUT, Channel.CONTENT))
    assert "".join(map(censor.feed, "a 12MONKEYS.")) + censor.finish() == "a <>KEYS."


@pytest.mark.parametrize("action", [Action.BLOCK, Action.FLAG])
def test_d34_other_actions(action: Action) -> None:
    rule = Rule(id="r", words=("12MONKEYS",), action=action, secret=True)
    text = f"a 12MON{SPACE * 1016}KEYS."
    assert through(rule, text)[0] == ("a " if action is Action.BLOCK else text)
    text = f"a 12MON{SPACE * (MAX_UNSEEN + 1)}KEYS."
    shown = through(rule, text)[0].replace(SPACE, "")
    assert shown == ("a [REDACTED]KEYS." if action is Action.BLOCK else "a 12MONKEYS.")


def test_d34_what_vanishes_for_one_rule_counts_for_another() -> None:
    rules = (Rule(id="exact", words=("ab",), fold=frozenset()), Rule(id="lens", words=("cd",), replacement="<>"))
    policy = Policy(name="p", rules=rules, max_hold=2)
    program = compiled(policy).program(Direction.OUTPUT, Channel.CONTENT)
    censor = Censor(program)
    assert censor.feed(f"c{SPACE * 9}d a{SPACE * 9}b ab") + censor.finish() == f"<> a{SPACE * 9}b [REDACTED]"


def test_d34_what_is_remembered_of_them_is_bounded() -> None:
    window = Window(8, 100)
    for consumed in range(1, 20_000):
        window.advance(consumed, consumed % 3 > 0)
        assert len(window._runs) <= 9
        assert consumed - window.start <= 108


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.booleans(), max_size=40), st.integers(1, 5), st.integers(0, 5), st.integers(0, 8))
def test_a_window_is_as_its_definition_says(vanishing: list[bool], seen: int, unseen: int, quickly: int) -> None:
    vanishing = [False] * quickly + vanishing
    window = Window(seen, unseen)
    starts = [0]
    for consumed in range(quickly + 1, len(vanishing) + 1):
        before = window.advance(consumed, vanishing[consumed - 1])
        assert before == starts[-1]
        inside = [
            start
            for start in range(consumed + 1)
            if vanishing[start:consumed].count(False) <= seen and vanishing[start:consumed].count(True) <= unseen
        ]
        visible = [start for start in range(consumed) if not vanishing[start]]
        assert [start >= window.start for start in visible] == [start in inside for start in visible]
        starts.append(window.start)


@pytest.mark.parametrize(
    "rule",
    [
        Rule(id="r", words=("abcd", "abcdefgh"), replacement="<>"),
        Rule(id="r", pattern="abcd(?:efgh)?", replacement="<>"),
    ],
)
def test_what_overflows_at_the_place_of_a_match_is_reported_once(rule: Rule) -> None:
    policy = Policy(name="p", rules=(rule,), max_hold=4, on_overflow=Overflow.REDACT)
    for size in (1, 3, 9):
        censor = Censor(compiled(policy).program(Direction.OUTPUT, Channel.CONTENT))
        out = "".join(censor.feed("abcdefgh"[at : at + size]) for at in range(0, 8, size)) + censor.finish()
        assert out == "<>efgh"
        assert censor.overflows == 1
        assert [match[:3] for match in censor.matches] == [("r", 0, 4)]
