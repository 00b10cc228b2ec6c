"""Answers of any shape, made of the pieces of a word."""

from __future__ import annotations

from hypothesis import strategies as st

from gateway.policy.model import Action
from tests.support.guard_client import BLOCK, DROP, WORD, policy, rule

PIECES = [
    *("12", "MON", "KEYS", "12M", "ONKEYS", WORD, "a", "", "stop", "text"),
    *('{"a":"12', '"}', '["', "\\u0031", '"12MON\\u004bEYS"', 12, 0, 1, -1, 1.5, None, True),
]
NAMES = [
    *("content", "reasoning", "refusal", "tool_calls", "function_call", "function", "custom", "name", "arguments"),
    *("input", "index", "id", "type", "role", "audio", "transcript", "data", "annotations", "new", "text", WORD),
    *("delta", "message", "logprobs", "0"),
]
POLICIES = [policy(), BLOCK, DROP, policy(rule("MON")), policy(rule("MON", action=Action.BLOCK))]
piece = st.sampled_from(PIECES)
names = st.sampled_from(NAMES)
value = st.recursive(
    piece, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=8
)
call = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([0, 0, 1, 1, -1, "0", None]),
        "id": piece,
        "function": value | st.fixed_dictionaries({}, optional={"name": piece, "arguments": piece}),
        "custom": value | st.fixed_dictionaries({}, optional={"name": piece, "input": piece}),
    },
)
delta = (
    value
    | st.dictionaries(names, value, max_size=3)
    | st.fixed_dictionaries({"tool_calls": st.lists(call | value, max_size=3)}, optional={"content": value})
    | st.fixed_dictionaries({"content": piece})
)
around = {"new": value, "message": value, "text": value, WORD: value, "logprobs": value}
choice = st.fixed_dictionaries(
    {"delta": delta},
    optional={
        "index": st.sampled_from([0, 0, 0, 1, -1, "0", 0.0]),
        "finish_reason": st.sampled_from([None, "", "stop", WORD]),
        **around,
    },
)
chunk = st.fixed_dictionaries(
    {"choices": st.lists(choice, max_size=2)}, optional={"id": piece, "model": value, "usage": value, **around}
)
whole = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries({"message": delta}, optional={"index": piece, "new": value}), max_size=3
        )
    },
    optional={"id": piece, **around},
)
