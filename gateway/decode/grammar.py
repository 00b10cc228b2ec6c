"""JSON schemas and grammars as constraints, through llguidance (the extra `decode`).

Such languages need a parser where a regular expression needs an automaton, and llguidance's is a good one. It is put
behind the interface of `gateway.decode.guide`: a state is the tokens so far, and the parsers that stand there are kept
while there is room.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import llguidance
import numpy as np

from gateway.automata.vocabulary import Ints, Vocabulary
from gateway.decode.guide import NotAllowed

MAX_PARSERS = 256

# Where only one text can follow, llguidance would allow one way to spell it only.
_EVERY_SPELLING = '\n%llguidance {"no_forcing": true}\n'


class GrammarError(ValueError):
    """A schema or grammar that llguidance refuses, or a text that its parser gives up on."""


class GrammarGuide:
    """A constraint whose states are the tokens so far.

    `grammar` is in llguidance's dialect of Lark. Raises GrammarError if it is refused, and from `allowed` and `advance`
    if a text is too much for the parser; ValueError for a vocabulary without an end of text, or in which not every byte
    is a token: the parser knows what may come next, not whether tokens can spell it.
    """

    def __init__(self, grammar: str, vocabulary: Vocabulary) -> None:
        if not vocabulary.end:
            raise ValueError("the vocabulary has no token that ends a text: an answer could not end")
        if not vocabulary.spells_all:
            raise ValueError(
                "a grammar needs a vocabulary in which every byte is a token: others may not spell what remains"
            )
        self.vocabulary = vocabulary
        self._ends = frozenset(vocabulary.end)
        matcher = llguidance.LLMatcher(tokenizer_of(vocabulary), grammar + _EVERY_SPELLING, log_level=0)
        _refuse_errors(matcher)
        self._matchers: OrderedDict[tuple[int, ...], llguidance.LLMatcher] = OrderedDict({(): matcher})
        self._root = matcher.deep_copy()

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any], vocabulary: Vocabulary) -> GrammarGuide:
        """The JSON texts that satisfy a schema, without superfluous blanks. Raises as the class does."""
        options = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        whole = {**schema, "x-guidance": {**options, **schema.get("x-guidance", {})}}
        return cls(f"start: %json {json.dumps(whole)}", vocabulary)

    def start(self) -> tuple[int, ...]:
        return ()

    def accepting(self, state: tuple[int, ...]) -> bool:
        return not self._has_ended(state) and self._matcher(state).is_accepting()

    def allowed(self, state: tuple[int, ...]) -> Ints:
        if self._has_ended(state):
            return np.empty(0, np.int32)
        matcher = self._matcher(state)
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        _refuse_errors(matcher)
        allowed = np.unpackbits(bits, count=len(self.vocabulary), bitorder="little")
        return np.flatnonzero(allowed).astype(np.int32)

    def advance(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        after = (*state, token)
        if after not in self._matchers:
            matcher = None if self._has_ended(state) else self._matcher(state).deep_copy()
            if matcher is None or not matcher.consume_token(token):
                raise NotAllowed(f"token {token} may not come here: the grammar does not allow it")
            self._keep(after, matcher)
        return after

    def _has_ended(self, state: tuple[int, ...]) -> bool:
        return bool(state) and state[-1] in self._ends

    def _matcher(self, state: tuple[int, ...]) -> llguidance.LLMatcher:
        matcher = self._matchers.get(state)
        if matcher is None:
            matcher = self._root.deep_copy()
            matcher.consume_tokens(list(state))
            _refuse_errors(matcher)
            self._keep(state, matcher)
        self._matchers.move_to_end(state)
        return matcher

    def _keep(self, state: tuple[int, ...], matcher: llguidance.LLMatcher) -> None:
        self._matchers[state] = matcher
        if len(self._matchers) > MAX_PARSERS:
            self._matchers.popitem(last=False)


def _refuse_errors(matcher: llguidance.LLMatcher) -> None:
    if matcher.is_error():
        raise GrammarError(matcher.get_error())


def tokenizer_of(vocabulary: Vocabulary) -> llguidance.LLTokenizer:
    """The vocabulary as llguidance takes it."""
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Described(vocabulary)), eos_token=list(vocabulary.end))


class _Described:
    """A vocabulary with the names that llguidance looks for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.end[0]
        self.bos_token_id = None
        self.tokens = [b"" if text is None else text for text in vocabulary.tokens]
        self.special_token_ids = [token for token, text in enumerate(vocabulary.tokens) if text is None]
        self._by_byte = {text[0]: token for token, text in enumerate(self.tokens) if len(text) == 1}

    def __call__(self, text: bytes) -> list[int]:
        """The tokens of a text that must follow. None is ever forced, so any spelling will do."""
        return [self._by_byte[byte] for byte in text]
