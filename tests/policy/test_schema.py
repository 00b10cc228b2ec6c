"""The JSON Schema: current, right about every example, and no more than the loader refuses."""

from __future__ import annotations

import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from gateway import cli
from gateway.policy.listen import ADMIN, CORS
from gateway.policy.load import CONFIG
from gateway.policy.schema import schema
from gateway.policy.upstreams import HEALTH, RETRIES, TIMEOUTS
from tests.docs.generated import KEY_TABLES
from tests.support.pages import ROOT
from tests.support.policies import PARTS, text_of

SHIPPED = ROOT / "deploy" / "portcullis.schema.json"
EXAMPLES = sorted(
    file
    for folder in ("examples", "policies", "image", "compose/gateway")
    for file in (ROOT / "deploy" / folder).glob("*.yaml")
)
VALIDATOR = jsonschema.Draft7Validator(schema())


def is_valid(text: str) -> bool:
    return VALIDATOR.is_valid(yaml.safe_load(text))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft7Validator.check_schema(schema())


def test_the_shipped_file_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    assert capsys.readouterr().out == SHIPPED.read_text("utf-8"), (
        "run portcullis schema > deploy/portcullis.schema.json"
    )


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_example_names_the_schema_and_satisfies_it(file: Path) -> None:
    text = file.read_text("utf-8")
    first, _, _ = text.partition("\n")
    begin = "# yaml-language-server: $schema="
    assert first.startswith(begin)
    assert (file.parent / first.removeprefix(begin)).resolve() == SHIPPED
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(text))] == []


def test_every_key_has_a_meaning_and_every_meaning_a_key() -> None:
    texts = tomllib.loads((ROOT / "gateway" / "policy" / "keys.toml").read_text("utf-8"))
    tables = {table.name: table for table in (CONFIG, ADMIN, CORS, TIMEOUTS, HEALTH, RETRIES, *KEY_TABLES.values())}
    assert {name: {*table.forms} for name, table in tables.items()} == {
        name: {*meanings} for name, meanings in texts.items()
    }


VALID = {
    "least": {},
    "references": {
        "listen": '{port: "${PORT:-8080}", drain_timeout: "${T}"}',
        "upstreams": '{u: {type: "${TYPE}", base_url: "${URL}"}}',
        "limits": '{max_body: "${SIZE}", max_streams: "${N}"}',
        "state": '"${STATE}"',
    },
    "auth none": {"auth": "none"},
    "keys": {"auth": "{keys: [a, {name: b, key: k, rpm: 1, policies: [p], models: ['*']}]}"},
    "managed": {"upstreams": "{u: {type: vllm}}"},
    "sizes": {"limits": "{max_body: 1, max_event: 4 MiB}"},
    "several upstreams": {"routes": "[{model: '*', upstreams: [u], balance: least_busy, policy: p}]"},
    "redis": {"redis": "unix:///run/redis.sock"},
    "rules": {
        "policies": "{p: {rules: [{id: r, words: [x], fold: [], variants: [], edits: 0}, {id: s, pattern: x+}, "
        "{id: t, detector: email, action: pseudonymize}]}}"
    },
    "constrain": {
        "upstreams": "{u: {type: vllm}}",
        "policies": "{p: {constrain: {json_schema: {type: object}, on_violation: flag}}}",
    },
}


@pytest.mark.parametrize("parts", VALID.values(), ids=list(VALID))
def test_what_the_loader_takes_satisfies_the_schema(parts: dict[str, str]) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(text_of(**parts)))] == []


# Each is refused by the loader too: tests/policy/test_refused.py and its neighbours have the messages.
REFUSED = [
    ("auht", "none"),
    ("listen", "[]"),
    ("listen", "{prot: 1}"),
    ("listen", "{port: 65536}"),
    ("listen", "{port: '8080'}"),
    ("listen", "{host: 1}"),
    ("listen", "{admin: {}}"),
    ("listen", "{drain_timeout: 0}"),
    ("listen", "{hosts: []}"),
    ("auth", "[]"),
    ("auth", "{}"),
    ("auth", "{keys: []}"),
    ("auth", "{keys: [12345678]}"),
    ("auth", "{keys: [{name: a}]}"),
    ("auth", "{keys: [{name: a, key: k, key_sha256: s}]}"),
    ("auth", "{keys: [{name: a, key: k, rpm: 0}]}"),
    ("limits", "{max_body: 0}"),
    ("limits", "{max_event: 4M}"),
    ("limits", "{send_timeout: yes}"),
    ("upstreams", "{}"),
    ("upstreams", "{'a b': {type: demo}}"),
    ("upstreams", "{u: {}}"),
    ("upstreams", "{u: {type: azure}}"),
    ("upstreams", "{u: {type: demo, base_url: 'http://h'}}"),
    ("upstreams", "{u: {base_url: 'http://h', tokenizer: x}}"),
    ("upstreams", "{u: {base_url: 'ftp://h'}}"),
    ("upstreams", "{u: {type: demo, retries: {attempts: 11}}}"),
    ("upstreams", "{u: {type: demo, retries: {budget: 1.1}}}"),
    ("routes", "[]"),
    ("routes", "[{model: m, policy: p}]"),
    ("routes", "[{model: m, upstream: u, upstreams: [u], policy: p}]"),
    ("routes", "[{upstream: u, policy: p}]"),
    ("policies", "{p: {mode: loud}}"),
    ("policies", "{p: {max_hold: 0}}"),
    ("policies", "{p: {rules: [{words: [x]}]}}"),
    ("policies", "{p: {rules: [{id: r}]}}"),
    ("policies", "{p: {rules: [{id: r, words: [7]}]}}"),
    ("policies", "{p: {rules: [{id: r, words: [x], words_file: y}]}}"),
    ("policies", "{p: {rules: [{id: r, words: [x], mask: '*', replacement: y}]}}"),
    ("policies", "{p: {rules: [{id: r, words: [x], mask: '**'}]}}"),
    ("policies", "{p: {rules: [{id: r, words: [x], edits: 3}]}}"),
    ("policies", "{p: {rules: [{id: r, words: [x], fold: [upper]}]}}"),
    ("policies", "{p: {constrain: {}}}"),
    ("policies", "{p: {constrain: {regex: a, choice: [b]}}}"),
    ("journal", "{path: j}"),
    ("journal", "{path: j, key: short}"),
    ("journal", "{path: j, key: sixteen or more., fsync: yes}"),
    ("telemetry", "{}"),
    ("state", "http://h"),
    ("redis", "redis://h\nstate: redis://h"),
]


@pytest.mark.parametrize(("part", "value"), REFUSED)
def test_what_the_schema_refuses_the_loader_refuses(
    part: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = text_of(**{part: value})
    assert not is_valid(text)
    (tmp_path / "portcullis.yaml").write_text(text)
    assert cli.main(["check", str(tmp_path / "portcullis.yaml")]) == 2
    assert ("state" if part == "redis" else part) in capsys.readouterr().err


@pytest.mark.parametrize("part", PARTS)
def test_required_parts_are_required(part: str) -> None:
    assert not is_valid("\n".join(f"{key}: {value}" for key, value in PARTS.items() if key != part))
