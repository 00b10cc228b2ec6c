"""Log probabilities of text completions: they come with their text, and their places are those of what is read."""

from __future__ import annotations

import itertools
from typing import Any

from tests.support.completions_client import (
    SEEN,
    body,
    part,
    plain,
    stream,
    whole_of,
)
from tests.support.guard_client import (
    WORD,
    policy,
    script,
)


def spelled(*tokens: str, alternatives: dict[str, float] | None = None, start: int = 0) -> dict[str, Any]:
    """A choice's text and the log probabilities of its tokens, as the upstream counts places."""
    offsets = list(itertools.accumulate(map(len, tokens), initial=start))[:-1]
    listed = None if alternatives is None else [alternatives] * len(tokens)
    lists = {"token_logprobs": [-0.5] * len(tokens), "tokens": list(tokens), "top_logprobs": listed}
    return {"text": "".join(tokens), "logprobs": {"text_offset": offsets, **lists}}


def test_log_probabilities_come_with_their_text_and_places_are_those_of_what_is_read() -> None:
    given = [spelled("a ", "b", alternatives={"x": -1.5, "12": -2.5}), spelled(" 12MON", start=3)]
    values = [part(**each) for each in [*given, spelled("KEYS", start=9), spelled(" c", start=700)]]
    reader = stream(policy(), *values, part(finish="stop"))
    shown = [each["choices"][0]["logprobs"] for each in reader.events]
    clean = spelled("a ", "b", alternatives={"x": -1.5})["logprobs"]
    last = spelled(" c", start=len(f"a b {SEEN}"))["logprobs"]
    assert [each for each in shown if each is not None] == [clean, last]
    whole = whole_of(f"a b {WORD} c")
    whole["choices"][0] |= {"logprobs": spelled("a ", "b", " 12MON", "KEYS", " c")["logprobs"]}
    lists = {name: items and items + last[name] for name, items in spelled("a ", "b")["logprobs"].items()}
    assert plain(policy(), body(whole))[0]["choices"][0]["logprobs"] == lists
    assert plain(policy(), script(*values[1:], part(finish="stop")))[0]["choices"][0]["logprobs"]["tokens"] == [" c"]


def test_the_first_token_of_an_echo_has_no_log_probability() -> None:
    value = spelled("a", "b")
    value["logprobs"] |= {"token_logprobs": [None, -0.5], "top_logprobs": [None, {"b": -0.5}]}
    assert stream(policy(), part(**value), part(finish="stop")).events == [part(**value), part(finish="stop")]


def test_lists_of_log_probabilities_that_are_too_short_or_none() -> None:
    for lists in (
        {},
        {"token_logprobs": WORD, "top_logprobs": WORD, "text_offset": WORD},
        {"token_logprobs": [49, "a"]},
    ):
        reader = stream(policy(), part("ab", logprobs={"tokens": ["a", "b"], **lists}), part(finish="stop"))
        assert WORD not in reader.text and reader.said() == "ab" and not reader.errors
    assert stream(policy(), part("ab", logprobs={"tokens": ["a"]})).events[0]["choices"][0]["logprobs"] == {
        "text_offset": [0],
        "tokens": ["a"],
        "token_logprobs": [None],
        "top_logprobs": None,
    }
