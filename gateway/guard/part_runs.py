"""The text parts of a whole message: which of them are one text, and their output."""

from __future__ import annotations

from gateway.censor.compile import CompiledRule
from gateway.guard.channels import ChannelCounts
from gateway.guard.parts import JoinedParts, PartText
from gateway.guard.tool_calls import CALLS
from gateway.wire.message import Path, SlotKind, TextSlot


class Run:
    """Parts of a whole message that are one text, by path: what is `shown` of them, and which of them a rule has
    `blocked`, if one has."""

    def __init__(self, slots: list[TextSlot]) -> None:
        self._slots = slots
        self.shown: dict[Path, str] = {}
        self.blocked: Path | None = None
        self.rule: CompiledRule | None = None

    def read(self, joined: JoinedParts, counts: ChannelCounts) -> None:
        parts: list[PartText] = []
        self.shown = dict.fromkeys((slot.path for slot in self._slots), "")
        for slot in self._slots:
            counts.reserve("text fields")
            parts.append(joined.part(slot.path))
            self.shown[slot.path] = parts[-1].feed(slot.holder[slot.key])
            if self._note_block(parts[-1]):
                break
        for path, text in joined.late:
            self.shown[path] += text
        for part in parts if self.rule is None else ():
            self.shown[part.key] += part.finish()
            if self._note_block(part):
                break

    def _note_block(self, part: PartText) -> bool:
        if part.rule is not None:
            self.rule, self.blocked = part.rule, part.key
        return part.rule is not None


def is_part(slot: TextSlot) -> bool:
    """Is this the text of an object in a list?"""
    path = slot.path
    return (
        len(path) > 2
        and path[-1] == "text"
        and isinstance(path[-2], int)
        and slot.kind is SlotKind.TEXT
        and path[0] not in CALLS
        and isinstance(slot.holder[slot.key], str)
    )


def runs_in(slots: list[TextSlot]) -> dict[Path, Run]:
    """The texts that follow each other in lists, each with the run that it is in."""
    lists: dict[Path, list[TextSlot]] = {}
    for slot in filter(is_part, slots):
        lists.setdefault((*slot.path[:-2], slot.channel), []).append(slot)
    runs = [(parts, Run(parts)) for parts in lists.values() if len(parts) > 1]
    return {slot.path: run for parts, run in runs for slot in parts}
