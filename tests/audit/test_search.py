"""The engine finds what trying everything finds, in that order, whatever the rule, the prefix and the tokens."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import BPE

import gateway.audit
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
    PreprocessTarget,
    Query,
    Synonyms,
    Tokenizations,
    When,
    compile,
)
from gateway.audit.searches.best_first import BestFirstSearch, Result, SearchProgress, digest, search
from gateway.audit.searches.canonical import LOOKAHEAD, Canonical
from gateway.audit.searches.checkpoint import Checkpoint, CheckpointError
from gateway.audit.searches.frontier import Children, Frontier, Node
from gateway.automata.charset import CharSet
from gateway.automata.vocabulary import Ints, Vocabulary
from gateway.policy.value import ConfigError
from tests.support.examples import examples
from tests.support.languages import strings
from tests.support.naive_search import Asked, Expected, Told, expected, vocabulary_of

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


# -- everything, compared with trying everything -----------------------------------------------------------------------

PATTERNS = ["(a|b)(a|b|c)?", "a(bc)?|ab", "[abc]{1,3}", "(ab|abc|c)(a|bc)?", "a{0,4}", "é(a|é)?", "(a|é){0,2}b?"]
PREFIXES = [None, "a", "a|ab", "[ab]?", "(ab)?", "a{0,2}", "é|a", "ab?c?", "é"]
LONGER = ["ab", "bc", "abc", "aa", "ca", "aé", "a", b"\xc3", b"\xa9", b"a\xc3", b"\xa9a"]


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    pieces: list[str | bytes] = [
        *draw(st.permutations([*LETTERS, *draw(st.lists(st.sampled_from(LONGER), max_size=6))]))
    ]
    if draw(st.booleans()):
        # Not everything can be written then.
        del pieces[draw(st.integers(0, len(pieces) - 1))]
    return vocabulary_of(*pieces, ends=draw(st.integers(1, 2)))


RULES = st.builds(
    SamplingParams,
    top_k=st.sampled_from([None, None, 1, 2, 4, 100]),
    top_p=st.sampled_from([1.0, 1.0, 0.3, 0.8]),
    temperature=st.sampled_from([1.0, 1.0, 0.5, 3.0, 0.0]),
)


@settings(max_examples=examples(200), deadline=None)
@given(
    vocabulary=vocabularies(),
    pattern=st.sampled_from(PATTERNS),
    prefix=st.sampled_from(PREFIXES),
    rule=RULES,
    end_of_text=st.booleans(),
    max_tokens=st.sampled_from([99, 99, 1, 2, 3]),
    contrast=st.sampled_from([0.3, 2.0]),
    seed=st.integers(0, 10**6),
)
def test_it_finds_what_trying_everything_finds(
    vocabulary: Vocabulary,
    pattern: str,
    prefix: str | None,
    rule: SamplingParams,
    end_of_text: bool,
    max_tokens: int,
    contrast: float,
    seed: int,
) -> None:
    model = Toy(vocabulary, seed, contrast=contrast)
    prefixes = None if prefix is None else listed(prefix)
    language = frozenset(
        text for text in listed(pattern) if prefixes is None or any(text.startswith(each) for each in prefixes)
    )
    asked = Asked(language, prefixes, rule, end_of_text, max_tokens)
    if not language:
        with pytest.raises(ConfigError):
            search(model, query_of(asked, pattern, prefix))
        return
    wanted = expected(model, asked)
    for batch in (1, 64):
        found = search(model, query_of(asked, pattern, prefix, batch=batch))
        assert_found(found, wanted)
        summary = found.summary()
        assert summary.finished and summary.exact_to is None and not summary.prefixes_cut
        assert summary.strings == len(wanted)


@settings(max_examples=examples(150), deadline=None)
@given(
    pieces=st.lists(st.sampled_from(LONGER), max_size=6),
    pattern=st.sampled_from(PATTERNS),
    prefix=st.sampled_from([None, "a", "[ab]?", "é|a", "ab?c?"]),
    end_of_text=st.booleans(),
    batch=st.sampled_from([1, 64]),
    seed=st.integers(0, 10**6),
)
def test_canonical_is_the_tokenizers_own_encoding(
    pieces: list[str | bytes], pattern: str, prefix: str | None, end_of_text: bool, batch: int, seed: int
) -> None:
    # The longest token that fits can always be gone on from.
    model = Toy(vocabulary_of(*LETTERS, b"\xc3", b"\xa9", *pieces), seed)
    prefixes = None if prefix is None else listed(prefix)
    language = frozenset(
        text for text in listed(pattern) if prefixes is None or any(text.startswith(each) for each in prefixes)
    )
    if language:
        asked = Asked(language, prefixes, end_of_text=end_of_text, canonical=True)
        found = search(model, query_of(asked, pattern, prefix, batch=batch))
        assert_found(found, expected(model, asked))
        assert all(result.encodings == 1 for result in found.found)


# -- by hand -----------------------------------------------------------------------------------------------------------


def found_in(model: Any, query: Query) -> dict[str, float]:
    """Strings with their probabilities behind the prefix, in order."""
    return {result.text: math.exp(result.logprob) for result in search(model, query)}


def test_what_the_rule_leaves_has_the_whole_probability() -> None:
    model = Told(vocabulary_of("a", "b", "c"), {(): {"a": 0.5, "b": 0.3, "c": 0.2}})
    assert found_in(model, Query(query="[abc]")) == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2})
    for decoding, left in (
        (Decoding(top_k=2), {"b": 0.3 / 0.8}),
        (Decoding(top_k=1), {}),
        (Decoding(top_p=0.6), {"b": 0.3 / 0.8}),
        (Decoding(top_p=0.5), {}),
        (Decoding(top_p=0.501), {"b": 0.3 / 0.8}),
        (Decoding(temperature=0.5), {"b": 9 / 38, "c": 4 / 38}),
        # The temperature comes first, as servers do it: then `a` alone has two thirds.
        (Decoding(temperature=0.5, top_p=0.65), {}),
        (Decoding(top_p=0.65), {"b": 0.3 / 0.8}),
        (Decoding(top_k=2, top_p=0.6), {}),
        (Decoding(temperature=0), {}),
    ):
        assert found_in(model, Query(query="b|c", decoding=decoding)) == pytest.approx(left), decoding


def test_the_prefix_is_never_eliminated() -> None:
    model = Told(
        vocabulary_of("x", "y", "a", "b"),
        {(): {"a": 0.9, "x": 0.1}, ("x",): {"a": 0.99, "y": 0.01}, ("x", "y"): {"a": 0.7, "b": 0.3}},
    )
    query = Query(query="xy(a|b)", prefix="xy", decoding=Decoding(top_k=1))
    [result] = search(model, query)
    assert result.text == "xya" and result.logprob == 0.0 and result.prefix == 2
    assert result.prefix_logprob == pytest.approx(math.log(0.1 * 0.01))
    # Without a prefix the rule eliminates it at once.
    assert found_in(model, replace(query, prefix=None)) == {}


def test_a_token_that_straddles_the_prefix_is_subject_to_the_rule() -> None:
    model = Told(
        vocabulary_of("x", "y", "ya", "a"),
        {("x",): {"y": 0.6, "ya": 0.4}, ("x", "y"): {"a": 0.5, "x": 0.5}},
    )
    query = Query(query="xya", prefix="xy")
    [result] = search(model, query)
    # Behind `xy` the string has a half; behind `x`, and with the token `ya`, four tenths.
    assert math.exp(result.logprob) == pytest.approx(0.5)
    both = search(model, query)
    list(both)
    assert math.exp(both.found[0].string_logprob) == pytest.approx(0.9) and both.found[0].encodings == 2
    greedy = search(model, replace(query, decoding=Decoding(top_k=1)))
    list(greedy)
    assert greedy.found[0].encodings == 1, "`ya` is not the likeliest, so it is none of the ways"


def test_prefixes_that_are_less_likely_come_later_and_can_be_left_out() -> None:
    model = Told(
        vocabulary_of("a", "b", "c", "x", "y"),
        {
            (): {"a": 0.2, "b": 0.5, "c": 0.3},
            ("a",): {"x": 0.9, "y": 0.1},
            ("b",): {"x": 0.4, "y": 0.6},
            ("c",): {"x": 0.7, "y": 0.3},
        },
    )
    query = Query(query="[abc][xy]", prefix=PrefixRegex("[abc]"))
    assert list(found_in(model, query)) == ["ax", "cx", "by", "bx", "cy", "ay"]
    for most, left in ((1, ["by", "bx"]), (2, ["cx", "by", "bx", "cy"])):
        cut = search(model, replace(query, bounds=Bounds(prefixes=most)))
        assert [result.text for result in cut] == left
        assert cut.summary().prefixes == most and cut.summary().prefixes_cut
    whole = search(model, query)
    list(whole)
    assert whole.summary().prefixes == 3 and not whole.summary().prefixes_cut


def test_the_end_of_the_text_counts_where_it_is_asked_for() -> None:
    model = Told(
        vocabulary_of("a", "b"),
        {(): {"a": 1.0}, ("a",): {"b": 0.7, "</s>": 0.3}, ("a", "b"): {"</s>": 0.6, "a": 0.4}},
    )
    query = Query(query="ab?", decoding=Decoding(end_of_text=False))
    assert found_in(model, query) == pytest.approx({"a": 1.0, "ab": 0.7})
    ended = replace(query, decoding=Decoding(end_of_text=True))
    assert found_in(model, ended) == pytest.approx({"ab": 0.42, "a": 0.3})
    assert [result.tokens for result in search(model, ended)] == [(0, 1, 2), (0, 2)]
    # The rule can eliminate the end of the text as any other token.
    assert found_in(model, replace(query, decoding=Decoding(end_of_text=True, top_k=1))) == {"ab": 1.0}


def test_max_tokens_counts_what_comes_behind_the_prefix_and_the_end_of_the_text() -> None:
    model = Toy(vocabulary_of("a"), seed=1)
    query = Query(query="a{0,6}", prefix="aa", decoding=Decoding(max_tokens=2))
    assert sorted(found_in(model, query)) == ["aa", "aaa", "aaaa"]
    ended = replace(query, decoding=Decoding(max_tokens=2, end_of_text=True))
    assert sorted(found_in(model, ended)) == ["aa", "aaa"]
    assert sorted(found_in(model, replace(ended, decoding=Decoding(max_tokens=1, end_of_text=True)))) == ["aa"]


def test_every_string_is_given_once() -> None:
    """All 16 ways to write five letters, of which one is the tokenizer's own."""
    pieces = {"hello"[begin:end] for begin in range(5) for end in range(begin + 1, 6)}
    model = Toy(vocabulary_of(*sorted(pieces)), seed=3)
    found = search(model, Query(query="hello"))
    [result] = found
    assert found.found[0].encodings == 16 and result.text == "hello"
    total = math.exp(found.found[0].string_logprob)
    assert math.exp(result.logprob) < total < 1
    canonical = search(model, Query(query="hello", tokenizations=Tokenizations.CANONICAL))
    assert [result.tokens for result in canonical] == [tuple(model.encode("hello"))]


