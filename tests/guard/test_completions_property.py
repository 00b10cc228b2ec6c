"""Text completions of random texts and of any shape, against the oracle."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gateway.guard.answer import BrokenAnswer
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Action, Mode, Policy, Rule
from tests.support.completions_client import (
    Reader,
    answer_for,
    body,
    part,
    plain,
    play,
    whole_of,
)
from tests.support.examples import examples
from tests.support.guard_client import (
    WORD,
    balanced,
    event,
    script,
)
from tests.support.oracle import Oracle
from tests.support.random_answers import NAMES, PIECES, POLICIES, value
from tests.support.random_policies import ALPHABETS, blocks, cut, pieces, policies

FIELDS = ("text", "reasoning", "zq", "content")


@cache
def texts_of(alphabet: str) -> st.SearchStrategy[dict[tuple[int, str], str]]:
    places = st.tuples(st.integers(0, 1), st.sampled_from(FIELDS))
    return st.dictionaries(places, st.text(alphabet, max_size=12), min_size=1, max_size=4)


@st.composite
def answers(draw: st.DrawFn) -> tuple[Policy, dict[tuple[int, str], str], list[Any], list[int]]:
    """A policy, the text of each field of two choices, the events that carry them, where their bytes are cut."""
    alphabet = draw(st.sampled_from(ALPHABETS))
    policy = draw(policies(alphabet))
    texts = draw(texts_of(alphabet))
    waiting = {place: pieces(draw, text) for place, text in texts.items()}
    events = []
    while waiting:
        index, field = place = draw(st.sampled_from(sorted(waiting)))
        events.append(part(**{"text": "", "index": index, field: waiting[place].pop(0)}))
        if not waiting[place]:
            del waiting[place]
    events += [part(index=index, finish="stop") for index in {index for index, _ in texts} if draw(st.booleans())]
    return policy, texts, events, draw(st.lists(st.integers(0, 4000), max_size=6))


@settings(max_examples=examples(200), deadline=None)
@given(answers())
def test_every_text_comes_out_as_if_it_had_been_censored_whole(case: tuple[Policy, Any, list[Any], list[int]]) -> None:
    policy, texts, events, cuts = case
    assume(not blocks(policy))
    data = script(*events)
    reader = play(policy, *cut(data, cuts), expected=2)
    assert reader.done and not reader.errors
    answer, _ = plain(policy, *cut(data, cuts), expected=2)
    choices = {choice["index"]: choice for choice in answer["choices"]}
    for (index, field), text in texts.items():
        expected = Oracle(policy).whole(text)[0]
        assert reader.messages[index].get(field, "") == expected
        assert choices[index].get(field, "") == expected


@settings(max_examples=examples(120), deadline=None)
@given(answers())
def test_a_whole_answer_is_the_same_as_a_stream(case: tuple[Policy, Any, list[Any], list[int]]) -> None:
    policy, texts, _, cuts = case
    assume(not blocks(policy))
    given = whole_of("", "")
    for (index, field), text in texts.items():
        given["choices"][index][field] = text
    answer, _ = plain(policy, *cut(body(given), cuts), expected=2)
    reader = play(policy, *cut(body(given), cuts), expected=2)
    for (index, field), text in texts.items():
        expected = Oracle(policy).whole(text)[0]
        assert answer["choices"][index][field] == reader.messages[index].get(field, "") == expected


@st.composite
def single_texts(draw: st.DrawFn) -> tuple[Policy, list[str]]:
    alphabet = draw(st.sampled_from(ALPHABETS))
    return draw(policies(alphabet)), pieces(draw, draw(st.text(alphabet, max_size=14)))


@settings(max_examples=examples(250), deadline=None)
@given(single_texts())
@example((Policy(name="p", rules=(Rule(id="r", words=("a", "ab"), secret=True),), max_hold=1), ["ab"]))
def test_one_text_with_blocks_comes_out_as_the_oracle_says(case: tuple[Policy, list[str]]) -> None:
    policy, parts = case
    expected, report, blocked = Oracle(policy).whole("".join(parts))
    reader = play(policy, script(*map(part, parts), part(finish="stop")))
    assert reader.said() == expected and reader.done
    assert reader.finish == {0: "content_filter" if blocked else "stop"}
    # What a rule finds twice at one place, a word and an overflow, counts once where texts are read within texts.
    places = {(rule, start, end) for rule, start, end, _ in report}
    assert sum(match.count for match in reader.scanned.matches) == len(places)
    answer, fact = plain(policy, body(whole_of("".join(parts))))
    assert answer["choices"][0]["text"] == expected and (fact.blocked_by is not None) == blocked


@settings(max_examples=examples(200), deadline=None)
@given(single_texts())
def test_a_text_waits_no_longer_than_the_oracle_says(case: tuple[Policy, list[str]]) -> None:
    policy, parts = case
    assume(policy.rules)
    answer, reader, read_so_far = answer_for(policy), Reader(), ""
    for text in parts:
        read_so_far += text
        reader.take(answer.feed(event(part(text)), 0.0))
        assert reader.said() == Oracle(policy).released(read_so_far)


choice = st.dictionaries(st.sampled_from(NAMES), value, max_size=3) | st.fixed_dictionaries(
    {"text": value | st.sampled_from(PIECES)},
    optional={
        "index": st.sampled_from([0, 0, 0, 1, -1, "0", 0.0]),
        "finish_reason": st.sampled_from([None, "", "stop", WORD]),
        **dict.fromkeys(("new", "content", "delta", "message", "stop_reason", "logprobs", WORD), value),
    },
)


anything = st.fixed_dictionaries(
    {"choices": st.lists(choice | value, max_size=3)},
    optional={"id": value, "object": st.just("text_completion"), "usage": value, "text": value, WORD: value},
)


def check(policy: Policy, data: bytes) -> None:
    word = policy.rules[0].words[0]
    reader = Anyhow()
    answer = answer_for(policy)
    reader.take(answer.feed(data, 0.0))
    reader.take(answer.close(1.0))
    assert not any(isinstance(fact, GuardFailed) for fact in reader.facts)
    assert balanced(reader.scanned) and word not in reader.text
    try:
        shown: Any = plain(policy, data)[0]
    except BrokenAnswer as error:
        shown = error.failure
    assert word not in json.dumps(shown)


class Anyhow(Reader):
    """Reads indices that are none, too."""

    def _add(self, value: Any) -> None:
        for choice in value.get("choices", ()) if isinstance(value, dict) else ():
            if not isinstance(choice.get("index", 0), int):
                raise AssertionError("an index that is no number")
        super()._add(value)


@settings(max_examples=examples(250), deadline=None)
@given(st.sampled_from(POLICIES), st.lists(anything, max_size=6))
def test_a_stream_of_any_shape(policy: Policy, events: list[Any]) -> None:
    check(policy, script(*events))


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(POLICIES), anything)
def test_a_whole_answer_of_any_shape(policy: Policy, answer: Any) -> None:
    check(policy, body(answer))


def test_policies_of_the_fuzz_do_enforce() -> None:
    assert all(policy.mode is Mode.ENFORCE for policy in POLICIES)
    assert {rule.action for policy in POLICIES for rule in policy.rules} == {Action.REDACT, Action.BLOCK}
