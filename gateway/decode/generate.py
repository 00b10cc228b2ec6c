"""The reference loop: any model, token by token, under a constraint, a mask of words, and rollback.

It shows in one place what the gateway does with a served model, and runs over any: a model is a function from token
prefixes to log-probabilities.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.automata.vocabulary import Vocabulary
from gateway.censor.compile import Program, compile_policy
from gateway.censor.stream import Censor
from gateway.decode.guide import Constraint
from gateway.decode.rollback import Attempts, Caps, token_of
from gateway.policy.model import Action, Channel, Direction, Exhausted, Policy, Rule

Row = NDArray[np.float64]  # float[vocabulary]
Choose = Callable[[Row], int]


class NextTokenModel(Protocol):
    """A language model."""

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> NDArray[np.floating[Any]]:
        """The log-probabilities of the next token after each of n prefixes of token ids: float[n, vocabulary]."""


class Mask(Protocol):
    """What must not come next; `gateway.decode.masks.BanMask` is one. States are values."""

    def start(self) -> Any:
        """The state before the answer."""

    def row(self, state: Any, last: bool = False) -> NDArray[np.bool_]:
        """Whether each token is forbidden: bool[vocabulary]. `last`: the answer is cut after the token."""

    def advance(self, state: Any, token: int) -> Any:
        """The state after a token."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """Rules whose matches an answer is rolled back from, whatever their `action`. Raises ValueError without rules."""

    rules: tuple[Rule, ...]
    caps: Caps = field(default_factory=Caps)
    exhausted: Exhausted = Exhausted.REDACT

    def __post_init__(self) -> None:
        if not self.rules:
            raise ValueError("rollback needs a rule at least")

    def program(self, action: Action) -> Program:
        """The rules for a censor, with an action of their own."""
        rules = tuple(
            replace(rule, action=action, apply_to=frozenset({Direction.OUTPUT}), channels=frozenset(Channel))
            for rule in self.rules
        )
        program = compile_policy(Policy(name="rollback", rules=rules)).program(Direction.OUTPUT, Channel.CONTENT)
        assert program is not None
        return program


class Finish(StrEnum):
    """Why an answer ended: by itself, at `max_tokens`, before a match that no rollback was left for, or because nothing
    may come next."""

    STOP = "stop"
    LENGTH = "length"
    EXHAUSTED = "exhausted"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class GeneratedAnswer:
    """`text` holds no match of a rule of `rollback`. `tokens`: what the model was left to say, without the end of text;
    where matches were replaced, they still stand in it. `sampled`: tokens drawn, those thrown away included."""

    text: str
    tokens: tuple[int, ...]
    finish: Finish
    sampled: int
    rollbacks: int


def generate(
    model: NextTokenModel,
    prompt: Iterable[int],
    vocabulary: Vocabulary,
    *,
    constrain: Constraint[Any] | None = None,
    ban: Mask | None = None,
    rollback: Rollback | None = None,
    max_tokens: int = 256,
    temperature: float = 1.0,
    seed: int = 0,
    choose: Choose | None = None,
    at_text_start: bool = False,
) -> GeneratedAnswer:
    """Let a model answer.

    `prompt`: token ids. `constrain`: only what it allows is said. `ban`: what it forbids is not. `rollback`: what
    matches its rules is taken back. Where these leave nothing to say, the answer backs out, if there is rollback, or
    ends (`Finish.STUCK`). `temperature` 0 takes the likeliest token, of equals the first. `choose` draws a token id
    from probabilities, float[vocabulary] with sum 1, in place of a generator seeded with `seed`. `at_text_start`: the
    answer begins a text (`Vocabulary.pieces`).
    Raises ValueError for a negative temperature, and for log-probabilities that are not one row for the vocabulary.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature is {temperature}: 0 or more is needed")
    run = _Generation(
        _GenerationTask(
            model=model,
            prompt=tuple(prompt),
            vocabulary=vocabulary,
            constrain=constrain,
            ban=ban,
            rollback=rollback,
            max_tokens=max_tokens,
            temperature=temperature,
            choose=choose or _seeded(seed),
            at_text_start=at_text_start,
        )
    )
    finish = None
    while finish is None:
        finish = run.step()
    return run.answer(finish)


def _seeded(seed: int) -> Choose:
    generator = np.random.default_rng(seed)

    def choose(probabilities: Row) -> int:
        return int(generator.choice(len(probabilities), p=probabilities))

    return choose


@dataclass(frozen=True, slots=True, kw_only=True)
class _GenerationTask:
    """The arguments of `generate`."""

    model: NextTokenModel
    prompt: tuple[int, ...]
    vocabulary: Vocabulary
    constrain: Constraint[Any] | None
    ban: Mask | None
    rollback: Rollback | None
    max_tokens: int
    temperature: float
    choose: Choose
    at_text_start: bool


