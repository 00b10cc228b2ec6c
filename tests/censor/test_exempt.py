"""Pieces of a text that stay as they are, between pieces that do not."""

from __future__ import annotations

import pytest

from gateway.censor.compile import compile_policy
from gateway.censor.stream import Censor
from gateway.policy.model import Action, Channel, Direction, Policy, Rule

RULES = (
    Rule(id="mail", detector="email", replacement="[M]"),
    Rule(id="url", detector="url", replacement="[U]"),
    Rule(id="word", words=("secret word",), replacement="[W]"),
    Rule(id="end", words=("the end",), action=Action.BLOCK),
)


def censored(before: str, exempt: str, behind: str, chunk: int) -> tuple[str, Censor]:
    censor = Censor(compile_policy(Policy(name="p", rules=RULES)).program(Direction.OUTPUT, Channel.CONTENT))
    out = "".join([censor.feed(before[at : at + chunk]) for at in range(0, len(before), chunk)])
    out += censor.feed_exempt(exempt)
    out += "".join([censor.feed(behind[at : at + chunk]) for at in range(0, len(behind), chunk)])
    return out + censor.finish(), censor


@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize(
    ("before", "exempt", "behind", "shown"),
    [
        ("mail ", "bob@example.com", ", ann@example.org", "mail bob@example.com, [M]"),
        ("mail ", "bob@example.com", "x now", "mail bob@example.com[M] now"),
        ("mail a.", "bob@example.com", " now", "mail [M] now"),
        ("see ", "https://example.com", "/page now", "see https://example.com[U] now"),
        ("the ", "secret", " word, secret word", "the secret[W], [W]"),
        ("the ", "secret word", " secret word", "the secret word [W]"),
        ("", "the end", " and the end.", "the end and "),
        ("", "the ", "end", "the "),
    ],
)
def test_what_is_exempt_stays_and_what_is_around_it_does_not(
    before: str, exempt: str, behind: str, shown: str, chunk: int
) -> None:
    out, censor = censored(before, exempt, behind, chunk)
    assert out == shown
    assert censor.scanned == len(out) - censor.inserted + censor.replaced + censor.withheld
