"""What the loader and its advice must know of rules and cannot: how text is folded, and what a pattern means.

The censor does, which imports this package and not the other way round; so it hands its knowledge in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from gateway.policy.model import Constrain, Fold, Rule

FoldWord: TypeAlias = Callable[[str, frozenset[Fold]], str]
Finds: TypeAlias = Callable[[str], bool]


class BadPattern(ValueError):
    """A pattern that is refused for `reason`, which does not quote it, at `position`, in characters from 0; None where
    the pattern as a whole is at fault."""

    def __init__(self, reason: str, position: int | None) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position


@dataclass(frozen=True, slots=True)
class PatternFacts:
    """`longest`: the most characters of a match and of what makes it certain; 0 if there can be none, None if there is
    no bound. `reopens`: what ends one match can begin the next, so that the text between two matches is one, too.
    `unseen`: a class in it has no character that folding leaves in a text."""

    longest: int | None = 1
    reopens: bool = False
    unseen: bool = False


def _as_written(word: str, fold: frozenset[Fold]) -> str:
    return word


def _unread(pattern: str, fold: frozenset[Fold]) -> PatternFacts:
    return PatternFacts()


def _unread_constraint(constrain: Constrain) -> None:
    pass


def _never(rule: Rule) -> Finds:
    return lambda text: False


@dataclass(frozen=True, slots=True)
class Checks:
    """With the defaults, words are compared as they are written, and patterns and detectors are taken unread.

    `fold_word` says what is left of a word under a set of folds, `read_pattern` what a pattern is under it, raising
    `BadPattern`. `detectors` are the names there are, None for any. `finder` makes of a rule with a pattern or a
    detector what says whether a text holds a match of it. `read_constraint` raises `BadPattern` for a constraint that
    no model can be held to.
    """

    fold_word: FoldWord = _as_written
    read_pattern: Callable[[str, frozenset[Fold]], PatternFacts] = _unread
    detectors: Collection[str] | None = None
    finder: Callable[[Rule], Finds] = _never
    read_constraint: Callable[[Constrain], None] = _unread_constraint


UNCHECKED = Checks()
