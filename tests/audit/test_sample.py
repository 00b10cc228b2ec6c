"""What is drawn follows the law that is said, and its weights make it the model's."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.audit.language.automaton import AutomatonTooLarge
from gateway.audit.model import ModelError, SamplingParams
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Bounds, Decoding, PrefixRegex, Query, Random, Tokenizations, compile
from gateway.audit.searches.sample import Estimate, RandomSearch, Sample, _below, sample
from gateway.automata.vocabulary import Vocabulary
from tests.support.languages import strings
from tests.support.naive_search import distribution, spellings, vocabulary_of

ALPHA = 1e-4  # seeds are fixed: what passes once passes always

SMALL = vocabulary_of("a", "b", "c", "ab", "bc", "aa")


def assert_follows(counts: Mapping[Any, int], shares: Mapping[Any, float]) -> None:
    """Pearson's test, with rare outcomes put together; the statistic's bound is Wilson and Hilferty's."""
    total = sum(counts.values())
    assert counts.keys() <= {outcome for outcome, share in shares.items() if share > 0}
    cells = [(counts.get(outcome, 0), share * total) for outcome, share in shares.items()]
    rare = [cell for cell in cells if cell[1] < 8]
    cells = [cell for cell in cells if cell[1] >= 8]
    if sum(wanted for _, wanted in rare) >= 8:
        cells.append((sum(seen for seen, _ in rare), sum(wanted for _, wanted in rare)))
    freedom = len(cells) - 1
    assert freedom >= 1
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    spread = 2 / (9 * freedom)
    assert statistic < freedom * (1 - spread + NormalDist().inv_cdf(1 - ALPHA) * math.sqrt(spread)) ** 3


def paths(model: Toy, query: Query, prefix: str = "") -> dict[tuple[int, ...], tuple[float, float]]:
    """Every path that can be drawn behind a prefix, with the probability that it is, and that the model says it. All
    tokens are tried, and a language is its list of strings."""
    language = strings(compile(query).language)
    decoding = query.decoding
    rule = SamplingParams(decoding.top_k, decoding.top_p or 1.0, decoding.temperature)
    found: dict[tuple[int, ...], tuple[float, float]] = {}
    begin = tuple(model.encode(prefix))

    def go_on(tokens: tuple[int, ...], drawn: float, said: float) -> None:
        text = model.vocabulary.text(tokens)
        ended = len(tokens) > len(begin) and tokens[-1] in model.vocabulary.end
        if ended or (not decoding.end_of_text and text in language):
            found[tokens] = drawn, said
            return
        left = decoding.max_tokens - (len(tokens) - len(begin))
        shares = {
            token: math.exp(logprob)
            for token, logprob in enumerate(distribution(model([tokens])[0], rule))
            if logprob > -math.inf and _leads_on(model, language, tokens, token, left, decoding.end_of_text)
        }
        if not shares:
            found[tokens] = drawn, 0.0
        whole = sum(shares.values())
        for token, share in shares.items():
            go_on((*tokens, token), drawn * share / whole, said * share)

    go_on(begin, 1.0, 1.0)
    return found


def _leads_on(
    model: Toy, language: frozenset[str], tokens: tuple[int, ...], token: int, left: int, end_of_text: bool
) -> bool:
    text = model.vocabulary.text((*tokens, token))
    if token in model.vocabulary.end:
        return end_of_text and left > 0 and text in language
    if left <= 1:
        return not end_of_text and left == 1 and text in language
    return any(each.startswith(text) for each in language)


