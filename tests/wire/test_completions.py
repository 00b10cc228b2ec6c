"""Text completions in chat's form and back, and what a request's prompt holds."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.censor.compile import compile_policy
from gateway.guard.prompt import BadRequest, apply_request_table
from gateway.policy.model import Policy, Rule
from gateway.wire import chunks, completions
from gateway.wire.completions import COMPLETIONS

HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}


def event(*choices: Any, **more: Any) -> dict[str, Any]:
    return {**HEAD, "choices": list(choices), **more}


def test_an_event_in_chats_form() -> None:
    choice = {"index": 1, "text": "a", "logprobs": None, "finish_reason": "stop", "stop_reason": 2, "reasoning": "b"}
    assert completions.chunk_to_chat(event(choice, usage={"total_tokens": 1})) == {
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


def test_a_whole_answer_in_chats_form() -> None:
    whole = completions.answer_to_chat(event({"index": 0, "text": "a", "finish_reason": "length"}))
    assert whole["object"] == "chat.completion"
    assert whole["choices"] == [{"index": 0, "finish_reason": "length", "message": {"content": "a"}}]


@pytest.mark.parametrize("choices", [None, 5, "x", {"text": "x"}, [5, "x", None, []]])
def test_what_is_no_choice_stays_for_the_guard_to_judge(choices: Any) -> None:
    assert completions.chunk_to_chat({"choices": choices}) == {"choices": choices}
    assert completions.answer_to_chat({"choices": choices}) == {"choices": choices}


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
    assert completions.to_wire(completions.chunk_to_chat(copy.deepcopy(said))) == said
    for choice in given:
        if choice.get("role") == "assistant":
            del choice["role"]
    assert completions.to_wire(completions.answer_to_chat(copy.deepcopy(said))) == event(*given)


def test_order_is_kept() -> None:
    choice = dict.fromkeys(("b", "text", "a", "z", "c"), 1)
    (chunk,) = completions.chunk_to_chat(event(choice))["choices"]
    assert list(chunk["delta"]) == ["b", "content", "a", "z", "c"]


def test_what_the_guard_makes_itself_is_a_choice_with_a_text() -> None:
    made = completions.to_wire(chunks.chunk(chunks.head_of(HEAD), [chunks.part(2, {}, "content_filter")]))
    choice = {"text": "", "index": 2, "logprobs": None, "finish_reason": "content_filter"}
    assert made == event(choice)
    assembler = chunks.ChunkAssembler()
    assembler.add(completions.chunk_to_chat(event({"index": 0, "text": "a", "new": "b"})))
    assembler.add(completions.chunk_to_chat(event({"index": 0, "text": "c", "finish_reason": "stop"})))
    assembler.add(completions.chunk_to_chat(event({"index": 1, "finish_reason": "stop"})))
    assert completions.to_wire(assembler.answer()) == event(
        {"index": 0, "text": "ac", "new": "b", "finish_reason": "stop"},
        {"index": 1, "text": "", "finish_reason": "stop"},
    )


@pytest.mark.parametrize("name", ["index", "finish_reason", "logprobs"])
def test_a_renamed_field_does_not_become_one_around_the_text(name: str) -> None:
    chunk = completions.chunk_to_chat(event({"text": "a", "new": "b"}))
    delta = chunk["choices"][0]["delta"]
    delta[name] = delta.pop("new")
    assert completions.to_wire(chunk)["choices"] == [{"text": "a"}]


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
    body = {"prompt": prompt}
    if count is None:
        with pytest.raises(BadRequest):
            completions.count_prompts(body)
    else:
        assert completions.count_prompts(body) == count
    policy = compile_policy(Policy(name="p", rules=(Rule(id="r", words=("x",)),)))
    if has_ids:
        with pytest.raises(BadRequest):
            apply_request_table(body, policy, COMPLETIONS)
    else:
        apply_request_table(body, policy, COMPLETIONS)
    (part,) = completions.prompt_texts(body)
    slots = list(part.slots)
    assert [slot.holder[slot.key] for slot in slots] == texts
    assert len({slot.path for slot in slots}) == len(slots) and {slot.channel for slot in slots} <= {"content"}
