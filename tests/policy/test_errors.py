"""All that is wrong with a configuration at once, each with its line."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from gateway.policy.errors import MAX_ERRORS
from tests.support.policies import SECRET, read, text_of

WRONG = """# line 1
listen: {host: "0.0.0.0", prot: 80}
auth:
  keys:
    - "${NOWHERE}"
    - {name: a, key: "${ALSO_NOWHERE}", rpm: 0}
    - {name: b, key: k, models: []}
upstreams:
  one: {base_url: "localhost:8000", api_key: "a b"}
  two:
    base_url: "http://h/v1"
    timeouts: {idle: 0}
    health: {eject_after: none}
routes:
  - {model: "*", upstream: nosuch, policy: default}
  - {model: 7, upstream: one, policy: nosuch}
policies:
  default:
    mode: loud
    rules:
      - {id: r, words: [007, "x", ""], action: explode}
      - {id: r, words: [y]}
      - id: s
        pattern: "a*"
        mask: "##"
        channels: [nosuch]
      - {words: [z], fold: [nosuch]}
      - {id: t}
limits: {max_body: many, max_streams: 0}
colour: red
"""
FOUND = [
    ("listen.prot", 2),
    ("auth.keys[0]", 5),
    ("auth.keys[1].key", 6),
    ("auth.keys[1].rpm", 6),
    ("auth.keys[2].models", 7),
    ("upstreams.one.base_url", 9),
    ("upstreams.one.api_key", 9),
    ("upstreams.two.timeouts.idle", 12),
    ("upstreams.two.health.eject_after", 13),
    ("routes[0].upstream", 15),
    ("routes[1].model", 16),
    ("routes[1].policy", 16),
    ("policies.default.mode", 19),
    ("policies.default.rules[0].action", 21),
    ("policies.default.rules[0].words[0]", 21),
    ("policies.default.rules[0].words[2]", 21),
    ("policies.default.rules[1].id", 22),
    ("policies.default.rules[2].pattern", 24),
    ("policies.default.rules[2].mask", 25),
    ("policies.default.rules[2].channels[0]", 26),
    ("policies.default.rules[3].id", 27),
    ("policies.default.rules[3].fold[0]", 27),
    ("policies.default.rules[4]", 28),
    ("limits.max_body", 29),
    ("limits.max_streams", 29),
    ("colour", 30),
]


def errors_of(text: str, **environ: str) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        read(text, environ)
    return list(caught.value.all)


def test_e10_everything_that_is_wrong_is_reported_with_its_line() -> None:
    found = errors_of(WRONG)
    assert {(error.key_path, error.line) for error in found} == set(FOUND)
    assert [error.line for error in found] == sorted(line for _, line in FOUND)
    for error in found:
        assert str(error) == f"F: {error.key_path}: {error.reason} (line {error.line})"
        assert error.others == () or error is found[0]


@pytest.mark.parametrize("left_out", range(0, len(WRONG.splitlines()), 3))
def test_e10_a_part_less_is_no_crash(left_out: int) -> None:
    """Whatever a refused part leaves behind, the rest is read."""
    lines = WRONG.splitlines()
    del lines[left_out]
    assert len(errors_of("\n".join(lines))) >= 1


def test_e10_json_has_paths_and_no_lines() -> None:
    document = {
        "upstreams": {"u": {"type": "x", "base_url": "http://h/v1"}},
        "routes": [],
        "policies": {"p": {"mode": "x"}},
    }
    found = errors_of(json.dumps(document))
    assert [(error.key_path, error.line) for error in found] == [
        ("upstreams.u.type", None),
        ("policies.p.mode", None),
        ("routes", None),
    ]


def test_e10_what_is_missing_is_on_the_line_of_what_lacks_it() -> None:
    text = "routes:\n- upstream: u\n  policy: p\nupstreams:\n  u:\n\n    type: openai\n"
    assert [(error.key_path, error.line) for error in errors_of(text)] == [
        ("routes[0].model", 2),
        ("upstreams.u.base_url", 5),
        ("policies", None),
    ]


def test_e10_a_name_with_dots_is_found() -> None:
    text = "\n".join([text_of(policies="\n  p: {}\n  a.b.c:\n    rules:\n    - id: r")])
    (error,) = errors_of(text)
    assert (error.key_path, error.line) == ("policies.a.b.c.rules[0]", 7)


def test_e10_nothing_is_said_of_what_leads_to_a_refused_part() -> None:
    """Routes to an upstream or a policy that is refused are right; without any part, nothing is said of either."""
    assert [
        error.key_path
        for error in errors_of(text_of(upstreams="{u: {type: x, base_url: 'http://h/v1'}}", policies="{p: {mode: x}}"))
    ] == [
        "upstreams.u.type",
        "policies.p.mode",
    ]
    routes = "routes: [{model: '*', upstream: u, policy: p}]"
    assert {error.key_path for error in errors_of(routes)} == {"upstreams", "policies"}


def test_e10_every_bad_line_of_a_list_is_named(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("fine\n\u200b\nfine\n\u200b\n")
    (tmp_path / "c.yaml").write_text(text_of(policies="{p: {rules: [{id: r, words_file: words.txt}]}}"))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.yaml", {})
    reasons = [error.reason for error in caught.value.all]
    assert [reason[: len("words.txt line 2")] for reason in reasons] == ["words.txt line 2", "words.txt line 4"]


@pytest.mark.parametrize("count", [MAX_ERRORS - 1, MAX_ERRORS, MAX_ERRORS + 1, 20_000])
def test_e10_errors_have_a_bound(count: int) -> None:
    words = ", ".join(["7"] * count)
    found = errors_of(text_of(policies=f"{{p: {{rules: [{{id: r, words: [{words}]}}]}}}}"))
    if count < MAX_ERRORS:
        assert len(found) == count
    else:
        assert len(found) == MAX_ERRORS + 1
        assert str(found[-1]) == f"F: is not read further, after {MAX_ERRORS} errors"


def test_e10_a_secret_is_in_none_of_them() -> None:
    text = text_of(
        auth=f"{{keys: ['{SECRET} x', {{name: '{SECRET}!', key: '{SECRET} y'}}]}}",
        journal=f"{{path: j, key: [{SECRET}]}}",
        policies=f"{{p: {{rules: [{{id: r, words: [{{{SECRET}: x}}, 7]}}]}}}}",
    ).replace(f"'{SECRET}!'", "'x!'")
    found = errors_of(text)
    assert len(found) == 6
    assert SECRET not in "".join(map(str, found)) + repr(found)


def test_e10_errors_travel_between_processes() -> None:
    (first, *_) = errors_of(WRONG)
    copy = pickle.loads(pickle.dumps(first))
    assert [str(error) for error in copy.all] == [str(error) for error in first.all]
