"""Texts that are only checked: which rules of a policy, for input or output, find something in them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec.structs import replace as changed

from gateway.censor.compile import CompiledPolicy, Program
from gateway.guard.channels import ChannelCounts
from gateway.guard.findings import Finding, OnFinding
from gateway.guard.guardedjson import content_text
from gateway.guard.prompt import fed
from gateway.observe.facts import TextScanned
from gateway.policy.model import Action, Channel, Direction, Overflow


class Moderated(NamedTuple):
    """For each input the ids of the rules that match; `scanned` is what was counted."""

    found: list[frozenset[str]]
    scanned: list[TextScanned]


def moderating(
    inputs: Sequence[Sequence[str]], compiled: CompiledPolicy, on_finding: OnFinding | None
) -> Generator[int, None, Moderated]:
    """Scan every text as the content of an answer, with all rules; each step yields its size in characters."""
    matched: list[Finding] = []

    def note(finding: Finding) -> None:
        matched.append(finding)
        if on_finding is not None:
            on_finding(finding)

    flagging = replace(compiled, programs={key: _flagging(program) for key, program in _of_content(compiled)})
    counts = [ChannelCounts(flagging, direction, note) for direction, _ in flagging.programs]
    found: list[frozenset[str]] = []
    for texts in inputs:
        matched.clear()
        for text in texts:
            for each in counts:
                scanned = content_text(each, Channel.CONTENT)
                yield from fed(scanned, text)
                scanned.finish()
        found.append(frozenset(finding.rule for finding in matched))
    return Moderated(found, [_as_withheld(each.fact()) for each in counts])


def _of_content(compiled: CompiledPolicy) -> list[tuple[tuple[Direction, Channel], Program]]:
    """The programs of content, each once: rules for both directions have one."""
    programs: dict[int, tuple[tuple[Direction, Channel], Program]] = {}
    for direction in Direction:
        program = compiled.program(direction, Channel.CONTENT)
        if program is not None:
            programs.setdefault(id(program), ((direction, Channel.CONTENT), program))
    return list(programs.values())


def _flagging(program: Program) -> Program:
    """The same rules, with the action `flag`."""
    rules = tuple(replace(rule, action=Action.FLAG, secret=False) for rule in program.rules)
    return replace(program, rules=rules, on_overflow=Overflow.RELEASE)


def _as_withheld(fact: TextScanned) -> TextScanned:
    """Nothing of the texts is forwarded."""
    channels = tuple(changed(count, forwarded=0, withheld=count.scanned) for count in fact.channels)
    return changed(fact, channels=channels)
