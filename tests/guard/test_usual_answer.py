"""A whole answer of the usual shape the fast path and the slow path: the same answer, the same counts."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.guard import chat
from gateway.guard.answer import PlainAnswer
from gateway.guard.open import open_guard
from gateway.policy.model import Channel, Policy
from gateway.wire.chat import CHAT
from tests.support.compiled import compiled
from tests.support.examples import examples
from tests.support.guard_client import BLOCK, MAX_EVENT, MAX_WHOLE, OBSERVE, REFUSE, WORD, policy, rule

MESSAGE = {"role": "assistant", "content": "It is fine.", "refusal": None, "annotations": []}
CHOICE = {"index": 0, "message": MESSAGE, "logprobs": None, "finish_reason": "stop"}
USAGE = {"prompt_tokens": 19, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}}
USUAL = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1760000000,
    "model": "mz",
    "choices": [CHOICE],
    "usage": USAGE,
    "service_tier": "default",
    "system_fingerprint": None,
}
POLICIES = (
    *(policy(), BLOCK, OBSERVE, REFUSE, policy(rule(whole_word=True)), policy(rule("1760000000", "19", "0"))),
    *(policy(rule("stop", "assistant", "default", "usage")), policy(rule(channels=(Channel.CONTENT,)))),
)
ODD: tuple[Any, ...] = (
    *(None, "", "x", "It is fine.", WORD, f"a {WORD} b", "12MONK", "x" * 80, "```json\n{}```", '{"a": 1}', "stop"),
    *(0, 1, -1, 19, 1.0, True, 1 << 70, [], [1], ["x"], {}, {"a": WORD}, {WORD: 1}, [CHOICE, CHOICE], "\ud800"),
)
PLACES: tuple[tuple[str, ...], ...] = (
    *((name,) for name in (*USUAL, "logprobs", "ID", "more", WORD)),
    *(("choices", name) for name in (*CHOICE, "text", "delta", "Message", "stop_reason", WORD)),
    *(("choices", "message", name) for name in (*MESSAGE, "tool_calls", "reasoning", "Content", WORD)),
    *(("usage", name) for name in (*USAGE, "more", WORD)),
)


def _changed(changes: dict[tuple[str, ...], Any]) -> bytes:
    """The usual answer with other values at some places, of which the last ones are put in first."""
    answer = json.loads(json.dumps(USUAL))
    for place, value in changes.items():
        holder: Any = answer
        for name in place[:-1]:
            holder = holder.get(name) if isinstance(holder, dict) else None
            holder = holder[0] if isinstance(holder, list) and holder else holder
        if isinstance(holder, dict):
            holder[place[-1]] = copy.deepcopy(value)  # a later change may be within it
    return json.dumps(answer).encode()


def _read(body: bytes, rules: Policy) -> tuple[Any, ...]:
    findings: list[Any] = []
    guard = open_guard(CHAT, compiled(rules), 1, ("mz",), findings.append)
    answer = PlainAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE)
    try:
        answer.feed(body, 0.0)
        shown: Any = answer.close(0.0)
    except Exception as error:
        shown = (type(error), str(error))
    return shown, guard.counts.fact(), findings, guard.usage, guard.reasons, guard.metadata.passes("x-a")


def _read_slowly(body: bytes, rules: Policy) -> tuple[Any, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat, "usual_completion", lambda *_: None)
        return _read(body, rules)


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_one_change(place: tuple[str, ...]) -> None:
    for rules in POLICIES:
        for value in ODD:
            body = _changed({place: value})
            assert _read(body, rules) == _read_slowly(body, rules), (rules, value)


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(st.sampled_from(PLACES), st.sampled_from(ODD), max_size=4), st.sampled_from(POLICIES))
def test_several_changes(changes: dict[tuple[str, ...], Any], rules: Policy) -> None:
    assert _read(_changed(changes), rules) == _read_slowly(_changed(changes), rules)


def test_the_usual_answer_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    usual = chat.usual_completion

    def seen(*given: Any) -> Any:
        answer = usual(*given)
        taken.append(answer is not None)
        return answer

    monkeypatch.setattr(chat, "usual_completion", seen)
    assert json.loads(_read(_changed({}), policy())[0]) == USUAL
    _read(_changed({("choices", "message", "content"): WORD}), policy())
    assert taken == [True, False]
