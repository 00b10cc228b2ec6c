"""Runs faults, those that need the same gateway one after the other, and shows what came of them as a table."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from random import Random

from tests.faults.client_faults import faults as client_faults
from tests.faults.fault import Fault, Row
from tests.faults.process_faults import faults as process_faults
from tests.faults.resource_faults import faults as resource_faults
from tests.faults.settings import missing, setting
from tests.faults.speech import draw_speech, draw_word
from tests.faults.storage_faults import faults as storage_faults
from tests.faults.upstream_faults import faults as upstream_faults
from tests.faults.world import judged

_SIDES = (upstream_faults, client_faults, process_faults, storage_faults, resource_faults)
ALL: tuple[Fault, ...] = tuple(fault for faults in _SIDES for fault in faults())
SAMPLE = tuple(fault for fault in ALL if fault.sample)
HEAD = "| side | fault | what is done | the client gets | counted | leaked | hung | gauges | recovered |"


async def run(faults: Iterable[Fault], seed: int, folder: Path) -> AsyncIterator[Row]:
    """In an order that the seed does not change. What is drawn for a fault depends on the seed and its name only."""
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.setting, f"{fault.side} {fault.name}" if fault.ends else ""), []).append(fault)
    for number, ((name, _), together) in enumerate(groups.items()):
        if missing(name) is not None:
            continue
        async with setting(name, folder / str(number), drawn_for(seed, name)) as place:
            for fault in together:
                yield await judged(place, fault, drawn_for(seed, f"{fault.side}/{fault.name}"))


def drawn_for(seed: int, name: str) -> Random:
    return Random(f"{seed}/{name}")


def plan(faults: Iterable[Fault], seed: int) -> str:
    """A digest of all words, texts and cuts that the seed draws: two runs with the same one did the same."""
    drawn = hashlib.sha256()
    for fault in faults:
        word = draw_word(drawn_for(seed, fault.setting))
        speech = draw_speech(drawn_for(seed, f"{fault.side}/{fault.name}"), word)
        drawn.update(repr((fault.name, speech)).encode())
    return drawn.hexdigest()[:16]


def shown(rows: Iterable[Row]) -> Iterable[str]:
    yield HEAD
    yield "|---" * HEAD.count(" | ") + "|---|"
    for row in rows:
        fault = row.fault
        counts = ", ".join(f"{count} × {name}" for name, count in fault.counted.items()) or "–"
        looked_at = (
            counts if row.counted else f"**wrong**, not {counts}",
            *(str(number) if not number else f"**{number}**" for number in (row.leaked, row.hung, row.gauges)),
            "yes" if row.recovered else "**no**",
        )
        yield f"| {fault.side} | {fault.name} | {fault.does} | {fault.gets} | {' | '.join(looked_at)} |"


def not_run(faults: Iterable[Fault]) -> list[str]:
    """Faults for which something is not installed."""
    return [f"{fault.side}: {fault.name}: {why}" for fault in faults if (why := missing(fault.setting)) is not None]
