"""Best-first search: the strings of a query in order of their probability under a model.

A path of tokens never grows more likely as it grows longer. So if the most likely path is always looked at first, the
first complete one is the most likely string: uniform-cost search (Dijkstra 1959) over the paths of a model, as in ReLM
(Kuchnik and others 2023). Several paths are looked at in one call of the model, and a string is given away when no path
is left that could still become a more likely one.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace

from gateway.audit.language.automaton import Dfa, walk
from gateway.audit.model import LanguageModel
from gateway.audit.query.model import Bounds, Query, compile
from gateway.audit.searches.checkpoint import (
    Checkpoint,
    CheckpointError,
    NodeRestorer,
    StoredString,
    child_paths_of,
    path_of,
)
from gateway.audit.searches.frontier import Children, Frontier, Node
from gateway.audit.searches.prefixes import Prefixes
from gateway.audit.searches.steps import Steps

MAX_ENCODINGS = 10_000  # of one string; the least likely are not counted
MAX_ENDS = 10_000  # prefixes of which it is kept where they end


@dataclass(frozen=True, slots=True)
class Result:
    """A string, with its probability under the model.

    `tokens` are its best path, an end of the text among them if the query asks for one. `logprob`: of the tokens behind
    the prefix, under the decoding rule; `prefix_logprob`: of those before, without it. `string_logprob`: the logarithm
    of the sum over the encodings that were found so far, and `encodings` their number. They count the encodings of
    the prefix too, each behind its own: so the sum can be more than 1. `prefix`: how many of the characters are the
    prefix's.
    """

    text: str = field(repr=False)
    tokens: tuple[int, ...] = field(repr=False)
    logprob: float
    prefix_logprob: float
    string_logprob: float
    encodings: int
    prefix: int


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Progress of a search: rows requested from the model, in all and in the last call; strings returned; pending
    paths, and the log-probability of the best."""

    nodes: int
    batch: int
    strings: int
    pending: int
    best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCounts:
    """What a search counts. `exact_to`: strings that are no likelier may be missing or out of order, since paths were
    dropped; None if none were. `prefixes_cut`: prefixes have other encodings, less likely than those gone on from."""

    nodes: int = 0
    exact_to: float | None = None
    prefixes_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSummary(SearchCounts):
    """Totals of a search. `finished`: there is no further string. `prefixes`: the encodings of prefixes that were gone
    on from, None before it is known."""

    strings: int
    finished: bool
    prefixes: int | None


def search(
    model: LanguageModel,
    query: Query,
    *,
    limit: int | None = None,
    batch: int | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
    resume: Checkpoint | None = None,
) -> BestFirstSearch:
    """Search a model for the strings of a query, the most likely first, as they are found.

    `limit`: at most so many strings, and `batch`: paths in one call of the model, in place of the query's own.
    `progress` is called after each call of the model. `resume`: continue from here; strings given before are not
    given again, and count for the limit.
    Raises ConfigError for an empty query; ModelError if the model cannot return what the sampling
    parameters need; CheckpointError for a checkpoint of another query or vocabulary; and whatever the model raises.
    """
    compiled = compile(query)
    query = replace(query, limit=query.limit if limit is None else limit)
    steps = Steps.of(model, query, compiled.language)
    return BestFirstSearch(steps, compiled.prefix, query, digest(query), batch, progress, resume)


def digest(query: Query) -> str:
    """SHA-256, in hexadecimal, of all that decides what a query finds in a model."""
    asked = replace(query, model=None, limit=0, bounds=Bounds(), source="")
    return hashlib.sha256(repr(asdict(asked)).encode()).hexdigest()


@dataclass(slots=True, eq=False)
class _FoundString:
    """A string: its best path, the log-probabilities of all paths found, and whether it was returned."""

    best: Node
    tokens: tuple[int, ...]
    prefix: int
    logprobs: dict[tuple[int, ...], float]
    given: bool = False

    def result(self, text: str) -> Result:
        total = math.log(math.fsum(math.exp(each - self.best.logprob) for each in self.logprobs.values()))
        return Result(
            text=text,
            tokens=self.tokens,
            logprob=self.best.logprob,
            prefix_logprob=self.best.prefix_logprob,
            string_logprob=self.best.logprob + total,
            encodings=len(self.logprobs),
            prefix=self.prefix,
        )

    def stored(self) -> StoredString:
        return StoredString(path_of(self.best), tuple(self.logprobs.items()), self.given)