def test_a_word_that_no_merges_write_is_the_beginning_of_another() -> None:
    """As where a tokenizer takes words that are tokens before it looks at its merges: Llama 3's does."""
    vocabulary = vocabulary_of("a", "b", "c", "d", "abc")
    encode = Tokenizer(BPE({"a": 0, "b": 1, "c": 2, "d": 3, "abc": 4}, [], ignore_merges=True)).encode

    class Whole(Toy):
        def encode(self, text: str, at_text_start: bool = False) -> list[int]:
            return list(encode(text).ids)

    found = search(Whole(vocabulary, seed=1), Query(query="abcd?", tokenizations=Tokenizations.CANONICAL))
    assert {result.text: result.tokens for result in found} == {"abc": (4,), "abcd": (0, 1, 2, 3)}


def test_e14_a_path_that_departs_from_the_tokenizers_is_left_two_tokens_later() -> None:
    model = Toy(vocabulary_of("a", "b", "ab", "c"))
    canonical = Canonical(model, at_text_start=False)
    assert LOOKAHEAD == 2
    assert [canonical.may_become_canonical(tokens) for tokens in ([0], [0, 1], [2, 3], [2, 2, 3, 0])] == [True] * 4
    assert [canonical.may_become_canonical(tokens) for tokens in ([0, 1, 3], [0, 1, 3, 3], [2, 0, 1, 3])] == [False] * 3


