"""References to the environment: what they stand for, and that their values are in no error."""

from __future__ import annotations

import pytest

from gateway.policy.model import (
    Timeouts,
)
from tests.support.policies import SECRET, read_parts, read_rule, refused, text_of

SUBSTITUTIONS = {
    "${A}": "one",
    "<${A}${A}>": "<oneone>",
    "${EMPTY}": "",
    "${EMPTY:-default}": "default",
    "${UNSET:-}": "",
    "${UNSET:-a b$c:-d}": "a b$c:-d",
    "${A:-default}": "one",
    "$${A}": "${A}",
    "$$${A}": "$${A}",
    "$A $ {A} $": "$A $ {A} $",
    "${YAML}": "a: [b]\n- ${A}",
}


@pytest.mark.parametrize(("written", "expected"), SUBSTITUTIONS.items())
def test_substitution_happens_after_parsing_and_once(written: str, expected: str) -> None:
    environ = {"A": "one", "EMPTY": "", "YAML": "a: [b]\n- ${A}"}
    rule = f"{{id: r, words: [x], replacement: '{written}'}}"
    assert read_rule(rule, environ).replacement == expected


BAD_REFERENCES = [
    "${",
    "a ${A",
    "${}",
    "${1A}",
    "${A-b}",
    "${A:?b}",
    "${a b}",
    "${A:-${B}}",
    "${A:-{}",
    f"${{{SECRET}-1}}",
]


@pytest.mark.parametrize("written", BAD_REFERENCES)
def test_bad_references_are_errors(written: str) -> None:
    text = text_of(auth=f"{{keys: ['{written}']}}")
    refused(text, "auth.keys[0]", "a ${ must continue as ${NAME}", {"A": "x"})


def test_a_missing_variable_is_named() -> None:
    reason = "environment variable NOWHERE is not set; set it"
    error = refused(text_of(auth="{keys: ['${NOWHERE}']}"), "auth.keys[0]", reason)
    assert str(error) == f"F: auth.keys[0]: {reason} (line 4)"


def test_numbers_from_the_environment() -> None:
    upstreams = '{u: {base_url: "http://h", timeouts: {idle: "${IDLE}", total: "${T:-20}"}}}'
    config = read_parts({"PORT": "9999", "IDLE": "1.5"}, listen='{port: "${PORT:-8080}"}', upstreams=upstreams)
    assert config.listen.port == 9999
    assert config.upstreams["u"].timeouts == Timeouts(idle=1.5, total=20.0)
    assert read_parts(listen="\n  port: ${PORT:-8080}").listen.port == 8080


SUBSTITUTED_ERRORS = {
    "listen.port": ("listen", '{port: "${S}"}'),
    "listen.host": ("listen", '{host: "${S} x"}'),
    "auth": ("auth", '"${S}"'),
    "auth.keys[0]": ("auth", '{keys: ["${S} x"]}'),
    "auth.keys[0].name": ("auth", '{keys: [{name: "${S} x", key: k}]}'),
    "auth.keys[0].key": ("auth", '{keys: [{name: a, key: "${S} x"}]}'),
    "auth.keys[0].key_sha256": ("auth", '{keys: [{name: a, key_sha256: "${S}"}]}'),
    "auth.keys[0].policies[0]": ("auth", '{keys: [{name: a, key: k, policies: ["${S}"]}]}'),
    "listen.admin.host": ("listen", '{admin: {host: "${S} x", port: 1}}'),
    "telemetry.endpoint": ("telemetry", '{endpoint: "${S}"}'),
    "state": ("state", '"${S}"'),
    "limits.max_body": ("limits", '{max_body: "${S}"}'),
    "limits.send_timeout": ("limits", '{send_timeout: "${S}"}'),
    "upstreams.u.type": ("upstreams", '{u: {type: "${S}"}}'),
    "upstreams.u.base_url": ("upstreams", '{u: {base_url: "${S}"}}'),
    "upstreams.u.api_key": ("upstreams", '{u: {base_url: "http://h", api_key: "${S} x"}}'),
    "routes[0].upstream": ("routes", '[{model: "*", upstream: "${S}", policy: p}]'),
    "routes[0].policy": ("routes", '[{model: "*", upstream: u, policy: "${S}"}]'),
    "policies.p.mode": ("policies", '{p: {mode: "${S}"}}'),
    "policies.p.rules[0].id": ("policies", '{p: {rules: [{id: "${S} x", words: [y]}]}}'),
    "policies.p.rules[0].mask": ("policies", '{p: {rules: [{id: r, words: [y], mask: "${S}"}]}}'),
    "policies.p.rules[0].words": ("policies", '{p: {rules: [{id: r, words: "${S}"}]}}'),
    "policies.p.rules[0].words_file": ("policies", '{p: {rules: [{id: r, words_file: "${S}"}]}}'),
    "policies.p.rules[0].secret": ("policies", '{p: {rules: [{id: r, words: [y], secret: "${S}"}]}}'),
}


@pytest.mark.parametrize(("path", "part"), SUBSTITUTED_ERRORS.items(), ids=list(SUBSTITUTED_ERRORS))
def test_what_came_from_the_environment_is_never_shown(path: str, part: tuple[str, str]) -> None:
    refused(text_of(**{part[0]: part[1]}), path, "", {"S": SECRET})
