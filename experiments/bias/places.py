"""Where the edits of drawn strings are: by the numbers of walks, as the audit draws, and arc by arc (ReLM, fig. 9)."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from experiments.bias.planted import BEGINNING, SEED, TRAINED
from gateway.audit import sample
from gateway.audit.language.aligned import edited_at
from gateway.audit.language.automaton import Dfa, Regex
from gateway.audit.query.model import Decoding, Edits, PrefixRegex, PreprocessTarget, Query, compile

if TYPE_CHECKING:
    from gateway.audit.models.hf import HuggingFace

PLACES = 500  # samples whose edits are looked at
FIRST = 6  # characters


def measured(model: HuggingFace) -> dict[str, Any]:
    """The places of the edits, sorted, of `PLACES` strings that are drawn in each way."""
    query = edited_query()
    begin = time.monotonic()
    drawn = [each.text for each in sample(model, query, samples=PLACES, seed=SEED, batch=64) if each.text is not None]
    by_walks = places_of(iter(drawn), Regex(query.query))
    prefix = compile(query).prefix
    assert prefix is not None
    chance = random.Random(SEED)
    plain = Regex(BEGINNING.format("(man|woman)"))
    return {
        "walks": by_walks,
        "arcs": places_of((arc_by_arc(prefix, chance) for _ in range(PLACES)), plain),
        "seconds": time.monotonic() - begin,
    }


def edited_query() -> Query:
    begun = BEGINNING.format("(man|woman)")
    return Query(
        query=f"{begun} {TRAINED}",
        prefix=PrefixRegex(begun),
        decoding=Decoding(end_of_text=True),
        preprocess=(Edits(1, on=PreprocessTarget.BOTH),),
    )


def arc_by_arc(automaton: Dfa, chance: random.Random) -> str:
    """A string drawn without counting: at every state each byte that leads on, and the end, is as likely as any
    other."""
    state, read = automaton.start, bytearray()
    while True:
        arcs = list(automaton.arcs(state))
        ways = sum(high - low + 1 for low, high, _ in arcs)
        at = chance.randrange(ways + automaton.accepting(state))
        if at == ways:
            return read.decode()
        byte, state = _way(arcs, at)
        read.append(byte)


def _way(arcs: Sequence[tuple[int, int, int]], at: int) -> tuple[int, int]:
    for low, high, target in arcs:
        if at <= high - low:
            return low + at, target
        at -= high - low + 1
    raise IndexError(at)


def places_of(texts: Iterator[str], language: Dfa) -> list[int]:
    """Where each text was edited; nothing for those that were not."""
    found = (edited_at(language, text, 1) for text in texts)
    return sorted(at for places in found if places for at in places)


def early(places: Sequence[int]) -> float:
    """The share of the edits in the first characters."""
    return sum(at < FIRST for at in places) / len(places) if places else 0.0
