from __future__ import annotations

from math import exp

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.demo.tokens import count_tokens, cut_at_stop, logprobs_of, tokens_of
from tests.support.examples import examples


@settings(max_examples=examples(300))
@given(st.text(max_size=80))
def test_tokens_joined_are_the_text(text: str) -> None:
    tokens = tokens_of(text)
    assert "".join(tokens) == text and all(tokens)
    assert count_tokens({"a": [text, None, 7]}) == len(tokens) + 1


def test_a_password_is_cut() -> None:
    assert tokens_of('is "12MONKEYS".') == ("is", ' "', "12", "MON", "KEY", "S", '".')


@settings(max_examples=examples(300))
@given(st.text("ab ", max_size=30), st.lists(st.text("ab ", min_size=1, max_size=3), max_size=3))
def test_what_is_left_of_a_stop_string_is_kept(text: str, stops: list[str]) -> None:
    expected = min((text.split(stop)[0] for stop in stops), key=len, default=text)
    kept = cut_at_stop(tokens_of(text), tuple(stops))
    assert "".join(kept) == expected and all(kept)


@settings(max_examples=examples(50))
@given(st.text(max_size=30), st.integers(0, 20))
def test_log_probabilities_add_up_to_one_at_most(text: str, top: int) -> None:
    tokens = tokens_of(text)
    listed = logprobs_of(tokens, top)
    assert [each.token for each in listed] == list(tokens)
    for each in listed:
        assert len(each.top) == top and sum(exp(logprob) for _, logprob in each.top) <= 1.0001
    # One after the other, as a stream has them, they are the same.
    assert [logprobs_of([token], top, place)[0] for place, token in enumerate(tokens)] == listed
