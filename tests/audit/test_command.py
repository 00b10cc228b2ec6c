"""`portcullis audit`: what goes in, what comes out, and with which status it ends."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway import cli
from gateway.audit.cli import perform as performing
from gateway.audit.cli.command import load_query
from gateway.audit.cli.options import parsed
from gateway.audit.cli.plan import Plan, plan_of
from gateway.audit.language.automaton import TooLarge
from gateway.audit.model import Floats, Model, ModelError
from gateway.audit.models.hf import Toy
from gateway.audit.models.masked import Masked
from gateway.audit.query.load import KEYS
from gateway.audit.query.model import ServedModel, compile
from gateway.config import ConfigError, load
from gateway.files import write_private
from gateway.policy.model import Action, Decode
from tests.audit.test_deployed import choices, gateway
from tests.audit.test_endpoint import VOCABULARY, Served
from tests.support.commands import COMMAND, PATIENCE, environment, portcullis
from tests.support.memory import Memory
from tests.support.pages import ROOT, table
from tests.support.scripted_model import write_tokenizer

Json = dict[str, Any]

NUMBERS = {"My number is 555 0100": 6.0, "My number is 555 0199": 3.0, "My number is 212 0000": 1.0}
QUERY: Json = {
    "model": {"hf": "./model"},
    "query": "My number is [0-9]{3} [0-9]{4}",
    "prefix": "My number is",
    "limit": 3,
}
CONTRACT = ["text", "tokens", "logprob", "prefix_logprob", "string_logprob", "encodings"]


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


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Audit:
    """The command in this process, with a model of the test's own in place of the one that is asked for."""

    def run(*arguments: object, model: Model | None = None) -> Done:
        loaded = Memory(NUMBERS) if model is None else model
        monkeypatch.setattr(performing, "model_of", lambda *_: loaded)
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


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not meant for these calls, and keys are the tests' own."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("UPSTREAM_API_KEY", "PORTCULLIS_KEY"):
        monkeypatch.delenv(name, raising=False)


# -- a query -----------------------------------------------------------------------------------------------------------


def test_the_likeliest_strings_come_first_and_a_summary_last(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query())
    assert done.status == 0
    assert done.texts == ["My number is 555 0100", "My number is 555 0199", "My number is 212 0000"]
    assert all(list(line) == CONTRACT for line in done.lines[:-1])
    logprobs = [line["logprob"] for line in done.lines[:-1]]
    assert logprobs == sorted(logprobs, reverse=True)
    assert math.exp(logprobs[1] - logprobs[0]) == pytest.approx(0.5, abs=1e-3)
    assert done.summary == {
        "strings": 3, "ended": "limit", "nodes": done.summary["nodes"], "seconds": done.summary["seconds"],
        "exact_to": None, "prefixes_cut": True,  # of very unlikely spellings of the prefix
    }  # fmt: skip
    assert done.error == ""


def test_the_command_line_goes_before_the_query(audit: Audit, query: Callable[..., Path]) -> None:
    assert len(audit(query(), "--limit", 1).texts) == 1
    least = audit(query(limit=1000), "--least", "0.2")
    assert least.texts == ["My number is 555 0100", "My number is 555 0199"]
    assert least.summary["ended"] == "least"
    one = Memory(NUMBERS)
    audit(query(), "--batch", 1, model=one)
    many = Memory(NUMBERS)
    audit(query(), "--batch", 64, model=many)
    assert one.calls > many.calls


def test_all_there_is_may_be_less_than_the_limit(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query(query="My number is (555|212) 0100", limit=100))
    assert (len(done.texts), done.summary["ended"]) == (2, "finished")


def test_findings_can_be_a_failure(audit: Audit, query: Callable[..., Path]) -> None:
    assert audit(query(), "--fail-on-findings").status == 3
    assert audit(query(), "--fail-on-findings", "--least", "0.9").status == 0


