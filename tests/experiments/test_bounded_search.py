"""Searches that end early give what was found, and nothing that is not likely enough."""

import math
from dataclasses import replace

import pytest

from experiments.bounded_search import escaped, search_within
from gateway.audit import search
from gateway.audit.language.automaton import Regex, walk
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Query
from gateway.automata.vocabulary import Vocabulary

# The prefix can be written in several ways, and each stands before all of what comes behind it.
VOCABULARY = Vocabulary([b"x", b"y", b"xy", b"a", b"b", b"ab", b"ya", b"ba", b"aa", None], end=[9])
QUERY = Query(query="xy(a|b){1,3}", prefix="xy")


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("limit", [1, 100])
def test_all_that_is_likely_enough_is_found(seed: int, limit: int) -> None:
    model = Toy(VOCABULARY, seed)
    every = [(result.text, result.logprob) for result in search(model, QUERY)]
    for least in (0.5, 0.1, 0.01):
        wanted = [(text, logprob) for text, logprob in every if logprob >= math.log(least)][:limit]
        answer = search_within(model, replace(QUERY, limit=limit), nodes=10_000, least=math.log(least))
        assert [(result.text, result.logprob) for result in answer.results] == wanted


def test_how_it_ended() -> None:
    model = Toy(VOCABULARY, 1)
    assert search_within(model, QUERY, nodes=10_000).ended == "finished"
    assert search_within(model, replace(QUERY, limit=1), nodes=10_000).ended == "limit"
    assert search_within(model, QUERY, nodes=10_000, least=-0.0001).ended == "least"
    some = search_within(model, QUERY, nodes=8)
    assert some.ended == "nodes"
    assert 8 <= some.nodes < search_within(model, QUERY, nodes=10_000).nodes


def test_a_text_as_an_expression() -> None:
    text = r"Wh[a]t? (1+1) *is* {2}|3 ^$.\ -x"
    language = Regex(escaped(text))
    assert language.accepting(walk(language, language.start, text.encode()))
    assert not language.accepting(walk(language, language.start, text.replace(".", "!").encode()))
