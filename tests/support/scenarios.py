"""What an upstream does, by the name that the user's message gives, and what an SDK must make of the gateway's answer.

An *outcome* is what a program that uses an SDK ends up with, in a form that Python and Node can both print: the texts
of each choice, and the error, if the SDK raised one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.completions import PATH, completed, part, streamed
from tests.support.completions import choice as text_choice
from tests.support.gateway import RULES, config_for
from tests.support.upstream import (
    DONE,
    END,
    MODEL,
    Call,
    chunk,
    completion,
    delta,
    event,
    events,
    plain,
    stream_head,
)

KEY = "sk-of-a-client"
Outcome = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`streamed` and `whole` are the upstream's bytes; it hangs up after them if it `dies`."""

    streamed: bytes
    whole: bytes
    outcome: Outcome
    outcome_whole: Outcome | None = None  # where it differs
    fields: dict[str, Any] = field(default_factory=dict)
    dies: bool = False


def choice(content: str, finish: str | None = "stop", **more: Any) -> Outcome:
    return {"content": content, "reasoning": "", "calls": [], "finish": finish, **more}


def outcome(*choices: Outcome, error: Outcome | None = None) -> Outcome:
    return {"choices": list(choices), "error": error}


def raised(status: int | None, code: str | None) -> Outcome:
    """An API error as the SDKs show it; without a status where the stream had begun."""
    return {"status": status, "code": code}


def sse(body: bytes) -> bytes:
    return stream_head() + chunk(body) + END


def _call(index: int, name: str, arguments: str = "") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": f"call_{index}", "type": "function", "function": function}


def _arguments(index: int, text: str) -> bytes:
    return event(delta(tool_calls=[{"index": index, "function": {"arguments": text}}]))


_TOOLS = (
    event(delta(role="assistant", tool_calls=[_call(0, "remember")]))
    + _arguments(0, '{"note": "it is 12')
    + _arguments(0, 'MONK\\u0045YS"}')
    + event(delta(tool_calls=[_call(1, "look")]))
    + _arguments(1, '{"at": 7}')
    + event(delta(finish="tool_calls"))
    + DONE
)
_CALLS = [
    {"name": "remember", "arguments": {"note": "it is [CENSORED]"}},
    {"name": "look", "arguments": {"at": 7}},
]
_WHOLE_TOOLS = completion(
    None,
    "tool_calls",
    tool_calls=[_call(0, "remember", '{"note": "it is 12MONKEYS"}'), _call(1, "look", '{"at": 7}')],
)
_TWO = completion("one 12MONKEYS")
_TWO["choices"].append({**completion("two FORBIDDEN")["choices"][0], "index": 1})

