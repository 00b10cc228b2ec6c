"""Fixtures of the audit's tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gateway import cli
from gateway.audit.cli import perform
from gateway.audit.model import LanguageModel
from tests.support.audit_command import NUMBERS, QUERY, Audit, Done, under_a_policy
from tests.support.fake_gateway import Json
from tests.support.memory import Memory
from tests.support.scripted_model import write_tokenizer
from tests.support.served_model import VOCABULARY as SERVED

RULES: list[Json] = [
    {"id": "password", "words": ["12monkeys"], "secret": True, "decode": "mask"},
    {"id": "cards", "detector": "credit_card", "action": "flag"},
    {"id": "insult", "words": ["fool"], "whole_word": True},
    {"id": "prompts", "words": ["Hi"], "apply_to": ["input"]},
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`audit`: everything here, since it takes as long as much of the rest together."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("audit")


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Audit:
    """The command in this process, with a model of the test's own in place of the one that is asked for."""

    def run(*arguments: object, model: LanguageModel | None = None) -> Done:
        loaded = Memory(NUMBERS) if model is None else model
        monkeypatch.setattr(perform, "model_of", lambda *_: loaded)
        status = cli.main(["audit", *map(str, arguments)])
        printed = capsys.readouterr()
        return Done(status, [json.loads(line) for line in printed.out.splitlines()], printed.err)

    return run


@pytest.fixture
def query(tmp_path: Path) -> Callable[..., Path]:
    """The file of a query."""

    def write(**fields: object) -> Path:
        path = tmp_path / "query.yaml"
        path.write_text(yaml.safe_dump({**QUERY, **fields}), encoding="utf-8")
        return path

    return write


@pytest.fixture
def served_query(tmp_path: Path) -> Callable[..., Path]:
    folder = write_tokenizer(SERVED, tmp_path / "model")

    def write(url: str, **fields: object) -> Path:
        path = tmp_path / "served.yaml"
        content = {
            "model": {"vllm": f"{url}/v1", "name": "m", "tokenizer": str(folder), "api_key": "${KEY:-none}"},
            "query": "[abc ]{1,5}",
            "decoding": {"top_k": 5},
            "limit": 60,
            **fields,
        }
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    return write


@pytest.fixture
def queries(tmp_path: Path) -> Callable[..., list[Path]]:
    """Files of queries for a served model."""
    folder = write_tokenizer(SERVED, tmp_path / "model")

    def write(url: str, *patterns: str) -> list[Path]:
        paths = []
        for number, pattern in enumerate(patterns):
            model = {"vllm": f"{url}/v1", "name": "m", "tokenizer": str(folder), "api_key": "${KEY:-none}"}
            content = {"model": model, "query": pattern, "decoding": {"top_k": 5}, "limit": 12}
            paths.append(tmp_path / f"q{number}.yaml")
            paths[-1].write_text(yaml.safe_dump(content), encoding="utf-8")
        return paths

    return write


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not meant for these calls, and keys are the tests' own."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("UPSTREAM_API_KEY", "PORTCULLIS_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """The arguments for some prompts."""
    (tmp_path / "prompts.txt").write_text("Password?\n\nNumber?\nHello\nBye\n", encoding="utf-8")
    rules = tmp_path / "policy.yaml"
    rules.write_text(yaml.safe_dump(RULES), encoding="utf-8")
    config = under_a_policy(rules)
    return [
        *("--policy", "default", "--config", str(config), "--prompts", str(tmp_path / "prompts.txt")),
        *("--model", "hf:./model", "--chat", "--top-k", "8"),
    ]
