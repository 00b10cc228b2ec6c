"""The official Python SDK, sync and async, against a real gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.support.gateway import TIMEOUT, running
from tests.support.scenarios import (
    KEY,
    SCENARIOS,
    TEXTS,
    Outcome,
    choice,
    configuration,
    expected,
    expected_texts,
    outcome,
    play,
    text,
)
from tests.support.upstream import MODEL, playing

pytestmark = pytest.mark.clients


def collected(chunks: Iterable[Any]) -> list[Outcome]:
    """The choices that the deltas add up to."""
    found: dict[int, Outcome] = {}
    calls: dict[int, dict[int, dict[str, str]]] = {}
    for chunk in chunks:
        for part in chunk.choices:
            whole = found.setdefault(part.index, choice("", None))
            delta = part.delta
            whole["content"] += delta.content or ""
            whole["reasoning"] += getattr(delta, "reasoning_content", None) or ""
            whole["finish"] = part.finish_reason or whole["finish"]
            for call in delta.tool_calls or ():
                entry = calls.setdefault(part.index, {}).setdefault(call.index, {"name": "", "arguments": ""})
                entry["name"] += call.function.name or ""
                entry["arguments"] += call.function.arguments or ""
    for index, entries in calls.items():
        found[index]["calls"] = [
            {"name": entry["name"], "arguments": json.loads(entry["arguments"])} for _, entry in sorted(entries.items())
        ]
    return [found[index] for index in sorted(found)]


def whole(completion: Any) -> list[Outcome]:
    return [
        choice(
            each.message.content or "",
            each.finish_reason,
            reasoning=getattr(each.message, "reasoning_content", None) or "",
            calls=[
                {"name": call.function.name, "arguments": json.loads(call.function.arguments)}
                for call in each.message.tool_calls or ()
            ],
        )
        for each in completion.choices
    ]


def error_of(error: openai.APIError) -> Outcome:
    return {"status": getattr(error, "status_code", None), "code": error.code}


def arguments(name: str) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": name}], **SCENARIOS[name].fields}


def text_arguments(name: str) -> dict[str, Any]:
    return {"model": MODEL, "prompt": name, **TEXTS[name].fields}


def collected_texts(parts: Iterable[Any]) -> list[Outcome]:
    """The choices that the events of a text completion add up to."""
    found: dict[int, Outcome] = {}
    for part in parts:
        assert part.object == "text_completion"
        for each in part.choices:
            whole = found.setdefault(each.index, text("", None))
            whole["text"] += each.text
            whole["finish"] = each.finish_reason or whole["finish"]
    return [found[index] for index in sorted(found)]


def run_sync(base_url: str) -> dict[str, Outcome]:
    client = OpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=TIMEOUT)
    found: dict[str, Outcome] = {}
    for name in SCENARIOS:
        chunks: list[Any] = []
        error = None
        try:
            for chunk in client.chat.completions.create(**arguments(name), stream=True):
                chunks.append(chunk)
        except openai.APIError as raised:
            error = error_of(raised)
        found[f"{name}, streamed"] = outcome(*collected(chunks), error=error)
        found[f"{name}, whole"] = attempted(lambda name=name: whole(client.chat.completions.create(**arguments(name))))  # type: ignore[misc]
    stranger = client.with_options(api_key="sk-wrong")
    found["wrong key"] = attempted(lambda: whole(stranger.chat.completions.create(**arguments("redacted"))))
    found["unknown path"] = attempted(lambda: whole(client.files.list()))
    found["models"] = {"models": [model.id for model in client.models.list()]}
    return found


def attempted(call: Callable[[], list[Outcome]]) -> Outcome:
    try:
        return outcome(*call())
    except openai.APIError as error:
        return outcome(error=error_of(error))


async def run_async(base_url: str) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    async with AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=TIMEOUT) as client:
        for name in SCENARIOS:
            chunks: list[Any] = []
            error = None
            try:
                async for chunk in await client.chat.completions.create(**arguments(name), stream=True):
                    chunks.append(chunk)
            except openai.APIError as raised:
                error = error_of(raised)
            found[f"{name}, streamed"] = outcome(*collected(chunks), error=error)
            try:
                found[f"{name}, whole"] = outcome(*whole(await client.chat.completions.create(**arguments(name))))
            except openai.APIError as raised:
                found[f"{name}, whole"] = outcome(error=error_of(raised))
        found["models"] = {"models": [model.id async for model in client.models.list()]}
    return found


async def test_the_sync_client() -> None:
    async with playing(play) as upstream, running(configuration(upstream.base_url)) as gateway:
        assert await asyncio.to_thread(run_sync, f"{gateway.url}/v1") == expected()


async def test_the_async_client() -> None:
    async with playing(play) as upstream, running(configuration(upstream.base_url)) as gateway:
        wanted = expected()
        del wanted["wrong key"], wanted["unknown path"]
        assert await run_async(f"{gateway.url}/v1") == wanted


def run_texts(base_url: str) -> dict[str, Outcome]:
    client = OpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=TIMEOUT)
    found: dict[str, Outcome] = {}
    for name in TEXTS:
        parts: list[Any] = []
        error = None
        try:
            for part in client.completions.create(**text_arguments(name), stream=True):
                parts.append(part)
        except openai.APIError as raised:
            error = error_of(raised)
        found[f"{name}, streamed"] = outcome(*collected_texts(parts), error=error)
        found[f"{name}, whole"] = attempted(
            lambda name=name: collected_texts([client.completions.create(**text_arguments(name))])  # type: ignore[misc]
        )
    return found


async def run_texts_async(base_url: str) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    async with AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=TIMEOUT) as client:
        for name in TEXTS:
            parts: list[Any] = []
            error = None
            try:
                async for part in await client.completions.create(**text_arguments(name), stream=True):
                    parts.append(part)
            except openai.APIError as raised:
                error = error_of(raised)
            found[f"{name}, streamed"] = outcome(*collected_texts(parts), error=error)
            try:
                whole = await client.completions.create(**text_arguments(name))
                found[f"{name}, whole"] = outcome(*collected_texts([whole]))
            except openai.APIError as raised:
                found[f"{name}, whole"] = outcome(error=error_of(raised))
    return found


async def test_text_completions() -> None:
    async with playing(play) as upstream, running(configuration(upstream.base_url)) as gateway:
        assert await asyncio.to_thread(run_texts, f"{gateway.url}/v1") == expected_texts()
        assert await run_texts_async(f"{gateway.url}/v1") == expected_texts()


async def test_the_stream_helper() -> None:
    async with (
        playing(play) as upstream,
        running(configuration(upstream.base_url)) as gateway,
        AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0, timeout=TIMEOUT) as client,
    ):
        for name in ("redacted", "tools", "thinking"):
            async with client.chat.completions.stream(**arguments(name)) as stream:
                deltas = [event.delta async for event in stream if event.type == "content.delta"]
                final = await stream.get_final_completion()
            assert outcome(*whole(final)) == SCENARIOS[name].outcome
            if name == "redacted":
                assert "".join(deltas) == "It is [CENSORED]."
        async with client.chat.completions.stream(**arguments("blocked")) as stream:
            done = [event.content async for event in stream if event.type == "content.done"]
            assert done == ["so  (stopped)"]
            assert stream.current_completion_snapshot.choices[0].finish_reason == "content_filter"


async def test_leaving_a_stream_stops_the_upstream() -> None:
    left = asyncio.Event()

    async def hang(call: Any) -> None:
        await call.send(SCENARIOS["redacted"].streamed[:-200])
        await call.hang()
        left.set()

    async with (
        playing(hang) as upstream,
        running(configuration(upstream.base_url)) as gateway,
        AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0, timeout=TIMEOUT) as client,
    ):
        stream = await client.chat.completions.create(**arguments("redacted"), stream=True)
        async for _ in stream:
            break
        await stream.close()
        await asyncio.wait_for(left.wait(), TIMEOUT)