SCENARIOS: dict[str, Scenario] = {
    "redacted": Scenario(
        sse(events("It is 12", "MON", "KEYS.")),
        plain(completion("It is 12MONKEYS.")),
        outcome(choice("It is [CENSORED].")),
    ),
    "blocked": Scenario(
        stream_head() + chunk(events("so FORB", "IDDEN things")),
        plain(completion("so FORBIDDEN things")),
        outcome(choice("so  (stopped)", "content_filter")),
    ),
    "failed": Scenario(
        sse(event(delta("Hello 12")) + event({"error": {"message": "no 12MONKEYS", "code": "boom"}})),
        plain({"error": {"message": "no 12MONKEYS", "type": "server_error", "code": "boom"}}, 500),
        outcome(choice("Hello 12", None), error=raised(None, "boom")),
        outcome(error=raised(500, "boom")),
    ),
    "cut": Scenario(
        stream_head() + chunk(event(delta("Hello 12"))),
        plain(completion("Hello"))[:-10],
        outcome(choice("Hello 12", None), error=raised(None, "upstream_protocol_error")),
        outcome(error=raised(502, "upstream_protocol_error")),
        dies=True,
    ),
    "refused": Scenario(
        plain({"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}, 429),
        plain({"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}, 429),
        outcome(error=raised(429, "rate_limit_exceeded")),
    ),
    "detonator": Scenario(b"", b"", outcome(error=raised(400, "content_filter"))),
    "tools": Scenario(sse(_TOOLS), plain(_WHOLE_TOOLS), outcome(choice("", "tool_calls", calls=_CALLS))),
    "thinking": Scenario(
        sse(event(delta(reasoning_content="so 12MON")) + event(delta(reasoning_content="KEYS")) + events("fine")),
        plain(completion("fine", reasoning_content="so 12MONKEYS")),
        outcome(choice("fine", reasoning="so [CENSORED]")),
    ),
    "two": Scenario(
        sse(
            event(delta("one 12", index=0))
            + event(delta("two FOR", index=1))
            + event(delta("MONKEYS", index=0))
            + event(delta("BIDDEN", index=1))
            + event(delta(index=0, finish="stop"))
            + event(delta(index=1, finish="stop"))
            + DONE
        ),
        plain(_TWO),
        outcome(choice("one [CENSORED]"), choice("two  (stopped)", "content_filter")),
        fields={"n": 2},
    ),
    "json to a stream": Scenario(
        plain(completion("It is 12MONKEYS.")),
        sse(events("It is 12", "MONKEYS.")),
        outcome(choice("It is [CENSORED].")),
    ),
}


def text(said: str, finish: str | None = "stop") -> Outcome:
    """A choice of a text completion."""
    return {"text": said, "finish": finish}


# The same for text completions; the prompt is the name, or the first of several prompts is.
TEXTS: dict[str, Scenario] = {
    "redacted": Scenario(
        streamed("It is 12", "MON", "KEYS."),
        plain(completed("It is 12MONKEYS.")),
        outcome(text("It is [CENSORED].")),
    ),
    "blocked": Scenario(
        streamed("so FORB", "IDDEN things"),
        plain(completed("so FORBIDDEN things")),
        outcome(text("so  (stopped)", "content_filter")),
    ),
    "failed": Scenario(
        sse(event(part("Hello 12")) + event({"error": {"message": "no 12MONKEYS", "code": "boom"}})),
        plain({"error": {"message": "no 12MONKEYS", "type": "server_error", "code": "boom"}}, 500),
        outcome(text("Hello 12", None), error=raised(None, "boom")),
        outcome(error=raised(500, "boom")),
    ),
    "cut": Scenario(
        stream_head() + chunk(event(part("Hello 12"))),
        plain(completed("Hello"))[:-10],
        outcome(text("Hello 12", None), error=raised(None, "upstream_protocol_error")),
        outcome(error=raised(502, "upstream_protocol_error")),
        dies=True,
    ),
    "detonator": Scenario(b"", b"", outcome(error=raised(400, "content_filter"))),
    "token ids": Scenario(b"", b"", outcome(error=raised(400, None)), fields={"prompt": [1, 2, 3]}),
    "prompts": Scenario(
        sse(
            event({**part("one 12"), "choices": [text_choice("one 12"), text_choice("two FOR", 1)]})
            + event(part("BIDDEN", 1))
            + event(part("MONKEYS", finish="length"))
            + event(part(index=1, finish="stop"))
            + DONE
        ),
        plain(completed("one 12MONKEYS", "two FORBIDDEN", finish="length")),
        outcome(text("one [CENSORED]", "length"), text("two  (stopped)", "content_filter")),
        fields={"prompt": ["prompts", "b"], "echo": True},
    ),
    "json to a stream": Scenario(
        plain(completed("It is 12MONKEYS.")),
        streamed("It is 12", "MONKEYS."),
        outcome(text("It is [CENSORED].")),
    ),
}


def scenario_of(call: Call) -> Scenario:
    if call.request.target != PATH:
        return SCENARIOS[call.body["messages"][-1]["content"]]
    prompt: Any = call.body["prompt"]
    return TEXTS[prompt if isinstance(prompt, str) else prompt[0]]


async def play(call: Call) -> None:
    scenario = scenario_of(call)
    await call.send(scenario.streamed if call.body.get("stream") else scenario.whole)
    if scenario.dies:
        call.close()


def configuration(base_url: str) -> Any:
    return config_for(base_url, rules=RULES, keys=(KEY,))


def expected() -> dict[str, Outcome]:
    """The outcome of every scenario, streamed and whole, and of the calls beside them."""
    found = _outcomes(SCENARIOS)
    found["wrong key"] = outcome(error=raised(401, "invalid_api_key"))
    found["unknown path"] = outcome(error=raised(404, "unknown_url"))
    found["models"] = {"models": [MODEL]}
    return found


def expected_texts() -> dict[str, Outcome]:
    """The same of every scenario of text completions."""
    return _outcomes(TEXTS)


def _outcomes(scenarios: dict[str, Scenario]) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for name, scenario in scenarios.items():
        found[f"{name}, streamed"] = scenario.outcome
        found[f"{name}, whole"] = scenario.outcome_whole or scenario.outcome
    return found
