"""What breaks a policy is what all answers, listed token by token, break it with."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.audit.matcher import MatchedRules, RuleMatcher
from gateway.audit.model import LanguageModel, SamplingParams
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Decoding, Message
from gateway.audit.searches.best_first import Result
from gateway.audit.searches.checkpoint import Checkpoint, CheckpointError
from gateway.audit.searches.policy import output_rules, prompt_query, search_violations, violation_of
from gateway.policy.model import Action, Channel, Direction, Policy, Rule
from tests.support.examples import examples
from tests.support.naive_search import distribution, vocabulary_of

PIECES = ("a", "b", "ab", "ba ", " a", " ", "é", b"\xc3", b"\xa9")
PROMPT = "ab"


def first_matches(
    model: LanguageModel, context: tuple[int, ...], rule: Rule, decoding: Decoding
) -> Iterator[tuple[tuple[int, ...], str, float]]:
    """Every sequence of tokens up to the first match: its tokens, what they write, its log-probability."""
    chosen = SamplingParams(decoding.top_k, decoding.top_p, decoding.temperature)
    waiting: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    while waiting:
        tokens, logprob = waiting.pop()
        for token, each in enumerate(distribution(model([(*context, *tokens)])[0], chosen)):
            if each == -math.inf:
                continue
            longer = (*tokens, token)
            ended = token in model.vocabulary.end or len(longer) == decoding.max_tokens
            text = b"".join(model.vocabulary.tokens[some] or b"" for some in longer)
            if says(text, rule, ended):
                yield longer, read(text), logprob + each
            elif not ended:
                waiting.append((longer, logprob + each))


def read(written: bytes, ended: bool = False) -> str:
    """The last character may have further bytes to come, unless nothing does."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(written, ended)


def says(written: bytes, rule: Rule, ended: bool) -> bool:
    """Is one of the rule's words in it, whatever comes next?"""
    text = read(written, ended)
    for word in rule.words:
        for begin in range(len(text)):
            before, after = text[:begin][-1:], text[begin + len(word) :][:1]
            edges = not before.isalnum() and not after.isalnum() and (after != "" or ended)
            if text.startswith(word, begin) and (edges or not rule.whole_word):
                return True
    return False


@settings(max_examples=examples(50), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    words=st.lists(st.text("ab ", min_size=1, max_size=3).filter(str.strip), min_size=1, max_size=2),
    whole=st.booleans(),
    top_k=st.sampled_from([None, 3]),
    temperature=st.sampled_from([1.0, 0.5]),
    batch=st.sampled_from([1, 16]),
)
def test_the_first_match_of_every_answer_is_found(
    seed: int, words: list[str], whole: bool, top_k: int | None, temperature: float, batch: int
) -> None:
    # Words with edges of their own kind need no boundary, so these are only of letters where they are whole.
    words = [word.strip() for word in words] if whole else words
    rule = Rule(id="words", words=tuple(words), fold=frozenset(), whole_word=whole)
    model = Toy(vocabulary_of(*PIECES), seed)
    decoding = Decoding(top_k=top_k, temperature=temperature, max_tokens=3)
    query = prompt_query(PROMPT, chat=False, decoding=decoding, limit=10**6, source="prompts")
    search = search_violations(model, query, RuleMatcher([rule]), batch=batch)
    given = list(search)
    by_text: dict[str, list[float]] = {}
    for _, text, logprob in first_matches(model, model.context(PROMPT), rule, decoding):
        by_text.setdefault(text, []).append(logprob)
    assert {result.text for result in given} == by_text.keys()
    assert [result.logprob for result in given] == pytest.approx(sorted(map(max, by_text.values()), reverse=True))
    for result in search.found:
        assert result.encodings == len(by_text[result.text])
        assert result.string_logprob == pytest.approx(math.log(sum(map(math.exp, by_text[result.text]))))
        assert violation_of(RuleMatcher([rule]), result)["match"] in words
    assert search.summary().finished


def test_the_probabilities_add_up_to_that_of_breaking_the_rule() -> None:
    model = Toy(vocabulary_of("a", "b"), seed=3)
    query = prompt_query("a", chat=False, decoding=Decoding(max_tokens=4), limit=10**6, source="prompts")
    search = search_violations(model, query, RuleMatcher([Rule(id="b", words=("b",))]))
    found = sum(math.exp(result.string_logprob) for result in search)
    clean = 0.0
    for length in range(4):  # so many a, and the end
        tokens = (0,) * length
        logprobs = [float(model([(0, *tokens[:at])])[0][0]) for at in range(length)]
        clean += math.exp(sum(logprobs) + float(model([(0, *tokens)])[0][2]))
    clean += math.exp(sum(float(model([(0, *(0,) * at)])[0][0]) for at in range(4)))
    assert found == pytest.approx(1 - clean)