QUERIES = [
    Query(query="[ab]{1,3}", decoding=Decoding(end_of_text=True)),
    Query(query="(ab|c)(a|bc)", decoding=Decoding(top_k=5)),
    Query(query="a(bc)?|ab", decoding=Decoding(top_p=0.9, temperature=2.0, end_of_text=True)),
    Query(query="ca?b{1,2}c", decoding=Decoding(max_tokens=3)),
    Query(query="c[abc]{1,3}", prefix="c", decoding=Decoding(end_of_text=True, max_tokens=3, top_k=5)),
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_paths_are_drawn_as_it_is_said(query: Query, seed: int) -> None:
    model = Toy(SMALL, seed, contrast=1.0)
    prefix = query.prefix if isinstance(query.prefix, str) else ""
    wanted = paths(model, query, prefix)
    assert sum(drawn for drawn, _ in wanted.values()) == pytest.approx(1)
    drawn = list(sample(model, query, samples=3000, seed=seed))
    assert_follows(Counter(each.tokens for each in drawn), {path: share for path, (share, _) in wanted.items()})
    for each in drawn:
        share, said = wanted[each.tokens]
        assert each.weight == pytest.approx(said / share)
        if each.text is None:
            assert said == 0
        else:
            assert math.exp(each.logprob) == pytest.approx(said)
            assert each.text == model.vocabulary.text(each.tokens)
            assert each.prefix == len(prefix)


@pytest.mark.parametrize("query", QUERIES)
def test_the_estimate_is_the_probability_that_the_model_says_a_string_of_the_language(query: Query) -> None:
    model = Toy(SMALL, seed=3, contrast=1.0)
    prefix = query.prefix if isinstance(query.prefix, str) else ""
    wanted = paths(model, query, prefix)
    exact = sum(said for _, said in wanted.values())
    assert 0 < exact < 1
    inside = 0
    for seed in range(40):
        drawn = sample(model, query, samples=400, seed=seed)
        list(drawn)
        estimate = drawn.estimate()
        inside += estimate.low <= exact <= estimate.high
        assert estimate.samples == 400 and 0 < estimate.effective <= 400
        assert 0 <= estimate.low <= estimate.probability <= estimate.high <= 1
    # 95 of 100 are expected; of 40, fewer than 33 come in one case of a thousand.
    assert inside >= 33


def test_a_part_of_the_strings_can_be_estimated() -> None:
    query = Query(query="a[abc]{1,2}", prefix="a", decoding=Decoding(end_of_text=True))
    model = Toy(SMALL, seed=3, contrast=1.0)
    wanted = paths(model, query, "a")
    exact = sum(said for tokens, (_, said) in wanted.items() if model.vocabulary.text(tokens).endswith("c"))
    drawn = sample(model, query, samples=4000, seed=1)
    list(drawn)
    part = drawn.estimate(lambda text: text.endswith("c"))
    assert part.low <= exact <= part.high and part.high - part.low < 0.2
    assert part.probability < drawn.estimate().probability
    assert drawn.estimate(lambda text: False).probability == 0


def test_a_model_of_one_mind_has_a_sure_estimate() -> None:
    model = Toy(SMALL, seed=1)
    drawn = sample(model, Query(query="[abc]{1,9}", decoding=Decoding(top_k=1, max_tokens=9)), samples=50)
    assert len({each.tokens for each in drawn}) == 1
    sure = drawn.estimate()
    assert sure.probability in (0.0, 1.0)


def test_what_the_rule_leaves_nothing_of_has_no_weight() -> None:
    vocabulary = vocabulary_of("a", "b")

    class Says(Toy):
        def __call__(self, prefixes: Sequence[Sequence[int]], /) -> NDArray[Any]:
            return np.log([[0.6, 0.3, 0.1] if not prefix else [0.12, 0.8, 0.08] for prefix in prefixes])

    drawn = sample(Says(vocabulary), Query(query="aa", decoding=Decoding(top_k=1)), samples=30)
    assert {(each.text, each.tokens, each.weight) for each in drawn} == {(None, (0,), 0.0)}
    estimate = drawn.estimate()
    # Nothing in thirty: three in thirty are the most that is likely.
    assert replace(estimate, high=0.0) == Estimate(0.0, 0.0, 0.0, 30, 0.0)
    assert estimate.high == pytest.approx(0.095, abs=1e-3)
    drawn = sample(Says(vocabulary), Query(query="[ab]a", decoding=Decoding(top_k=2)), samples=500)
    weights = {each.tokens: each.weight for each in drawn}
    assert weights == pytest.approx({(0, 0): 0.12 / 0.92, (1, 0): 0.12 / 0.92})


# -- prefixes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "count"), [("a|b|bb|bbb", 4), ("[ab]{0,4}", 31), ("(a|b|c)b?|ca{1,5}", 11), ("b", 1)]
)
def test_all_prefixes_are_as_likely(pattern: str, count: int) -> None:
    model = Toy(SMALL, seed=2)
    drawn = list(sample(model, Query(query=f"({pattern})-?c", prefix=PrefixRegex(pattern)), samples=2000, seed=5))
    prefixes = Counter((each.text or model.vocabulary.text(each.tokens))[: each.prefix] for each in drawn)
    assert len(prefixes) == count
    if count > 1:
        assert_follows(prefixes, dict.fromkeys(prefixes, 1 / count))


