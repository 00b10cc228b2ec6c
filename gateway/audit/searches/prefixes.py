"""The start of a search: the most likely tokenizations of the prefix.

They are not subject to the decoding rule, and what counts is what comes behind them. So all of them stand before
everything else, and no result is certain while one may be missing. A prefix of many characters has more encodings than
can be looked at, and nearly all of the probability lies on a few of them: the rest is dropped and reported.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.audit.language.automaton import Dfa, LazyDfa, PrunedDfa, zip_arcs
from gateway.audit.language.product import TokenArcs
from gateway.audit.model import ROUNDING, Floats, ModelError
from gateway.audit.query.model import Bounds
from gateway.audit.searches.frontier import Children, Node, States
from gateway.audit.searches.steps import Steps
from gateway.automata.vocabulary import Ints

MAX_TOKENS = 4096  # of a prefix
# How much more likely another way to write the same may be. Few encodings are cheap, so only those are left out behind
# which a model would never find itself.
SLACK_OF_FEW = math.log(1e9)
SLACK_OF_MANY = math.log(1e4)

_FRESH, _READING, _PASSED = range(3)


class _PrefixReader(LazyDfa[tuple[int, int, int]]):
    """The language and its prefix, reading one token from the place that `token_start` gives.

    A state is one of each, the prefix's 0 if what was read is no beginning of a prefix any more; and whether a prefix
    ended inside the token, before its last byte.
    """

    def __init__(self, language: Dfa, prefix: Dfa) -> None:
        self._language, self._prefix = language, prefix
        super().__init__((language.start, prefix.start, _FRESH) if language.start and prefix.start else None)

    def token_start(self, state: int, place: int) -> int:
        """The state before a token."""
        return self._state_of((state, place, _FRESH))

    def _transitions(self, key: tuple[int, int, int]) -> Iterator[tuple[int, int, tuple[int, int, int] | None]]:
        state, place, status = key
        if status == _PASSED or (status == _READING and self._prefix.accepting(place)):
            after = _PASSED
        else:
            after = _READING
        prefix = self._prefix.arcs(place) if place else ()
        for low, high, (target, beyond) in zip_arcs(self._language.arcs(state), prefix):
            yield low, high, (target, beyond, after) if beyond or after == _PASSED else None

    def _is_accepting(self, key: tuple[int, int, int]) -> bool:
        state, place, status = key
        return self._language.accepting(state) and (status == _PASSED or self._prefix.accepting(place))


class PrefixStart(NamedTuple):
    """`entries`: what a search continues from. `prefixes`: how many encodings of prefixes it continues behind, the most
    likely ones; `cut`: there are others."""

    entries: list[Node | Children]
    prefixes: int
    cut: bool


class _PrefixPath(NamedTuple):
    node: Node
    text: bytes


class _NextTokens(NamedTuple):
    """The tokens that can follow a path: whether a prefix ends inside each, and the states behind it, of the language
    and of the prefix."""

    path: _PrefixPath
    tokens: Ints
    passed: NDArray[np.bool_]
    states: States
    places: States

    def inside(self) -> _NextTokens:
        """The tokens after which a prefix continues."""
        keep = self.places > 0
        return _NextTokens(self.path, self.tokens[keep], self.passed[keep], self.states[keep], self.places[keep])


@dataclass(slots=True, eq=False)
class _FoundPrefixes:
    """The results so far: complete prefixes, and tokens that reach beyond one."""

    complete: list[Node]
    straddling: list[Children]
    best: list[float]  # a heap of the log-probabilities of the most likely complete prefixes, the least likely first
    cut: bool = False


class Prefixes:
    """Finds the most likely encodings of a prefix, at most `bounds.prefixes`, and what straddles its end.

    Paths are looked at by the bytes they have read. One is left out when another is far more likely that reads the same
    and as far, or further: `SLACK_OF_MANY` if there are more than `bounds.prefixes` encodings, else `SLACK_OF_FEW`.
    `on_call` is called with the number of rows of each call of the model.
    """

    def __init__(self, steps: Steps, prefix: Dfa, bounds: Bounds, on_call: Callable[[int], None]) -> None:
        self._steps, self._prefix, self._on_call = steps, prefix, on_call
        self._most, self._batch = bounds.prefixes, bounds.batch
        self._reading = _PrefixReader(steps.language.automaton, prefix)
        self._arcs = TokenArcs(PrunedDfa(self._reading), steps.vocabulary)
        self._likeliest: dict[int, dict[bytes, float]] = {}  # by length

    def search(self) -> PrefixStart:
        """Raises whatever the model raises, and nothing is kept then."""
        self._likeliest = {}
        root = Node(None, -1, self._steps.language.automaton.start, self._prefix.start, 0, 0, 0.0, 0.0)
        found = _FoundPrefixes([], [], [])
        slack = self._slack(root)
        levels = {0: [_PrefixPath(root, b"")]}
        while levels:
            length = min(levels)
            paths = self._prune(levels.pop(length), self._likeliest.pop(length, {}), found, slack)
            for begin in range(0, len(paths), self._batch):
                for path in self._extend(paths[begin : begin + self._batch], found):
                    levels.setdefault(len(path.text), []).append(path)
        complete = heapq.nlargest(self._most, found.complete, key=lambda node: node.prefix_logprob)
        cut = found.cut or len(complete) < len(found.complete)
        if cut:
            complete += self._tokenizer_encoding(complete)
        return PrefixStart([*complete, *found.straddling], len(complete), cut)

    def _tokenizer_encoding(self, complete: list[Node]) -> list[Node]:
        """The tokenizer's own encoding of a prefix that is one string, if it was left out: however unlikely it is, it
        is the one that a server would be given."""
        text = _only_string(self._prefix)
        own = None if text is None else self._steps.prefix(text, self._batch)
        if own is None or not own.state or own.inside > MAX_TOKENS:
            return []
        tokens = own.tokens()
        return [] if any(node.tokens() == tokens for node in complete) else [own]

    def _slack(self, root: Node) -> float:
        if self._steps.canonical:
            return math.inf  # the tokenizer's own encoding is the only one, however unlikely it is
        return SLACK_OF_FEW if self._are_few(root) else SLACK_OF_MANY

    def _are_few(self, root: Node) -> bool:
        """Are there no more encodings than may be looked at? They are counted without the model."""
        levels = {0: {(root.state, root.place): 1}}
        complete, first = 0, True
        while levels:
            depth = min(levels)
            level = levels.pop(depth)
            for (state, place), count in level.items():
                if self._prefix.accepting(place):
                    complete += count
                if max(complete, count) > self._most or depth > MAX_TOKENS:
                    return False
                tokens, _, states, places = self._read(state, place, first)
                for token, *target in zip(tokens.tolist(), states.tolist(), places.tolist(), strict=True):
                    if target[1]:
                        counts = levels.setdefault(depth + len(self._piece(token, first)), {})
                        counts[target[0], target[1]] = counts.get((target[0], target[1]), 0) + count
            # A token that only writes the space a text begins with leads to the same place, and is not the first again.
            first = False
        return True

    def _prune(
        self, paths: list[_PrefixPath], likeliest: Mapping[bytes, float], found: _FoundPrefixes, slack: float
    ) -> list[_PrefixPath]:
        """The paths of one length that are extended."""
        canonical = self._steps.canonical
        if canonical:
            paths = [path for path in paths if canonical.may_become_canonical(path.node.tokens())]
        least = found.best[0] if len(found.best) == self._most else -math.inf
        likely = [
            path
            for path in paths
            if path.node.prefix_logprob > least
            and path.node.prefix_logprob >= likeliest.get(path.text, -math.inf) - slack
            and path.node.inside <= MAX_TOKENS
        ]
        kept = heapq.nlargest(self._most, likely, key=lambda path: path.node.prefix_logprob)
        found.cut |= len(kept) < len(paths)
        return kept

    def _extend(self, paths: list[_PrefixPath], found: _FoundPrefixes) -> list[_PrefixPath]:
        """The paths that are one token longer and still in a prefix. Those that leave it go to the results."""
        steps: list[_NextTokens] = []
        for path in paths:
            node = path.node
            tokens, passed, states, places = self._read(node.state, node.place, node.parent is None)
            complete = self._prefix.accepting(node.place)
            if complete:
                self._add_complete(node, found)
                passed &= False  # what comes behind the prefix straddles nothing
            keep = passed | (places > 0)
            if keep.any():
                steps.append(_NextTokens(path, tokens[keep], passed[keep], states[keep], places[keep]))
        if not steps:
            return []
        rows = self._steps.rows([step.path.node for step in steps])
        self._on_call(len(steps))
        for step, row in zip(steps, rows, strict=True):
            self._add_straddling(step, row, found)
        inside = [step.inside() for step in steps]
        logprobs = [row[step.tokens].astype(np.float64) for step, row in zip(inside, rows, strict=True)]
        self._fetch_missing(inside, logprobs)
        return [
            child for step, some in zip(inside, logprobs, strict=True) for child in self._children(step, some, found)
        ]

    def _add_straddling(self, step: _NextTokens, row: NDArray[np.floating[Any]], found: _FoundPrefixes) -> None:
        if step.passed.any():
            tokens, states = step.tokens[step.passed], step.states[step.passed]
            found.straddling.append(
                self._steps.children(step.path.node, tokens, states, self._steps.rule.distribution(row))
            )

    def _add_complete(self, node: Node, found: _FoundPrefixes) -> None:
        behind = Node(node.parent, node.token, node.state, 0, node.inside, 0, 0.0, node.prefix_logprob)
        found.complete.append(behind)
        heapq.heappush(found.best, node.prefix_logprob)
        if len(found.best) > self._most:
            heapq.heappop(found.best)

    def _fetch_missing(self, steps: list[_NextTokens], logprobs: list[Floats]) -> None:
        """Request the log-probabilities of prefix tokens that a row of the most likely tokens lacks."""
        missing = [(number, np.flatnonzero(some == -np.inf)) for number, some in enumerate(logprobs)]
        missing = [(number, at) for number, at in missing if len(at)]
        if not missing:
            return
        prefixes = [(*self._steps.context, *steps[number].path.node.tokens()) for number, _ in missing]
        given = self._steps.model.logprobs_of(prefixes, [steps[number].tokens[at] for number, at in missing])
        for (number, at), some in zip(missing, given, strict=True):
            if not (some <= ROUNDING).all():
                raise ModelError("the model gave NaN, or numbers above 0, as log-probabilities of a prefix's tokens")
            logprobs[number][at] = some

    def _children(self, step: _NextTokens, logprobs: Floats, found: _FoundPrefixes) -> Iterator[_PrefixPath]:
        order = np.lexsort((step.tokens, -logprobs))
        order = order[logprobs[order] > -np.inf]
        found.cut |= len(order) > self._most
        node, before = step.path
        for at in order[: self._most].tolist():
            token = int(step.tokens[at])
            logprob = node.prefix_logprob + min(float(logprobs[at]), 0.0)
            child = Node(node, token, int(step.states[at]), int(step.places[at]), node.inside + 1, 0, 0.0, logprob)
            text = before + self._piece(token, node.parent is None)
            for end in range(len(before) + 1, len(text) + 1):
                likeliest = self._likeliest.setdefault(end, {})
                likeliest[text[:end]] = max(likeliest.get(text[:end], -math.inf), logprob)
            yield _PrefixPath(child, text)

    def _read(self, state: int, place: int, first: bool) -> tuple[Ints, NDArray[np.bool_], States, States]:
        """The tokens that can come next; whether a prefix ends inside each; and the states behind it, of the language
        and of the prefix. `first`: they are the first of a string."""
        begin = self._reading.token_start(state, place)
        tokens, targets = self._arcs.arcs(begin, first and self._steps.at_text_start)
        found, at = np.unique(targets, return_inverse=True)
        keys = np.array([self._reading.key(state) for state in found.tolist()], np.int64).reshape(-1, 3)[at]
        return tokens, keys[:, 2] == _PASSED, keys[:, 0], keys[:, 1]

    def _piece(self, token: int, first: bool) -> bytes:
        return self._steps.vocabulary.pieces([token], first and self._steps.at_text_start)[0]


def _only_string(automaton: Dfa) -> bytes | None:
    """The string of a language that has one only."""
    state, text = automaton.start, bytearray()
    while not automaton.accepting(state):
        arcs = list(automaton.arcs(state))
        if len(arcs) != 1 or arcs[0][0] != arcs[0][1]:
            return None
        text.append(arcs[0][0])
        state = arcs[0][2]
    return bytes(text) if not list(automaton.arcs(state)) else None
