"""Text completions in chat's words and back, and what a request's prompt holds."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire import chat, completions

HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}


def event(*choices: Any, **more: Any) -> dict[str, Any]:
    return {**HEAD, "choices": list(choices), **more}


def test_an_event_in_chats_words() -> None:
    choice = {"index": 1, "text": "a", "logprobs": None, "finish_reason": "stop", "stop_reason": 2, "reasoning": "b"}
    assert completions.as_chunk(event(choice, usage={"total_tokens": 1})) == {
        **HEAD,
        "object": "chat.completion.chunk",
        "choices": [
            {
                "index": 1,
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": 2,
                "delta": {"content": "a", "reasoning": "b"},
            }
        ],
        "usage": {"total_tokens": 1},
    }


def test_a_whole_answer_in_chats_words() -> None:
    whole = completions.as_completion(event({"index": 0, "text": "a", "finish_reason": "length"}))
    assert whole["object"] == "chat.completion"
    assert whole["choices"] == [{"index": 0, "finish_reason": "length", "message": {"content": "a"}}]


@pytest.mark.parametrize("choices", [None, 5, "x", {"text": "x"}, [5, "x", None, []]])
def test_what_is_no_choice_stays_for_the_guard_to_judge(choices: Any) -> None:
    assert completions.as_chunk({"choices": choices}) == {"choices": choices}
    assert completions.as_completion({"choices": choices}) == {"choices": choices}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
fields = st.sampled_from(
    ["index", "finish_reason", "stop_reason", "logprobs", "content", "delta", "message", "role", "id", "token_ids", "x"]
)
choices = st.builds(
    lambda text, rest: {**rest, "text": text}, values.filter(lambda v: v is not None), st.dictionaries(fields, values)
)


@settings(deadline=None)
@given(st.lists(choices, max_size=3))
def test_there_and_back_nothing_is_lost(given: list[Any]) -> None:
    said = event(*given)
    assert completions.spelled(completions.as_chunk(copy.deepcopy(said))) == said
    for choice in given:
        if choice.get("role") == "assistant":
            del choice["role"]
    assert completions.spelled(completions.as_completion(copy.deepcopy(said))) == event(*given)


def test_order_is_kept() -> None:
    choice = dict.fromkeys(("b", "text", "a", "z", "c"), 1)
    (chunk,) = completions.as_chunk(event(choice))["choices"]
    assert list(chunk["delta"]) == ["b", "content", "a", "z", "c"]


def test_what_the_guard_makes_itself_is_a_choice_with_a_text() -> None:
    made = completions.spelled(chat.chunk(chat.head_of(HEAD), [chat.part(2, {}, "content_filter")]))
    choice = {"text": "", "index": 2, "logprobs": None, "finish_reason": "content_filter"}
    assert made == event(choice)
    assembler = chat.Assembler()
    assembler.add(completions.as_chunk(event({"index": 0, "text": "a", "new": "b"})))
    assembler.add(completions.as_chunk(event({"index": 0, "text": "c", "finish_reason": "stop"})))
    assembler.add(completions.as_chunk(event({"index": 1, "finish_reason": "stop"})))
    assert completions.spelled(assembler.whole()) == event(
        {"index": 0, "text": "ac", "new": "b", "finish_reason": "stop"},
        {"index": 1, "text": "", "finish_reason": "stop"},
    )


@pytest.mark.parametrize("name", ["index", "finish_reason", "logprobs"])
def test_a_renamed_field_does_not_become_one_around_the_text(name: str) -> None:
    chunk = completions.as_chunk(event({"text": "a", "new": "b"}))
    delta = chunk["choices"][0]["delta"]
    delta[name] = delta.pop("new")
    assert completions.spelled(chunk)["choices"] == [{"text": "a"}]


PROMPTS: dict[str, tuple[Any, int | None, bool, list[str]]] = {
    "absent": (None, 1, False, []),
    "a text": ("a", 1, False, ["a"]),
    "an empty text": ("", 1, False, [""]),
    "texts": (["a", "", "b"], 3, False, ["a", "", "b"]),
    "token ids": ([1, 2, 3], 1, True, []),
    "lists of token ids": ([[1, 2], [3], []], 3, True, []),
    "an empty list": ([], None, False, []),
    "an object": ({"a": 1}, None, False, []),
    "a number": (5, None, False, []),
    "true": (True, None, False, []),
    "a list with true": ([1, True], None, True, []),
    "texts and ids": (["a", 1], None, True, ["a"]),
    "texts and lists": (["a", [1]], None, True, ["a"]),
    "floats": ([1.5], None, True, []),
    "lists of texts": ([["a"]], None, True, []),
    "lists of lists": ([[[1]]], None, True, []),
}


@pytest.mark.parametrize("case", PROMPTS)
def test_what_a_prompt_holds(case: str) -> None:
    prompt, count, has_ids, texts = PROMPTS[case]
    assert completions.prompts_in(prompt) == count
    assert completions.has_token_ids(prompt) is has_ids
    slots = list(completions.prompt_slots({"prompt": prompt}))
    assert [slot.holder[slot.key] for slot in slots] == texts
    assert len({slot.path for slot in slots}) == len(slots) and {slot.channel for slot in slots} <= {"content"}
