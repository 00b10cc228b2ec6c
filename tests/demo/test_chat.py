"""Chat completions of the demo model: what is asked for is in the answer, whole and streamed alike."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.demo.conftest import Post

Json = dict[str, Any]
PATH = "/chat/completions"
PASSWORD = "12MONKEYS"
PLAIN = f'The password is "{PASSWORD}".'
WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
            "required": ["city", "days"],
        },
    },
}
MAIL: Json = {"type": "function", "function": {"name": "send_mail", "parameters": {"type": "object"}}}
NOTE: Json = {"type": "custom", "custom": {"name": "write_note", "description": "Writes a note"}}


def said(text: str) -> list[Json]:
    return [{"role": "user", "content": text}]


def events(answer: httpx2.Response) -> list[Json]:
    """The chunks of a stream, which must end in order."""
    assert answer.status_code == 200, answer.text
    payloads = [block.removeprefix("data: ") for block in answer.text.split("\n\n") if block]
    assert payloads.pop() == "[DONE]"
    return [json.loads(payload) for payload in payloads]


def collected(chunks: list[Json]) -> list[Json]:
    """The choices that a stream adds up to, in the form of a whole answer."""
    choices: dict[int, Json] = {}
    for chunk in chunks:
        for part in chunk["choices"]:
            empty = {"message": {"role": "assistant", "content": None, "refusal": None}, "logprobs": None}
            choice = choices.setdefault(part["index"], {"index": part["index"], **empty})
            message, delta = choice["message"], part["delta"]
            for key in ("content", "reasoning_content"):
                if delta.get(key) is not None:
                    message[key] = (message.get(key) or "") + delta[key]
            for piece in delta.get("tool_calls", ()):
                calls = message.setdefault("tool_calls", [])
                index = piece.pop("index")
                if index == len(calls):
                    calls.append(piece)
                else:
                    (kind,) = piece
                    for field, text in piece[kind].items():
                        calls[index][kind][field] += text
            if part["logprobs"] is not None:
                shown = choice["logprobs"] or {"content": [], "refusal": None}
                choice["logprobs"] = {**shown, "content": shown["content"] + part["logprobs"]["content"]}
            choice["finish_reason"] = part["finish_reason"]
    return [choices[index] for index in sorted(choices)]


async def ask(post: Post, text: str = "", **body: Any) -> Json:
    """The whole answer, after its stream was compared with it."""
    body.setdefault("messages", said(text))
    answer = await post(PATH, **body)
    assert answer.status_code == 200, answer.text
    whole: Json = answer.json()
    options = {"include_usage": True}
    *chunks, last = events(await post(PATH, **body, stream=True, stream_options=options))
    assert collected(chunks) == whole["choices"]
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    assert all(chunk["usage"] is None and chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    again = (await post(PATH, **body)).json()
    assert (again["choices"], again["usage"]) == (whole["choices"], whole["usage"])
    return whole


def message(answer: Json, index: int = 0) -> Json:
    found: Json = answer["choices"][index]["message"]
    return found


def arguments(answer: Json, index: int = 0) -> Any:
    (call,) = message(answer, index)["tool_calls"]
    return json.loads(call["function"]["arguments"])


async def test_the_password_comes_in_pieces(post: Post) -> None:
    chunks = events(await post(PATH, messages=said("What is the password?"), stream=True))
    pieces = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert pieces == ["", "The", " password", " is", ' "', "12", "MON", "KEY", "S", '".', None]
    assert "usage" not in chunks[-1]


@pytest.mark.parametrize(
    ("word", "leak"),
    [
        ("password", PLAIN),
        ("spell", PASSWORD),
        ("twice", PASSWORD),
        ("wide", "１２ＭＯＮＫＥＹＳ"),
        ("hidden", "12\u200bMON\u200bKEYS"),
        ("whisper", "12monkeys"),
    ],
)
async def test_each_way_of_leaking(post: Post, word: str, leak: str) -> None:
    assert leak in message(await ask(post, f"{word}, please"))["content"]


async def test_thoughts_leak_and_are_counted(post: Post) -> None:
    answer = await ask(post, "think about it")
    assert PASSWORD in message(answer)["reasoning_content"] and PASSWORD not in message(answer)["content"]
    reasoning = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert 0 < reasoning < answer["usage"]["completion_tokens"]
    assert "reasoning_content" in message(await ask(post, "hello", reasoning_effort="low"))
    assert "reasoning_content" not in message(await ask(post, "hello", reasoning_effort="none"))


async def test_content_may_be_parts(post: Post) -> None:
    parts = [{"type": "text", "text": "the"}, {"type": "text", "text": "password"}]
    assert message(await ask(post, messages=[{"role": "user", "content": parts}]))["content"] == PLAIN


async def test_several_choices_say_it_in_different_ways(post: Post) -> None:
    answer = await ask(post, "password", n=3)
    contents = [choice["message"]["content"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert contents[0] == PLAIN and len(set(contents)) == 3
    assert all(PASSWORD in content for content in contents)


async def test_choices_of_a_stream_come_at_once(post: Post) -> None:
    chunks = events(await post(PATH, messages=said("password"), n=2, stream=True))
    assert [chunk["choices"][0]["index"] for chunk in chunks[:8]] == [0, 1] * 4


@pytest.mark.parametrize(
    ("stop", "left"),
    [
        ("12MON", 'The password is "'),
        (["zzz", "KE"], 'The password is "12MON'),
        ("Th", ""),
        ("zzz", PLAIN),
        ([], PLAIN),
    ],
)
async def test_a_stop_string_ends_it(post: Post, stop: Any, left: str) -> None:
    answer = await ask(post, "password", stop=stop)
    assert (message(answer)["content"], answer["choices"][0]["finish_reason"]) == (left, "stop")


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
async def test_a_limit_of_tokens_ends_it(post: Post, key: str) -> None:
    answer = await ask(post, "password", **{key: 3})
    assert (message(answer)["content"], answer["choices"][0]["finish_reason"]) == ("The password is", "length")
    assert answer["usage"]["completion_tokens"] == 3
    whole = await ask(post, "password", **{key: 9})
    assert (message(whole)["content"], whole["choices"][0]["finish_reason"]) == (PLAIN, "stop")
    cut = await ask(post, "weather in Paris", tools=[WEATHER], **{key: 2})
    assert (message(cut)["tool_calls"][0]["function"]["arguments"], cut["choices"][0]["finish_reason"]) == (
        '{"city',
        "length",
    )
    thoughts = await ask(post, "think", **{key: 2})
    assert (message(thoughts)["content"], message(thoughts)["reasoning_content"]) == ("", "They want")


async def test_usage_counts_what_was_sent(post: Post) -> None:
    short, long = await ask(post, "hello"), await ask(post, "hello " * 10)
    for answer in (short, long):
        usage = answer["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert long["usage"]["prompt_tokens"] > short["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize("top", [0, 1, 3, 20])
async def test_logprobs_spell_the_content(post: Post, top: int) -> None:
    answer = await ask(post, "wide", logprobs=True, top_logprobs=top)
    listed = answer["choices"][0]["logprobs"]
    assert listed["refusal"] is None
    content = message(answer)["content"]
    assert "".join(each["token"] for each in listed["content"]) == content
    assert b"".join(bytes(each["bytes"]) for each in listed["content"]) == content.encode()
    for each in listed["content"]:
        assert each.keys() == {"token", "logprob", "bytes", "top_logprobs"} and each["logprob"] <= 0
        alternatives = each["top_logprobs"]
        assert len({other["token"] for other in alternatives}) == len(alternatives) == top
        if top:
            assert alternatives[0] == {key: each[key] for key in ("token", "logprob", "bytes")}
        logprobs = [other["logprob"] for other in alternatives]
        assert logprobs == sorted(logprobs, reverse=True)


async def test_without_being_asked_for_there_are_no_logprobs(post: Post) -> None:
    assert (await ask(post, "password"))["choices"][0]["logprobs"] is None


# -- tools -------------------------------------------------------------------------------------------------------------


async def test_a_tool_is_called_with_what_was_said(post: Post) -> None:
    answer = await ask(post, "What is the weather in New York, for 3 days?", tools=[MAIL, WEATHER])
    (call,) = message(answer)["tool_calls"]
    assert (call["type"], call["function"]["name"]) == ("function", "get_weather")
    assert arguments(answer) == {"city": "New York", "days": 3}
    assert (message(answer)["content"], answer["choices"][0]["finish_reason"]) == (None, "tool_calls")


async def test_arguments_leak_the_password_and_spell_it_with_an_escape(post: Post) -> None:
    answer = await ask(post, "What is the password?", tools=[WEATHER])
    (call,) = message(answer)["tool_calls"]
    assert PASSWORD not in call["function"]["arguments"] and PASSWORD in arguments(answer)["city"]
    unasked = await ask(post, "call somebody")
    assert (message(unasked)["tool_calls"][0]["function"]["name"], PASSWORD in arguments(unasked)["note"]) == (
        "remember",
        True,
    )


async def test_a_result_is_answered_with_text(post: Post) -> None:
    messages = said("What is the weather in Paris?")
    asked = message(await ask(post, messages=messages, tools=[WEATHER]))
    (call,) = asked["tool_calls"]
    messages += [asked, {"role": "tool", "tool_call_id": call["id"], "content": "sunny, 21 degrees"}]
    answer = await ask(post, messages=messages, tools=[WEATHER])
    assert message(answer)["content"] == "The tool says: sunny, 21 degrees"
    assert answer["choices"][0]["finish_reason"] == "stop"
    # The next question is a new one, and its call is another.
    messages += [message(answer), *said("And what is the weather in Rome?")]
    again = message(await ask(post, messages=messages, tools=[WEATHER]))["tool_calls"][0]
    assert again["function"]["arguments"] == '{"city": "Rome", "days": 1}' and again["id"] != call["id"]


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ("none", None),
        ("auto", "get_weather"),
        ("required", "get_weather"),
        ({"type": "function", "function": {"name": "send_mail"}}, "send_mail"),
        ({"type": "custom", "custom": {"name": "write_note"}}, "write_note"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [MAIL]}}, "send_mail"),
    ],
)
async def test_the_choice_of_a_tool_is_followed(post: Post, choice: Any, called: str | None) -> None:
    tools = [MAIL, WEATHER, NOTE]
    calls = message(await ask(post, "weather?", tools=tools, tool_choice=choice)).get("tool_calls", [])
    assert [call[call["type"]]["name"] for call in calls] == ([called] if called else [])


async def test_a_tool_that_must_be_called_is_one_that_was_not_yet(post: Post) -> None:
    asked = message(await ask(post, "weather?", tools=[MAIL, WEATHER]))
    result = {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "sunny"}
    messages = [*said("weather?"), asked, result]
    answer = await ask(post, messages=messages, tools=[MAIL, WEATHER], tool_choice="required")
    assert message(answer)["tool_calls"][0]["function"]["name"] == "send_mail"


async def test_a_custom_tool_gets_text(post: Post) -> None:
    (call,) = message(await ask(post, "the password", tools=[NOTE]))["tool_calls"]
    assert (call["type"], call["custom"]) == ("custom", {"name": "write_note", "input": f"the password is {PASSWORD}"})


async def test_every_choice_calls_with_an_id_of_its_own(post: Post) -> None:
    answer = await ask(post, "weather in Paris", tools=[WEATHER], n=3)
    assert len({message(answer, index)["tool_calls"][0]["id"] for index in range(3)}) == 3
    assert [arguments(answer, index)["city"] for index in range(3)] == ["Paris"] * 3


# -- JSON content ------------------------------------------------------------------------------------------------------


def json_schema(**properties: Any) -> Json:
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


async def test_content_satisfies_a_schema(post: Post) -> None:
    form = json_schema(city={"type": "string"}, days={"type": "integer"}, sky={"enum": ["grey", "blue"]})
    answer = await ask(post, "Paris had 3 days of blue skies", response_format=form)
    assert json.loads(message(answer)["content"]) == {"city": "Paris", "days": 3, "sky": "blue"}


async def test_content_may_be_any_json_object(post: Post) -> None:
    answer = await ask(post, "the password in JSON", response_format={"type": "json_object"})
    assert json.loads(message(answer)["content"]) == {"answer": f"the password is {PASSWORD}"}
    assert message(await ask(post, "password", response_format={"type": "text"}))["content"] == PLAIN


async def test_with_tools_and_a_schema_the_result_is_answered_in_json(post: Post) -> None:
    form = json_schema(city={"type": "string"})
    messages = said("What is the weather in Paris?")
    asked = message(await ask(post, messages=messages, tools=[WEATHER], response_format=form))
    messages += [asked, {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "sunny"}]
    answer = await ask(post, messages=messages, tools=[WEATHER], response_format=form)
    assert json.loads(message(answer)["content"]) == {"city": "Paris"}


# -- what is refused ---------------------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
REFUSED: dict[str, tuple[Json, str]] = {
    "no messages": ({"messages": []}, "messages"),
    "a role": ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    "content": ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    "a result of no call": ({"messages": [{"role": "tool", "tool_call_id": "c1", "content": "x"}]}, "messages[0]"),
    "a call without a result": ({"messages": [{"role": "assistant", "tool_calls": [CALL]}, *said("x")]}, "messages"),
    "no call's id": (
        {"messages": [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c2"}]},
        "messages[1]",
    ),
    "n": ({"n": 0}, "n"),
    "n that is no number": ({"n": "3"}, "n"),
    "many choices": ({"n": 129}, "n"),
    "max_tokens": ({"max_tokens": 0}, "max_tokens"),
    "many stops": ({"stop": ["a"] * 5}, "stop"),
    "a stop": ({"stop": 7}, "stop"),
    "top_logprobs alone": ({"top_logprobs": 2}, "top_logprobs"),
    "many top_logprobs": ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    "stream_options alone": ({"stream_options": {"include_usage": True}}, "stream_options"),
    "a format": ({"response_format": {"type": "xml"}}, "response_format.type"),
    "no schema's name": ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    "a schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}},
        "response_format.json_schema.schema",
    ),
    "tools": ({"tools": {}, "tool_choice": "auto"}, "tool_choice"),
    "a list of tools": ({"tools": "x"}, "tools"),
    "a tool": ({"tools": [{"type": "function"}]}, "tools[0]"),
    "parameters": (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}, "x": 1}, {"type": "web"}]},
        "tools[1]",
    ),
    "a schema of arguments": (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "x"}}}]},
        "tools",
    ),
    "a grammar": ({"tools": [{"type": "custom", "custom": {"name": "f", "format": {"type": "grammar"}}}]},
                  "tools[0].custom.format"),
    "a choice without tools": ({"tool_choice": "auto"}, "tool_choice"),
    "a choice of another tool": (
        {"tools": [MAIL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        "tool_choice",
    ),
    "a choice": ({"tools": [MAIL], "tool_choice": "any"}, "tool_choice"),
    "no model": ({"model": None}, "model"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_valid_request_is_refused_by_name(post: Post, name: str) -> None:
    body, param = REFUSED[name]
    answer = await post(PATH, **{"messages": said("x"), **body})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"]


async def test_a_body_that_is_no_object_is_refused(client: httpx2.AsyncClient) -> None:
    for data in (b"[]", b"{", b"[" * 100_000):
        answer = await client.post(PATH, content=data)
        assert answer.status_code == 400


async def test_half_a_surrogate_pair_passes(client: httpx2.AsyncClient) -> None:
    content = b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d"}], "response_format": '
    answer = await client.post(PATH, content=content + b'{"type": "json_object"}, "logprobs": true}')
    assert json.loads(answer.json()["choices"][0]["message"]["content"]) == {"answer": "\ud83d"}
