"""Checks of rules that the loader needs and cannot import: folding, patterns, detectors, constraints.

The censor and the decoder know it; `gateway.config` passes it in as `Checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.policy.model import Constrain, Fold, Rule

Finds: TypeAlias = Callable[[str], bool]


class BadPattern(ValueError):
    """A pattern that is refused for `reason`, which does not quote it, at `position`, in characters from 0; None where
    the pattern as a whole is at fault."""

    def __init__(self, reason: str, position: int | None) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position

    def __str__(self) -> str:
        return self.reason if self.position is None else f"{self.reason} (at position {self.position})"


@dataclass(frozen=True, slots=True)
class PatternFacts:
    """`longest`: the most characters of a match and of what makes it certain; 0 if there can be none, None if there is
    no bound. `reopens`: what ends one match can begin the next, so that the text between two matches is one, too.
    `unseen`: a class in it has no character that folding leaves in a text."""

    longest: int | None = 1
    reopens: bool = False
    unseen: bool = False


@dataclass(frozen=True, slots=True)
class Checks:
    """`fold_word`: the folded word. `read_pattern` analyses a pattern under a set of folds; it raises `BadPattern`.
    `detectors`: their names. `finder`: for a rule, whether a text holds a match of it. `read_constraint` raises
    `BadPattern` for a constraint that no model can be held to. `prose`: ordinary text, to look for false hits in."""

    fold_word: Callable[[str, frozenset[Fold]], str]
    read_pattern: Callable[[str, frozenset[Fold]], PatternFacts]
    detectors: Collection[str]
    finder: Callable[[Rule], Finds]
    read_constraint: Callable[[Constrain], None]
    prose: Callable[[], Sequence[str]]
