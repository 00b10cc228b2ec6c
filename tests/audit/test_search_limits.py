"""Best-first search: preprocessors, sizes, and models that return their likeliest tokens only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gateway.audit.model import Floats, ModelError
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import (
    Bounds,
    Decoding,
    Edits,
    Filter,
    PrefixRegex,
    PreprocessTarget,
    Query,
    Synonyms,
    When,
    compile,
)
from gateway.audit.searches.best_first import search
from gateway.audit.searches.frontier import Children, Frontier, Node
from gateway.automata.charset import CharSet
from gateway.automata.vocabulary import Ints, Vocabulary
from tests.support.audit_search import LETTERS, assert_found
from tests.support.languages import strings
from tests.support.naive_search import Asked, expected, vocabulary_of

# -- preprocessors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize(
    "step",
    [
        Filter(words=("b", "cc")),
        Filter(pattern="b.|c"),
        Edits(1, CharSet.of("a") | CharSet.of("c")),
        Edits(1, CharSet.of("b"), on=PreprocessTarget.PREFIX),
        Synonyms((("ab", ("c", "ca")),)),
    ],
)
def test_what_preprocessors_make_is_searched_as_any_language(step: Any, when: When) -> None:
    model = Toy(vocabulary_of(*"abc ", "ab", " c", "ca"), seed=5)
    query = Query(query="a [abc]{1,2}", prefix="a ", preprocess=(replace(step, when=when),), limit=10**6)
    compiled = compile(query)
    assert compiled.prefix is not None
    asked = Asked(strings(compiled.language), strings(compiled.prefix))
    found = search(model, query)
    assert_found(found, expected(model, asked))
    if isinstance(step, Filter) and step.words:
        unwanted = {f"a {word}" for word in step.words}
        plain = {result.text for result in search(model, replace(query, preprocess=()))}
        assert {result.text for result in found.found} == plain - unwanted < plain


# -- sizes -------------------------------------------------------------------------------------------------------------

DIGITS = vocabulary_of(*"0123456789")


class Knowing(Toy):
    """Knows some texts by heart, each as likely as the others; everything else is drawn from a seed."""

    def __init__(self, vocabulary: Vocabulary, *texts: str, seed: int = 0) -> None:
        super().__init__(vocabulary, seed)
        self._known = [tuple(self.encode(text)) for text in texts]

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
        return np.array([self._mixed(tuple(prefix)) for prefix in prefixes])

    def _mixed(self, prefix: tuple[int, ...]) -> Floats:
        shares = 0.1 * np.exp(self._row(prefix[-2:]))
        following = [known[len(prefix)] for known in self._known if known[: len(prefix)] == prefix != known]
        for token in following:
            shares[token] += 0.9 / len(following)
        found: Floats = np.log(shares / shares.sum())
        return found


def test_the_first_strings_of_a_billion_come_at_once() -> None:
    numbers = ("314159265", "271828182", "141421356")
    found = search(Knowing(DIGITS, *numbers), Query(query="[0-9]{9}"))
    assert {next(found).text for _ in numbers} == {*numbers}
    assert found.summary().nodes < 300


def test_an_endless_language_is_searched_as_far_as_it_is_asked_for() -> None:
    found = search(Toy(DIGITS), Query(query="[0-9]*", limit=50))
    given = list(found)
    assert len(given) == 50 and given[0].text == ""
    assert [result.logprob for result in given] == sorted((result.logprob for result in given), reverse=True)
    assert not found.summary().finished
    with pytest.raises(StopIteration):
        next(found)


@pytest.mark.parametrize("batch", [1, 16])
def test_no_more_paths_wait_than_there_is_room_for(batch: int) -> None:
    """What is dropped is said, and what is more likely than that is exact."""
    model = Toy(DIGITS, seed=7, contrast=1.0)
    query = Query(query="[0-9]{4}", limit=10**6)
    whole = {result.text: result.logprob for result in search(model, query, batch=batch)}
    assert len(whole) == 10**4
    pending: list[int] = []
    capacity = replace(query, bounds=Bounds(max_nodes=300, batch=batch))
    bounded = search(model, capacity, progress=lambda progress: pending.append(progress.pending))
    given = {result.text: result.logprob for result in bounded}
    assert max(pending) <= 300 and len(pending) > 10
    exact_to = bounded.summary().exact_to
    assert exact_to is not None and bounded.summary().finished
    exact = {text: logprob for text, logprob in whole.items() if logprob > exact_to}
    assert len(exact) >= 3
    assert list(given.items())[: len(exact)] == list(exact.items())
    assert len(exact) < len(given) < len(whole) and given.items() <= whole.items()


def test_the_frontier_drops_the_least_likely() -> None:
    frontier = Frontier(8)
    root = Node(None, -1, 1, 0, 0, 0, 0.0, 0.0)

    def children(*logprobs: float) -> Children:
        count = len(logprobs)
        return Children(root, np.arange(count, dtype=np.int32), np.ones(count, np.int64), np.array(logprobs))

    frontier.push(children(-1.0, -9.0, -2.0))
    frontier.push(children())
    frontier.push(children(-3.0, -4.0, -5.0, -6.0))
    frontier.push(root)
    assert len(frontier) == 8 and frontier.dropped == -math.inf
    frontier.push(children(-7.0, -8.0, -0.5))
    assert len(frontier) == 6 and frontier.dropped == -5.0
    assert frontier.best == 0.0
    assert [frontier.pop().logprob for _ in range(6)] == [0.0, -0.5, -1.0, -2.0, -3.0, -4.0]
    assert len(frontier) == 0 and frontier.best == -math.inf
    # Of equally likely ones so many stay as there is room for.
    frontier.push(children(*[-1.0] * 30))
    assert len(frontier) == 6 and frontier.dropped == -1.0


def test_a_long_prefix_is_not_tried_in_all_its_encodings() -> None:
    text = "abcabcabca" * 40
    model = Knowing(vocabulary_of("a", "b", "c", "ab", "bc", "abc", "x"), f"{text}x", seed=1)
    found = search(model, Query(query=f"{text}[ax]", prefix=text))
    [first, *_] = found
    assert (first.text, first.prefix) == (f"{text}x", 400)
    summary = found.summary()
    assert summary.prefixes_cut and summary.prefixes is not None and 1 <= summary.prefixes <= 1000
    assert summary.nodes < 10_000
    best = found.found[0]
    assert best.prefix_logprob == pytest.approx(len(model.encode(text)) * math.log(0.95), abs=15)


class Averse(Toy):
    """Hardly ever says one of the tokens."""

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
        rows = super().__call__(prefixes)
        rows[:, self.encode("ab")[0]] -= 30.0
        return np.array([row - np.log(np.exp(row).sum()) for row in rows])


def test_the_tokenizers_own_encoding_of_a_prefix_is_never_left_out() -> None:
    model = Averse(vocabulary_of("a", "b", "ab", "x", "y"), seed=6)
    prefix = "ab" * 12
    own = tuple(model.encode(prefix))
    assert len(own) == 12
    found = search(model, Query(query=f"{prefix}[xy]", prefix=prefix, bounds=Bounds(prefixes=5)))
    assert len(list(found)) == 2
    assert found.summary().prefixes_cut and found.summary().prefixes == 2
    for result in found.found:
        path = (*own, *model.encode(result.text[-1]))
        assert result.logprob >= float(model([own])[0][path[-1]]) - 1e-9
        assert result.encodings == 2
    # Where nothing is left out it is one of the others.
    found = search(Toy(model.vocabulary), Query(query="ab[xy]", prefix="ab"))
    assert len(list(found)) == 2
    assert [result.encodings for result in found.found] == [2, 2] and not found.summary().prefixes_cut


def test_a_prefix_without_an_end_is_tried_up_to_the_bound() -> None:
    model = Toy(vocabulary_of("a", "b", "x"), seed=2)
    one = Decoding(max_tokens=1)
    query = Query(query="[ab]*x", prefix=PrefixRegex("[ab]*"), decoding=one, bounds=Bounds(prefixes=20), limit=10**6)
    found = search(model, query)
    assert len({result.text for result in found}) == 20
    assert found.summary().prefixes == 20 and found.summary().prefixes_cut and found.summary().finished
    texts = ("".join(some) for length in range(13) for some in itertools.product("ab", repeat=length))
    likely = sorted((_raw(model, text) for text in texts), reverse=True)[:20]
    assert sorted((result.prefix_logprob for result in found.found), reverse=True) == pytest.approx(likely)


def _raw(model: Toy, text: str) -> float:
    tokens = model.encode(text)
    return sum(float(model([tokens[:at]])[0][token]) for at, token in enumerate(tokens))


# -- models that tell their likeliest tokens only ----------------------------------------------------------------------


class Partial(Toy):
    """Tells the likeliest tokens in a row, and any other when it is asked for it."""

    most = 0
    asked = 0

    def require_top_k(self, top_k: int | None) -> None:
        if top_k is None:
            raise ModelError("not all")
        self.most = top_k

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
        rows = super().__call__(prefixes)
        least = np.sort(rows, axis=1)[:, -self.most :][:, :1]
        found: Floats = np.where(rows >= least, rows, -np.inf)
        return found

    def logprobs_of(self, prefixes: Sequence[Sequence[int]], tokens: Sequence[Ints]) -> list[Floats]:
        self.asked += len(prefixes)
        rows = super().__call__(prefixes)
        return [row[some].astype(np.float64) for row, some in zip(rows, tokens, strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_a_model_that_tells_the_likeliest_tokens_is_enough_for_top_k(seed: int) -> None:
    vocabulary = vocabulary_of(*LETTERS, "ab", "bc", "aé")
    query = Query(
        query="[abc]{1,2}[abcé]{1,2}", prefix=PrefixRegex("[abc]{1,2}"), decoding=Decoding(top_k=2), limit=999
    )
    model = Partial(vocabulary, seed)
    found = search(model, query)
    wanted = search(Toy(vocabulary, seed), query)
    assert list(found) == list(wanted) and found.found == wanted.found
    assert model.most == 2 and model.asked > 0
    with pytest.raises(ModelError, match="not all"):
        search(model, replace(query, decoding=Decoding()))
    model.logprobs_of = lambda prefixes, tokens: [np.full(len(some), math.nan) for some in tokens]  # type: ignore[method-assign]
    with pytest.raises(ModelError, match="of a prefix's tokens"):
        list(search(model, query))
    search(model, replace(query, decoding=Decoding(temperature=0)))
    assert model.most == 1
