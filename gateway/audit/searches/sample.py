"""Random search: strings of a query drawn by importance sampling, and estimates from their weights.

The prefix is drawn first, each of its strings as likely as any other: by the numbers of ways that lead on, since
drawing byte by byte would prefer the strings that few others begin like (ReLM, Kuchnik and others 2023). It is put into
tokens as the tokenizer does it. After it tokens are drawn from the model's distribution, among those that the sampling
parameters and the language allow.

That is not the model's distribution conditioned on the language, since each step looks one token ahead only. So each
sample has an importance weight, the probability that the model stays in the language along its path: the mean of the
weights estimates the probability that the model, after the prefix, generates a string of the language, and weighted
shares are those of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gateway.audit.language.automaton import AutomatonTooLarge, Dfa
from gateway.audit.language.count import MAX_COUNTS, PathCounts, cardinality, path_counts
from gateway.audit.model import Floats, LanguageModel, ModelError
from gateway.audit.query.model import Query, Random, compile
from gateway.audit.searches.frontier import Children, Node
from gateway.audit.searches.steps import Steps

MAX_ENDLESS_PREFIX = 256  # bytes, where there is no longest one
MAX_KEPT = 2_000_000  # tokens with what is known of them, 20 bytes each

_SURE = 1.959964  # standard deviations to either side hold 95 % of a normal distribution


@dataclass(frozen=True, slots=True)
class Sample:
    """A string that was drawn. `text` is None if the rule or `max_tokens` left nothing that the language reads, and
    `tokens` end there. `logprob`: of the tokens behind the prefix, under the rule; `prefix_logprob`: of those before,
    without it. `weight`: the probability that the model keeps to the language along the path, 0 without a text.
    `prefix`: how many of the characters are the prefix's."""

    text: str | None = field(repr=False)
    tokens: tuple[int, ...] = field(repr=False)
    logprob: float
    prefix_logprob: float
    weight: float
    prefix: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """A probability, and an interval that holds the true one in 95 of 100 cases. `samples`: how many it was made from;
    `effective`: how many samples of equal weight would say as much."""

    probability: float
    low: float
    high: float
    samples: int
    effective: float


@dataclass(slots=True, eq=False)
class _SamplePath:
    """A string being drawn."""

    random: np.random.Generator
    node: Node
    prefix: int
    log_weight: float = 0.0
    complete: bool = False
    stuck: bool = False


def sample(
    model: LanguageModel,
    query: Query,
    *,
    samples: int | None = None,
    seed: int | None = None,
    batch: int | None = None,
) -> RandomSearch:
    """Strings of a query, drawn at random. `samples`, `seed`, and `batch`, the number of strings that are drawn at a
    time, override the query's.

    Raises ConfigError for an empty query; AutomatonTooLarge for too many prefixes to count;
    ModelError if the model cannot tell what the decoding rule needs; and whatever the model raises.
    """
    compiled = compile(query)
    drawn = query.traversal if isinstance(query.traversal, Random) else Random()
    return RandomSearch(
        Steps.of(model, query, compiled.language),
        compiled.prefix,
        samples=drawn.samples if samples is None else samples,
        seed=drawn.seed if seed is None else seed,
        batch=query.bounds.batch if batch is None else batch,
    )


