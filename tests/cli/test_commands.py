"""`version`, `check`, and what is refused before anything runs."""

from __future__ import annotations

import itertools
import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway import version
from gateway.automata.literals import LiteralMachine
from gateway.censor import compile
from gateway.censor.detectors import DETECTORS
from gateway.cli import main
from gateway.policy import lint
from gateway.version import __version__
from tests.support.commands import portcullis, write_config


def test_version_says_what_is_installed() -> None:
    done = portcullis("version")
    first, python, system, *parts = done.stdout.decode().splitlines()
    assert first == f"portcullis {__version__}"
    assert python.startswith(f"python {platform.python_version()}")
    assert system.startswith("platform ")
    assert all(re.fullmatch(r"\w+: (present|not installed)", part) for part in parts)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("command", "option"), [("serve", "--workers"), ("audit", "--emit-rules"), ("journal", "search")]
)
def test_every_command_shows_its_own_options(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as shown:
        main([command, "--help"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: portcullis {command} ")
    assert option in printed
    assert shown.value.code == 0
    with pytest.raises(SystemExit):
        main(["--help"])
    assert f"    {command} " in capsys.readouterr().out


def test_the_audit_is_imported_only_when_it_is_run() -> None:
    code = "import sys; from gateway.cli import _parser; _parser(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "gateway.serving.command" in loaded
    assert not {"gateway.audit", "gateway.journal", "gateway.app", "numpy", "fastapi", "sqlite3"} & set(loaded)


def test_e10_the_usual_option_prints_the_version() -> None:
    asked, usual = portcullis("version"), portcullis("--version")
    assert (usual.stdout, usual.stderr, usual.returncode) == (asked.stdout, b"", 0)


@pytest.mark.parametrize("lacking", ["opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk", "opentelemetry"])
def test_e10_telemetry_is_there_when_traces_can_be_sent(
    lacking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["version"]) == 0
    assert "opentelemetry: present" in capsys.readouterr().out.splitlines()

    def find_spec(name: str) -> object:
        """As importlib's: None for what is not there, an error for a part of what is not there."""
        if name == lacking:
            return None
        if name.startswith(f"{lacking}."):
            raise ModuleNotFoundError(name)
        return object()

    monkeypatch.setattr(version, "find_spec", find_spec)
    assert main(["version"]) == 0
    assert "opentelemetry: not installed" in capsys.readouterr().out.splitlines()


RULES = [
    {"id": "password", "words": ["12MONKEYS", "swordfish"], "secret": True},
    {"id": "cat", "words": ["cat"], "whole_word": True, "fold": []},
    {"id": "quiet", "words": ["zzzzz"], "action": "flag"},
    {"id": "stop", "words": ["the"], "whole_word": True, "action": "block"},
    {"id": "prompts", "words": ["secret"], "apply_to": ["input"], "channels": ["other"], "fold": ["accents"]},
]


def test_check_prints_what_each_rule_compiled_to(tmp_path: Path) -> None:
    done = portcullis("check", write_config(tmp_path, RULES))
    assert (done.stderr, done.returncode) == (b"", 0)
    policy, password, cat, quiet, stop, prompts, route, valid = done.stdout.decode().splitlines()
    assert policy == "policy default: mode enforce, max_hold 1024, on_overflow release"
    assert "rule password: redact, lens case+width+invisible+space+punctuation, 2 words of 9 characters" in password
    assert "longest hold 8 characters, typical hold " in password
    assert "rule cat: redact, lens exact, 1 word of 3 characters, longest hold 6 characters" in cat
    assert quiet.endswith("holds nothing, no matches in 1,276 words of prose")
    assert " characters), no matches in 1,276 words of prose" in password
    assert stop.endswith("it blocks the bundled prose")
    assert "lens accents" in prompts
    assert "longest hold 5 characters, typical hold " in prompts
    assert route == "route '*': upstream demo, policy default"
    assert valid == f"{tmp_path / 'portcullis.json'}: valid"


def test_e10_check_prints_every_error_with_its_line(tmp_path: Path) -> None:
    config = tmp_path / "portcullis.yaml"
    config.write_text(
        "upstreams: {demo: {type: demo}}\nroutes:\n- {model: '*', upstream: nosuch, policy: default}\n"
        "policies:\n  default: {mode: loud}\nlisten: {port: 70000}\n"
    )
    for command in (["check", config], ["serve", "--config", config], ["scan", "--config", config]):
        done = portcullis(*command)
        assert done.stderr.decode().splitlines() == [
            f"{config}: routes[0].upstream: unknown upstream 'nosuch'; known: demo (line 3)",
            f"{config}: policies.default.mode: must be one of enforce, observe, not 'loud' (line 5)",
            f"{config}: listen.port: must be a whole number from 0 to 65535, not 70000 (line 6)",
        ]
        assert (done.stdout, done.returncode) == (b"", 2)


def test_e10_check_compiles_each_rule_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rules under one lens, one of which rolls back, were compiled five times."""
    made: list[int] = []

    class Counted(LiteralMachine):
        def __init__(self, words: compile.Words, *arguments: Any) -> None:
            made.append(len(words))
            super().__init__(words, *arguments)

    monkeypatch.setattr(compile, "LiteralMachine", Counted)
    rules = [{"id": "many", "words": [f"word{i}" for i in range(500)]}, {"id": "r", "words": ["a"], "action": "block"}]
    assert main(["check", str(write_config(tmp_path, rules))]) == 0
    assert made == [500, 1]
    assert "500 words of 5 to 7 characters" in capsys.readouterr().out


def test_check_bounds_the_hold_by_max_hold_and_says_observe(tmp_path: Path) -> None:
    policies = {
        "short": {"max_hold": 4, "rules": RULES[:1]},
        "seen": {"mode": "observe", "rules": RULES[:1]},
    }
    routes = [
        {"model": "a", "upstream": "demo", "policy": "short", "rename": "b"},
        {"model": "*", "upstream": "demo", "policy": "seen"},
    ]
    lines = portcullis("check", write_config(tmp_path, [], policies=policies, routes=routes)).stdout.decode()
    assert "longest hold 4 characters" in lines
    assert "policy seen: mode observe" in lines
    assert "holds nothing" in lines
    assert "route 'a': upstream demo, policy short, renamed b\n" in lines


def test_check_explains_patterns_and_detectors(tmp_path: Path) -> None:
    rules = [
        {"id": "ticket", "pattern": r"\bPROJ-\d{1,6}\b", "fold": ["case"]},
        {"id": "tag", "pattern": "<[^>]+>", "action": "flag"},
        {"id": "name", "words": ["Ann Bee"], "action": "pseudonymize"},
        {"id": "address", "detector": "email"},
    ]
    done = portcullis("check", write_config(tmp_path, rules))
    assert (done.stderr, done.returncode) == (b"", 0)
    _, ticket, tag, name, address, _, warning, _ = done.stdout.decode().splitlines()
    assert re.search(r"rule ticket: redact, lens case, pattern of 11 states \(\d+ determinised on prose\)", ticket)
    assert "longest hold 11 characters, typical hold 0." in ticket
    assert re.search(
        r"lens width\+invisible\+punctuation, pattern of 3 states \(\d+ determinised on prose\), holds nothing, no m",
        tag,
    )
    assert (
        "rule name: pseudonymize, lens case+width+invisible+space+punctuation, 1 word of 7 characters, longest hold 6"
        in name
    )
    assert re.search(r"rule address: redact, lens width\+invisible, detector email of \d+ states", address)
    assert warning.startswith("warning: policies.default.rules[1].pattern: its matches can be of any length")


def test_check_says_when_a_hold_has_no_bound_of_its_own(tmp_path: Path) -> None:
    policy = {"max_hold": 100, "rules": [{"id": "tag", "pattern": "<[^>]+>"}]}
    done = portcullis("check", write_config(tmp_path, [], policies={"default": policy}))
    assert "longest hold unbounded, at most max_hold (100) characters, typical hold " in done.stdout.decode()


def test_check_says_where_a_pattern_is_wrong(tmp_path: Path) -> None:
    config = write_config(tmp_path, [{"id": "r", "pattern": "ab(?=c)"}])
    done = portcullis("check", config)
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"{config}: policies.default.rules[0].pattern: ")
    assert line.endswith("(at position 2)")
    assert done.returncode == 2


def test_check_prints_warnings_and_no_word(tmp_path: Path) -> None:
    rules = [{"id": "password", "words": ["12MONKEYS"], "replacement": "not 12monkeys"}]
    done = portcullis("check", write_config(tmp_path, rules))
    warning = "warning: policies.default.rules[0].replacement: contains a word of rule password"
    assert warning in done.stdout.decode().splitlines()
    assert b"MONKEYS" not in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("sections", "key_path", "reason"),
    [
        ({"colour": "red"}, "colour", ""),
        ({"routes": [{"model": "*", "upstream": "nosuch", "policy": "default"}]}, "routes[0].upstream", "unknown"),
        ({"otel": {}}, "otel", "not available in this version"),
        ({"listen": {"port": 70000}}, "listen.port", "70000"),
        ({"upstreams": {"demo": {"base_url": "${NOSUCH_URL}"}}}, "upstreams.demo.base_url", "NOSUCH_URL is not set"),
        ({"listen": {"host": "0.0.0.0"}}, "listen.host", "set auth.keys"),
    ],
)
def test_check_names_file_key_and_reason(tmp_path: Path, sections: dict[str, Any], key_path: str, reason: str) -> None:
    config = write_config(tmp_path, [], **sections)
    done = portcullis("check", config)
    assert (done.stdout, done.returncode) == (b"", 2)
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"{config}: {key_path}: ")
    assert reason in line


def test_check_refuses_a_word_of_which_nothing_is_left(tmp_path: Path) -> None:
    done = portcullis("check", write_config(tmp_path, [{"id": "r", "words": ["\u200b"]}]))
    assert b"policies.default.rules[0].words[0]: nothing of this word is left after folding" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("name", ["nosuch.yaml", "."])
def test_check_names_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    done = portcullis("check", tmp_path / name)
    assert done.stderr.decode().startswith(f"{tmp_path / name}: ")
    assert done.returncode == 2


def test_an_audit_names_a_query_that_cannot_be_read(tmp_path: Path) -> None:
    done = portcullis("audit", tmp_path / "nosuch.yaml")
    assert done.stderr.decode() == f"{tmp_path / 'nosuch.yaml'}: file not found\n"
    assert done.returncode == 2


def test_detectors_are_listed_with_examples() -> None:
    done = portcullis("detectors")
    assert (done.stderr, done.returncode) == (b"", 0)
    lines = done.stdout.decode().splitlines()
    for detector in DETECTORS.values():
        begin = lines.index(f"{detector.name}: {detector.title}")
        shown = list(itertools.takewhile(lambda line: line.startswith("  "), lines[begin + 1 :]))
        assert len(shown) == len(detector.examples) + 1 + bool(detector.note)
        assert f"  source: {detector.source}" in shown


def test_detectors_as_json() -> None:
    done = portcullis("detectors", "--json")
    listed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [detector["name"] for detector in listed] == list(DETECTORS)
    for shown in listed:
        assert list(shown) == ["name", "title", "introduction", "examples", "source", "note"]
        assert tuple(shown["examples"]) == DETECTORS[shown["name"]].examples
    assert done.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [["nosuch"], ["check"], ["scan"], ["serve", "--colour"], ["version", "x"], ["detectors", "x"], ["audit"]],
)
def test_usage_errors(arguments: list[str]) -> None:
    done = portcullis(*arguments)
    assert done.stderr.startswith(b"usage: portcullis")
    assert (done.stdout, done.returncode) == (b"", 2)


def test_e10_check_says_what_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lint, "LARGE_LIST", 20_000)  # so that it does not; tests/policy/test_lint.py has the real one
    (tmp_path / "words.txt").write_text("\n".join(f"w{number:04}{'x' * 95}" for number in range(200)))
    done = portcullis("check", write_config(tmp_path, [{"id": "many", "words_file": "words.txt"}]))
    cost = "to compile 200 words takes about 0 seconds of a core and 1 MB"
    assert done.stderr == b""  # it is quick
    assert f"warning: policies.default.rules[0]: {cost}, at every start" in done.stdout.decode()
    assert done.returncode == 0
