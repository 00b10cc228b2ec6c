"""Which families of evasion the rules catch. `python -m tests.evasion.report` tries all and writes caught.toml, from
which `python -m tests.docs.generated` writes the tables of docs/evasion.md."""

from __future__ import annotations

import json
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from gateway.censor.compile import Program, compile_policy
from gateway.censor.stream import Censor
from gateway.policy.model import Channel, Direction, Policy, Rule, Strength
from tests.evasion import neighbours
from tests.evasion.changed import MEANT, TYPOS
from tests.evasion.coded import CODES, MARKUP
from tests.evasion.family import BEGIN, END, VALUES, Family
from tests.evasion.written import FORMS, INVISIBLE, ORDINARY, SPACED

SECTIONS: Mapping[str, tuple[Family, ...]] = {
    "ordinary text": ORDINARY,
    "invisible characters and marks": INVISIBLE,
    "other forms of the letters": (*FORMS, *neighbours.FORMS),
    "what is between the letters": (*SPACED, *neighbours.SPACED),
    "markup and escapes": (*MARKUP, *neighbours.MARKUP),
    "codes": (*CODES, *neighbours.CODES),
    "other letters": TYPOS,
    "what cannot be caught": MEANT,
}
FAMILIES = tuple(family for families in SECTIONS.values() for family in families)
RECORD = Path(__file__).with_name("caught.toml")
PIECE = 7  # characters that are fed at a time
TIMES = 2  # that each value is hidden in each family
_BEFORE, _AFTER = "Very well, it is this: ", ". That is all I know of it."
_MARK = "\uf8ff"
_MOST_LEFT = 0.25  # of the characters that carry a value: with more, it has not been caught


class Attempt(NamedTuple):
    """A text in which the characters [start, end) carry a value."""

    family: Family
    value: str
    text: str
    start: int
    end: int


def attempts(family: Family) -> Iterator[Attempt]:
    """The same each time. Values of which the family has no other form are left out."""
    for value in VALUES:
        for time in range(TIMES):
            hidden = family.hide(value.text, Random(f"{family.name}/{value.text}/{time}"))
            if hidden is None or hidden == unicodedata.normalize(family.listed, value.text):
                continue
            before, carrying, after = ("", hidden, "") if BEGIN not in hidden else _split(hidden)
            start = len(_BEFORE) + len(before)
            text = f"{_BEFORE}{before}{carrying}{after}{_AFTER}"
            yield Attempt(family, value.text, text, start, start + len(carrying))


def _split(hidden: str) -> tuple[str, str, str]:
    before, _, rest = hidden.partition(BEGIN)
    carrying, _, after = rest.partition(END)
    return before, carrying, after


@cache
def program_for(value: str, strength: Strength) -> Program:
    """The censor of a rule with nothing but the value and its strength."""
    rule = Rule(id="r", words=(value,), strength=strength, replacement=_MARK)
    policy = Policy(name="evasion", rules=(rule,))
    program = compile_policy(policy).program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    return program


def caught(attempt: Attempt, strength: Strength) -> bool:
    """Is all but a little of what carries the value replaced?"""
    censor = Censor(program_for(unicodedata.normalize(attempt.family.listed, attempt.value), strength))
    pieces = [censor.feed(attempt.text[at : at + PIECE]) for at in range(0, len(attempt.text), PIECE)]
    shown = "".join([*pieces, censor.finish()]).replace(_MARK, "")
    carrying = attempt.end - attempt.start
    return len(shown) - (len(attempt.text) - carrying) <= _MOST_LEFT * carrying


def outcome(family: Family, strength: Strength) -> str:
    """For each attempt of a family, in order, 1 if it is caught."""
    return "".join("01"[caught(attempt, strength)] for attempt in attempts(family))


@cache
def recorded() -> Mapping[str, Mapping[str, str]]:
    """The outcomes of all families by strength, as they were when `main` ran last."""
    found: Mapping[str, Mapping[str, str]] = tomllib.loads(RECORD.read_text("utf-8"))
    return found


def share(family: Family, strength: Strength) -> float:
    """Of the attempts of a family, the share that was caught."""
    outcomes = recorded()[family.name][strength]
    return outcomes.count("1") / len(outcomes)


def table(families: tuple[Family, ...]) -> str:
    """A row for each family, in Markdown."""
    lines = [f"| family | detected by | as in | {' | '.join(Strength)} |", "|---|---|---|---|---|---|"]
    for family in families:
        shares = (f"{share(family, strength):.0%}".replace("%", " %") for strength in Strength)
        example = family.example.replace("|", "\\|")
        lines.append(f"| {family.name} | {family.group} | {example} | {' | '.join(shares)} |")
    return "\n".join(lines)


def main() -> None:
    """Run all attempts and write what was caught."""
    lines = [
        "# What is caught of the families of evasion, attempt by attempt. Written by python -m tests.evasion.report."
    ]
    for family in FAMILIES:
        outcomes = ", ".join(f'{strength} = "{outcome(family, strength)}"' for strength in Strength)
        lines.append(f"{json.dumps(family.name)} = {{ {outcomes} }}")
    RECORD.write_text("\n".join([*lines, ""]), "utf-8")


if __name__ == "__main__":
    main()