def test_a_prefix_is_written_as_the_tokenizer_does_it() -> None:
    model = Toy(SMALL, seed=2)
    [each] = sample(model, Query(query="abab[abc]", prefix="abab"), samples=1)
    assert each.tokens[:2] == tuple(model.encode("abab")) and each.prefix == 4
    raw = [float(model([[3] * at])[0][3]) for at in range(2)]
    assert each.prefix_logprob == pytest.approx(sum(raw))
    assert each.text is not None and len(each.text) == 5


@pytest.mark.parametrize("max_tokens", [3, 9])
def test_the_same_tokens_behind_different_prefixes_are_different_paths(max_tokens: int) -> None:
    """Where a prefix continues as a longer one does, its tokens count and those of the longer one do not."""
    model = Toy(vocabulary_of("a", "b", "c"), seed=1)
    query = Query(query="ab?[ab]{1,2}c", prefix=PrefixRegex("ab?"), decoding=Decoding(max_tokens=max_tokens))
    wanted = {len(prefix): paths(model, query, prefix) for prefix in ("a", "ab")}
    drawn = list(sample(model, query, samples=200, seed=3))
    prefixes_of: dict[tuple[int, ...], set[int]] = {}
    for each in drawn:
        share, said = wanted[each.prefix][each.tokens]
        assert each.weight == pytest.approx(said / share)
        if each.text is not None:
            assert math.exp(each.logprob) == pytest.approx(said)
            prefixes_of.setdefault(each.tokens, set()).add(each.prefix)
    assert {1, 2} in prefixes_of.values()


def test_a_prefix_can_be_the_whole_string() -> None:
    [each] = sample(Toy(SMALL, seed=2), Query(query="abc?", prefix="ab"), samples=1)
    assert (each.text, each.logprob, each.weight) == ("ab", 0.0, 1.0)


def test_a_prefix_without_an_end_is_bounded() -> None:
    drawn = list(sample(Toy(SMALL, seed=2), Query(query="a*c", prefix=PrefixRegex("a*")), samples=200))
    lengths = {each.prefix for each in drawn}
    assert max(lengths) <= 256 and len(lengths) > 50


def test_a_prefix_with_an_end_may_be_long() -> None:
    model = Toy(vocabulary_of("a", "b", "a" * 100), seed=2)
    query = Query(query="(a{1,2}|a{6000})b", prefix=PrefixRegex("a{1,2}|a{6000}"), decoding=Decoding(max_tokens=1))
    prefixes = Counter(each.prefix for each in sample(model, query, samples=300, seed=1))
    assert_follows(prefixes, dict.fromkeys((1, 2, 6000), 1 / 3))
    with pytest.raises(AutomatonTooLarge, match="none of them has 256 bytes or less"):
        sample(model, Query(query="a{300,}b", prefix=PrefixRegex("a{300,}")))


def test_a_tokenizer_that_writes_something_else_is_an_error() -> None:
    class Careless(Toy):
        def encode(self, text: str, at_text_start: bool = False) -> list[int]:
            return [0]

    with pytest.raises(ModelError, match="another text"):
        next(sample(Careless(SMALL), Query(query="bc", prefix="b"), samples=1))


def test_the_first_space_of_a_text_is_not_one() -> None:
    vocabulary = Vocabulary([b" hot", b"hot", b"!", b" ", None], end=[4], strips_first_space=True)
    model = Toy(vocabulary, seed=1)
    assert {each.tokens for each in sample(model, Query(query="hot!"), samples=99)} == {(0, 2), (1, 2), (3, 1, 2)}
    prefixed = sample(model, Query(query="hot!", prefix="hot"), samples=9)
    assert {(each.text, each.tokens) for each in prefixed} == {("hot!", (0, 2))}