def test_samples(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    path = query(traversal={"random": {"samples": 30, "seed": 1}})
    report = tmp_path / "report.html"
    done = audit(path, "--report", report, "--emit-rules", tmp_path / "rules.yaml", "--verify", "mask")
    assert done.status == 0
    assert all(list(line) == ["text", "tokens", "logprob", "prefix_logprob", "weight"] for line in done.lines[:-1])
    assert set(done.texts) <= set(NUMBERS)
    assert done.summary["samples"] == 30
    assert done.summary["estimate"]["probability"] == pytest.approx(1, abs=0.01)
    assert done.summary["verify"]["still"] == 0
    assert "Probability" not in report.read_text("utf-8")
    assert len(audit(path, "--limit", 5).texts) <= 5


def test_a_checkpoint_of_samples_is_refused(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    done = audit(query(traversal={"random": {"samples": 3}}), "--checkpoint", tmp_path / "c")
    assert done.status == 2
    assert "query.yaml: traversal: random has no checkpoint" in done.error


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_lines_in_a_file_are_the_same(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    done = audit(query(), "--out", out)
    assert [json.loads(line) for line in out.read_text("utf-8").splitlines()] == done.lines
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_report_says_what_was_found(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = audit(query(), "--report", report)
    page = report.read_text("utf-8")
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert '<span class="prefix">My number is</span> 555 0100' in page
    assert "Audit of " in page and "My number is [0-9]{3} [0-9]{4}" in page
    assert "canonical" in page and "Edits" not in page
    assert f"<dd>{done.summary['nodes']}</dd>" in page


def test_a_report_says_where_edits_are(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    path = query(query="My number is 555 0101", preprocess=[{"edits": 1, "alphabet": "digits"}], limit=2)
    done = audit(path, "--report", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert done.texts == ["My number is 555 010", "My number is 555 0100"]
    assert "<title>character 20: 2</title>" in page


@pytest.mark.parametrize("option", ["--out", "--report", "--emit-rules", "--checkpoint"])
def test_where_a_file_cannot_be_nothing_is_asked(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, option: str
) -> None:
    model = Memory(NUMBERS)
    for place in (tmp_path / "nosuch" / "file", tmp_path):
        done = audit(query(), option, place, model=model)
        assert (done.status, done.lines, model.calls) == (2, [], 0)
        assert done.error.startswith(f"{place}: cannot be written: ")


@pytest.mark.parametrize("option", ["--report", "--emit-rules", "--checkpoint", "--resume"])
def test_what_is_no_file_is_not_made_one(audit: Audit, query: Callable[..., Path], tmp_path: Path, option: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = audit(query(), option, pipe)
    assert (done.status, done.lines) == (2, [])
    assert done.error == f"{pipe}: cannot be written: it is a device or a pipe, and no file\n"
    assert pipe.is_fifo()


@pytest.mark.parametrize("option", ["--report", "--emit-rules", "--checkpoint"])
def test_where_no_file_can_be_made_nothing_is_asked(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, option: str
) -> None:
    model, place = Memory(NUMBERS), tmp_path / ("x" * 254)  # there is no room for another name beside it
    done = audit(query(), option, place, model=model)
    assert (done.status, done.lines, model.calls) == (2, [], 0)
    assert done.error == f"{place}: cannot be written: File name too long\n"


def test_no_file_is_written_over_another_of_the_audit(
    audit: Audit, query: Callable[..., Path], asked: list[str], tmp_path: Path
) -> None:
    path, prompts, one = query(), tmp_path / "prompts.txt", tmp_path / "one"
    before = path.read_bytes(), prompts.read_bytes()
    cases: list[tuple[list[object], str]] = [
        ([path, "--out", path], f"{path}: is named twice: as a query, and as --out\n"),
        (
            [path, "--out", tmp_path / ".." / tmp_path.name / "one", "--emit-rules", one],
            "as --out, and as --emit-rules\n",
        ),
        ([path, "--report", one, "--checkpoint", one], f"{one}: is named twice: as --report, and as --checkpoint\n"),
        ([*asked, "--report", prompts], f"{prompts}: is named twice: as --prompts, and as --report\n"),
    ]
    for arguments, said in cases:
        done = audit(*arguments)
        assert (done.status, done.lines) == (2, [])
        assert done.error.endswith(said)
    assert (path.read_bytes(), prompts.read_bytes()) == before and not one.exists()
    audit(path, "--limit", 1, "--checkpoint", one)
    assert audit(path, "--checkpoint", one, "--resume", one, "--limit", 2).status == 0


def test_lines_of_before_stay_when_nothing_is_asked(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    assert audit(query(), "--out", out, "--verify", "http://127.0.0.1:9").status == 2
    assert out.read_text() == "before"


def test_a_file_that_was_there_is_its_owners_only_from_now_on(
    audit: Audit, query: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    out.chmod(0o644)
    done = audit(query(), "--out", out)
    assert (done.status, stat.S_IMODE(out.stat().st_mode)) == (0, 0o600)
    assert [json.loads(line) for line in out.read_text("utf-8").splitlines()] == done.lines


@pytest.mark.parametrize("full", ["report", "emit_rules", "checkpoint"])
def test_a_file_that_finds_no_room_leaves_the_others(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    def write(path: Path, data: bytes) -> None:
        if path.name == full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_private(path, data)

    monkeypatch.setattr(performing, "write_private", write)
    monkeypatch.setattr("gateway.audit.run.progress.write_private", write)
    places = {name: tmp_path / name for name in ("report", "emit_rules", "checkpoint")}
    options = [each for name, place in places.items() for each in (f"--{name.replace('_', '-')}", place)]
    done = audit(query(), *options, "--verify", "mask")
    assert (done.status, len(done.texts), done.summary["verify"]["still"]) == (74, 3, 0)
    assert f"portcullis: {places[full]}: cannot be written: No space left on device\n" in done.error
    assert [name for name, place in places.items() if not place.exists()] == [full]


def test_a_report_that_cannot_be_made_is_no_end_of_the_rest(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(*_: object) -> None:
        raise TooLarge("the language needs more than 7 states")

    monkeypatch.setattr(Plan, "rows", rows)
    done = audit(query(), "--report", tmp_path / "report")
    assert (done.status, len(done.texts), done.summary["ended"]) == (75, 3, "limit")
    assert done.error == "portcullis: the language needs more than 7 states\n"


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")
def test_lines_that_find_no_room_are_on_the_other_stream(
    audit: Audit, query: Callable[..., Path], tmp_path: Path
) -> None:
    done = audit(query(), "--out", FULL, "--emit-rules", tmp_path / "rules")
    assert (done.status, done.texts, done.summary["ended"]) == (74, ["My number is 555 0100"], "failed")
    assert done.error.endswith("portcullis: /dev/full: cannot be written: No space left on device\n")
    assert "0100" in (tmp_path / "rules").read_text("utf-8")


def test_ctrl_c_while_the_checkpoint_is_written_leaves_it_written(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, data: bytes) -> None:
        signal.raise_signal(signal.SIGINT)
        write_private(path, data)

    monkeypatch.setattr("gateway.audit.run.progress.write_private", write)
    place, rules = tmp_path / "saved", tmp_path / "rules"
    done = audit(query(), "--checkpoint", place, "--emit-rules", rules, "--verify", "mask")
    assert (done.status, len(done.texts), done.summary["ended"]) == (130, 3, "limit")
    assert "verify" not in done.summary and place.exists() and rules.exists()


# -- rules, and what they change ---------------------------------------------------------------------------------------


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


def test_what_was_found_becomes_rules(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    done = audit(query(), "--emit-rules", rules)
    assert done.error == f"portcullis: {rules}: 3 rules\n"
    policy = load(under_a_policy(rules)).policies["default"]
    assert [rule.words for rule in policy.rules] == [("212 0000",), ("555 0100",), ("555 0199",)]
    assert {(rule.action, rule.decode) for rule in policy.rules} == {(Action.REDACT, None)}
    assert stat.S_IMODE(rules.stat().st_mode) == 0o600


def test_rules_are_of_the_wanted_kind(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    audit(query(), "--emit-rules", rules, "--rules-action", "block", "--rules-mask")
    policy = load(under_a_policy(rules)).policies["default"]
    assert {(rule.action, rule.decode) for rule in policy.rules} == {(Action.BLOCK, Decode.MASK)}


def test_short_words_are_pointed_out(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    done = audit(query(query="My number is [0-9]{3}"), "--emit-rules", tmp_path / "rules.yaml")
    assert "3 rules, 3 of them with a word so short" in done.error


def test_masked_none_of_it_is_said(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query(), "--verify", "mask")
    assert (done.status, done.still) == (0, [])
    # What is masked makes room for other numbers of the query.
    assert done.summary["verify"] == {"through": "mask", "still": 0, "others": 3, "ended": "limit"}


def test_what_is_said_still_is_a_failure(
    audit: Audit, query: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Masked, "of", lambda model, *_: model)
    done = audit(query(), "--verify", "mask", "--fail-on-findings")
    assert done.status == 1
    assert [each["text"] for each in done.still] == done.texts
    assert done.summary["verify"]["still"] == 3


def test_nothing_found_is_nothing_to_verify(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query(), "--least", "0.99", "--verify", "mask")
    assert (done.status, done.summary["verify"]["still"]) == (0, 0)


def test_a_gateway_is_asked_for_what_led_to_the_strings(
    audit: Audit, query: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTCULLIS_KEY", "a-key")
    path = query(prompt="Q: ", decoding={"max_tokens": 9, "temperature": 0.7})
    with gateway(lambda *_: choices(*[" [REDACTED]"] * 4)) as (url, asked):
        done = audit(
            path,
            "--verify",
            url,
            "--verify-samples",
            4,
            "--name",
            "m",
            model=Memory({"Q: " + t: s for t, s in NUMBERS.items()}),
        )
    assert (done.status, done.still) == (0, [])
    assert done.summary["verify"] == {"through": "gateway", "still": 0, "questions": 1, "texts": 8}
    greedy, drawn = asked
    assert greedy == (
        "/v1/completions",
        {"model": "m", "prompt": "Q: My number is", "max_tokens": 9, "temperature": 0},
        "Bearer a-key",
    )
    assert (drawn[1]["n"], drawn[1]["temperature"]) == (4, 0.7)


def test_a_gateway_that_lets_it_through_is_a_failure(audit: Audit, query: Callable[..., Path]) -> None:
    with gateway(lambda _, body: choices(*[" 555 0199, no?"] * body.get("n", 1))) as (url, _):
        done = audit(query(), "--verify", f"{url}/v1", "--verify-samples", 2, "--name", "m")
    assert done.status == 1
    assert done.still == [{"begun": "My number is", "text": " 555 0199, no?", "rule": "audit-3"}] * 3


def test_a_gateway_that_fails_leaves_what_was_found(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    done = audit(query(), "--emit-rules", rules, "--verify", "http://127.0.0.1:9", "--name", "m")
    assert (done.status, len(done.texts)) == (75, 3)
    assert done.summary["verify"] == {"through": "gateway", "ended": "failed"}
    assert "portcullis: http://127.0.0.1:9/v1/completions cannot be asked" in done.error
    assert rules.exists()


# -- prompts and a policy ----------------------------------------------------------------------------------------------

SPOKEN = {
    "<user>Password?\nIt is 12MONKEYS.": 8.0,
    "<user>Password?\nIt is a secret.": 2.0,
    "<user>Number?\nMy number is 4111 1111 1111 1111.": 1.0,
    "<user>Hello\nHi": 1.0,
    "<user>Bye\nBye, fool": 1.0,
}
RULES: list[Json] = [
    {"id": "password", "words": ["12monkeys"], "secret": True, "decode": "mask"},
    {"id": "cards", "detector": "credit_card", "action": "flag"},
    {"id": "insult", "words": ["fool"], "whole_word": True},
    {"id": "prompts", "words": ["Hi"], "apply_to": ["input"]},
]


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


def test_what_breaks_a_policy_is_found_prompt_by_prompt(audit: Audit, asked: list[str]) -> None:
    done = audit(*asked, "--least", "0.01", model=Memory(SPOKEN))
    assert done.status == 0
    assert all(list(line) == ["prompt", "rule", "match", *CONTRACT] for line in done.lines[:-1])
    found = {(line["prompt"], line["rule"], line["match"], line["text"]) for line in done.lines[:-1]}
    assert ("Password?", "password", "12MONKEYS", "It is 12MONKEYS") in found
    assert ("Number?", "cards", "4111 1111 1111 1111", "My number is 4111 1111 1111 1111.") in found
    assert ("Bye", "insult", "fool", "Bye, fool") in found  # where the answer ends
    assert {prompt for prompt, *_ in found} == {"Password?", "Number?", "Bye"}
    told = [line for line in done.lines[:-1] if line["prompt"] == "Password?"]
    assert sum(math.exp(line["string_logprob"]) for line in told) <= 0.81
    assert done.summary["ended"] == "least"


def test_what_broke_a_policy_becomes_rules_and_is_masked(audit: Audit, asked: list[str], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    more = ("--least", "0.01", "--limit", 1, "--emit-rules", rules, "--rules-mask", "--verify", "mask")
    done = audit(*asked, *more, "--report", tmp_path / "report.html", model=Memory(SPOKEN))
    assert (done.status, done.still) == (0, [])
    policy = load(under_a_policy(rules)).policies["default"]
    assert [rule.words for rule in policy.rules] == [("fool",), ("12MONKEYS",), ("4111 1111 1111 1111",)]
    assert "4111 1111 1111 1111" in (tmp_path / "report.html").read_text("utf-8")


def test_prompts_are_asked_of_a_gateway_as_they_are(audit: Audit, asked: list[str]) -> None:
    def play(path: str, body: Json) -> tuple[int, bytes]:
        assert path == "/v1/chat/completions"
        said = body["messages"][-1]["content"]
        message = {"role": "assistant", "content": "It is 12MONKEYS" if said == "Password?" else "No."}
        answer = {"choices": [{"index": 0, "message": message}] * body.get("n", 1)}
        return 200, json.dumps(answer).encode()

    with gateway(play) as (url, requests):
        more = ("--least", "0.01", "--verify", url, "--verify-samples", 2, "--name", "m")
        done = audit(*asked, *more, model=Memory(SPOKEN))
    assert done.status == 1
    assert {each["rule"] for each in done.still} == {"password"} and len(done.still) == 3
    assert {body["messages"][0]["content"] for _, body, _ in requests} == {"Password?", "Number?", "Bye"}


def test_prompts_are_taken_up_where_they_were(audit: Audit, asked: list[str], tmp_path: Path) -> None:
    class Stopping(Memory):
        def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
            if self.calls == 30:
                signal.raise_signal(signal.SIGINT)
            return super().__call__(prefixes)

    whole = audit(*asked, "--least", "0.01", model=Memory(SPOKEN))
    saved, out = tmp_path / "saved", tmp_path / "out.jsonl"
    first = audit(*asked, "--least", "0.01", "--checkpoint", saved, "--out", out, model=Stopping(SPOKEN))
    assert (first.status, first.summary["ended"]) == (130, "interrupted")
    assert first.error == (f"portcullis: stopped; strings found: {len(first.texts)}; to go on: --resume {saved}\n")
    second = audit(*asked, "--least", "0.01", "--resume", saved, "--out", out, model=Memory(SPOKEN))
    assert first.texts + second.texts == whole.texts
    assert second.summary["strings"] == len(whole.texts)
    kept = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [line["text"] for line in kept if "text" in line] == whole.texts


# -- what is wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"querry": "x"}, "query.yaml: querry: unknown key; did you mean 'query'?"),
        ({"query": "("}, "query.yaml: query: "),
        ({"model": None}, "query.yaml: model: "),
        ({"prefix": "Your"}, "query.yaml: prefix: no string of the query begins with "),
        ({"limit": "many"}, "query.yaml: limit: must be a whole number"),
    ],
)
def test_a_query_that_is_refused(audit: Audit, query: Callable[..., Path], fields: Json, said: str) -> None:
    model = Memory(NUMBERS)
    done = audit(query(**fields), model=model)
    assert (done.status, done.lines, model.calls) == (2, [], 0)
    assert said in done.error and len(done.error.splitlines()) == 1


def test_a_query_without_a_model_takes_the_one_that_is_given(
    audit: Audit, query: Callable[..., Path], tmp_path: Path
) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in QUERY.items() if name != "model"}))
    refused = audit(path)
    assert refused.status == 2
    assert refused.error == f"{path}: model: is required, here or as --model\n"
    assert audit(path, "--model", "hf:./model").status == 0


ADDRESSES = [
    "http://user:SECRET@127.0.0.1:9/v1",
    "https://127.0.0.1:9/v1?key=SECRET",
    *("http://127.0.0.1:99999/v1", "http:// x/v1", "http:///v1", "http://[::1/v1", "http://é:1/v1"),
]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["q.yaml", "--policy", "default"],
        ["--policy", "default"],
        ["--policy", "default", "--config", "c", "--model", "hf:m"],
        ["q.yaml", "--chat"],
        ["q.yaml", "--top-k", "4"],
        ["q.yaml", "--limit", "0"],
        ["q.yaml", "--limit", "-1"],
        ["q.yaml", "--timeout", "0"],
        ["q.yaml", "--timeout", "nan"],
        ["q.yaml", "--least", "0"],
        ["q.yaml", "--least", "1.5"],
        ["q.yaml", "--model", "./model"],
        ["q.yaml", "--model", "hf:"],
        ["q.yaml", "--model", "vllm:http://127.0.0.1:8000/v1"],
        ["q.yaml", "--model", "vllm:file:///etc", "--name", "m", "--tokenizer", "t"],
        ["q.yaml", "--tokenizer", "t"],
        ["q.yaml", "--verify", "everything"],
        ["q.yaml", "--verify-samples", "3"],
        ["q.yaml", "--rules-mask"],
        ["q.yaml", "--rules-action", "pseudonymize"],
        ["q.yaml", "--lim", "3"],
        ["q.yaml", "--processes", "0"],
        ["q.yaml", "--processes", "many"],
        ["q.yaml", "--ray", "somewhere"],
        ["q.yaml", "--ray", "ray://SECRET@host:1"],
        ["q.yaml", "--batch", "4097"],
        ["--policy", "p", "--config", "c", "--prompts", "p", "--model", "hf:m", "--temperature", "0.0000000001"],
        *(["q.yaml", "--verify", address] for address in ADDRESSES),
        *(["q.yaml", "--name", "m", "--tokenizer", "t", "--model", f"vllm:{address}"] for address in ADDRESSES),
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        cli.main(["audit", *arguments])
    assert exited.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("usage: portcullis audit")
    assert "SECRET" not in error


@pytest.mark.parametrize("key", ["é", "a SECRET", "SECRET\n", "SECRET\r\nX: y"])
@pytest.mark.parametrize("name", ["UPSTREAM_API_KEY", "PORTCULLIS_KEY"])
def test_a_key_that_cannot_be_sent(
    audit: Audit, query: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    monkeypatch.setenv(name, key)
    served = ("--model", "vllm:http://127.0.0.1:9/v1", "--name", "m", "--tokenizer", "t")
    done = audit(query(), *served, "--verify", "http://127.0.0.1:9")
    assert (done.status, done.lines) == (2, [])
    assert done.error == f"environment: {name}: holds a space or another character that cannot travel in a header\n"


def test_a_gateway_is_asked_by_the_models_name(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query(), "--verify", "http://127.0.0.1:9")
    assert (done.status, done.lines) == (2, [])
    assert done.error == "command line: --verify: a gateway is asked for a model by name: give --name\n"


@pytest.mark.parametrize(
    ("routes", "name"),
    [
        ('{model: "*", upstream: near, policy: p, rename: m}', "m"),
        ("{model: m, upstream: near, policy: p}", "m"),
        ("{model: m, upstreams: [near, other], policy: p}, {model: n, upstream: far, policy: p}", "m"),
        ('{model: n, upstream: near, policy: q}, {model: "*", upstream: near, policy: p, rename: m}', "m"),
        ('{model: "*", upstream: near, policy: p}', None),
        ("{model: m, upstream: far, policy: p}", None),
        ("{model: m, upstream: near, policy: q}", None),
        ("{model: m, upstream: near, policy: p}, {model: n, upstream: near, policy: p}", None),
    ],
)
@pytest.mark.parametrize("key", ["SECRET", None])
def test_the_model_that_a_policy_stands_before(
    routes: str, name: str | None, key: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTREAM_API_KEY", "another")  # not for a server that the configuration gives none
    (tmp_path / "tokenizer.json").write_text("{}")
    own = "type: vllm, tokenizer: ./tokenizer.json"
    given = f", api_key: {key}" if key else ""
    config = tmp_path / "portcullis.yaml"
    config.write_text(
        f'upstreams: {{near: {{{own}, base_url: "http://127.0.0.1:1/v1"{given}}},'
        f' other: {{{own}, base_url: "http://127.0.0.1:2/v1"}}, far: {{base_url: "http://127.0.0.1:3/v1"}}}}\n'
        f"routes: [{routes}]\npolicies: {{p: {{rules: [{{id: r, words: [x]}}]}}, q: {{}}}}\n"
    )
    (tmp_path / "prompts.txt").write_text("Hello\n")
    options = parsed(["--policy", "p", "--config", str(config), "--prompts", str(tmp_path / "prompts.txt")])
    if name is None:
        with pytest.raises(ConfigError, match=r"yaml: policies.p: its routes lead to [02] models .* --model"):
            plan_of(options)
        return
    tokenizer = str(tmp_path / "tokenizer.json")
    served = ServedModel(vllm="http://127.0.0.1:1/v1", name=name, tokenizer=tokenizer, api_key=key)
    assert plan_of(options).model == served


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--policy": "nosuch"}, "portcullis.yaml: policies.nosuch: no such policy; there are: default"),
        ({"--prompts": "nosuch.txt"}, "nosuch.txt: file not found"),
        ({"--prompts": "policy.yaml", "--config": "nosuch.yaml"}, "nosuch.yaml: file not found"),
        ({"--prompts": "empty.txt"}, "empty.txt: holds no prompt; write one a line"),
        ({"--config": "silent.yaml"}, "silent.yaml: policies.default: has no rule for what a model says"),
    ],
)
def test_prompts_that_cannot_be_asked(
    audit: Audit, asked: list[str], tmp_path: Path, change: dict[str, str], said: str
) -> None:
    (tmp_path / "empty.txt").write_text("\n  \n")
    (tmp_path / "silent.yaml").write_text(
        "upstreams: {demo: {type: demo}}\npolicies: {default: {rules: [{id: r, words: [x], apply_to: [input]}]}}\n"
        'routes: [{model: "*", upstream: demo, policy: default}]\n'
    )
    arguments = list(asked)
    for option, value in change.items():
        at = arguments.index(option) + 1
        arguments[at] = value if option == "--policy" else str(tmp_path / value)
    done = audit(*arguments)
    assert (done.status, done.lines) == (2, [])
    assert done.error.rstrip("\n").endswith(said)


def test_a_checkpoint_of_something_else(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    audit(query(), "--checkpoint", tmp_path / "saved")
    other = audit(query(query="My number is [0-9]{3}"), "--resume", tmp_path / "saved")
    assert (other.status, other.lines) == (2, [])
    assert (
        other.error
        == f"portcullis: {tmp_path / 'saved'}: a checkpoint of another query, or of other prompts or rules\n"
    )
    missing = audit(query(), "--resume", tmp_path / "nosuch")
    assert (missing.status, missing.error) == (2, f"{tmp_path / 'nosuch'}: cannot be read: No such file or directory\n")
    (tmp_path / "text").write_text("text")
    assert audit(query(), "--resume", tmp_path / "text").error == (
        f"portcullis: {tmp_path / 'text'}: no checkpoint of an audit\n"
    )


# -- what fails on the way ---------------------------------------------------------------------------------------------


class Failing(Memory):
    """Answers so often, and then fails."""

    def __init__(self, error: Exception, calls: int) -> None:
        super().__init__(NUMBERS)
        self._error, self._left = error, calls

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return super().__call__(prefixes)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ModelError("the server is gone"), 75, "portcullis: the server is gone"),
        (RuntimeError("SECRET"), 70, "portcullis: internal error: RuntimeError at test_command.py line "),
    ],
)
def test_a_model_that_fails_half_way(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, error: Exception, status: int, said: str
) -> None:
    whole_model = Memory(NUMBERS)
    whole = audit(query(limit=30), "--batch", 4, model=whole_model)
    saved, rules = tmp_path / "saved", tmp_path / "rules.yaml"
    calls = whole_model.calls * 3 // 4
    done = audit(
        *(query(limit=30), "--batch", 4, "--checkpoint", saved, "--emit-rules", rules, "--verify", "mask"),
        model=Failing(error, calls),
    )
    assert done.status == status
    assert 0 < len(done.texts) < 30 and done.texts == whole.texts[: len(done.texts)]
    assert (done.summary["ended"], done.summary["strings"]) == ("failed", len(done.texts))
    assert said in done.error and "SECRET" not in done.error
    assert f"portcullis: failed; strings found: {len(done.texts)}; to go on: --resume {saved}" in done.error
    assert rules.exists()
    rest = audit(query(limit=30), "--batch", 4, "--resume", saved)
    assert (rest.status, done.texts + rest.texts) == (0, whole.texts)


def test_without_a_checkpoint_it_is_said_that_nothing_is_kept(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query(), model=Failing(ModelError("gone"), 3))
    assert "portcullis: failed; strings found: 0; without --checkpoint nothing is kept to go on from\n" in done.error


def test_a_model_that_cannot_be_loaded(query: Callable[..., Path]) -> None:
    """There is no PyTorch here, or no such folder."""
    done = portcullis("audit", query())
    assert (done.returncode, done.stdout) == (75, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"portcullis: {query().parent / 'model'}: ")


# -- without the extra -------------------------------------------------------------------------------------------------


def without_numpy(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = 'import sys; sys.modules["numpy"] = None; from gateway import cli; sys.exit(cli.main(sys.argv[1:]))'
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_the_part_that_is_missing_is_named(query: Callable[..., Path]) -> None:
    done = without_numpy("audit", query())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "portcullis: audit needs a part that is not here: pip install -e '.[audit]'\n"


def test_strings_are_counted_without_it(query: Callable[..., Path]) -> None:
    done = without_numpy("audit", query(), "--count")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "10000000\n")


def test_there_may_be_no_end_to_them(query: Callable[..., Path]) -> None:
    done = portcullis("audit", query(query="My number is [0-9]+"), "--count")
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"infinite\n")


# -- as a process, with a served model ---------------------------------------------------------------------------------


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
                self.go_on.wait(PATIENCE)
        found = self._plays.play(path, body)
        assert found is not None
        return found


@pytest.fixture
def served_query(tmp_path: Path) -> Callable[..., Path]:
    folder = write_tokenizer(VOCABULARY, tmp_path / "model")

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


def lines_of(output: bytes) -> list[Json]:
    return [json.loads(line) for line in output.splitlines()]


def test_a_served_model_is_asked(served_query: Callable[..., Path]) -> None:
    with gateway(Paused()) as (url, asked):
        done = portcullis("audit", served_query(url), "--batch", "8", KEY="a-key", no_proxy="*")
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(lines_of(done.stdout)) == 61
    assert {key for _, _, key in asked} == {"Bearer a-key"}


def test_ctrl_c_keeps_what_was_found_and_it_goes_on_later(served_query: Callable[..., Path], tmp_path: Path) -> None:
    with gateway(Paused()) as (url, _):
        whole = lines_of(portcullis("audit", served_query(url), "--batch", "8", no_proxy="*").stdout)
    saved = tmp_path / "saved"
    model = Paused(at=6)
    with gateway(model) as (url, _):
        path = served_query(url)
        process = subprocess.Popen(
            [*COMMAND, "audit", str(path), "--batch", "8", "--checkpoint", str(saved)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(no_proxy="*"),
        )  # fmt: skip
        try:
            assert model.reached.wait(PATIENCE)
            process.send_signal(signal.SIGINT)
            output, error = process.communicate(timeout=PATIENCE)
        finally:
            model.go_on.set()
            process.kill()
            process.wait()
        assert process.returncode == 130
        first = lines_of(output)
        assert first[-1]["summary"]["ended"] == "interrupted"
        assert error.decode() == (f"portcullis: stopped; strings found: {len(first) - 1}; to go on: --resume {saved}\n")
        rest = lines_of(portcullis("audit", path, "--batch", "8", "--resume", saved, no_proxy="*").stdout)
    found, wanted = first[:-1] + rest[:-1], whole[:-1]
    assert [line["text"] for line in found] == [line["text"] for line in wanted]
    assert [line["logprob"] for line in found] == pytest.approx([line["logprob"] for line in wanted])


def test_time_is_up_while_a_model_does_not_answer(served_query: Callable[..., Path], tmp_path: Path) -> None:
    model = Paused(at=6)
    with gateway(model) as (url, _):
        done = portcullis(
            "audit", served_query(url), "--timeout", "2", "--checkpoint", tmp_path / "saved", no_proxy="*"
        )
        model.go_on.set()
    assert done.returncode == 0
    assert lines_of(done.stdout)[-1]["summary"]["ended"] == "timeout"
    assert b"portcullis: stopped after 2.0 s; strings found: " in done.stderr
    assert (tmp_path / "saved").exists()


def test_a_reader_that_leaves_ends_the_audit_but_not_the_checkpoint(
    served_query: Callable[..., Path], tmp_path: Path
) -> None:
    read, write = os.pipe()
    os.close(read)
    with gateway(Paused()) as (url, _), os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [*COMMAND, "audit", str(served_query(url)), "--checkpoint", str(tmp_path / "saved")],
            stdout=closed, stderr=subprocess.PIPE, env=environment(no_proxy="*"), timeout=PATIENCE,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (74, b"")
    assert (tmp_path / "saved").exists()


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")
def test_standard_output_may_be_full(served_query: Callable[..., Path], tmp_path: Path) -> None:
    said = b"portcullis: standard output: cannot be written: No space left on device\n"
    out, kept = tmp_path / "out", tmp_path / "saved"
    with gateway(Paused()) as (url, _), FULL.open("wb") as full:
        path = served_query(url)
        for more in (["--count"], ["--out", str(out), "--checkpoint", str(kept)]):
            done = subprocess.run(
                [*COMMAND, "audit", str(path), *more],
                stdout=full, stderr=subprocess.PIPE, env=environment(no_proxy="*"), timeout=PATIENCE,
            )  # fmt: skip
            assert done.returncode == 74
            assert done.stderr.endswith(said)
    assert done.stderr == f"portcullis: failed; strings found: 1; to go on: --resume {kept}\n".encode() + said
    assert [line.get("summary", {}).get("ended") for line in lines_of(out.read_bytes())] == [None, "failed"]
    assert kept.exists()


@pytest.mark.parametrize("closed", [1, 2])
def test_streams_may_be_closed(served_query: Callable[..., Path], tmp_path: Path, closed: int) -> None:
    out, rules = tmp_path / "out", tmp_path / "rules"
    with gateway(Paused()) as (url, _):
        command = [*COMMAND, "audit", str(served_query(url)), "--out", str(out), "--emit-rules", str(rules)]
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command],
            capture_output=True, env=environment(no_proxy="*"), timeout=PATIENCE,
        )  # fmt: skip
    assert done.returncode == 0
    lines = lines_of(out.read_bytes())
    assert lines[-1]["summary"]["strings"] == len(lines) - 1 == 60
    assert lines_of(done.stdout) == ([] if closed == 1 else lines)
    assert rules.exists()


def test_standard_output_may_be_in_another_encoding(served_query: Callable[..., Path]) -> None:
    with gateway(Paused()) as (url, _):
        path = served_query(url, query="a?é", limit=2)
        done = portcullis("audit", path, no_proxy="*", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert {line["text"] for line in lines_of(done.stdout)[:-1]} == {"é", "aé"}


def test_a_server_that_goes_away_half_way(served_query: Callable[..., Path]) -> None:
    plays = Paused()

    def refusing() -> Iterator[bool]:
        for _ in range(20):
            yield False
        while True:
            yield True

    refuses = refusing()

    def play(path: str, body: Json) -> tuple[int, bytes]:
        return (403, b'{"error": {"message": "no more"}}') if next(refuses) else plays(path, body)

    with gateway(play) as (url, _):
        done = portcullis("audit", served_query(url), "--batch", "2", no_proxy="*")
    assert done.returncode == 75
    lines = lines_of(done.stdout)
    assert lines[-1]["summary"]["ended"] == "failed"
    assert lines[-1]["summary"]["strings"] == len(lines) - 1 > 0
    failed, why = done.stderr.decode().splitlines()
    assert failed.startswith("portcullis: failed; strings found: ")
    assert why.startswith(f"portcullis: {url}/v1: the server refuses: status 403")


def test_a_servers_tokenizer_is_needed(served_query: Callable[..., Path]) -> None:
    path = served_query("http://127.0.0.1:9", model={"vllm": "http://127.0.0.1:9/v1", "name": "m"})
    done = portcullis("audit", path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith(f"{path}: model.tokenizer: is required: ")


# -- the documentation -------------------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "audit.md"


def test_every_key_of_a_query_is_documented() -> None:
    assert [row[0] for row in table(PAGE, "query keys")] == list(KEYS)


def test_every_option_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["audit", "--help"])
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert len(options) > 20
    assert options == set(re.findall(r"--[a-z][a-z-]+", PAGE.read_text("utf-8"))) - {"--max-logprobs"}


@pytest.mark.parametrize("name", ["birth_date", "phone_number"])
def test_the_examples_are_queries(name: str) -> None:
    query = load_query(ROOT / "docs" / "examples" / f"{name}.yaml")
    assert query.model is not None and compile(query).prefix is not None
