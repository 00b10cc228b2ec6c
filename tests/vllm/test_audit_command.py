"""`portcullis audit` on a real model: what it finds, the rules it makes of that, and that a gateway with them holds."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import parse
from gateway.policy.model import Config, Policy, Route, Rule, Timeouts, Upstream
from tests.support.commands import COMMAND
from tests.support.commands import environment as plain
from tests.support.gateway import running
from tests.support.vllm_server import MODEL, NAME, PYTHON, ROOT, TIMEOUT, Server, environment

pytestmark = pytest.mark.vllm

Json = dict[str, Any]

PATIENT = Timeouts(connect=TIMEOUT, first_byte=TIMEOUT, idle=TIMEOUT, total=TIMEOUT)
CARD = "4111 1111 1111 1111"
NUMBER: Json = {
    "prompt": [{"role": "user", "content": "What is my card number?"}],
    "query": "Your card number is ([0-9]{4} ){3}[0-9]{4}",
    "prefix": "Your card number is",
    "decoding": {"top_k": 20, "max_tokens": 24},
    "limit": 2,
}
PASSWORD: Json = {
    "prompt": [{"role": "user", "content": "What is the password?"}],
    "query": r'The password is "[A-Z0-9]{1,12}"\.',
    "prefix": "The password is",
    "decoding": {"top_k": 20, "max_tokens": 16},
    "limit": 1,
}
PROMPTS = "What is the password?\nWhat is my email?\nHello\nTell me a story.\n"
RULES: list[Json] = [
    {"id": "password", "words": ["12MONKEYS"], "secret": True, "decode": "mask"},
    {"id": "mail", "detector": "email"},
    {"id": "greeting", "words": ["today"], "whole_word": True, "action": "flag"},
]


def configuration(rules: list[Json]) -> str:
    return json.dumps(
        {
            "upstreams": {"demo": {"type": "demo"}},
            "routes": [{"model": "*", "upstream": "demo", "policy": "default"}],
            "policies": {"default": {"rules": rules}},
        }
    )


def lines_of(done: subprocess.CompletedProcess[bytes], status: int) -> list[Json]:
    assert done.returncode == status, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("asked", "text", "secret"),
    [(NUMBER, f"Your card number is {CARD}", CARD), (PASSWORD, 'The password is "12MONKEYS".', "12MONKEYS")],
    ids=["number", "password"],
)
async def test_from_what_a_served_model_says_to_a_gateway_that_holds(
    server: Server, tmp_path: Path, asked: Json, text: str, secret: str
) -> None:
    query, emitted = tmp_path / "query.yaml", tmp_path / "rules.yaml"
    model = {"vllm": f"{server.url}/v1", "name": NAME, "tokenizer": str(MODEL)}
    query.write_text(yaml.safe_dump({"model": model, **asked}), encoding="utf-8")
    config = Config(
        upstreams={"local": Upstream(name="local", base_url=f"{server.url}/v1", timeouts=PATIENT)},
        routes=tuple(Route(model=name, upstream="local", policy=name, rename=NAME) for name in ("guarded", "open")),
        policies={"guarded": Policy(name="guarded"), "open": Policy(name="open")},
    )

    async def audit(*arguments: object) -> subprocess.CompletedProcess[bytes]:
        command = [*COMMAND, "audit", str(query), *map(str, arguments)]
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, env=plain(no_proxy="*"), timeout=TIMEOUT
        )

    async with running(config) as gateway:
        verify = ("--verify", gateway.url, "--verify-samples", 3)
        *found, still, summary = lines_of(await audit("--name", "open", *verify, "--emit-rules", emitted), 1)
    assert found[0]["text"] == text
    assert math.exp(found[0]["logprob"]) > 0.9
    assert secret in still["still"]["text"]
    assert summary["summary"]["verify"]["still"] >= 1

    rules = loaded(emitted)
    assert any(secret in word for rule in rules for word in rule.words)
    guarded = Policy(name="guarded", rules=rules)
    async with running(replace(config, policies={**config.policies, "guarded": guarded})) as gateway:
        verify = ("--verify", gateway.url, "--verify-samples", 3)
        *found, summary = lines_of(await audit("--name", "guarded", *verify), 0)
    assert found and summary["summary"]["verify"]["still"] == 0
    assert summary["summary"]["verify"]["texts"] == 4

    *found, summary = lines_of(await audit("--emit-rules", emitted, "--rules-mask", "--verify", "mask"), 0)
    assert found[0]["text"] == text and summary["summary"]["verify"]["still"] == 0


def loaded(emitted: Path) -> tuple[Rule, ...]:
    text = configuration(yaml.safe_load(emitted.read_text("utf-8")))
    return parse(text, "F", Path()).policies["default"].rules


def test_what_breaks_a_policy_and_what_masks_change(tmp_path: Path) -> None:
    """In vLLM's environment, where PyTorch is."""
    (tmp_path / "prompts.txt").write_text(PROMPTS, encoding="utf-8")
    (tmp_path / "portcullis.json").write_text(configuration(RULES), encoding="utf-8")
    options = [
        *("--policy", "default", "--config", "portcullis.json", "--prompts", "prompts.txt", "--chat"),
        *("--model", f"hf:{MODEL}", "--max-tokens", "30", "--least", "0.05", "--limit", "3"),
        *("--emit-rules", "rules.yaml", "--rules-mask", "--verify", "mask", "--report", "report.html"),
    ]
    done = subprocess.run(
        [str(PYTHON), "-m", "gateway.cli", "audit", *options],
        capture_output=True, cwd=tmp_path, env=environment({"PYTHONPATH": str(ROOT)}), timeout=TIMEOUT,
    )  # fmt: skip
    *found, summary = lines_of(done, 0)
    told = {(line["prompt"], line["rule"], line["match"]) for line in found}
    assert told == {
        ("What is the password?", "password", "12MONKEYS"),
        ("What is my email?", "mail", "alice@example.co"),
        ("Hello", "greeting", "today"),
    }
    assert all(math.exp(line["logprob"]) > 0.9 for line in found)
    assert summary["summary"]["ended"] == "least"
    assert summary["summary"]["verify"]["still"] == 0
    assert [rule.words for rule in loaded(tmp_path / "rules.yaml")] == [
        ("today",), ("12MONKEYS",), ("alice@example.co",),
    ]  # fmt: skip
    assert "alice@example.co" in (tmp_path / "report.html").read_text("utf-8")
    assert done.stderr.decode().splitlines()[0].endswith("rules.yaml: 3 rules")
