"""Searches that end where little is left to find, or after so many nodes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gateway.audit import search
from gateway.audit.model import LanguageModel
from gateway.audit.query.model import Query
from gateway.audit.searches.best_first import Result, SearchProgress

_SPECIAL = re.compile(r"[\\.?*+()\[\]{}|^$-]")


@dataclass(frozen=True, slots=True)
class Answer:
    """`results`: in order, with all that was found of their encodings. `nodes`: beginnings the model was asked about.
    `ended`: `finished`, `limit`, `least` or `nodes`."""

    results: list[Result]
    nodes: int
    ended: str


class Enough(Exception):
    """Raised in the progress of a search that is to go no further."""


def search_within(model: LanguageModel, query: Query, *, nodes: int, least: float = -math.inf) -> Answer:
    """What a search finds within `nodes` beginnings, two batches more at most, that is at least as likely as `least`, a
    log-probability."""
    ended = ""

    def progress(now: SearchProgress) -> None:
        nonlocal ended
        if not ended and now.pending and now.best < least:
            ended = "least"
        elif not ended and now.nodes >= nodes:
            ended = "nodes"
        if ended:
            raise Enough

    found = search(model, query, progress=progress)
    # Strings can be complete and not given yet when it is enough. The search gives those that are certain before it
    # asks the model again, so the second time there are none left.
    for _ in range(2):
        try:
            for _ in found:
                pass
            break
        except Enough:
            pass
    results = [result for result in found.found if result.logprob >= least]
    summary = found.summary()
    return Answer(results, summary.nodes, ended or ("finished" if summary.finished else "limit"))


def escaped(text: str) -> str:
    """The expression of a text."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], text)