class BestFirstSearch(Iterator[Result]):
    """A running search. Exceptions of the model, or of a signal handler during its call, propagate to the caller; the
    state stays consistent, and `next` resumes where it was."""

    def __init__(
        self,
        steps: Steps,
        prefix: Dfa | None,
        query: Query,
        digest: str,
        batch: int | None = None,
        progress: Callable[[SearchProgress], None] | None = None,
        resume: Checkpoint | None = None,
    ) -> None:
        self._steps, self._prefix, self._digest, self._limit = steps, prefix, digest, query.limit
        self._bounds = query.bounds if batch is None else replace(query.bounds, batch=batch)
        self._width = 1
        self._progress = progress
        self._frontier = Frontier(query.bounds.max_nodes)
        self._waiting: list[Node] = []  # popped from the frontier, and not expanded yet
        # A heap of complete strings that were not given yet; when a better path is found, the worse one stays in it.
        self._ready: list[tuple[float, tuple[int, ...], str]] = []
        self._found: dict[str, _FoundString] = {}
        self._given: list[str] = []
        self._ends: dict[tuple[int, ...], int] = {}  # characters of prefixes that end behind a token, by their tokens
        self._nodes = 0
        self._prefixes: int | None = None
        self._prefixes_cut = False
        if resume is not None:
            self._restore(resume)

    def __next__(self) -> Result:
        if len(self._given) >= self._limit:
            raise StopIteration
        if self._prefixes is None:
            self._start()
        while not self._is_next_known():
            if not self._expand():
                raise StopIteration
        _, _, text = heapq.heappop(self._ready)
        found = self._found[text]
        found.given = True
        self._given.append(text)
        return found.result(text)

    def put_back(self) -> None:
        """Undo the last `next`: the string is returned again, also after a checkpoint."""
        text = self._given.pop()
        found = self._found[text]
        found.given = False
        heapq.heappush(self._ready, (-found.best.logprob, found.tokens, text))

    @property
    def found(self) -> list[Result]:
        """The strings returned so far, in order, with the encodings found by now."""
        return [self._found[text].result(text) for text in self._given]

    def summary(self) -> SearchSummary:
        """The totals so far."""
        left = len(self._frontier) + len(self._waiting) + len(self._found) - len(self._given)
        return SearchSummary(
            strings=len(self._given),
            nodes=self._nodes,
            finished=self._prefixes is not None and not left,
            exact_to=self._frontier.dropped if self._frontier.dropped > -math.inf else None,
            prefixes=None if self._prefix is None else self._prefixes,
            prefixes_cut=self._prefixes_cut,
        )

    def checkpoint(self) -> Checkpoint:
        """The state of the search, for `resume`."""
        entries = list(self._frontier.entries())
        waiting = [text for text, found in self._found.items() if not found.given]
        return Checkpoint(
            query=self._digest,
            vocabulary=self._steps.vocabulary.digest(),
            nodes=self._nodes,
            width=self._width,
            prefixes=self._prefixes,
            prefixes_cut=self._prefixes_cut,
            dropped=self.summary().exact_to,
            strings=tuple(self._found[text].stored() for text in (*self._given, *waiting)),
            waiting=tuple(map(path_of, self._waiting)),
            paths=tuple(path_of(entry) for entry in entries if isinstance(entry, Node)),
            families=tuple(child_paths_of(entry) for entry in entries if isinstance(entry, Children)),
        )

    def _restore(self, checkpoint: Checkpoint) -> None:
        if checkpoint.query != self._digest:
            raise CheckpointError("the checkpoint belongs to a different query")
        if checkpoint.vocabulary != self._steps.vocabulary.digest():
            raise CheckpointError("the checkpoint belongs to a model with a different vocabulary")
        restored = NodeRestorer(self._steps)
        self._waiting = [restored.node(path) for path in checkpoint.waiting]
        for path in checkpoint.paths:
            self._frontier.push(restored.node(path))
        for children in checkpoint.families:
            self._frontier.push(restored.children(children))
        if checkpoint.dropped is not None:
            self._frontier.dropped = max(self._frontier.dropped, checkpoint.dropped)
        for string in checkpoint.strings:
            text = self._record(restored.node(string.best))
            found = self._found[text]
            found.logprobs.update(string.encodings)
            found.given = string.given
            if string.given:
                self._given.append(text)
        self._nodes, self._width = checkpoint.nodes, min(checkpoint.width, self._bounds.batch)
        self._prefixes, self._prefixes_cut = checkpoint.prefixes, checkpoint.prefixes_cut

    # -- the search itself ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._prefix is None:
            start = self._steps.language.automaton.start
            self._frontier.push(Node(None, -1, start, 0, 0, 0, 0.0, 0.0))
            self._prefixes = 0
            return
        begun = Prefixes(self._steps, self._prefix, self._bounds, self._count_call).search()
        for entry in begun.entries:
            self._frontier.push(entry)
        self._prefixes, self._prefixes_cut = begun.prefixes, begun.cut

    def _is_next_known(self) -> bool:
        """Is there a complete string that no pending path can beat?"""
        while self._ready and self._is_outdated(*self._ready[0]):
            heapq.heappop(self._ready)
        return bool(self._ready) and -self._ready[0][0] >= self._pending

    @property
    def _pending(self) -> float:
        """The log-probability of the best path that is still to be visited or expanded."""
        return max(self._frontier.best, self._waiting[0].logprob if self._waiting else -math.inf)

    def _is_outdated(self, cost: float, tokens: tuple[int, ...], text: str) -> bool:
        found = self._found[text]
        return found.given or found.best.logprob != -cost or found.tokens != tokens

    def _expand(self) -> bool:
        """Visit paths, and expand some with one call of the model; False if none is left."""
        while len(self._waiting) < self._width and len(self._frontier) and not self._is_next_known():
            node = self._frontier.pop()
            try:
                if self._visit(node):
                    self._waiting.append(node)
            except BaseException:
                self._frontier.push(node)
                raise
        if self._is_next_known():
            return True
        if not self._waiting:
            return False
        families = self._steps.expand(self._waiting)
        self._waiting = []
        for children in families:
            self._frontier.push(children)
        # The first string comes sooner when the first paths are looked at one by one, and fewer for nothing.
        self._width = min(2 * self._width, self._bounds.batch)
        self._count_call(len(families))
        return True

    def _visit(self, node: Node) -> bool:
        """Record the path if it is a string of the query; returns whether to expand it."""
        canonical = self._steps.canonical
        if canonical and not canonical.may_become_canonical(node.tokens()):
            return False
        if self._steps.is_complete(node):
            self._record(node)
        return self._steps.is_extendable(node)

    def _record(self, node: Node) -> str:
        """Record a complete path under its string."""
        tokens = node.tokens()
        text = self._steps.text(node).decode()
        found = self._found.get(text)
        if found is None:
            found = self._found[text] = _FoundString(node, tokens, self._prefix_of(node), {})
        elif not found.given and _numbers(node) > _numbers(found.best):
            # Paths of one call are looked at together, so a better one can come later, until the string is given.
            found.best, found.tokens, found.prefix = node, tokens, self._prefix_of(node)
        elif len(found.logprobs) >= MAX_ENCODINGS:
            return text
        # Where a prefix can end at several places, the same tokens come once for each; the best way counts.
        found.logprobs[tokens] = max(found.logprobs.get(tokens, -math.inf), node.logprob)
        if found.best is node:
            heapq.heappush(self._ready, (-node.logprob, tokens, text))
        return text

    def _prefix_of(self, node: Node) -> int:
        """How many of a string's characters are its prefix's: up to where it ends first, behind its tokens or within
        the next."""
        if self._prefix is None:
            return 0
        tokens = node.tokens()[: node.inside]
        if (known := self._ends.get(tokens)) is not None:
            return known
        text = self._steps.text(node)
        inside = b"".join(self._steps.vocabulary.pieces(tokens, self._steps.at_text_start))
        state = walk(self._prefix, self._prefix.start, inside)
        end = len(inside)
        while not self._prefix.accepting(state):
            state = self._prefix.step(state, text[end])
            end += 1
        characters = len(text[:end].decode())
        if end == len(inside) and len(self._ends) < MAX_ENDS:
            self._ends[tokens] = characters
        return characters

    def _count_call(self, paths: int) -> None:
        """Count a call of the model with so many rows, and report it."""
        self._nodes += paths
        if self._progress:
            pending = len(self._frontier) + len(self._waiting)
            self._progress(SearchProgress(self._nodes, paths, len(self._given), pending, self._pending))


def _numbers(node: Node) -> tuple[float, float]:
    return node.logprob, node.prefix_logprob
