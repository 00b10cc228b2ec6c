"""Prompts under the rules that apply to input: what the upstream sees, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.censor.stream import Censor
from gateway.policy.model import Action, Mode, Rule, Strength
from tests.support.gateway import INPUT, before, error_of, question, quick
from tests.support.upstream import completion, plain, sending

ANSWER = sending(plain(completion("fine")))
Messages = list[dict[str, Any]]
PICTURE = "data:image/png;base64," + "Voldemort+123456" * 4


def said(*messages: dict[str, Any]) -> dict[str, Any]:
    return question() | {"messages": list(messages)}


PROMPTS: dict[str, tuple[Messages, Messages]] = {
    "untouched": (
        [{"role": "user", "content": "hi 12MONKEYS FORBIDDEN"}],
        [{"role": "user", "content": "hi 12MONKEYS FORBIDDEN"}],
    ),
    "every message": (
        [
            {"role": "system", "content": "never say Voldemort"},
            {"role": "user", "content": "VOLDEMORT! voldemort?"},
            {"role": "assistant", "content": None, "refusal": "not Voldemort"},
            {"role": "user", "content": "Volde", "name": "x"},
            {"role": "user", "content": "mort"},
        ],
        [
            {"role": "system", "content": "never say [NAME]"},
            {"role": "user", "content": "[NAME]! [NAME]?"},
            {"role": "assistant", "content": None, "refusal": "not [NAME]"},
            {"role": "user", "content": "Volde", "name": "x"},
            {"role": "user", "content": "mort"},
        ],
    ),
    "parts": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "is this Voldemort"},
                    {"type": "image_url", "image_url": {"url": PICTURE}},
                    {"type": "text", "text": "or V\u200boldemort"},
                ],
            }
        ],
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "is this [NAME]"},
                    {"type": "image_url", "image_url": {"url": PICTURE}},
                    {"type": "text", "text": "or [NAME]"},
                ],
            }
        ],
    ),
    "tools": (
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"who": "Volde\\u006dort"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "found Voldemort"},
        ],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"who": "[NAME]"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "found [NAME]"},
        ],
    ),
}


@pytest.mark.parametrize("case", PROMPTS)
async def test_what_the_upstream_sees(case: str) -> None:
    given, seen = PROMPTS[case]
    async with before(ANSWER) as (gateway, upstream):
        answer = await gateway.post(said(*given))
        assert answer.status_code == 200
        assert upstream.asked.body == said(*seen)
        metrics = await gateway.metrics()
        metrics.assert_covered()
        if given != seen:
            assert metrics.value("portcullis_matches_total", rule="prompt-name", action="redact") > 0


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "how is a DETONATOR made"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "deto\u200bnator"}]},
        {"role": "system", "content": "ｄｅｔｏｎａｔｏｒ"},
        {"role": "user", "content": "x", "name": "detonator"},
    ],
)
async def test_a_blocked_prompt_is_400_with_the_rules_id(message: dict[str, Any], streamed: bool) -> None:
    async with before(ANSWER) as (gateway, upstream):
        response = await gateway.post(said({"role": "user", "content": "first"}, message) | {"stream": streamed})
        error = error_of(response, 400)
        assert error["code"] == "content_filter"
        assert "prompt-stop" in error["message"]
        assert "detonator" not in response.text.lower()
        assert response.headers["x-portcullis-policy"] == "default"
        assert upstream.calls == []
        line = (await gateway.logged(1))[0]
        assert (line["outcome"], line["status"], line["matches"]) == ("blocked", 400, {"prompt-stop": 1})
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_requests_total", status="400", route="*", policy="default") == 1
        assert metrics.value("portcullis_matches_total", rule="prompt-stop", action="block") == 1


async def test_a_block_rules_message_is_what_the_client_reads() -> None:
    rule = Rule(id="r-7", words=("detonator",), action=Action.BLOCK, apply_to=INPUT, message="Ask something else.")
    async with before(ANSWER, rules=(rule,)) as (gateway, _):
        error = error_of(await gateway.ask("detonator"), 400)
        assert (error["message"], error["param"]) == ("Ask something else.", "r-7")


async def test_output_rules_leave_prompts_alone_and_input_rules_answers() -> None:
    async with before(sending(plain(completion("Voldemort has a detonator")))) as (gateway, upstream):
        answer = await gateway.ask("12MONKEYS FORBIDDEN")
        assert answer.json()["choices"][0]["message"]["content"] == "Voldemort has a detonator"
        assert upstream.asked.body["messages"][0]["content"] == "12MONKEYS FORBIDDEN"


async def test_observe_forwards_what_it_would_refuse() -> None:
    async with before(ANSWER, mode=Mode.OBSERVE) as (gateway, upstream):
        assert (await gateway.ask("Voldemort's detonator")).status_code == 200
        assert upstream.asked.body["messages"][0]["content"] == "Voldemort's detonator"
        assert (await gateway.metrics()).value("portcullis_matches_total", action="flag") == 2


TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "description": "finds Voldemort", "parameters": {}},
}


async def test_fields_beside_the_messages_are_scanned_too() -> None:
    async with before(ANSWER) as (gateway, upstream):
        asked = question("hi", tools=[TOOL], documents=[{"text": "Voldemort"}], user="Voldemort", Voldemort=1)
        assert (await gateway.post(asked)).status_code == 200
        seen = question("hi", tools=[TOOL], documents=[{"text": "[NAME]"}], user="[NAME]") | {"[NAME]": 1}
        seen["tools"] = [{**TOOL, "function": {**TOOL["function"], "description": "finds [NAME]"}}]
        assert upstream.asked.body == seen
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_matches_total", rule="prompt-name", channel="other") == 4


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "description": "a detonator"}}]},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"properties": {"detonator": {}}}}}},
        {"chat_template_kwargs": {"system": "detonator"}},
        {"unknown": [[["detonator"]]]},
        {"tool_choice": {"type": "function", "function": {"name": "detonator"}}},
    ],
)
async def test_a_field_can_block_a_request(fields: dict[str, Any]) -> None:
    async with before(ANSWER) as (gateway, upstream):
        error = error_of(await gateway.ask(**fields), 400)
        assert (error["code"], error["param"]) == ("content_filter", "prompt-stop")
        assert upstream.calls == []


@pytest.mark.parametrize("field", ["chat_template", "vllm_xargs"])
async def test_rules_for_input_alone_refuse_what_leads_past_them(field: str) -> None:
    rule = Rule(id="r", words=("detonator",), apply_to=INPUT)
    async with before(ANSWER, rules=(rule,)) as (gateway, upstream):
        assert error_of(await gateway.ask(**{field: "{{ 'deto' + 'nator' }}"}), 400)["param"] == field
        assert upstream.calls == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/moderations"])
async def test_a_prompt_that_takes_too_long_to_scan_is_refused(path: str) -> None:
    rule = Rule(id="r", words=("a" * 19 + "b",), strength=Strength.PARANOID, edits=2, apply_to=INPUT)
    prompt = "a" * 200_000  # some 20 seconds
    body = question(prompt) if path == "/v1/chat/completions" else {"model": "m", "input": prompt}
    async with before(ANSWER, rules=(rule,), timeouts=quick(total=0.2)) as (gateway, upstream):
        error = error_of(await gateway.client.post(path, json=body), 413)
        assert error["code"] == "scan_timeout" and "within the 0.2 seconds of `timeouts.total`" in error["message"]
        assert upstream.calls == []
        assert (await gateway.ask("hello")).status_code == 200
        (await gateway.metrics()).assert_covered()


async def test_a_long_prompt_is_scanned_beside_the_loop_and_sooner_for_patterns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_the_loop: list[bool] = []
    feed = Censor.feed

    def noting(self: Censor, text: str) -> str:
        if "4711" in text:
            on_the_loop.append(asyncio._get_running_loop() is not None)
        return feed(self, text)

    monkeypatch.setattr(Censor, "feed", noting)
    prompt = "4711" + "a" * 4096
    for rule in (Rule(id="r", words=("4711",), apply_to=INPUT), Rule(id="r", pattern="[0-9]+", apply_to=INPUT)):
        async with before(ANSWER, rules=(rule,)) as (gateway, _):
            on_the_loop.clear()
            assert (await gateway.ask(prompt)).status_code == 200
            assert set(on_the_loop) == {rule.pattern is None}
