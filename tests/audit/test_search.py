"""Best-first search, compared with trying everything, and by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE

import gateway.audit
from gateway.audit.model import Floats, SamplingParams
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import (
    Bounds,
    Decoding,
    Message,
    PrefixRegex,
    Query,
    Tokenizations,
)
from gateway.audit.searches.best_first import BestFirstSearch, search
from gateway.audit.searches.steps import LOOKAHEAD, Canonical
from gateway.automata.vocabulary import Vocabulary
from gateway.policy.errors import ConfigError
from tests.support.audit_search import LETTERS, assert_found, found_in, listed, query_of
from tests.support.examples import examples
from tests.support.naive_search import Asked, Told, expected, vocabulary_of

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
