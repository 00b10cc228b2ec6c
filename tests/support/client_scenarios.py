"""What an upstream of three dialects does, by the user's message, and the text that a client must end up with.

The same scenarios as `tests.support.scenarios`, for clients of which nothing but the text is looked at, recorded as
chat completions, responses and messages. An outcome is the text and the error: the status of the exception that the
client raised, "error" if it has none.
"""

from __future__ import annotations

import json
from typing import Any

from tests.support import message_streams, response_streams
from tests.support.event_client import script
from tests.support.scenarios import SCENARIOS, Outcome, sse
from tests.support.upstream import DONE, END, Call, Json, chunk, completion, delta, event, events, plain, stream_head

# To be asked, to be asked for an object, to be asked with a tool at hand.
PROMPTS = {
    "ask": ["redacted", "blocked", "failed", "cut", "refused", "detonator"],
    "parse": ["note"],
    "call": ["remember", "forget"],
}
DEMO_PROMPTS = {"ask": ["What is the password?"], "parse": ["Tell me the password"], "call": ["Remember the password"]}
_THOUGHT = "They want 12MONKEYS."
_NOTE = '{"note": "it is 12MON\\u004bEYS"}'
_FORBIDDEN = '{"note": "so FORBIDDEN things"}'
_ARGUMENTS = {"note": _NOTE, "remember": _NOTE, "forget": _FORBIDDEN}  # of a tool, by prompt
_COMMANDS = {"Bash": "command", "exec_command": "cmd"}  # tool of an agent → its argument instead of `note`
_REFUSED = {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}


def outcome(text: str = "", error: int | str | None = None) -> Outcome:
    return {"text": text, "error": error}


EXPECTED = {
    "redacted, whole": outcome("It is [CENSORED]."),
    "redacted, streamed": outcome("It is [CENSORED]."),
    "blocked, whole": outcome("so  (stopped)"),
    "blocked, streamed": outcome("so  (stopped)"),
    "failed, whole": outcome(error=500),
    "failed, streamed": outcome("Hello 12", "error"),
    "cut, whole": outcome(error=502),
    "cut, streamed": outcome("Hello 12", "error"),
    "refused, whole": outcome(error=429),
    "refused, streamed": outcome(error=429),
    "detonator, whole": outcome(error=400),
    "detonator, streamed": outcome(error=400),
    "note, parsed": outcome("it is [CENSORED]"),
    "forget, called": outcome(error="error"),  # no tool has run
    "remember, called": outcome("it is [CENSORED]; It is [CENSORED]."),
}
DEMO_EXPECTED = {
    "What is the password?, whole": outcome('The password is "[CENSORED]".'),
    "What is the password?, streamed": outcome('The password is "[CENSORED]".'),
    "Tell me the password, parsed": outcome("the password is [CENSORED]"),
    "Remember the password, called": outcome("the password is [CENSORED]; The tool says: kept"),
}


def prompt_of(body: Json) -> str:
    """The text of the user's last message, in any of the dialects.

    Once a tool was called, and where a program asks further by itself, that is `redacted`.
    """
    if any(f'"{result}"' in json.dumps(body) for result in ("tool_call_id", "function_call_output", "tool_result")):
        return "redacted"
    given: Any = body.get("messages", body.get("input"))
    if isinstance(given, list):
        given = [message for message in given if message.get("role") == "user"][-1]["content"]
    if isinstance(given, list):
        given = given[-1]["text"]
    return given if given in (*PROMPTS["ask"], *_ARGUMENTS) else "redacted"


async def play(call: Call) -> None:
    """An upstream that speaks all of them."""
    answer = _ANSWERS[call.request.target.partition("?")[0].removeprefix("/v1/")]
    name = prompt_of(call.body)
    await call.send(answer(name, call.body))
    if name == "cut":
        call.close()


def _failure(name: str) -> bytes:
    """What is no stream and no answer."""
    if name == "refused":
        return plain({"error": _REFUSED}, 429)
    return plain({"error": {"message": "no 12MONKEYS", "type": "server_error", "code": "boom"}}, 500)


def _call(name: str, tools: list[Json]) -> tuple[str, str]:
    """The tool that is called, of those that are offered, and its arguments."""
    names = [tool["name"] for tool in tools if "name" in tool]
    tool = next((each for each in names if each in _COMMANDS), names[0])
    return tool, _ARGUMENTS[name].replace("note", _COMMANDS.get(tool, "note"), 1)


def _chat(name: str, body: Json) -> bytes:
    streamed = body.get("stream")
    if name in SCENARIOS:
        return SCENARIOS[name].streamed if streamed else SCENARIOS[name].whole
    if not body.get("tools"):
        return sse(events(*_PIECES[name])) if streamed else plain(completion(_NOTE))
    call = {"index": 0, "id": "call_1", "type": "function"}
    tool, arguments = _call(name, [each["function"] for each in body["tools"]])
    call["function"] = {"name": tool, "arguments": arguments}
    if not streamed:
        return plain(completion(None, "tool_calls", tool_calls=[call], reasoning_content=_THOUGHT))
    told = (delta(role="assistant", reasoning_content=_THOUGHT), delta(tool_calls=[call]), delta(finish="tool_calls"))
    return sse(b"".join(map(event, told)) + DONE)


_PIECES = {
    "redacted": ("It is 12", "MON", "KEYS."),
    "blocked": ("so FORB", "IDDEN things"),
    "failed": ("Hello 12",),
    "cut": ("Hello 12",),
    "note": (_NOTE[:20], _NOTE[20:]),
    "remember": (_NOTE,),
    "forget": (_FORBIDDEN,),
}


def _responses(name: str, body: Json) -> bytes:
    if name == "refused" or (name == "failed" and not body.get("stream")):
        return _failure(name)
    items = [response_streams.message(*_PIECES[name])]
    if name in _ARGUMENTS and body.get("tools"):
        tool, arguments = _call(name, body["tools"])
        call = response_streams.function_call(arguments, name=tool)
        items = [response_streams.summary(_THOUGHT), call]
    if not body.get("stream"):
        whole = plain(response_streams.response(*(item.done for item in items)))
        return whole[:-10] if name == "cut" else whole
    told = response_streams.events(*items)
    if name in ("failed", "cut"):
        told = told[:5]  # to the first delta
    if name == "failed":
        told.append({"type": "error", "code": "boom", "message": "no 12MONKEYS", "param": None, "sequence_number": 5})
    return stream_head() + chunk(script(told)) + (b"" if name == "cut" else END)


def _messages(name: str, body: Json) -> bytes:
    if name == "refused":
        return plain({"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}, 429)
    failure = {"type": "error", "error": {"type": "api_error", "message": "no 12MONKEYS"}}
    if name == "failed" and not body.get("stream"):
        return plain(failure, 500)
    block, stop = message_streams.text(*_PIECES[name]), "end_turn"
    whole: Json = {"type": "text", "text": "".join(_PIECES[name])}
    if name in _ARGUMENTS and body.get("tools"):
        tool, arguments = _call(name, body["tools"])
        block, stop = message_streams.tool_use(arguments, name=tool), "tool_use"
        whole = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": json.loads(arguments)}
    if not body.get("stream"):
        answer = plain(message_streams.message(whole, stop_reason=stop))
        return answer[:-10] if name == "cut" else answer
    told = message_streams.events(block, stop_reason=stop)
    if name in ("failed", "cut"):
        told = told[:4]  # to the first delta
    if name == "failed":
        told.append(failure)
    return stream_head() + chunk(script(told)) + (b"" if name == "cut" else END)


_ANSWERS = {"chat/completions": _chat, "responses": _responses, "messages": _messages}
