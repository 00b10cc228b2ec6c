"""A text with escapes: censored as what they stand for, written as it was spelled."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.censor.compile import compile_policy
from gateway.censor.spelled import SpelledCensor
from gateway.policy.model import Action, Channel, Direction, Policy, Rule
from gateway.wire.escapes import Unescaper
from tests.support.examples import examples
from tests.support.oracle import Oracle
from tests.support.random_policies import ALPHABETS, policies

PATTERN = Rule(id="p", pattern="a+b")


def spelled(policy: Policy, pieces: list[str], write: str = "{}") -> tuple[str, SpelledCensor]:
    program = compile_policy(policy).program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    censor, unescaper, out = SpelledCensor(program, write.format), Unescaper(), ""
    for text, escapes in [*(unescaper.feed(piece) for piece in pieces), unescaper.finish()]:
        for escape in escapes:
            censor.spell(*escape)
        out += censor.feed(text)
    return out + censor.finish(), censor


def test_e5_what_is_replaced_is_written_anew_and_the_rest_stays() -> None:
    policy = Policy(name="p", rules=(Rule(id="r", words=("12MONKEYS",), mask="*"), Rule(id="s", words=("x",))))
    out, censor = spelled(policy, [r"\u0061 1\u0032MONK\x45YS\n\x78 \101"], write="<{}>")
    assert out == r"\u0061 <*********>\n<[REDACTED]> \101"
    assert (censor.scanned, censor.replaced, censor.withheld) == (15, 10, 0)


def test_e5_a_flag_is_reported_where_an_escape_has_a_part_in_it() -> None:
    flag = Policy(name="p", rules=(Rule(id="r", words=("ab",), action=Action.FLAG),))
    for text, starts in {r"ab \x61b": [3], r"\nab \"ab \n.ab": [1], "ab": [], r"a\x62": [0]}.items():
        for pieces in ([text], list(text)):
            out, censor = spelled(flag, pieces)
            assert (out, [match.start for match in censor.matches]) == (text, starts)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Policy, list[tuple[str, str]]]:
    alphabet = draw(st.sampled_from(ALPHABETS))
    policy = draw(policies(alphabet))
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
