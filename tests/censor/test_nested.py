"""A text with texts within it: censored as it stands and as what it spells, written as it was spelled."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.censor import inner
from gateway.censor.nested import NestedCensor
from gateway.inner_texts import Opened
from gateway.policy.model import Action, Channel, Direction, Policy, Rule
from gateway.wire.escapes import EscapeReader
from gateway.wire.fences import ContentReader
from gateway.wire.jsontext import escaped
from tests.support.compiled import compiled
from tests.support.escapes import Unescaper
from tests.support.examples import examples
from tests.support.oracle import Oracle
from tests.support.random_policies import policies

PATTERN = Rule(id="p", pattern="x+y")


def spelled(policy: Policy, pieces: list[str]) -> tuple[str, NestedCensor]:
    program = compiled(policy).program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    censor = NestedCensor(program, EscapeReader(), str, opened=Opened(None, exact=False))
    return "".join(map(censor.feed, pieces)) + censor.finish(), censor


def test_e5_what_is_replaced_is_written_anew_and_the_rest_stays() -> None:
    policy = Policy(name="p", rules=(Rule(id="r", words=("12MONKEYS",), mask="*"), Rule(id="s", words=("x",))))
    raw = r"\u0061 1\u0032MONK\x45YS\n\u0078 \101"
    out, censor = spelled(policy, [raw])
    assert out == r"\u0061 *********\n[REDACTED] \101"
    assert (censor.scanned, censor.replaced, censor.withheld) == (len(raw), 23, 0)


def test_e5_what_is_seen_twice_is_reported_once() -> None:
    flag = Policy(
        name="p",
        rules=(Rule(id="r", words=("ab",), action=Action.FLAG), replace(PATTERN, pattern="a+b", action=Action.FLAG)),
    )
    for text, starts in {r"ab \x61b": [0, 3], r"\nab": [2], "ab": [0], r"a\x62": [0], r"a\x61b": [0, 1]}.items():
        for pieces in ([text], list(text)):
            out, censor = spelled(flag, pieces)
            assert out == text
            assert sorted({match.start for match in censor.matches}) == starts
            assert len(censor.matches) == len(set(censor.matches))


@pytest.mark.parametrize("sequence", ["\x1b[31m", "\x9b31m", "\x1b]0;a title\x07", "\x1b(B"])
def test_a_control_sequence_goes_on_where_an_inner_text_ends(sequence: str) -> None:
    policy = Policy(name="p", rules=(Rule(id="r", words=("12MONKEYS",)),))
    program = compiled(policy).program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    for text in (
        f"is 12MON{sequence}KEYS.",
        f'["a"] 12{sequence}MONKEYS.',
        f'{{"a": "12MON{sequence}KEYS"}} 12MONKEYS.',
    ):
        outs = set()
        for first, second in combinations(range(len(text)), 2):
            censor = NestedCensor(program, ContentReader(), escaped)
            pieces = text[:first], text[first:second], text[second:]
            outs.add("".join(map(censor.feed, pieces)) + censor.finish())
        assert len(outs) == 1
        assert "KEYS" not in outs.pop()


def test_runs_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner, "MAX_RUNS", 3)
    _, censor = spelled(Policy(name="p", rules=(PATTERN,)), [r"\x78y \x78y \x78y \x78y"])
    assert len(censor.matches) == 3


@st.composite
def cases(draw: st.DrawFn) -> tuple[Policy, list[tuple[str, str]]]:
    """Nothing that an escape is spelled with is in a rule."""
    alphabet = "xyz"
    policy = draw(policies(alphabet))
    policy = replace(policy, rules=tuple(replace(rule, whole_word=False) for rule in policy.rules))
    if draw(st.booleans()):
        policy = Policy(name="p", rules=(*policy.rules, PATTERN))
    text = draw(st.text(alphabet, max_size=14))
    spellings = [st.sampled_from([char, f"\\u{ord(char):04x}", f"\\u{{{ord(char):x}}}"]) for char in text]
    return policy, [(char, draw(spelling)) for char, spelling in zip(text, spellings, strict=True)]


@settings(max_examples=examples(300), deadline=None)
@given(cases())
def test_e5_what_comes_out_is_what_the_oracle_makes_of_the_decoded_text(
    case: tuple[Policy, list[tuple[str, str]]],
) -> None:
    policy, chars = case
    assume(policy.rules)
    expected, _, blocked = Oracle(policy).whole("".join(char for char, _ in chars))
    raw = "".join(spelling for _, spelling in chars)
    out, censor = spelled(policy, [raw])
    assert spelled(policy, list(raw))[0] == out
    for cut in range(len(raw)):
        assert spelled(policy, [raw[:cut], raw[cut:]])[0] == out
    decoded = Unescaper()
    assert decoded.feed(out)[0] + decoded.finish()[0] == expected
    assert (censor.blocked is not None) == blocked
    if expected == "".join(char for char, _ in chars):
        assert out == raw