def test_numbers_of_any_size_are_drawn_evenly() -> None:
    random = np.random.default_rng(1)
    for below in (1, 2, 3, 255, 256, 257):
        counts = Counter(_below(random, below) for _ in range(below * 40))
        assert set(counts) <= set(range(below))
        if below > 1:
            assert_follows(counts, dict.fromkeys(range(below), 1 / below))
    large = 3 << 200
    drawn = [_below(random, large) for _ in range(3000)]
    assert max(drawn) < large
    assert_follows(Counter(each >> 200 for each in drawn), dict.fromkeys(range(3), 1 / 3))


# -- canonical encodings -----------------------------------------------------------------------------------------------


def test_canonical_samples_are_the_tokenizers_own_encodings() -> None:
    query = Query(query="[abc]{1,3}", decoding=Decoding(end_of_text=True), tokenizations=Tokenizations.CANONICAL)
    model = Toy(SMALL, seed=3, contrast=1.0)
    drawn = sample(model, query, samples=4000, seed=1)
    texts = [each for each in drawn if each.text is not None]
    assert 500 < len(texts) < 4000
    assert all(list(each.tokens[:-1]) == model.encode(each.text or "") for each in texts)
    exact = 0.0
    for text in strings(compile(query).language):
        tokens = [*model.encode(text), *SMALL.end]
        assert tuple(tokens[:-1]) in set(spellings(text.encode(), SMALL.tokens))
        exact += math.exp(sum(float(model([tokens[:at]])[0][token]) for at, token in enumerate(tokens)))
    estimate = drawn.estimate()
    assert estimate.low <= exact <= estimate.high and estimate.high - estimate.low < 0.1


# -- seeds, batches, failures ------------------------------------------------------------------------------------------

QUERY = Query(
    query="[ab]{1,2}[abc]{1,3}", prefix=PrefixRegex("[ab]{1,2}"), traversal=Random(60, 7), bounds=Bounds(batch=8)
)


def test_equal_seeds_draw_the_same_however_many_at_a_time() -> None:
    model = Toy(SMALL, seed=1)
    wanted = list(sample(model, QUERY))
    assert len(wanted) == 60
    for batch in (1, 7, 64):
        assert list(sample(model, QUERY, batch=batch)) == wanted
    assert list(sample(model, QUERY, samples=25)) == wanted[:25]
    assert list(sample(model, replace(QUERY, traversal=Random(60, 8)))) != wanted


def test_the_model_is_asked_about_each_path_once_and_many_in_a_call() -> None:
    asked: list[list[tuple[int, ...]]] = []

    class Counting(Toy):
        def __call__(self, prefixes: Sequence[Sequence[int]], /) -> NDArray[Any]:
            asked.append([tuple(prefix) for prefix in prefixes])
            return super().__call__(prefixes)

    drawn = sample(Counting(SMALL, 1), replace(QUERY, query="[abc]{3}", prefix=None), samples=300, batch=100)
    list(drawn)
    every = list(itertools.chain.from_iterable(asked))
    assert len(every) == len(set(every)) and len(asked) < 15


class Breaking(Toy):
    """Raises in some calls."""

    def __init__(self, at: Iterator[int]) -> None:
        super().__init__(SMALL, 1)
        self._at = set(at)
        self._calls = 0

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> NDArray[Any]:
        self._calls += 1
        if self._calls in self._at:
            raise KeyboardInterrupt
        return super().__call__(prefixes)


def test_what_was_drawn_stays_when_the_model_fails() -> None:
    wanted = list(sample(Toy(SMALL, 1), QUERY))
    drawn = sample(Breaking(iter([1, 3, 4, 9])), QUERY)
    given: list[Sample] = []
    interrupted = 0
    while len(given) < 60:
        try:
            given.append(next(drawn))
        except KeyboardInterrupt:
            interrupted += 1
            if given:
                assert drawn.estimate().samples == len(given)
    assert interrupted == 4 and given == wanted
    assert next(drawn, None) is None


def test_estimates_need_samples() -> None:
    drawn = sample(Toy(SMALL, 1), QUERY)
    assert isinstance(drawn, RandomSearch)
    with pytest.raises(ValueError, match="nothing was drawn"):
        drawn.estimate()
    next(drawn)
    assert drawn.estimate().samples == 1 and drawn.estimate().high == 1.0
    assert "ab" not in repr(next(drawn))
