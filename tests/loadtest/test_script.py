"""The scripts hold as many forbidden words as the scenario says, and no listed word."""

import pytest

from gateway.censor.stream import Censor
from gateway.policy.model import Channel, Direction
from loadtest.censor_bench import compiled
from loadtest.scenario import Scenario, load
from loadtest.script import FORBIDDEN, REPLACEMENT, VARIANTS, expected_text, listed_words, tokens

SCENARIOS = load()[0]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_counts_in_every_variant(scenario: Scenario) -> None:
    for variant in range(VARIANTS):
        deltas = tokens(scenario, variant)
        assert len(deltas) == scenario.tokens
        assert "" not in deltas
        assert "".join(deltas).count(FORBIDDEN) == scenario.planted
        assert expected_text(scenario, variant, guarded=True).count(REPLACEMENT) == scenario.redactions
        assert expected_text(scenario, variant, guarded=False) == "".join(deltas)


def test_the_forbidden_word_is_cut_in_several_ways() -> None:
    whole = sum(FORBIDDEN in delta for variant in range(VARIANTS) for delta in tokens(SCENARIOS[0], variant))
    assert 0 < whole < VARIANTS * SCENARIOS[0].planted


@pytest.mark.parametrize("count", [10, 1000])
def test_listed_words_are_many_different_and_absent(count: int) -> None:
    scenario = SCENARIOS[0]
    words = listed_words(scenario, count)
    assert len(set(words)) == count
    assert words == listed_words(scenario, count)
    scripts = "\n".join("".join(tokens(scenario, variant)) for variant in range(VARIANTS)).casefold()
    assert not [word for word in words if word in scripts]


def test_the_censor_agrees_with_the_script() -> None:
    scenario = SCENARIOS[0]
    policy = compiled((FORBIDDEN, *listed_words(scenario, 10)))
    program = policy.program(Direction.OUTPUT, Channel.CONTENT)
    for variant in range(VARIANTS):
        censor = Censor(program)
        came_out = "".join([censor.feed(delta) for delta in tokens(scenario, variant)]) + censor.finish()
        assert came_out == expected_text(scenario, variant, guarded=True)
