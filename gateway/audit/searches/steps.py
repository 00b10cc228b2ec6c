"""Expansion of token paths: the tokens that the language, the sampling parameters and `max_tokens` allow next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gateway.audit.language.automaton import Dfa, walk
from gateway.audit.language.product import TokenArcs
from gateway.audit.matcher import complete_text
from gateway.audit.model import ROUNDING, LanguageModel, ModelError, SamplingParams, TokenDistribution, rows_of
from gateway.audit.query.model import Query, Tokenizations
from gateway.audit.searches.frontier import ENDED, Children, Node, States
from gateway.automata.vocabulary import Ints, Vocabulary

# What comes later can change how the end of a text is written: a tokenizer looks ahead where it cuts a text into words.
# So the last tokens are not held against a sequence before it is complete.
LOOKAHEAD = 2


class Canonical:
    """Keeps a search to the tokenizer's own encodings. `at_text_start`: the strings begin a text."""

    def __init__(self, model: LanguageModel, at_text_start: bool) -> None:
        self._model = model
        self._at_text_start = at_text_start

    def may_become_canonical(self, tokens: Sequence[int]) -> bool:
        """Can the tokens be the beginning of the tokenizer's own encoding of some text?"""
        pieces = self._model.vocabulary.pieces(tokens, self._at_text_start)
        text = complete_text(b"".join(pieces))
        fixed = sum(end <= len(text.encode()) for end in accumulate(map(len, pieces))) - LOOKAHEAD
        if fixed <= 0:
            return True
        begun = list(tokens[:fixed])
        encoded = self._encoded(text)
        if encoded[:fixed] == begun:
            return True
        # Some tokenizers take a word that is a token without looking at their merges (`ignore_merges`: Llama 3's). It
        # says nothing of longer words, and what stands before its last token does.
        *before, _ = encoded
        if before != begun[: len(before)]:
            return False
        return self._encoded(complete_text(b"".join(pieces[:-1])))[:fixed] == begun

    def is_canonical(self, tokens: Sequence[int], text: str) -> bool:
        """Are the tokens the tokenizer's own encoding of the text?"""
        return self._encoded(text) == list(tokens)

    def _encoded(self, text: str) -> list[int]:
        return self._model.encode(text, self._at_text_start)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Steps:
    """The constants of a search, and the expansion of paths by them.

    `context`: the token ids that stand before every path. `at_text_start`: there is no prompt among them. With
    `end_of_text` a string is complete behind a token that ends the text, else wherever the language accepts.
    `max_tokens` may come behind the prefix, an end of the text counted, as a server does. `canonical`: only the
    tokenizer's own encodings count.
    """

    model: LanguageModel
    context: tuple[int, ...]
    rule: SamplingParams
    language: TokenArcs
    end_of_text: bool
    max_tokens: int
    canonical: Canonical | None
    at_text_start: bool

    @classmethod
    def of(cls, model: LanguageModel, query: Query, language: Dfa, **more: Any) -> Self:
        """The steps of a query; `more`: what a subclass has besides. Raises ModelError if the model cannot return what
        the sampling parameters need, and whatever the model raises."""
        decoding = query.decoding
        rule = SamplingParams(decoding.top_k, decoding.top_p, decoding.temperature)
        model.require_top_k(rule.top_k if rule.temperature else 1)
        prompt = query.prompt
        if not isinstance(prompt, str):
            context = model.context([{"role": each.role, "content": each.content} for each in prompt])
        else:
            context = model.context(prompt or None)
        return cls(
            model=model,
            context=context,
            rule=rule,
            language=TokenArcs(language, model.vocabulary),
            end_of_text=decoding.end_of_text,
            max_tokens=decoding.max_tokens,
            canonical=Canonical(model, not prompt) if query.tokenizations is Tokenizations.CANONICAL else None,
            at_text_start=not prompt,
            **more,
        )

    @property
    def vocabulary(self) -> Vocabulary:
        return self.model.vocabulary

    def rows(self, nodes: Sequence[Node]) -> NDArray[np.floating[Any]]:
        """The model's rows after each path. Raises ModelError, and whatever the model raises."""
        return rows_of(self.model, [(*self.context, *node.tokens()) for node in nodes])

    def text(self, node: Node) -> bytes:
        """The text of a path."""
        return b"".join(self.vocabulary.pieces(node.tokens(), self.at_text_start))

    def prefix(self, text: bytes, batch: int) -> Node | None:
        """The path of a prefix in the tokenizer's encoding, with `batch` rows in one call of the model; None if the
        encoding decodes to another text. Raises ModelError, and whatever the model raises."""
        tokens = self.model.encode(text.decode(), self.at_text_start)
        if b"".join(self.vocabulary.pieces(tokens, self.at_text_start)) != text:
            return None
        before = [(*self.context, *tokens[:at]) for at in range(len(tokens))]
        found: list[float] = []
        for begin in range(0, len(before), batch):
            some = slice(begin, begin + batch)
            each = [np.array([token], np.int32) for token in tokens[some]]
            found += (float(logprobs[0]) for logprobs in self.model.logprobs_of(before[some], each))
        logprob = math.fsum(found)
        if math.isnan(logprob) or logprob > ROUNDING * len(found):
            raise ModelError("the model gave NaN, or numbers above 0, as log-probabilities of a prefix's tokens")
        state = walk(self.language.automaton, self.language.automaton.start, text)
        node = Node(None, -1, state, 0, 0, 0, 0.0, 0.0)
        for inside, token in enumerate(tokens, start=1):
            node = Node(node, token, state, 0, inside, 0, 0.0, min(logprob, 0.0))
        return node

    def is_complete(self, node: Node) -> bool:
        """Is it a string of the query?"""
        if node.state != ENDED and (self.end_of_text or not self.language.automaton.accepting(node.state)):
            return False
        if self.canonical is None:
            return True
        tokens = node.tokens()
        if node.state == ENDED:
            tokens = tokens[:-1]
        return self.canonical.is_canonical(tokens, self.text(node).decode())

    def is_extendable(self, node: Node) -> bool:
        """Can a path be extended?"""
        if node.state == ENDED or node.behind >= self.max_tokens:
            return False
        return len(self.read(node)[0]) > 0 or self._may_end(node)

    def read(self, node: Node) -> tuple[Ints, States]:
        """The tokens that the language reads next, and the states behind them."""
        return self.language.arcs(node.state, self.at_text_start and node.parent is None)

    def expand(self, nodes: Sequence[Node]) -> list[Children]:
        """The children of each of some paths after the prefix, with one call of the model."""
        distributions = self.rule.distributions(self.rows(nodes))
        return [self._after(node, distribution) for node, distribution in zip(nodes, distributions, strict=True)]

    def _after(self, node: Node, distribution: TokenDistribution) -> Children:
        tokens, targets = self.read(node)
        if self._may_end(node):
            ends: Ints = np.array(self.vocabulary.end, np.int32)
            tokens = np.concatenate((tokens, ends))
            targets = np.concatenate((targets, np.full(len(ends), ENDED, np.int64)))
        return self.children(node, tokens, targets, distribution)

    def children(self, node: Node, tokens: Ints, targets: States, distribution: TokenDistribution) -> Children:
        """The children of a path, without those outside the distribution, and those that cannot be completed within
        `max_tokens`."""
        places, logprobs = distribution.among(tokens)
        tokens, targets = tokens[places], targets[places]
        if node.behind + 1 >= self.max_tokens:
            keep = self._complete(targets)
            tokens, targets, logprobs = tokens[keep], targets[keep], logprobs[keep]
        return Children(node, tokens, targets, node.logprob + logprobs)

    def _may_end(self, node: Node) -> bool:
        return self.end_of_text and self.language.automaton.accepting(node.state)

    def _complete(self, targets: States) -> NDArray[np.bool_]:
        """Which states may a path end in?"""
        found: NDArray[np.bool_] = targets == ENDED
        if not self.end_of_text:
            states, places = np.unique(targets, return_inverse=True)
            accepting = [self.language.automaton.accepting(state) for state in states.tolist()]
            found = np.array(accepting, bool)[places]
        return found
