"""Strings that come out of a model over time, and the ways to draw them at random: what a search is compared with.

A way draws behind a prefix, each token among the `top_k` likeliest, and hands what came to a `Tally`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.audit.model import LanguageModel

Floats = NDArray[np.floating[Any]]
Read = Callable[[Sequence[int]], str]  # tokens behind the prefix → what counts of the text

TOP_K = 40


class Tally:
    """Counts what came, for `seconds` from now; and goes on for `longest` where fewer than `wanted` valid strings came.

    `valid`: all there are. `times`: when each valid string came first, in seconds. The numbers of what came count the
    first `seconds` only, the times all.
    """

    def __init__(
        self,
        valid: Collection[str],
        seconds: float,
        *,
        wanted: int = 0,
        longest: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        worked: Callable[[], float] = time.process_time,
    ) -> None:
        self._valid, self._seconds, self._wanted, self._longest, self._clock = valid, seconds, wanted, longest, clock
        self._worked, self._worked_before, self._last = worked, worked(), (0.0, 0.0)
        self._seen: set[str] = set()
        self._times: list[float] = []
        self._came = self._known = self._distinct = self._rows = 0
        self._began = clock()

    def count(self, text: str) -> None:
        """A string came."""
        now = self._clock() - self._began
        inside = now <= self._seconds
        self._came += inside
        self._known += inside and text in self._valid
        if text not in self._seen:
            self._seen.add(text)
            self._distinct += inside
            if text in self._valid:
                self._times.append(now)

    def spend(self, rows: int) -> None:
        """The model was asked about so many beginnings."""
        now = self._clock() - self._began
        if now <= self._seconds:
            self._rows += rows
            self._last = now, self._worked() - self._worked_before

    @property
    def over(self) -> bool:
        now = self._clock() - self._began
        return now > self._seconds and (len(self._times) >= self._wanted or now > self._longest)

    def plain(self) -> dict[str, Any]:
        """`came`: strings; `known`: those that are valid, duplicates counted; `distinct`: those that are none. `rows`:
        what the model was asked; `share`: how much of the time a processor worked. All of the first `seconds`; `times`
        and `ended` go on."""
        now, worked = self._last
        return {
            "seconds": self._seconds,
            "ended": round(self._clock() - self._began, 4),
            "came": self._came,
            "known": self._known,
            "distinct": self._distinct,
            "rows": self._rows,
            "share": round(worked / now, 3) if now else 1.0,
            "times": [round(each, 4) for each in self._times],
        }


def drawn(rows: Floats, top_k: int, random: np.random.Generator) -> NDArray[np.int64]:
    """A token for each row of log-probabilities, among its `top_k` likeliest."""
    kept = np.argpartition(rows, -top_k, axis=1)[:, -top_k:]
    # The largest of logarithms with Gumbel's noise is drawn by the probabilities.
    noisy = np.take_along_axis(rows, kept, axis=1) + random.gumbel(size=kept.shape)
    return np.take_along_axis(kept, noisy.argmax(axis=1)[:, None], axis=1)[:, 0]


def by_rows(model: LanguageModel, prefix: Sequence[int], stop: int, batch: int, read: Read, tally: Tally) -> None:
    """Draw `stop` tokens behind the prefix, `batch` strings at a time, from a model's rows. One in which the text has
    ended is not gone on with."""
    ends = frozenset(model.vocabulary.end)
    for seed in count():
        random = np.random.default_rng([seed, stop])
        going: list[list[int]] = [[] for _ in range(batch)]
        strings = going
        for _ in range(stop):
            going = [string for string in going if not (string and string[-1] in ends)]
            if not going:
                break
            _one_more(model, prefix, going, random, tally)
            if tally.over:
                return
        for string in strings:
            tally.count(read(string))


def by_rows_to_the_end(
    model: LanguageModel,
    prefix: Sequence[int],
    continues: Callable[[int], bool],
    batch: int,
    longest: int,
    read: Read,
    tally: Tally,
) -> None:
    """The same without a stop length: a string is drawn until a token comes with which it does not go on, or `longest`
    have come, and another takes its place in the batch."""
    random = np.random.default_rng([0, 0])
    strings: list[list[int]] = [[] for _ in range(batch)]
    while not tally.over:
        _one_more(model, prefix, strings, random, tally)
        for place, string in enumerate(strings):
            if not continues(string[-1]) or len(string) >= longest:
                tally.count(read(string))
                strings[place] = []


def _one_more(
    model: LanguageModel, prefix: Sequence[int], strings: list[list[int]], random: np.random.Generator, tally: Tally
) -> None:
    """Each string with one more token."""
    rows = np.asarray(model([(*prefix, *string) for string in strings]))
    tally.spend(len(strings))
    for string, token in zip(strings, drawn(rows, TOP_K, random).tolist(), strict=True):
        string.append(token)


def by_generate(network: Any, prefix: Sequence[int], stop: int, batch: int, read: Read, tally: Tally) -> None:
    """Draw with the `generate` of transformers, which keeps keys and values itself."""
    import torch

    ids = torch.tensor([list(prefix)] * batch)
    told = {"attention_mask": torch.ones_like(ids), "pad_token_id": network.config.pad_token_id}
    torch.manual_seed(stop)
    while not tally.over:
        with torch.inference_mode():
            found = network.generate(ids, do_sample=True, top_k=TOP_K, max_new_tokens=stop, **told)
        behind = found[:, len(prefix) :].tolist()
        tally.spend(batch * len(behind[0]))
        for tokens in behind:
            tally.count(read(tokens))
