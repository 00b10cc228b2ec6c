"""The adversarial run itself: its cases are what they claim to be, and its verdicts can be negative."""

from __future__ import annotations

import json

import pytest

from loadtest.bounds import __main__ as run
from loadtest.bounds import cases, connections, drive
from loadtest.bounds.cases import Case, Shape
from loadtest.bounds.constructs import CONSTRUCTS
from tests.support.examples import examples

SMALL = 4096
# Refused as JSON, or too deep or too long for the standard library: that is what they are for.
UNREADABLE = {"one integer", "floats of many digits", "lists, deep", "objects, deep"}


@pytest.mark.parametrize("name", sorted(CONSTRUCTS.keys() - UNREADABLE))
def test_a_construct_is_json_of_about_its_size(name: str) -> None:
    text = CONSTRUCTS[name](SMALL)
    json.loads(text)
    assert SMALL // 2 <= len(text) <= SMALL * 2


def test_every_case_stays_within_the_limits() -> None:
    for case in cases.drawn(examples(400), seed=1):
        if case.construct not in cases.REPEATED and case.place != "arguments":  # quotes in strings are escaped
            assert len(case.json()) <= (cases.MAX_EVENT if case.shape in cases.SIZES else cases.MAX_BODY), str(case)


def test_a_seed_draws_the_same_cases_and_another_one_others() -> None:
    assert cases.drawn(50, seed=3) == cases.drawn(50, seed=3)
    assert cases.drawn(50, seed=3) != cases.drawn(50, seed=4)


def measured(**figures: float) -> run.Measured:
    case = Case(Shape.EVENT, "content", "one string", SMALL, 0, "words", 1)
    exchange = drive.Exchange(
        200, read=1000, written=int(figures.pop("written", 0)), complete=bool(figures.pop("complete", 1))
    )
    values = {"late": 0.0, "busy": 0.0, "memory": 0, "seconds": 0.0, **figures}
    return run.Measured(case, exchange, **values)  # type: ignore[arg-type]


def test_what_breaks_a_bound_is_a_fault() -> None:
    within = measured(busy=run.MAX_CALLBACK, written=4000 + run.WRITTEN_SLACK, memory=run.MAX_MEMORY)
    assert within.faults == []
    assert len(measured(busy=run.MAX_CALLBACK * 1.1).faults) == 1
    assert len(measured(written=4001 + run.WRITTEN_SLACK).faults) == 1
    assert len(measured(memory=run.MAX_MEMORY + 1).faults) == 1
    assert len(measured(complete=0).faults) == 1


def test_an_attack_that_fills_the_memory_is_a_fault() -> None:
    assert run.Attacked("x", 0, run.MAX_KEYLESS, 0.0, 0.0, 0.0).faults == []
    assert len(run.Attacked("x", 0, run.MAX_KEYLESS + 1, 0.0, 0.0, 0.0).faults) == 1


async def test_a_case_is_measured_on_a_real_gateway() -> None:
    found = await run.run_cases([Case(Shape.EVENT, "content", "one string", SMALL, 0, "words", 2)])
    assert [(m.exchange.status, m.exchange.complete) for m in found] == [(200, True)]
    assert found[0].exchange.read > SMALL
    assert found[0].exchange.written > SMALL
    assert found[0].busy > 0


def test_attacks_are_bounded() -> None:
    for first, again in connections.ATTACKS.values():
        assert len(first) < 1 << 20
        assert len(again) < 1 << 20
