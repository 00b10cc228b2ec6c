"""A model behind a word mask, as vLLM has with the plugin: tokens that would complete a banned word get probability 0.

Only text after the prefix is masked, since the prefix is given to the model. Of several prefixes the longest counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.audit.language.automaton import Dfa
from gateway.audit.matcher import RuleMatcher
from gateway.audit.model import LanguageModel, Messages, ModelError
from gateway.audit.query.model import Query, compile
from gateway.automata.vocabulary import Ints, Vocabulary
from gateway.decode.masks import MaskCompiler, MaskState, WordBan
from gateway.policy.model import Rule

MAX_KEPT = 100_000  # places in strings, and prefixes' states with what straddles their end

_SPACE = ord(" ")


class _MaskPosition(NamedTuple):
    """Where a string stands. `prefix`: the state of the prefix's automaton, 0 behind it; `mask`: the mask's state since
    a prefix ended, None if none has."""

    prefix: int
    mask: MaskState | None


class MaskedModel:
    """`model` without the words of `rules`, all of which have words.

    The strings begin behind what `context` gave last. `prefix`: their prefixes, None if they have none;
    `at_text_start`: they begin a text.
    Raises ValueError without rules, and for one without words; ModelError for a model that no token ends a text of.
    """

    def __init__(self, model: LanguageModel, rules: Iterable[Rule], prefix: Dfa | None, at_text_start: bool) -> None:
        rules = tuple(rules)
        if not model.vocabulary.end:
            raise ModelError("masks need a model with a token that ends a text; its tokenizer names none")
        self.vocabulary: Vocabulary = model.vocabulary
        self.encode = model.encode
        # The prefix is given to the model, so its tokens are not masked.
        self.logprobs_of = model.logprobs_of
        self._model = model
        compiler = MaskCompiler(self.vocabulary.tokens, self.vocabulary.end, len(self.vocabulary))
        self._mask = compiler.compile(map(WordBan.of, rules))
        self._matcher = RuleMatcher(rules)
        self._begin = 0
        self._prefix = prefix
        self._at_text_start = at_text_start
        self._loses_space = at_text_start and self.vocabulary.strips_first_space
        self._places: dict[tuple[int, ...], _MaskPosition] = {}
        self._straddle = lru_cache(MAX_KEPT)(self._straddle_in)

    @classmethod
    def of(cls, model: LanguageModel, rules: Iterable[Rule], query: Query) -> MaskedModel:
        """For the strings of a query. Also raises ConfigError, for an empty query."""
        return cls(model, rules, compile(query).prefix, at_text_start=not query.prompt)

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> NDArray[np.floating[Any]]:
        """The model's rows with -inf for forbidden tokens, not normalised: `SamplingParams` does that."""
        rows = np.array(self._model(prefixes))
        for row, tokens in zip(rows, prefixes, strict=True):
            row[self._forbidden(tuple(tokens[self._begin :]))] = -np.inf
            if row.max() == -np.inf:
                # No token is allowed, so the text ends.
                row[list(self.vocabulary.end)] = -np.log(len(self.vocabulary.end))
        return rows

    def context(self, prompt: str | Messages | None) -> tuple[int, ...]:
        tokens = self._model.context(prompt)
        self._begin = len(tokens)
        return tokens

    def require_top_k(self, top_k: int | None) -> None:
        """Requires more than `top_k` if the model can: others move up in place of forbidden ones. Raises ModelError if
        it cannot return `top_k`."""
        for more in (4, 2):
            with contextlib.suppress(ModelError):
                self._model.require_top_k(None if top_k is None else top_k * more)
                return
        self._model.require_top_k(top_k)

    def _forbidden(self, tokens: tuple[int, ...]) -> NDArray[np.bool_]:
        place = self._place(tokens)
        if place.mask is None:
            flags = np.zeros(len(self.vocabulary), np.bool_)
        else:
            flags = self._mask.row(place.mask)
        if place.prefix:
            straddling, forbidden = self._straddle(place.prefix, self._loses_space and not tokens)
            flags[straddling] = forbidden
        return flags

    def _place(self, tokens: tuple[int, ...]) -> _MaskPosition:
        known = len(tokens)
        while known and tokens[:known] not in self._places:
            known -= 1
        place = self._places[tokens[:known]] if known else self._first()
        for end in range(known + 1, len(tokens) + 1):
            [piece] = self.vocabulary.pieces(tokens[end - 1 : end], self._at_text_start and end == 1)
            place = self._after(place, piece)
            if len(self._places) >= MAX_KEPT:
                self._places.clear()
            self._places[tokens[:end]] = place
        return place

    def _first(self) -> _MaskPosition:
        if self._prefix is None:
            return _MaskPosition(0, self._mask.start())
        start = self._prefix.start
        return _MaskPosition(start, self._mask.start() if self._prefix.accepting(start) else None)

    def _after(self, place: _MaskPosition, piece: bytes) -> _MaskPosition:
        state, since = place.prefix, 0
        mask = place.mask
        for end, byte in enumerate(piece, start=1):
            if not state:
                break
            assert self._prefix is not None
            state = self._prefix.step(state, byte)
            if self._prefix.accepting(state):
                mask, since = self._mask.start(), end
        if mask is None:
            # No prefix fits this string, so no query needs it: mask it from here on.
            return _MaskPosition(state, None if state else self._mask.start())
        return _MaskPosition(state, self._mask.feed(mask, piece[since:]))

    def _straddle_in(self, state: int, loses_space: bool) -> tuple[Ints, NDArray[np.bool_]]:
        """The tokens in which a prefix ends, and whether what they write behind it is forbidden. `loses_space`: a first
        space is not written."""
        found = {
            token: self._matcher.matched_rules(rest).certain is not None
            for token, rest in self._straddling_tokens(state, loses_space)
        }
        return np.array(list(found), np.int32), np.array(list(found.values()), np.bool_)

    def _straddling_tokens(self, state: int, loses_space: bool) -> Iterator[tuple[int, bytes]]:
        """Tokens with what they write behind a prefix that ends in them or with them; one in which several end comes
        again for each, the longest last."""
        assert self._prefix is not None
        trie, vocabulary = self.vocabulary.trie, self.vocabulary
        waiting = [(0, state, 0)]
        while waiting:
            node, state, depth = waiting.pop()
            if depth and self._prefix.accepting(state):
                for token in vocabulary.order[trie.begin[node] : trie.stop[node]].tolist():
                    text = vocabulary.tokens[token]
                    assert text is not None
                    yield token, text[depth:]
            for child in range(int(trie.first[node]), int(trie.first[node + 1])):
                byte = int(trie.byte[child])
                lost = loses_space and not depth and byte == _SPACE
                target = state if lost else self._prefix.step(state, byte)
                if target:
                    waiting.append((child, target, depth + 1))