class RandomSearch(Iterator[Sample]):
    """Draws strings, the same ones for the same seed however many are drawn at a time. What the model raises goes
    through to the caller; `next` then takes the drawing up again.

    A string ends where a token ends the text, if the query asks for that; else where it is one of the language for the
    first time. So where some strings begin others, ask for the end of the text.
    """

    def __init__(self, steps: Steps, prefix: Dfa | None, *, samples: int, seed: int, batch: int) -> None:
        self._steps = steps
        self._path_counts = None if prefix is None else _path_counts_of(prefix)
        self._samples, self._seed, self._batch = samples, seed, batch
        self._drawn: list[Sample] = []
        self._given = 0
        self._behind = lru_cache(batch + 1)(self._path_of)
        self._children: dict[tuple[int, ...], Children] = {}  # by `_path`
        self._kept = 0

    def __next__(self) -> Sample:
        if self._given >= self._samples:
            raise StopIteration
        if self._given >= len(self._drawn):
            self._draw()
        self._given += 1
        return self._drawn[self._given - 1]

    def estimate(self, of: Callable[[str], bool] | None = None) -> Estimate:
        """The probability that the model generates a string of the language after the prefix; `of`: one for which it
        returns True. With several prefixes it is the mean over them. Raises ValueError before anything was drawn."""
        drawn = self._drawn[: self._given]
        if not drawn:
            raise ValueError("nothing was drawn yet")
        weights = np.array(
            [each.weight if each.text is not None and (of is None or of(each.text)) else 0.0 for each in drawn]
        )
        return _estimate(weights)

    def _draw(self) -> None:
        """Draw some strings, token by token, all of them with one call of the model."""
        first = len(self._drawn)
        chains = [self._start_path(number) for number in range(first, min(first + self._batch, self._samples))]
        going = [chain for chain in chains if not self._is_over(chain)]
        while going:
            self._look_up([chain.node for chain in going])
            for chain in going:
                self._step(chain)
            going = [chain for chain in going if not chain.stuck and not self._is_over(chain)]
        self._drawn += map(self._sample, chains)

    def _start_path(self, number: int) -> _SamplePath:
        random = np.random.default_rng([self._seed, number])
        if self._path_counts is None:
            return _SamplePath(random, Node(None, -1, self._steps.language.automaton.start, 0, 0, 0, 0.0, 0.0), 0)
        prefix = self._path_counts.draw(lambda below: _below(random, below)).decode()
        return _SamplePath(random, self._behind(prefix), len(prefix))

    def _path_of(self, prefix: str) -> Node:
        """The path of a prefix, as the tokenizer writes it."""
        found = self._steps.prefix(prefix.encode(), self._batch)
        if found is None:
            raise ModelError("the tokenizer writes the prefix as another text")
        return found

    def _look_up(self, nodes: list[Node]) -> None:
        """Call the model for the paths that are not cached, each once."""
        if self._kept > MAX_KEPT:
            self._children.clear()
            self._kept = 0
        missing = {_path(node): node for node in nodes}
        missing = {path: node for path, node in missing.items() if path not in self._children}
        if not missing:
            return
        families = self._steps.expand(list(missing.values()))
        for path, children in zip(missing, families, strict=True):
            self._children[path] = children
            self._kept += len(children) + 1

    def _step(self, chain: _SamplePath) -> None:
        """Draw one more token."""
        node = chain.node
        children = self._children[_path(node)]
        sums = np.cumsum(np.exp(children.logprobs - node.logprob))
        if not len(sums):
            chain.stuck = True
            return
        at = int(np.searchsorted(sums, chain.random.random() * sums[-1], side="right"))
        at = min(at, len(sums) - 1)
        chain.node = node.child(int(children.tokens[at]), int(children.targets[at]), float(children.logprobs[at]))
        chain.log_weight += min(math.log(sums[-1]), 0.0)

    def _is_over(self, chain: _SamplePath) -> bool:
        canonical = self._steps.canonical
        if canonical and not canonical.may_become_canonical(chain.node.tokens()):
            return True
        chain.complete = self._steps.is_complete(chain.node)
        return chain.complete or not self._steps.is_extendable(chain.node)

    def _sample(self, chain: _SamplePath) -> Sample:
        node = chain.node
        return Sample(
            text=self._steps.text(node).decode() if chain.complete else None,
            tokens=node.tokens(),
            logprob=node.logprob,
            prefix_logprob=node.prefix_logprob,
            weight=math.exp(chain.log_weight) if chain.complete else 0.0,
            prefix=chain.prefix,
        )


def _path(node: Node) -> tuple[int, ...]:
    """The key of a path: after prefixes of different lengths the same tokens are different paths."""
    return node.inside, *node.tokens()


def _path_counts_of(prefix: Dfa) -> PathCounts:
    found = path_counts(prefix, MAX_ENDLESS_PREFIX if cardinality(prefix) is None else MAX_COUNTS)
    if not found.total:
        raise AutomatonTooLarge(
            f"there are endless prefixes, and none of them has {MAX_ENDLESS_PREFIX:,} bytes or less"
        )
    return found


def _below(random: np.random.Generator, below: int) -> int:
    """A whole number from 0 to `below` - 1, which may be of any size."""
    bits = below.bit_length()
    size = (bits + 7) // 8
    while True:
        drawn = int.from_bytes(random.bytes(size), "little") >> (8 * size - bits)
        if drawn < below:
            return drawn


def _estimate(weights: Floats) -> Estimate:
    """The mean of weights from 0 to 1, with the interval of the central limit theorem. Where all are 0 it says nothing,
    and the interval ends where as many samples would hold one that is not, in 95 of 100 cases."""
    count, mean = len(weights), float(weights.mean())
    if not weights.any():
        return Estimate(0.0, 0.0, 1 - 0.05 ** (1 / count), count, 0.0)
    width = _SURE * float(weights.std(ddof=1)) / math.sqrt(count) if count > 1 else 1.0
    effective = float(weights.sum()) ** 2 / float((weights**2).sum())
    return Estimate(mean, max(mean - width, 0.0), min(mean + width, 1.0), count, effective)