def test_e14_a_path_behind_a_prefix_is_looked_at_once() -> None:
    """`ab` begins behind the prefix `a`, and does not straddle the end of the prefix `aa` as well."""
    asked: list[tuple[int, ...]] = []

    class Noting(Toy):
        def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
            asked.extend(map(tuple, prefixes))
            return super().__call__(prefixes)

    query = Query(query="a{1,2}ba*", prefix=PrefixRegex("a{1,2}"), decoding=Decoding(max_tokens=3))
    found = search(Noting(vocabulary_of("a", "b", "ab"), seed=1), query)
    assert {result.text for result in found} >= {"ab", "aab"} and {each.encodings for each in found.found} == {2}
    assert asked.count((2,)) == asked.count((0, 2)) == 1


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.floats(-60, 0, width=32), min_size=1, max_size=12),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([0.0, 1e-3, 0.1, 0.7, 1.0, 1.3, 100.0]),
    st.sampled_from([None, 1, 2, 5]),
    st.sampled_from([1.0, 0.9, 0.1, 1e-9]),
)
def test_e14_no_token_is_more_likely_than_certain(
    row: list[float], kind: type, temperature: float, top_k: int | None, top_p: float
) -> None:
    distribution = SamplingParams(top_k=top_k, top_p=top_p, temperature=temperature).distribution(np.array(row, kind))
    _, logprobs = distribution.among(np.arange(len(row)))
    assert len(logprobs) and (logprobs <= 0).all()
    assert math.fsum(np.exp(logprobs)) == pytest.approx(1)


