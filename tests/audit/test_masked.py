"""A masked model says what the model says whose forbidden tokens are removed one by one."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.audit.language.automaton import Regex
from gateway.audit.model import Floats, FullVocabulary, Messages, ModelError
from gateway.audit.models.masked import MaskedModel
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Decoding, PrefixRegex, PrefixText, Query
from gateway.audit.searches.best_first import Result, search
from gateway.automata.vocabulary import Vocabulary
from gateway.policy.model import Rule
from tests.support.examples import examples
from tests.support.naive_search import vocabulary_of

PIECES = ("a", "b", "ab", "ba", " a", "aab", " ", "bb ", "é", b"\xc3", b"\xa9")
BYTES = vocabulary_of(*PIECES)


class Forbidden(FullVocabulary):
    """By the definition: a token is forbidden if it completes a word in what comes behind the prefix. `prefixes`: all
    texts that can be one; the longest counts."""

    def __init__(self, model: Toy, words: Sequence[str], prefixes: Sequence[str], whole: bool) -> None:
        self.vocabulary = model.vocabulary
        self.encode = model.encode
        self._model, self._words, self._whole = model, words, whole
        self._prefixes = [prefix.encode() for prefix in prefixes]

    def context(self, prompt: str | Messages | None) -> tuple[int, ...]:
        return self._model.context(prompt)

    def logprobs_of(self, prefixes: Sequence[Sequence[int]], tokens: Sequence[object]) -> list[Floats]:
        return self._model.logprobs_of(prefixes, tokens)  # type: ignore[arg-type]

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
        rows = self._model(prefixes).astype(np.float64)
        for row, prefix in zip(rows, prefixes, strict=True):
            for token in range(len(row)):
                if self._is_forbidden([*prefix, token]):
                    row[token] = -math.inf
            if row.max() == -math.inf:
                row[-1] = 0.0
        return rows

    def _is_forbidden(self, tokens: list[int]) -> bool:
        pieces = [self.vocabulary.tokens[token] or b"" for token in tokens]
        written = b"".join(pieces)
        ends = [len(prefix) for prefix in self._prefixes if written.startswith(prefix)]
        if self._prefixes and not ends:
            return False
        begin = max(ends, default=0)
        before = self._count(written[begin : len(written) - len(pieces[-1])], False)
        return self._count(written[begin:], tokens[-1] in self.vocabulary.end) > before

    def _count(self, said: bytes, ended: bool) -> int:
        """How many words are certain."""
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(said, ended)
        return sum(certain or ended for word in self._words for certain in self._found(text, word))

    def _found(self, text: str, word: str) -> Iterator[bool]:
        """Whether each occurrence is one whatever comes next."""
        for begin in range(len(text)):
            if not text.startswith(word, begin):
                continue
            before, after = text[:begin][-1:], text[begin + len(word) :][:1]
            if not self._whole:
                yield True
            elif not before.isalnum() and not after.isalnum():
                yield after != ""


WORDS = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=2)


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 1000),
    words=WORDS,
    whole=st.booleans(),
    end_of_text=st.booleans(),
    prefix=st.sampled_from([None, "a", "ab", "é"]),
    top_k=st.sampled_from([None, 3]),
)
def test_it_says_what_is_left(
    seed: int, words: list[str], whole: bool, end_of_text: bool, prefix: str | None, top_k: int | None
) -> None:
    model = Toy(BYTES, seed)
    query = Query(
        query=f"{prefix or ''}[ab é]{{0,4}}",
        prefix=None if prefix is None else PrefixText(prefix),
        decoding=Decoding(top_k=top_k, end_of_text=end_of_text, max_tokens=4),
        limit=100_000,
    )
    rule = Rule(id="words", words=tuple(words), fold=frozenset(), whole_word=whole)
    automaton = None if prefix is None else Regex(prefix)
    found = list(search(MaskedModel(model, [rule], automaton, at_text_start=True), query))
    naive = Forbidden(model, words, [] if prefix is None else [prefix], whole)
    same(found, list(search(naive, query)))


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 1000), words=WORDS)
def test_the_longest_of_several_prefixes_counts(seed: int, words: list[str]) -> None:
    model = Toy(BYTES, seed)
    query = Query(query="(a|ab|abb )[ab]{0,3}", prefix=PrefixRegex("a|ab|abb "), decoding=Decoding(max_tokens=3))
    rule = Rule(id="words", words=tuple(words), fold=frozenset())
    found = list(search(MaskedModel(model, [rule], Regex("a|ab|abb "), at_text_start=True), query))
    naive = Forbidden(model, words, ["a", "ab", "abb "], False)
    same(found, list(search(naive, query)))


def same(found: list[Result], wanted: list[Result]) -> None:
    assert {each.text for each in found} == {each.text for each in wanted}
    assert [each.logprob for each in found] == pytest.approx([each.logprob for each in wanted])
    by_text = {each.text: each for each in wanted}
    for each in found:
        assert each.prefix_logprob == pytest.approx(by_text[each.text].prefix_logprob)
        assert each.logprob == pytest.approx(by_text[each.text].logprob)


def test_a_word_may_stand_in_the_prompt_and_in_the_prefix() -> None:
    model = Toy(BYTES)
    rule = Rule(id="a", words=("a",), fold=frozenset())
    masked = MaskedModel(model, [rule], Regex("ab"), at_text_start=False)
    found = search(masked, Query(query="ab[ab]{1,2}", prefix="ab", prompt="aab"))
    assert {result.text for result in found} == {"abb", "abbb"}


def test_where_nothing_may_be_said_the_text_ends() -> None:
    model = Toy(vocabulary_of("a", "b"))
    masked = MaskedModel(model, [Rule(id="all", words=("a", "b"))], None, at_text_start=True)
    [row] = masked([[]])
    assert [token for token in range(3) if row[token] > -math.inf] == [2]


@pytest.mark.parametrize("most", [5, 40, 100, 1000])
def test_as_much_is_told_as_can_be(most: int) -> None:
    class Telling(Toy):
        told_most: int | None = None

        def require_top_k(self, top_k: int | None) -> None:
            if top_k is None or top_k > most:
                raise ModelError("too many")
            self.told_most = top_k

    model = Telling(BYTES)
    masked = MaskedModel(model, [Rule(id="a", words=("a",))], None, at_text_start=True)
    if most < 40:
        with pytest.raises(ModelError):
            masked.require_top_k(40)
    else:
        masked.require_top_k(40)
        assert model.told_most == min(160, most // 40 * 40 if most < 160 else 160)


def test_a_vocabulary_that_loses_its_first_space() -> None:
    vocabulary = Vocabulary([b"a", b" a", b" ab", b"b", b" ", None], end=[5], strips_first_space=True)
    masked = MaskedModel(Toy(vocabulary), [Rule(id="b", words=("b",))], Regex("a"), at_text_start=True)
    [row] = masked([[]])
    # ` ab` writes `ab`, and behind the prefix the word.
    assert [token for token in range(6) if row[token] == -math.inf] == [2]


def test_a_string_may_be_asked_about_whose_beginnings_never_were() -> None:
    word = "ba" * 1500
    masked = MaskedModel(Toy(BYTES), [Rule(id="long", words=(word,))], None, at_text_start=True)
    [row] = masked([[BYTES.tokens.index(b"ba")] * 1499 + [BYTES.tokens.index(b"b")]])
    forbidden = {BYTES.tokens[token] for token in range(len(BYTES)) if row[token] == -math.inf}
    assert forbidden == {b"a", b"ab", b"aab"}
