"""Every client of docs/clients.md with nothing changed but its address and key: `programs/`, a program for each.

Before the gateway are an upstream that speaks chat only, one that speaks every dialect, and `portcullis demo`. What a
client makes otherwise of an answer than most do is said in `DIFFERENT`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.policy.model import Limits
from tests.clients.conftest import NODE, NODE_CLIENTS, VENVS, run_program
from tests.support.client_scenarios import DEMO_EXPECTED, DEMO_PROMPTS, EXPECTED, PROMPTS, outcome, play
from tests.support.gateway import RULES, before

pytestmark = pytest.mark.clients

HERE = Path(__file__).parent / "programs"
KEY = "sk-of-a-client"
EVERYTHING = frozenset({"chat/completions", "completions", "responses", "messages", "embeddings"})
# By a rule, and of threads, without which anthropic continues.
EXPECTED_REFUSALS = {"content_filter", "thread_unsupported_request"}
# Program → the environments that it is run in, and the endpoints that it calls.
PYTHON_PROGRAMS = {
    "with_openai": (("openai-2", "openai-3"), {"chat/completions", "responses"}),
    "with_anthropic": (("openai-3",), {"messages"}),
    "with_langchain": (("openai-3",), {"chat/completions", "responses"}),
    "with_llama_index": (("openai-2",), {"chat/completions", "responses"}),
    "with_pydantic_ai": (("openai-3",), {"responses"}),
    "with_openai_agents": (("openai-3",), {"responses"}),
    "with_instructor": (("openai-2",), {"chat/completions"}),
    "with_curl": (("openai-3",), {"chat/completions", "responses", "messages"}),
    "with_litellm": (("openai-2",), {"chat/completions", "responses", "messages"}),
}
NODE_PROGRAMS = {
    "with_openai": {"chat/completions", "responses"},
    "with_anthropic": {"messages"},
    "with_ai": {"chat/completions", "responses", "messages"},
}
AGENTS = {"with_claude_code": {"messages"}, "with_codex": {"responses"}}
_RUN_WHAT_IS_LEFT = (
    *(("with_langchain", "chat"), ("with_langchain", "responses")),
    *(("with_llama_index", "chat"), ("with_pydantic_ai", "default")),
)
_WAYS_OF_AI = ("openai", "openai, calls of streams", "openai, chat", "openai-compatible", "anthropic")
_NO_INPUT = (
    "failed to parse function arguments: unknown variant `the password is [CENSORED]`, expected one of `text`, "
    "`image`, `local_image`, `audio`, `local_audio`, `skill`, `mention` at line 1 column 270"
)
# Program, way and prompt → what is made of it.
DIFFERENT = {
    # An incomplete response raises ModelBehaviorError.
    ("with_openai_agents", "default", "blocked, whole"): outcome(error="error"),
    ("with_openai_agents", "default", "blocked, streamed"): outcome("so  (stopped)", "error"),
    # Arguments that were blocked: these run the tool with what is left of them, in with_langchain the program does.
    **{(program, way, "forget, called"): outcome("so ; It is [CENSORED].") for program, way in _RUN_WHAT_IS_LEFT},
    ("with_pydantic_ai", "default, calls of streams", "forget, called"): outcome("so ;  (stopped)"),
    **{("with_ai", way, "forget, called"): outcome("undefined;  (stopped)") for way in _WAYS_OF_AI},
    # Claude Code begins to run a tool when its input has ended, and continues after a refusal by asking once more.
    ("with_claude_code", "a key", "blocked, streamed"): outcome("so  (stopped)It is [CENSORED]."),
    ("with_claude_code", "a key", "forget, called"): outcome("so ; It is [CENSORED]."),
    ("with_claude_code", "a key", "Remember the password, called"): outcome(
        "the password is [CENSORED]; The tool says: This command requires approval"
    ),
    # Codex shows nothing of an answer that does not end well. The demo finds another of its tools.
    **{
        ("with_codex", "responses", f"{name}, streamed"): outcome(error="error")
        for name in ("blocked", "failed", "cut")
    },
    ("with_codex", "responses", "What is the password?, streamed"): outcome(f"The tool says: {_NO_INPUT}"),
    ("with_codex", "responses", "Remember the password, called"): outcome(error="error"),
}


async def outcomes_of(*command: Path, plan: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """What the client's program prints about every way of asking; litellm prints advice before it."""
    printed = await run_program(*command, PLAN=json.dumps(plan))
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(printed.splitlines()[-1])
    return found


@asynccontextmanager
async def served(demo_address: str, endpoints: set[str]) -> AsyncIterator[dict[str, Any]]:
    """The addresses and what is to be asked there; `endpoints`: those that are called."""
    scripted = {"key": KEY, **PROMPTS}
    async with (
        before(play, rules=RULES, keys=(KEY,), limits=Limits(stored_responses=2**20)) as (translating, _),
        before(play, rules=RULES, keys=(KEY,), upstream={"endpoints": EVERYTHING}) as (native, asked),
    ):
        yield {
            "chat upstream": {"url": translating.url, **scripted},
            "upstream of every dialect": {"url": native.url, **scripted},
            "demo": {"url": demo_address, "key": "none needed", **DEMO_PROMPTS},
        }
        assert {call.request.target.partition("?")[0] for call in asked.calls} == {f"/v1/{each}" for each in endpoints}
        for gateway in (translating, native):
            (await gateway.metrics()).assert_covered()
            answered = [json.loads(line) for line in gateway.log.getvalue().splitlines()]
            assert {line["error"] for line in answered if line["status"] in (400, 404)} <= EXPECTED_REFUSALS


def check(program: str, found: dict[str, dict[str, dict[str, Any]]]) -> None:
    for way, places in found.items():
        assert len(places) == 3
        for place, outcomes in places.items():
            expected = DEMO_EXPECTED if place == "demo" else EXPECTED
            assert outcomes
            wanted = {name: DIFFERENT.get((program, way, name), expected[name]) for name in outcomes}
            assert outcomes == wanted, (way, place)


@pytest.mark.parametrize(
    "program, venv", [(name, venv) for name, (venvs, _) in PYTHON_PROGRAMS.items() for venv in venvs]
)
async def test_a_python_client(program: str, venv: str, demo_address: str) -> None:
    python = VENVS / venv / "bin" / "python"
    assert python.exists(), "the clients are not installed: run tests/clients/install"
    async with served(demo_address, PYTHON_PROGRAMS[program][1]) as plan:
        check(program, await outcomes_of(python, HERE / f"{program}.py", plan=plan))


@pytest.mark.usefixtures("node_installed")
@pytest.mark.parametrize("program", NODE_PROGRAMS)
async def test_a_node_client(program: str, demo_address: str) -> None:
    async with served(demo_address, NODE_PROGRAMS[program]) as plan:
        check(program, await outcomes_of(NODE, NODE_CLIENTS / f"{program}.mjs", plan=plan))


@pytest.mark.usefixtures("node_installed")
@pytest.mark.parametrize("program", AGENTS)
async def test_an_agent(program: str, demo_address: str) -> None:
    async with served(demo_address, AGENTS[program]) as plan:
        check(program, await outcomes_of(VENVS / "openai-3" / "bin" / "python", HERE / f"{program}.py", plan=plan))
