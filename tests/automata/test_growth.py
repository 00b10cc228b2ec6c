"""What a machine keeps, and that it says when it has come to keep more."""

from __future__ import annotations

import pytest

from gateway.automata.machine import StateMachine
from gateway.censor.compile import compile_policy
from gateway.censor.stream import Censor
from gateway.policy.model import Channel, Direction, Policy, Rule, Strength


def test_a_machine_says_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[None] = []
    monkeypatch.setattr(StateMachine, "on_growth", lambda: grown.append(None))
    monkeypatch.setattr("gateway.automata.machine.GROWTH", 16)
    rule = Rule(id="r", words=("password",), strength=Strength.PARANOID)
    program = compile_policy(Policy(name="p", rules=(rule,))).program(Direction.OUTPUT, Channel.CONTENT)
    for new in (True, False):
        grown.clear()
        censor = Censor(program)
        assert censor.feed("p4ssw and cGFzc3") + censor.finish() == "p4ssw and cGFzc3"
        assert bool(grown) is new
