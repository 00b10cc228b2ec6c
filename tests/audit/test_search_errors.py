"""Best-first search when something goes wrong, and checkpoints."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.audit.model import Floats, ModelError, SamplingParams
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import (
    Bounds,
    Decoding,
    Edits,
    Filter,
    Message,
    PrefixRegex,
    PrefixText,
    Query,
    Tokenizations,
)
from gateway.audit.searches.best_first import Result, SearchProgress, digest, search
from gateway.audit.searches.checkpoint import Checkpoint, CheckpointError
from gateway.automata.charset import CharSet
from tests.support.naive_search import vocabulary_of

# -- when something goes wrong -----------------------------------------------------------------------------------------

QUERY = Query(query="[ab]{1,2}[abc]{1,3}", prefix=PrefixRegex("[ab]{1,2}"), limit=10**6, bounds=Bounds(batch=4))
SMALL = vocabulary_of("a", "b", "c", "ab", "bc")


class FaultyToy(Toy):
    """Raises, or answers `wrong` things, in its call of a number; every other call is answered."""

    def __init__(self, at: int, wrong: BaseException | Any) -> None:
        super().__init__(SMALL, seed=4)
        self._at, self._wrong = at, wrong
        self.calls = 0

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> NDArray[Any]:
        self.calls += 1
        rows = np.array(super().__call__(prefixes))
        if self.calls != self._at:
            return rows
        if isinstance(self._wrong, BaseException):
            raise self._wrong
        found: NDArray[Any] = self._wrong(rows)
        return found


def spoilt(number: float) -> Any:
    def wrong(rows: Floats) -> Floats:
        rows[-1, 2] = number
        return rows

    return wrong


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (spoilt(math.nan), "NaN"),
        (spoilt(math.inf), "numbers above 0"),
        (spoilt(0.5), "numbers above 0"),
        (lambda rows: rows[:, :-1], r"shape \(\d, 5\) for \d prefixes and a vocabulary of 6"),
        (lambda rows: rows[0], r"shape \(6,\)"),
        (lambda rows: rows * 0.01, "add up to more than 1"),
        (lambda rows: np.full_like(rows, -np.inf), "no token any probability"),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error(wrong: Any, message: str) -> None:
    wanted = [result.text for result in search(Toy(SMALL, seed=4), QUERY)]
    model = FaultyToy(12, wrong)
    found = search(model, QUERY)
    given: list[str] = []
    with pytest.raises(ModelError, match=message):
        given.extend(result.text for result in found)
    assert [result.text for result in found.found] == wanted[: len(found.found)]
    assert 0 < len(found.found) < len(wanted)
    # The next call is answered, and nothing is missing.
    list(found)
    assert [result.text for result in found.found] == wanted


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("gone")])
@pytest.mark.parametrize("at", [1, 2, 3, 5, 8, 13, 20])
def test_what_was_found_stays_and_the_search_can_be_taken_up_again(error: BaseException, at: int) -> None:
    whole = search(Toy(SMALL, seed=4), QUERY)
    wanted = list(whole)
    model = FaultyToy(at, error)
    found = search(model, QUERY)
    given: list[Result] = []
    with pytest.raises(type(error)):
        while True:
            given.append(next(found))
    assert model.calls == at
    assert [result.text for result in found.found] == [result.text for result in given]
    checkpoint = found.checkpoint()
    # In this process, and in another one.
    assert given + list(found) == wanted and found.found == whole.found
    resumed = search(Toy(SMALL, seed=4), QUERY, resume=Checkpoint.decode(checkpoint.encode()))
    assert resumed.found[: len(given)] == resumed.found
    assert given + list(resumed) == wanted
    assert resumed.found == whole.found
    # What was asked about a prefix before it was known is asked again.
    assert replace(resumed.summary(), nodes=0) == replace(whole.summary(), nodes=0)


@pytest.mark.parametrize("stop", [0, 1, 7, 30])
@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        replace(QUERY, prefix=None, decoding=Decoding(end_of_text=True, top_k=4)),
        replace(QUERY, bounds=Bounds(max_nodes=20, batch=4)),
        replace(QUERY, tokenizations=Tokenizations.CANONICAL),
    ],
)
def test_a_checkpoint_goes_on_with_the_same_results(query: Query, stop: int) -> None:
    model = Toy(SMALL, seed=4)
    whole = search(model, query)
    wanted = list(whole)
    begun = search(model, query, limit=stop)
    given = list(begun)
    data = begun.checkpoint().encode()
    assert json.loads(data)["version"] == 1
    resumed = search(model, query, resume=Checkpoint.decode(data))
    assert given + list(resumed) == wanted
    assert resumed.found == whole.found and resumed.summary() == whole.summary()
    # The limit counts what was given before.
    assert len(list(search(model, query, limit=stop + 1, resume=Checkpoint.decode(data)))) == (stop < len(wanted))


@pytest.mark.parametrize("stop", range(0, 60, 6))
def test_equally_likely_strings_keep_their_order_behind_a_checkpoint(stop: int) -> None:
    """Where a prefix ends at several places, a path takes the place of another that is as likely."""
    model = Toy(vocabulary_of("b", "b", "b", "a", "a", " ", "b", "b ", "b"), contrast=0.0)
    decoding = Decoding(max_tokens=3, end_of_text=True)
    query = Query(query="[ab ]{1,3}", prefix=PrefixRegex("(a|b| )?"), decoding=decoding, limit=60)
    wanted = list(search(model, query))
    begun = search(model, query, limit=stop)
    given = list(begun)
    assert given + list(search(model, query, resume=begun.checkpoint())) == wanted


def test_a_checkpoint_of_something_else_is_refused() -> None:
    model = Toy(SMALL, seed=4)
    begun = search(model, QUERY, limit=3)
    list(begun)
    checkpoint = begun.checkpoint()
    for other in (
        replace(QUERY, query="[ab]{1,2}[abc]{1,2}"),
        replace(QUERY, decoding=Decoding(top_k=3)),
        replace(QUERY, prompt="a"),
        replace(QUERY, preprocess=(Filter(words=("b",)),)),
    ):
        with pytest.raises(CheckpointError, match="a different query"):
            search(model, other, resume=checkpoint)
    with pytest.raises(CheckpointError, match="a different vocabulary"):
        search(Toy(vocabulary_of("a", "b", "c", "ab", "b"), seed=4), QUERY, resume=checkpoint)
    for data in (b"", b"{}", b"[1]", b"\xff", checkpoint.encode().replace(b'"version":1', b'"version":2')):
        with pytest.raises(CheckpointError):
            Checkpoint.decode(data)
    # A path that is none of the language, in a file that somebody changed.
    wrong = replace(checkpoint, paths=(replace(checkpoint.strings[0].best, tokens=(2, 2, 2)),))
    with pytest.raises(CheckpointError, match="does not have"):
        search(model, QUERY, resume=wrong)
    # How much is asked for, and at what pace, is no part of the question.
    search(model, replace(QUERY, limit=5, bounds=Bounds(), source="elsewhere"), resume=checkpoint)


def test_queries_that_ask_for_the_same_have_one_digest() -> None:
    queries = [
        Query(query="a"),
        Query(query="a", prefix=PrefixText("a")),
        Query(query="a", prefix=PrefixRegex("a")),
        Query(query="a", prompt="x"),
        Query(query="a", prompt=(Message("user", "x"),)),
        Query(query="a", preprocess=(Edits(1),)),
        Query(query="a", preprocess=(Edits(1, CharSet.of("b")),)),
        Query(query="a", preprocess=(Filter(words=("b",)),)),
        Query(query="a", preprocess=(Filter(pattern="b"),)),
    ]
    assert len({digest(query) for query in queries}) == len(queries)
    assert digest(replace(queries[0], limit=1, source="f", bounds=Bounds(batch=1))) == digest(queries[0])


def test_progress_is_told_after_every_call_of_the_model() -> None:
    told: list[SearchProgress] = []
    model = FaultyToy(0, None)
    found = search(model, replace(QUERY, limit=5), progress=told.append)
    list(found)
    assert len(told) == model.calls
    assert sum(progress.batch for progress in told) == told[-1].nodes == found.summary().nodes
    assert max(progress.batch for progress in told) == 4
    assert 0 < told[-1].strings <= 5 and told[-1].pending > 0 and told[-1].best < 0


def test_texts_are_shown_by_no_repr() -> None:
    model = Toy(vocabulary_of("secret", "word"), seed=4)
    found = search(model, Query(query="secretword", prefix="secret"))
    shown = repr([list(found), found.found, found.summary(), found.checkpoint()])
    assert "secret" not in shown and "word" not in shown


def test_rules_and_rows_by_themselves() -> None:
    for wrong in (Decoding(top_k=0), Decoding(top_p=0.0), Decoding(top_p=1.5), Decoding(temperature=-1.0)):
        with pytest.raises(ValueError, match="invalid sampling parameters"):
            search(Toy(SMALL), replace(QUERY, decoding=wrong))
    distribution = SamplingParams(top_k=2).distribution(np.log(np.array([0.4, 0.3, 0.3], np.float32)))
    assert distribution.tokens.tolist() == [0, 1, 2], "of equally likely tokens all are left"
    distribution = SamplingParams(top_k=2).distribution(np.array([-np.inf, -1.0, -np.inf]))
    assert distribution.tokens.tolist() == [1]
    assert [each.tolist() for each in distribution.among(np.arange(3))] == [[1], [0.0]]
