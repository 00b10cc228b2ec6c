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
from gateway.censor.compile import Program, compile_rules
from gateway.censor.stream import Censor
from gateway.decode.guide import Constraint
from gateway.decode.rollback import Attempts, Caps, token_of
from gateway.policy.model import Action, Exhausted, Policy, Rule

Row = NDArray[np.float64]  # float[vocabulary]
Choose = Callable[[Row], int]


class NextTokenModel(Protocol):
    """A language model."""

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> NDArray[np.floating[Any]]:
        """The log-probabilities of the next token after each of n prefixes of token ids: float[n, vocabulary]."""


class Mask(Protocol):
    """A mask over the next token, such as `gateway.decode.masks.BanMask`. States are values."""

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
    _programs: dict[Action, Program] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.rules:
            raise ValueError("rollback needs a rule at least")

    def program(self, action: Action) -> Program:
        """The rules for a censor, with an action of their own; compiled once."""
        if action not in self._programs:
            rules = [replace(rule, action=action) for rule in self.rules]
            self._programs[action] = compile_rules(Policy(name="rollback"), *rules)
        return self._programs[action]


class Finish(StrEnum):
    """Why an answer ended: by itself, at `max_tokens`, before a match that no rollback was left for, or because nothing
    may come next."""

    STOP = "stop"
    LENGTH = "length"
    EXHAUSTED = "exhausted"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class GeneratedAnswer:
    """`text` holds no match of a rule of `rollback`. `tokens`: what the model wrote in the end, without the end of
    text; where matches were replaced, they still stand in it. `sampled`: tokens drawn, those thrown away included."""

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

    `prompt`: token ids. `constrain`: only what it allows is written. `ban`: what it forbids is not. `rollback`: what
    matches its rules is cut. Where these leave no token, the answer backs out, if there is rollback, or
    ends (`Finish.STUCK`). `temperature` 0 takes the likeliest token, of equals the first. `choose` draws a token id
    from probabilities, float[vocabulary] with sum 1, in place of a generator seeded with `seed`. `at_text_start`: the
    answer begins a text (`Vocabulary.pieces`).
    Raises ValueError for a negative temperature, and for log-probabilities that are not one row for the vocabulary.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature is {temperature}: 0 or more is needed")
    choose = choose or _seeded(seed)
    run = _Generation(
        model, tuple(prompt), vocabulary, constrain, ban, rollback, max_tokens, temperature, choose, at_text_start
    )
    finish = None
    while finish is None:
        finish = run.step()
    return run.answer(finish)


def _seeded(seed: int) -> Choose:
    generator = np.random.default_rng(seed)
    return lambda probabilities: int(generator.choice(len(probabilities), p=probabilities))


@dataclass(eq=False)
class _Generation:
    """An answer being generated. The state before each token is kept, for rollback."""

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
    tokens: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    sampled: int = 0
    before_match: str | None = None

    def __post_init__(self) -> None:
        self.constraints = [self.constrain.start()] if self.constrain else []
        self.masks = [self.ban.start()] if self.ban else []
        self.program = self.rollback.program(Action.BLOCK) if self.rollback else None
        self.detector = _MatchDetector(self.program) if self.program else None
        self.attempts = Attempts(self.rollback.caps, at_once=self.temperature == 0) if self.rollback else None

    def step(self) -> Finish | None:
        """Draw a token, or go back; why the answer ended, if it did."""
        if len(self.tokens) >= self.max_tokens:
            return self._close(Finish.LENGTH)
        probabilities = self._probabilities()
        if probabilities is None:
            return self._back_out()
        token = self.choose(probabilities) if self.temperature else int(np.argmax(probabilities))
        self.sampled += 1
        if token in self.vocabulary.end:
            return self._close(Finish.STOP)
        piece = self._append(token)
        if self.detector and self.detector.feed(piece):
            return self._roll_back()
        return None

    def answer(self, finish: Finish) -> GeneratedAnswer:
        """The answer. However it ended, it has no match."""
        text = self.before_match
        if text is None:
            text = b"".join(self.pieces).decode("utf-8", "replace")
        if self.rollback:
            censor = Censor(self.rollback.program(Action.REDACT))
            text = censor.feed(text) + censor.finish()
        rollbacks = self.attempts.rollbacks if self.attempts else 0
        return GeneratedAnswer(text, tuple(self.tokens), finish, self.sampled, rollbacks)

    def _probabilities(self) -> Row | None:
        """Of each token to come next; None if none may come."""
        position = len(self.tokens)
        rows = self.model([(*self.prompt, *self.tokens)])
        if rows.shape != (1, len(self.vocabulary)):
            raise ValueError(
                f"the model gave log-probabilities of shape {rows.shape} for one prefix and a vocabulary of "
                f"{len(self.vocabulary)}: read the vocabulary with the size that the model knows"
            )
        scores = rows[0].astype(np.float64)
        if self.constrain:
            allowed = self.constrain.allowed(self.constraints[-1])
            constrained = np.full_like(scores, -np.inf)
            constrained[allowed] = scores[allowed]
            scores = constrained
        if self.ban:
            scores[self.ban.row(self.masks[-1], position + 1 == self.max_tokens)] = -np.inf
        if self.attempts:
            scores[list(self.attempts.banned(position))] = -np.inf
        highest = scores.max()
        if highest == -np.inf:
            return None
        weights: Row = np.exp((scores - highest) / (self.temperature or 1.0))
        weights /= weights.sum()
        return weights

    def _append(self, token: int) -> bytes:
        [piece] = self.vocabulary.pieces([token], self.at_text_start and not any(self.pieces))
        if self.constrain:
            self.constraints.append(self.constrain.advance(self.constraints[-1], token))
        if self.ban:
            self.masks.append(self.ban.advance(self.masks[-1], token))
        self.tokens.append(token)
        self.pieces.append(piece)
        return piece

    def _close(self, finish: Finish) -> Finish | None:
        """The end of the text can make a match certain."""
        return self._roll_back(finish) if self.detector and self.detector.finish() else finish

    def _roll_back(self, finish: Finish | None = None) -> Finish | None:
        """A match is certain; `finish`: the answer ends with it."""
        assert self.rollback and self.detector and self.attempts
        start = self.detector.released
        position = token_of(self.pieces, start)
        if self._goes_back(position, self.attempts.after_match(position, self.tokens[position])):
            return None
        self.detector = None
        if self.rollback.exhausted is Exhausted.REDACT:
            return finish
        self.before_match = b"".join(self.pieces).decode("utf-8", "replace")[:start]
        self._cut(position)
        return Finish.EXHAUSTED

    def _back_out(self) -> Finish | None:
        """Nothing may come here: not the token before, then."""
        position = len(self.tokens) - 1
        if self.attempts is None or position < 0:
            return Finish.STUCK
        attempts = self.attempts.after_dead_end(position, self.tokens[position])
        return None if self._goes_back(position, attempts) else Finish.STUCK

    def _goes_back(self, position: int, attempts: Attempts | None) -> bool:
        if attempts is not None:
            self.attempts = attempts
            self._cut(position)
        return attempts is not None

    def _cut(self, position: int) -> None:
        del self.tokens[position:], self.pieces[position:]
        del self.constraints[position + 1 :], self.masks[position + 1 :]
        if self.program and self.detector:
            self.detector = _MatchDetector(self.program, self.pieces)


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