class _Generation:
    """One answer in the making. What is known before each token is kept, to be gone back to."""

    def __init__(self, task: _GenerationTask) -> None:
        self._task = task
        self._tokens: list[int] = []
        self._pieces: list[bytes] = []
        self._constraints = [task.constrain.start()] if task.constrain else []
        self._masks = [task.ban.start()] if task.ban else []
        self._watch: _MatchDetector | None = None
        self._ledger: Attempts | None = None
        self._before_match: str | None = None
        self._sampled = 0
        if task.rollback:
            self._program = task.rollback.program(Action.BLOCK)
            self._watch = _MatchDetector(self._program)
            self._ledger = Attempts(task.rollback.caps, at_once=task.temperature == 0)

    def step(self) -> Finish | None:
        """Draw a token, or go back; why the answer ended, if it did."""
        if len(self._tokens) >= self._task.max_tokens:
            return self._close(Finish.LENGTH)
        probabilities = self._probabilities()
        if probabilities is None:
            return self._back_out()
        token = self._task.choose(probabilities) if self._task.temperature else int(np.argmax(probabilities))
        self._sampled += 1
        if token in self._task.vocabulary.end:
            return self._close(Finish.STOP)
        piece = self._append(token)
        if self._watch and self._watch.feed(piece):
            return self._roll_back()
        return None

    def answer(self, finish: Finish) -> GeneratedAnswer:
        """What came out. Whatever happened, no match leaves."""
        text = self._before_match
        if text is None:
            text = b"".join(self._pieces).decode("utf-8", "replace")
        if self._task.rollback:
            censor = Censor(self._task.rollback.program(Action.REDACT))
            text = censor.feed(text) + censor.finish()
        rollbacks = self._ledger.rollbacks if self._ledger else 0
        return GeneratedAnswer(text, tuple(self._tokens), finish, self._sampled, rollbacks)

    def _probabilities(self) -> Row | None:
        """Of each token to come next; None if none may come."""
        task, position = self._task, len(self._tokens)
        rows = task.model([(*task.prompt, *self._tokens)])
        if rows.shape != (1, len(task.vocabulary)):
            raise ValueError(
                f"the model gave log-probabilities of shape {rows.shape} for one prefix and a vocabulary of "
                f"{len(task.vocabulary)}: read the vocabulary with the size that the model knows"
            )
        scores = rows[0].astype(np.float64)
        if task.constrain:
            allowed = task.constrain.allowed(self._constraints[-1])
            constrained = np.full_like(scores, -np.inf)
            constrained[allowed] = scores[allowed]
            scores = constrained
        if task.ban:
            scores[task.ban.row(self._masks[-1], position + 1 == task.max_tokens)] = -np.inf
        if self._ledger:
            scores[list(self._ledger.banned(position))] = -np.inf
        highest = scores.max()
        if highest == -np.inf:
            return None
        weights: Row = np.exp((scores - highest) / (task.temperature or 1.0))
        weights /= weights.sum()
        return weights

    def _append(self, token: int) -> bytes:
        task = self._task
        [piece] = task.vocabulary.pieces([token], task.at_text_start and not any(self._pieces))
        if task.constrain:
            self._constraints.append(task.constrain.advance(self._constraints[-1], token))
        if task.ban:
            self._masks.append(task.ban.advance(self._masks[-1], token))
        self._tokens.append(token)
        self._pieces.append(piece)
        return piece

    def _close(self, finish: Finish) -> Finish | None:
        """The end of the text can make a match certain."""
        return self._roll_back(finish) if self._watch and self._watch.finish() else finish

    def _roll_back(self, finish: Finish | None = None) -> Finish | None:
        """A match is certain; `finish`: the answer ends with it."""
        assert self._task.rollback and self._watch and self._ledger
        start = self._watch.released
        position = token_of(self._pieces, start)
        ledger = self._ledger.after_match(position, self._tokens[position])
        if ledger is not None:
            self._ledger = ledger
            self._cut(position)
            return None
        self._watch = None
        if self._task.rollback.exhausted is Exhausted.REDACT:
            return finish
        self._before_match = b"".join(self._pieces).decode("utf-8", "replace")[:start]
        self._cut(position)
        return Finish.EXHAUSTED

    def _back_out(self) -> Finish | None:
        """Nothing may come here: not the token before, then."""
        position = len(self._tokens) - 1
        if self._ledger is None or position < 0:
            return Finish.STUCK
        ledger = self._ledger.after_dead_end(position, self._tokens[position])
        if ledger is None:
            return Finish.STUCK
        self._ledger = ledger
        self._cut(position)
        return None

    def _cut(self, position: int) -> None:
        del self._tokens[position:], self._pieces[position:]
        del self._constraints[position + 1 :], self._masks[position + 1 :]
        if self._watch:
            self._watch = _MatchDetector(self._program, self._pieces)


class _MatchDetector:
    """Looks for matches: a censor whose rules all block releases what is before the first one that is certain.

    `released`: how many characters that is.
    """

    def __init__(self, program: Program, pieces: Iterable[bytes] = ()) -> None:
        self._censor = Censor(program)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.released = 0
        for piece in pieces:
            self.feed(piece)

    def feed(self, piece: bytes) -> bool:
        """Is a match certain now?"""
        self.released += len(self._censor.feed(self._decoder.decode(piece)))
        return self._censor.blocked is not None

    def finish(self) -> bool:
        """Is one certain with the end of the text?"""
        self.released += len(self._censor.feed(self._decoder.decode(b"", final=True)))
        self.released += len(self._censor.finish())
        return self._censor.blocked is not None