def test_the_first_space_of_a_text_is_not_one() -> None:
    vocabulary = Vocabulary([b" hot", b"hot", b"!", b" ", None], end=[4], strips_first_space=True)
    model = Toy(vocabulary, seed=1)
    begun = search(model, Query(query="hot!"))
    assert sorted(tokens for tokens in _all_tokens(begun)) == [(0, 2), (1, 2), (3, 1, 2)]
    after = search(model, Query(query="hot!", prompt="!"))
    assert _all_tokens(after) == [(1, 2)]
    canonical = search(model, Query(query="hot!", tokenizations=Tokenizations.CANONICAL))
    assert [result.tokens for result in canonical] == [(0, 2)]
    prefixed = search(model, Query(query="hot!", prefix="hot", tokenizations=Tokenizations.CANONICAL))
    assert [(result.tokens, result.prefix) for result in prefixed] == [((0, 2), 3)]
    every = search(model, Query(query="hot!", prefix="hot"))
    assert sorted(_all_tokens(every)) == [(0, 2), (1, 2), (3, 1, 2)] and every.found[0].prefix == 3
    assert every.summary().prefixes == 3


def _all_tokens(found: BestFirstSearch) -> list[tuple[int, ...]]:
    list(found)
    checkpoint = found.checkpoint()
    return [tokens for string in checkpoint.strings for tokens, _ in string.encodings]


def test_a_prompt_stands_before_the_string() -> None:
    shares = {("x", "a"): {"b": 1.0}, ("x",): {"a": 1.0}}
    model = Told(vocabulary_of("a", "b", "x"), shares)
    model.context = lambda prompt: (2,) if prompt == "x" else ()  # type: ignore[method-assign]
    assert found_in(model, Query(query="ab", prompt="x")) == {"ab": 1.0}
    assert found_in(model, Query(query="ab")) == pytest.approx({"ab": 1 / 16})
    asked: list[Any] = []
    model.context = lambda prompt: asked.append(prompt) or ()  # type: ignore[func-returns-value,method-assign]
    search(model, Query(query="ab", prompt=(Message("user", "hi"),)))
    search(model, Query(query="ab"))
    assert asked == [[{"role": "user", "content": "hi"}], None]


def test_the_package_has_both_functions() -> None:
    model = Toy(vocabulary_of("a"))
    [result] = gateway.audit.search(model, Query(query="a"))
    [drawn] = gateway.audit.sample(model, Query(query="a"), samples=1)
    assert result.text == drawn.text == "a"


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


# -- when something goes wrong -----------------------------------------------------------------------------------------

QUERY = Query(query="[ab]{1,2}[abc]{1,3}", prefix=PrefixRegex("[ab]{1,2}"), limit=10**6, bounds=Bounds(batch=4))
SMALL = vocabulary_of("a", "b", "c", "ab", "bc")


class Violation(Toy):
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
    model = Violation(12, wrong)
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
    model = Violation(at, error)
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
        with pytest.raises(CheckpointError, match="another query"):
            search(model, other, resume=checkpoint)
    with pytest.raises(CheckpointError, match="another vocabulary"):
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
    model = Violation(0, None)
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
        with pytest.raises(ValueError, match="no decoding rule"):
            search(Toy(SMALL), replace(QUERY, decoding=wrong))
    distribution = SamplingParams(top_k=2).distribution(np.log(np.array([0.4, 0.3, 0.3], np.float32)))
    assert distribution.tokens.tolist() == [0, 1, 2], "of equally likely tokens all are left"
    distribution = SamplingParams(top_k=2).distribution(np.array([-np.inf, -1.0, -np.inf]))
    assert distribution.tokens.tolist() == [1]
    assert [each.tolist() for each in distribution.among(np.arange(3))] == [[1], [0.0]]