@pytest.mark.parametrize(
    ("rule", "said", "match"),
    [
        (Rule(id="card", detector="credit_card"), "no 4111 1111 1111 1111 x", "4111 1111 1111 1111"),
        (Rule(id="card", detector="credit_card"), "no 4111 1111 1111 1112 x", None),
        (Rule(id="ticket", pattern=r"\bX-[0-9]+\b"), "see X-12.", "X-12"),
        (Rule(id="word", words=("PASS",)), "ｐａｓｓ me", "ｐａｓｓ"),
        (Rule(id="secret", words=("12MONKEYS",), secret=True), "it is 12MONKEY", None),
        (Rule(id="flag", words=("12MONKEYS",), action=Action.FLAG), "a 12monkeys", "12monkeys"),
    ],
)
def test_what_counts_is_what_the_censor_finds(rule: Rule, said: str, match: str | None) -> None:
    vocabulary = vocabulary_of(*sorted(set(said)))
    names = {text.decode(): token for token, text in enumerate(vocabulary.tokens) if text}

    class Parrot(Toy):
        """Says one thing, and then ends."""

        def __call__(self, prefixes: Sequence[Sequence[int]], /):  # type: ignore[no-untyped-def]
            rows = super().__call__(prefixes)
            for row, prefix in zip(rows, prefixes, strict=True):
                row[:] = -math.inf
                at = len(prefix) - 1
                row[names[said[at]] if at < len(said) else vocabulary.end[0]] = 0.0
            return rows

    matcher = RuleMatcher([rule])
    query = prompt_query(said[0], chat=False, decoding=Decoding(max_tokens=len(said) + 1), limit=9, source="prompts")
    found = list(search_violations(Parrot(vocabulary), query, matcher))
    assert [violation_of(matcher, result)["match"] for result in found] == ([] if match is None else [match])
    assert all(violation_of(matcher, result)["rule"] == rule.id for result in found)


@pytest.mark.parametrize(
    ("rule", "text", "match"),
    [
        (Rule(id="w", words=("foo", "bar"), whole_word=True), "a foo bar", "foo"),  # it may become a bard
        (Rule(id="w", words=("foo", "bar"), whole_word=True), "a bar", "bar"),
        (Rule(id="w", words=("foo", "a foo")), "a foo", "a foo"),
        (Rule(id="n", pattern=r"\b[0-9]{3}\b"), "a 123 456", "123"),
    ],
)
def test_a_match_is_the_one_that_was_certain_first(rule: Rule, text: str, match: str) -> None:
    result = Result(text, (0,), -1.0, 0.0, -1.0, 1, 0)
    assert violation_of(RuleMatcher([rule]), result)["match"] == match


def test_only_rules_for_what_is_said_count() -> None:
    rules = (
        Rule(id="in", words=("a",), apply_to=frozenset({Direction.INPUT})),
        Rule(id="names", words=("a",), channels=frozenset({Channel.TOOL_NAMES})),
        Rule(id="both", words=("a",), apply_to=frozenset(Direction)),
        Rule(id="out", words=("a",), action=Action.FLAG),
    )
    assert [rule.id for rule in output_rules(Policy(name="p", rules=rules))] == ["both", "out"]


def test_a_chat_is_a_users_message() -> None:
    query = prompt_query("Hi", chat=True, decoding=Decoding(), limit=1, source="prompts")
    assert query.prompt == (Message("user", "Hi"),)


def test_it_goes_on_where_it_stood() -> None:
    model = Toy(vocabulary_of(*PIECES), seed=5)
    matcher = RuleMatcher([Rule(id="w", words=("ab",))])
    query = prompt_query(PROMPT, chat=False, decoding=Decoding(max_tokens=3), limit=1000, source="prompts")
    whole = list(search_violations(model, query, matcher))
    for count in (0, 1, 7, len(whole)):
        search = search_violations(model, query, matcher)
        begun = [next(search) for _ in range(count)]
        resumed = search_violations(model, query, matcher, resume=Checkpoint.decode(search.checkpoint().encode()))
        rest = list(resumed)
        assert [each.text for each in begun + rest] == [each.text for each in whole]
        assert [each.logprob for each in begun + rest] == pytest.approx([each.logprob for each in whole])


def test_a_checkpoint_of_other_rules_is_refused() -> None:
    model = Toy(vocabulary_of(*PIECES))
    query = prompt_query(PROMPT, chat=False, decoding=Decoding(max_tokens=3), limit=1000, source="prompts")
    saved = search_violations(model, query, RuleMatcher([Rule(id="w", words=("ab",))])).checkpoint()
    with pytest.raises(CheckpointError):
        search_violations(model, query, RuleMatcher([Rule(id="w", words=("aa",))]), resume=saved)
    with pytest.raises(CheckpointError):
        search_violations(model, query, RuleMatcher([Rule(id="w", words=("ab",))], max_hold=9), resume=saved)


# -- the judge ---------------------------------------------------------------------------------------------------------


def test_a_judge_without_rules_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule"):
        RuleMatcher([])


@pytest.mark.parametrize(
    ("text", "certain", "at_end"),
    [
        (b"a word", None, "w"),
        (b"a word ", "w", "w"),
        (b"a words", None, None),
        (b"a word\xc3", None, "w"),  # the beginning of a letter
        (b"a wor", None, None),
    ],
)
def test_a_whole_word_waits_for_what_comes_behind(text: bytes, certain: str | None, at_end: str | None) -> None:
    matcher = RuleMatcher([Rule(id="w", words=("word",), whole_word=True)])
    assert matcher.matched_rules(text) == MatchedRules(certain, at_end)


def test_the_hold_of_the_policy_bounds_a_match() -> None:
    rule = Rule(id="w", words=("12345",))
    assert RuleMatcher([rule], max_hold=4).matched_rules(b"12345").certain is None
    assert RuleMatcher([rule], max_hold=5).matched_rules(b"12345").certain == "w"
