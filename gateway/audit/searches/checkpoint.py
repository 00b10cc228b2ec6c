"""The state of a stopped search as plain data, enough to resume it in another process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from gateway.audit.language.automaton import walk
from gateway.audit.searches.frontier import ENDED, Children, Node
from gateway.audit.searches.steps import Steps

VERSION = 1
MORE = 1.0  # than its best path another one of a string may have: rounding, and far from what numbers can hold


class CheckpointError(ValueError):
    """A checkpoint cannot be read, or belongs to another search."""


@dataclass(frozen=True, slots=True)
class TokenPath:
    """A path of tokens, `inside` of them in the prefix."""

    tokens: tuple[int, ...] = field(repr=False)
    inside: int
    logprob: float
    prefix_logprob: float

    def __post_init__(self) -> None:
        if not 0 <= self.inside <= len(self.tokens) or self.logprob > 0 or self.prefix_logprob > 0:
            raise ValueError("a path that no search has")


@dataclass(frozen=True, slots=True)
class ChildPaths:
    """The children of a path that were not looked at, and their log-probabilities."""

    parent: TokenPath
    tokens: tuple[int, ...] = field(repr=False)
    logprobs: tuple[float, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.logprobs) or max(self.logprobs, default=0.0) > 0:
            raise ValueError("children that no path has")


@dataclass(frozen=True, slots=True)
class StoredString:
    """A string: its best path, all its encodings that were found, with their log-probabilities, and whether the caller
    has it."""

    best: TokenPath
    encodings: tuple[tuple[tuple[int, ...], float], ...] = field(repr=False)
    given: bool

    def __post_init__(self) -> None:
        if any(not logprob <= self.best.logprob + MORE for _, logprob in self.encodings):
            raise ValueError("a string of which the best path is not the best")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """`query` and `vocabulary` are digests. `strings`: those that were given come first, in order. `waiting`: paths
    that were looked at, and are not gone on from yet; `paths` and `families` are still to be looked at. `width`: how
    many rows one call of the model has."""

    version: int = VERSION
    query: str
    vocabulary: str
    nodes: int
    width: int
    prefixes: int | None
    prefixes_cut: bool
    dropped: float | None
    strings: tuple[StoredString, ...] = field(repr=False)
    waiting: tuple[TokenPath, ...] = field(repr=False)
    paths: tuple[TokenPath, ...] = field(repr=False)
    families: tuple[ChildPaths, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if self.nodes < 0 or self.width < 1 or (self.prefixes or 0) < 0:
            raise ValueError("numbers that no search has")

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint:
        """Raises CheckpointError."""
        try:
            checkpoint = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CheckpointError(f"not a checkpoint: {error}") from None
        if checkpoint.version != VERSION:
            raise CheckpointError(f"the checkpoint has version {checkpoint.version}; this version reads {VERSION}")
        return checkpoint


def path_of(node: Node) -> TokenPath:
    return TokenPath(node.tokens(), node.inside, node.logprob, node.prefix_logprob)


def child_paths_of(children: Children) -> ChildPaths:
    at = children.at
    return ChildPaths(path_of(children.parent), tuple(children.tokens[at:].tolist()), tuple(children.rest().tolist()))


class NodeRestorer:
    """Restores nodes from paths; common prefixes are shared, as before."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._ends = frozenset(steps.vocabulary.end)
        self._shared: dict[tuple[int, int], Node] = {}  # by what is before and a token
        self._root = Node(None, -1, 0, 0, 0, 0, 0.0, 0.0)

    def node(self, path: TokenPath) -> Node:
        """Raises CheckpointError for a path that the language does not have."""
        state = self._state(self._steps.language.automaton.start, path.tokens, self._steps.at_text_start)
        numbers = path.inside, len(path.tokens) - path.inside, path.logprob, path.prefix_logprob
        if not path.tokens:
            return Node(None, -1, state, 0, *numbers)
        parent = self._root
        for token in path.tokens[:-1]:
            parent = self._after(parent, token)
        return Node(parent, path.tokens[-1], state, 0, *numbers)

    def children(self, children: ChildPaths) -> Children:
        """Raises CheckpointError, as `node` does."""
        parent = self.node(children.parent)
        first = self._steps.at_text_start and not children.parent.tokens
        targets = [self._state(parent.state, [token], first) for token in children.tokens]
        return Children(
            parent,
            np.array(children.tokens, np.int32),
            np.array(targets, np.int64),
            np.array(children.logprobs, np.float64),
        )

    def _after(self, parent: Node, token: int) -> Node:
        key = id(parent), token
        if key not in self._shared:
            self._shared[key] = Node(parent, token, 0, 0, 0, 0, 0.0, 0.0)
        return self._shared[key]

    def _state(self, state: int, tokens: Sequence[int], at_text_start: bool) -> int:
        if not all(0 <= token < len(self._steps.vocabulary) for token in tokens):
            raise CheckpointError("the checkpoint has a token that the vocabulary does not have")
        if tokens and tokens[-1] in self._ends:
            return ENDED
        pieces = self._steps.vocabulary.pieces(tokens, at_text_start)
        state = walk(self._steps.language.automaton, state, b"".join(pieces))
        if not state:
            raise CheckpointError("the checkpoint has a path that the query's language does not have")
        return state
