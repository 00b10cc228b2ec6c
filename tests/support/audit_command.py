"""`portcullis audit` in a test: its query, its outcome, and a served model that pauses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from gateway.audit.models.toy import Toy
from tests.support.commands import TIMEOUT
from tests.support.fake_gateway import Json
from tests.support.served_model import VOCABULARY, Served

NUMBERS = {"My number is 555 0100": 6.0, "My number is 555 0199": 3.0, "My number is 212 0000": 1.0}


QUERY: Json = {
    "model": {"hf": "./model"},
    "query": "My number is [0-9]{3} [0-9]{4}",
    "prefix": "My number is",
    "limit": 3,
}


RESULT_FIELDS = ["text", "tokens", "logprob", "prefix_logprob", "string_logprob", "encodings"]


@dataclass(frozen=True)
class Done:
    status: int
    lines: list[Json]
    error: str

    @property
    def texts(self) -> list[str]:
        return [line["text"] for line in self.lines if "text" in line]

    @property
    def summary(self) -> Json:
        """The last line."""
        assert [list(line) for line in self.lines if "summary" in line] == [["summary"]]
        found: Json = self.lines[-1]["summary"]
        return found

    @property
    def still(self) -> list[Json]:
        return [line["still"] for line in self.lines if "still" in line]


Audit = Callable[..., Done]


def under_a_policy(rules: Path, **more: object) -> Path:
    """A configuration with the rules of a file."""
    config = rules.with_name("portcullis.yaml")
    content = {
        "upstreams": {"demo": {"type": "demo"}},
        "routes": [{"model": "*", "upstream": "demo", "policy": "default"}],
        "policies": {"default": {"rules": yaml.safe_load(rules.read_text("utf-8"))}},
        **more,
    }
    config.write_text(json.dumps(content), encoding="utf-8")
    return config


class Paused:
    """A served toy that tells when it was asked so often, and answers no more until it is told to."""

    def __init__(self, at: int | None = None) -> None:
        import threading

        self._plays = Served(Toy(VOCABULARY, seed=3))
        self._left = at
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, path: str, body: Json) -> tuple[int, bytes]:
        if path == "/v1/completions" and self._left is not None:
            self._left -= 1
            if self._left == 0:
                self.reached.set()
                self.go_on.wait(TIMEOUT)
        found = self._plays.play(path, body)
        assert found is not None
        return found


def lines_of(output: bytes) -> list[Json]:
    return [json.loads(line) for line in output.splitlines()]


FULL = Path("/dev/full")
