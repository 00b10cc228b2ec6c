"""A guide as tables: every state that tokens can reach, computed beforehand, to be saved and loaded."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from gateway.automata.vocabulary import Ints, Vocabulary
from gateway.decode.guide import Guide, GuideState, NotAllowed

MAX_STATES = 10_000
MAX_TRANSITIONS = 20_000_000  # eight bytes each

ENDED = -1
_ARRAYS = ("offsets", "tokens", "targets", "accepting", "vocabulary")


class NotATable(ValueError):
    """A file that holds no tables, or those of another vocabulary."""


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """States are numbered from 0, the start, in the order in which they are reached.

    From state s the tokens `tokens[offsets[s] : offsets[s + 1]]`, sorted, lead to the states at the same places of
    `targets`; where `accepting[s]`, the text may end.
    """

    offsets: NDArray[np.int64]
    tokens: Ints
    targets: Ints
    accepting: NDArray[np.bool_]


class CompiledGuide:
    """The constraint of `Tables`; its states are their numbers, and `ENDED` after the end of the text."""

    def __init__(self, tables: Tables, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.tables = tables
        self._ends: Ints = np.array(vocabulary.end, np.int32)

    def start(self) -> int:
        return 0

    def accepting(self, state: int) -> bool:
        return state != ENDED and bool(self.tables.accepting[state])

    def allowed(self, state: int) -> Ints:
        tokens = self._tokens(state)
        return np.sort(np.concatenate((tokens, self._ends))) if self.accepting(state) else tokens

    def advance(self, state: int, token: int) -> int:
        if self.accepting(state) and token in self.vocabulary.end:
            return ENDED
        tokens = self._tokens(state)
        at = int(np.searchsorted(tokens, token))
        if at == len(tokens) or tokens[at] != token:
            raise NotAllowed(f"token {token} may not come here, where {len(self.allowed(state))} others may")
        return int(self.tables.targets[self.tables.offsets[state] + at])

    def _tokens(self, state: int) -> Ints:
        if state == ENDED:
            return self.tables.tokens[:0]
        return self.tables.tokens[self.tables.offsets[state] : self.tables.offsets[state + 1]]

    def save(self, path: Path) -> None:
        """Write the tables, with the digest of the vocabulary they belong to. Raises OSError."""
        arrays = {each.name: getattr(self.tables, each.name) for each in fields(Tables)}
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays, vocabulary=np.array(self.vocabulary.digest()))


def precompile(guide: Guide, max_states: int = MAX_STATES, max_transitions: int = MAX_TRANSITIONS) -> CompiledGuide:
    """The tables of a guide. Raises ValueError if it has more states or transitions."""
    numbers: dict[GuideState, int] = {guide.start(): 0}
    states = [guide.start()]
    tokens: list[Ints] = []
    targets: list[Ints] = []
    transitions = 0
    for state in states:
        here, places, reached = guide.steps(state)
        numbered = np.empty(len(reached), np.int32)
        for place, target in enumerate(reached):
            numbered[place] = numbers.setdefault(target, len(states))
            if numbered[place] == len(states):
                states.append(target)
        transitions += len(here)
        if len(states) > max_states or transitions > max_transitions:
            raise ValueError(
                f"the guide has more than {max_states} states or {max_transitions} transitions: use it as it is, "
                "or constrain to less"
            )
        by_token = np.argsort(here)
        tokens.append(here[by_token])
        targets.append(numbered[places[by_token]])
    tables = Tables(
        offsets=np.concatenate(([0], np.cumsum([len(each) for each in tokens], dtype=np.int64))),
        tokens=np.concatenate(tokens),
        targets=np.concatenate(targets),
        accepting=np.array([guide.accepting(state) for state in states]),
    )
    return CompiledGuide(tables, guide.vocabulary)


def load(path: Path, vocabulary: Vocabulary) -> CompiledGuide:
    """What `CompiledGuide.save` wrote. Raises NotATable if it did not, or for another vocabulary; OSError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            offsets, tokens, targets, accepting, digest = (file[name] for name in _ARRAYS)
    except (ValueError, KeyError, EOFError, BadZipFile) as error:
        raise NotATable(f"{path}: not a compiled guide ({error}): precompile it again") from None
    if str(digest) != vocabulary.digest():
        raise NotATable(f"{path}: made for another vocabulary: precompile it for this one")
    return CompiledGuide(Tables(offsets, tokens, targets, accepting), vocabulary)
