"""Configuration texts with one part changed, and what every refusal has in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config import ConfigError, parse
from gateway.policy.model import Config, Rule

SECRET = "hunter2swordfish"
PARTS = {
    "upstreams": "{u: {base_url: 'http://127.0.0.1:8000/v1'}}",
    "routes": "[{model: '*', upstream: u, policy: p}]",
    "policies": "{p: {rules: []}}",
}


def text_of(**parts: str) -> str:
    return "\n".join(f"{key}: {value}" for key, value in (PARTS | parts).items())


def read(text: str, environ: dict[str, str] | None = None, base_dir: Path = Path(), **options: Any) -> Config:
    return parse(text, "F", base_dir, environ or {}, **options)


def read_parts(environ: dict[str, str] | None = None, **parts: str) -> Config:
    return read(text_of(**parts), environ)


def read_rule(rule: str, environ: dict[str, str] | None = None, base_dir: Path = Path(), **options: Any) -> Rule:
    text = text_of(policies=f"{{p: {{rules: [{rule}]}}}}")
    return read(text, environ, base_dir, **options).policies["p"].rules[0]


def refused(text: str, path: str, reason: str, environ: dict[str, str] | None = None, **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(text, environ, **options)
    error = caught.value
    assert error.key_path == path, str(error)
    assert reason in error.reason, str(error)
    at = "" if error.line is None else f" (line {error.line})"
    assert str(error) == (f"F: {path}: {error.reason}{at}" if path else f"F: {error.reason}{at}")
    assert error.__cause__ is None
    for shown in (str(error), repr(error)):
        assert SECRET not in shown
    return error
