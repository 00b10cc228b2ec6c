"""Targets: answers in each dialect through the guard, streamed and whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gateway.guard.answer import BrokenAnswer
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Policy
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from tests.fuzz.target import Target, headed, pieces, seeds
from tests.support import completions_client, event_client, guard_client, message_streams, response_streams
from tests.support.guard_client import HEAD, call, calls, chunk, completion
from tests.support.random_answers import POLICIES

Played = guard_client.Client | event_client.Received
Play = Callable[..., Played]
Plain = Callable[..., Any]


def _in_dialect(dialect: Dialect) -> tuple[Play, Plain]:
    return (
        lambda policy, *reads: event_client.play(policy, dialect, *reads),
        lambda policy, *reads: event_client.plain(policy, dialect, *reads),
    )


def _answer(play: Play, plain: Plain) -> Callable[[bytes], None]:
    """No client reads the forbidden word or what depends on the cuts, and the guard does not fail."""

    def run(data: bytes) -> None:
        choice, size, body = headed(data)
        policy: Policy = POLICIES[choice % len(POLICIES)]
        word = policy.rules[0].words[0]
        client, slowly = play(policy, body), play(policy, *pieces(body, size))
        assert not [fact for fact in client.facts if isinstance(fact, GuardFailed)]
        assert word not in client.text
        assert slowly.raw.replace(b":\n\n", b"") == client.raw.replace(b":\n\n", b"")
        shown = _whole(plain, policy, body)
        assert word not in shown
        assert _whole(plain, policy, *pieces(body, size)) == shown

    return run


def _whole(plain: Plain, policy: Policy, *reads: bytes) -> str:
    try:
        return json.dumps(plain(policy, *reads)[0], ensure_ascii=False)
    except BrokenAnswer as error:
        return str(error.failure)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


_PIECES = ("see 12", "MON", "KEYS there")
_ARGUMENTS = ('{"a": "12MO', '\\u004eKEYS", "b', '": [1, 2]}')
_CHAT = guard_client.script(*(chunk({"content": piece}) for piece in _PIECES), chunk(finish="stop"))
_CALLS = guard_client.script(
    calls(call(0, "f", "")), *(calls(call(0, arguments=piece)) for piece in _ARGUMENTS), chunk(finish="tool_calls")
)
_REASONING = guard_client.script(
    *(chunk({"reasoning_content": piece, "content": ""}) for piece in _PIECES), chunk({"refusal": "12MONKEYS"}, 1)
)
_ERROR = guard_client.event({"error": {"message": "12MONKEYS", "type": "t", "code": 1}})
_PARTS = [completions_client.part(piece) for piece in _PIECES]
_RESPONSE = response_streams.events(
    response_streams.reasoning(*_PIECES),
    response_streams.message(*_PIECES),
    response_streams.function_call(*_ARGUMENTS),
)
_MESSAGE = message_streams.events(
    message_streams.thinking(*_PIECES), message_streams.text(*_PIECES), message_streams.tool_use(*_ARGUMENTS)
)
_STORED = response_streams.response({"type": "message", "content": [{"type": "output_text", "text": "12MONKEYS"}]})

TARGETS = {
    "chat": Target(
        _answer(guard_client.play, guard_client.plain),
        seeds(_CHAT, _CALLS, _REASONING, _ERROR, _json(completion({"content": "a 12MONKEYS"})), choices=(0, 1, 3)),
    ),
    "completions": Target(
        _answer(completions_client.play, completions_client.plain),
        seeds(
            guard_client.script(*_PARTS, completions_client.part(finish="stop")),
            _json(completions_client.whole_of("a 12MONKEYS", "b")),
            _json({**HEAD, "choices": "12MONKEYS"}),
        ),
    ),
    "responses": Target(
        _answer(*_in_dialect(RESPONSES)), seeds(event_client.script(_RESPONSE), _json(_STORED)), longest=8192
    ),
    "messages": Target(
        _answer(*_in_dialect(MESSAGES)),
        seeds(event_client.script(_MESSAGE), _json(message_streams.message({"type": "text", "text": "12MONKEYS"}))),
        longest=8192,
    ),
}
