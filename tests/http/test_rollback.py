"""Answers that are rolled back, through the whole gateway: what clients get, and what the model's server is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.policy.model import Action, Config, Exhausted, Journal, Policy, Route, Rule, Upstream
from tests.support.gateway import PATIENT, RunningGateway, error_of, question, running
from tests.support.scripted_model import MODEL, ScriptedModel, insisting, serving, vocabulary_of, write_tokenizer

WORDS = vocabulary_of("a", " b", "ad", " good", " day", "!", " ba", "d")
END = 8
BAD = Rule(id="bad", words=("bad",), action=Action.ROLLBACK)


def saying(*tokens: int, **how: Any) -> ScriptedModel:
    return ScriptedModel(WORDS, insisting(*tokens, otherwise=[3], end=END), **how)


@asynccontextmanager
async def before(
    model: ScriptedModel, folder: Path, *rules: Rule, kind: str = "vllm", journal: Journal | None = None
) -> AsyncIterator[RunningGateway]:
    tokenizer = str(write_tokenizer(model.vocabulary, folder / "model"))
    async with serving(model) as url:
        behind = Upstream(name="local", type=kind, base_url=url, timeouts=PATIENT, tokenizer=tokenizer)
        config = Config(
            upstreams={"local": behind},
            routes=(Route(model="*", upstream="local", policy="p", rename=MODEL),),
            policies={"p": Policy(name="p", rules=rules or (BAD,))},
            journal=journal,
        )
        async with running(config) as gateway:
            yield gateway


@pytest.mark.parametrize("merge", [1, 4])
async def test_a_stream(merge: int, tmp_path: Path) -> None:
    model = saying(0, 1, 2, 5, merge=merge)
    async with before(model, tmp_path) as gateway:
        answer = await gateway.stream(stream_options={"include_usage": True})
        metrics = await gateway.metrics()
        (line,) = [line for line in await _log(gateway) if line["event"] == "request"]
    assert (answer.content(), answer.finish(), answer.done, answer.error) == ("a good", "stop", True, None)
    assert answer.deltas()[0]["role"] == "assistant"
    assert len({chunk["id"] for chunk in answer.chunks}) == 1
    usage = answer.chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 3, 6)
    assert usage["portcullis"]["rollbacks"] == 2
    assert usage["portcullis"]["discarded_tokens"] >= 4
    assert "bad" not in answer.response.text
    assert metrics.value("portcullis_rollbacks_total", policy="p", outcome="resampled") == 1
    assert metrics.value("portcullis_rollbacks_total", policy="p", outcome="banned") == 1
    assert metrics.value("portcullis_matches_total", rule="bad", action="rollback", channel="content") == 2
    metrics.assert_covered()
    assert line["rollbacks"] == 2
    assert model.running == 0


async def _log(gateway: RunningGateway) -> list[Any]:
    return [json.loads(line) for line in gateway.log.getvalue().splitlines()]


async def test_a_plain_answer(tmp_path: Path) -> None:
    async with before(saying(0, 1, 2), tmp_path) as gateway:
        answer = (await gateway.ask()).json()
    assert answer["object"] == "chat.completion"
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "a good"}
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["usage"]["portcullis"] == {"rollbacks": 2, "discarded_tokens": 4}


@pytest.mark.parametrize("stream", [False, True])
async def test_completions(stream: bool, tmp_path: Path) -> None:
    model = saying(0, 1, 2, prompt=(0,))
    original = model.events

    def events(path: str, body: dict[str, Any]) -> Any:
        yield from original(path, {**body, "prompt": [0]} if isinstance(body["prompt"], str) else body)

    model.events = events  # type: ignore[method-assign]
    async with before(model, tmp_path) as gateway:
        body = {"model": "m", "prompt": "a", "stream": stream}
        answer = await gateway.client.post("/v1/completions", json=body)
    assert answer.status_code == 200
    if stream:
        events_ = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")]
        assert {each["object"] for each in events_} == {"text_completion"}
        assert "".join(choice["text"] for each in events_ for choice in each["choices"]) == "a good"
        assert answer.text.endswith("data: [DONE]\n\n")
    else:
        assert answer.json()["choices"][0]["text"] == "a good"
        assert answer.json()["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("exhausted", Exhausted)
@pytest.mark.parametrize("stream", [False, True])
async def test_when_nothing_is_left_the_policy_says_how_it_ends(
    exhausted: Exhausted, stream: bool, tmp_path: Path
) -> None:
    """Whatever is forbidden, this model spells the word in another way."""
    spellings = vocabulary_of(*("bad", "bad ", "bad!", "badly", "bad.", "bad,", "bad?", "bad;", "bad:", "bad-", "bad_"))

    def choose(step: Any) -> int:
        return next(token for token in range(12) if token not in step.forbidden) if not step.said else 11

    model = ScriptedModel(spellings, choose)
    rule = replace(BAD, exhausted=exhausted, replacement="[X]", message="No.")
    async with before(model, tmp_path, rule) as gateway:
        body = question(stream=stream)
        answer = await gateway.post(body)
        metrics = await gateway.metrics()
    assert "bad" not in answer.text
    assert ("[X]" in answer.text) == (exhausted is Exhausted.REDACT)
    assert ("content_filter" in answer.text) == (exhausted is Exhausted.BLOCK)
    assert metrics.value("portcullis_rollbacks_total", outcome="exhausted") == 1
    assert metrics.value("portcullis_rollbacks_total", outcome="banned") == 7
    assert len(model.requests) <= 1 + 2 * 8
    metrics.assert_covered()


async def test_other_rules_see_what_is_kept(tmp_path: Path) -> None:
    redact = Rule(id="good", words=("good d",), replacement="[fine]")
    async with before(saying(0, 1, 2, 4), tmp_path, BAD, redact) as gateway:
        answer = await gateway.stream()
    assert answer.content() == "a good"
    model = ScriptedModel(WORDS, insisting(0, 3, 1, 2, otherwise=[4], end=END))
    async with before(model, tmp_path, BAD, redact) as gateway:
        answer = await gateway.stream()
    assert answer.content() == "a [fine]ay"


async def test_at_another_upstream_the_rule_is_its_exhausted(tmp_path: Path) -> None:
    model = saying(0, 1, 2)
    async with before(model, tmp_path, kind="openai") as gateway:
        answer = await gateway.stream(n=1)
        assert answer.content() == "a [REDACTED]"
    assert "return_token_ids" not in model.requests[0][1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("best_of", 3),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("response_format", {"type": "json_object"}),
        ("structured_outputs", {"regex": "a"}),
        ("logit_bias", {"1": 5}),
        ("allowed_token_ids", [1]),
        ("use_beam_search", True),
        ("echo", True),
    ],
)
async def test_what_cannot_be_taken_up_again_is_refused(field: str, value: Any, tmp_path: Path) -> None:
    model = saying(0)
    async with before(model, tmp_path) as gateway:
        error = error_of(await gateway.ask(**{field: value}), 400)
        assert (error["param"], error["code"]) == (field, "rollback_unsupported")
        assert "rolled back" in error["message"]
        assert (await gateway.ask(tools=[{"type": "function"}], tool_choice="none")).status_code == 200
        assert (await gateway.ask(response_format={"type": "text"})).status_code == 200
    assert len(model.requests) == 2


async def test_pictures_are_refused(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    async with before(saying(0), tmp_path) as gateway:
        body = {**question(), "messages": [{"role": "user", "content": parts}]}
        error = error_of(await gateway.post(body), 400)
    assert error["param"] == "messages[0].content"


async def test_a_server_that_refuses_to_go_on(tmp_path: Path) -> None:
    """What was kept is there, and nothing of what was not."""
    model = saying(0, 3, 1, 2)
    original = model.events

    def events(path: str, body: dict[str, Any]) -> Any:
        if path == "/v1/completions":
            raise RuntimeError
        yield from original(path, body)

    model.events = events  # type: ignore[method-assign]
    async with before(model, tmp_path) as gateway:
        answer = await gateway.stream()
        assert answer.content() == "a good"
        assert answer.error is not None
        assert not answer.done
        assert "bad" not in answer.response.text
        (await gateway.metrics()).assert_covered()


async def test_a_client_that_leaves_takes_the_resumed_request_along(tmp_path: Path) -> None:
    def choose(step: Any) -> int:
        if not step.said:
            return 0 if 0 not in step.forbidden else 3
        return (1, 2)[len(step.said) - 1] if step.seed is None and len(step.said) < 3 else 3

    model = ScriptedModel(WORDS, choose, room=10**9)
    async with before(model, tmp_path) as gateway:
        body = question(stream=True, max_tokens=10**6)
        async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            read = ""
            async for text in answer.aiter_text():
                read += text
                if "good" in read:
                    break
            assert model.running == 1
        while model.running:
            await asyncio.sleep(0.002)
    assert len(model.requests) == 2


async def test_the_journal_says_what_was_taken_back(tmp_path: Path) -> None:
    journal = Journal(path=str(tmp_path / "journal"), key="k" * 32)
    async with before(saying(0, 1, 2), tmp_path, journal=journal) as gateway:
        await gateway.ask()
    written = "".join(path.read_text() for path in tmp_path.glob("journal*") if path.is_file())
    entries = [json.loads(line) for line in written.splitlines()]
    assert sum(entry.get("action") == "rollback" for entry in entries) == 2, entries
    assert "bad" not in written.replace('"rule":"bad"', "")
