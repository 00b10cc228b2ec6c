"""What a detector finds, and what is left of a text."""

from __future__ import annotations

from functools import cache

from gateway.censor.compile import Program, compile_policy
from gateway.censor.stream import Censor
from gateway.policy.model import Channel, Direction, Policy, Rule


@cache
def program(detector: str) -> Program:
    rule = Rule(id="rule", detector=detector, replacement="[X]")
    compiled = compile_policy(Policy(name="test", rules=(rule,))).program(Direction.OUTPUT, Channel.CONTENT)
    assert compiled is not None
    return compiled


def censored(detector: str, pieces: list[str]) -> str:
    censor = Censor(program(detector))
    return "".join(map(censor.feed, pieces)) + censor.finish()


def found(detector: str, text: str) -> list[str]:
    censor = Censor(program(detector))
    censor.feed(text)
    censor.finish()
    return [text[match.start : match.end] for match in censor.matches]
