"""Queries of a few letters, and what a search of them finds."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.audit.query.model import (
    Bounds,
    Decoding,
    PrefixRegex,
    Query,
    Tokenizations,
)
from gateway.audit.searches.best_first import BestFirstSearch, search
from tests.support.naive_search import Asked, Expected

LETTERS = "abcé"


TEXTS = ["".join(some) for length in range(7) for some in itertools.product(LETTERS, repeat=length)]


def listed(pattern: str) -> frozenset[str]:
    return frozenset(text for text in TEXTS if re.fullmatch(pattern, text))


def query_of(asked: Asked, pattern: str, prefix: str | None, **bounds: int) -> Query:
    rule = asked.rule
    return Query(
        query=pattern,
        prefix=None if prefix is None else PrefixRegex(prefix),
        decoding=Decoding(rule.top_k, rule.top_p, rule.temperature, asked.end_of_text, asked.max_tokens),
        tokenizations=Tokenizations.CANONICAL if asked.canonical else Tokenizations.ALL,
        limit=10**6,
        bounds=replace(Bounds(), **bounds),
    )


def assert_found(found: BestFirstSearch, wanted: Sequence[Expected]) -> None:
    """Everything is found, in order, and with all its encodings in the end."""
    given = list(found)
    assert [result.logprob for result in given] == pytest.approx([each.logprob for each in wanted])
    by_text = {each.text: each for each in wanted}
    assert {result.text for result in given} == by_text.keys()
    assert [result.text for result in found.found] == [result.text for result in given]
    for first, last in zip(given, found.found, strict=True):
        each = by_text[last.text]
        assert first.logprob == last.logprob == pytest.approx(each.logprob)
        assert last.encodings == each.encodings
        assert last.string_logprob == pytest.approx(each.string_logprob)
        assert 1 <= first.encodings <= last.encodings
        assert first.logprob <= first.string_logprob <= last.string_logprob + 1e-12
        # Where the rule leaves one token, several ways can be equally likely.
        assert any(
            way.tokens == last.tokens and way.prefix_logprob == pytest.approx(last.prefix_logprob) for way in each.best
        )


def found_in(model: Any, query: Query) -> dict[str, float]:
    """Strings with their probabilities behind the prefix, in order."""
    return {result.text: math.exp(result.logprob) for result in search(model, query)}
