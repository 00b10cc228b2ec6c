"""`portcullis audit`: wrong usage, what fails on the way, missing parts, and its documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway import cli
from gateway.audit.cli.options import parse_options
from gateway.audit.cli.plan import plan_of
from gateway.audit.model import Floats, ModelError
from gateway.audit.query.load import QUERY_KEYS, load_query
from gateway.audit.query.model import ServedModel, compile
from gateway.config import ConfigError
from tests.support.audit_command import NUMBERS, QUERY, Audit
from tests.support.commands import TIMEOUT, portcullis
from tests.support.memory import Memory
from tests.support.pages import ROOT, table

Json = dict[str, Any]


pytestmark = pytest.mark.usefixtures("own_environment")


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
    assert done.error == "command line: --verify: a gateway needs the name of a model: give --name\n"


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
    options = parse_options(["--policy", "p", "--config", str(config), "--prompts", str(tmp_path / "prompts.txt")])
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
        ({"--config": "silent.yaml"}, "silent.yaml: policies.default: has no rule for a model's output"),
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
        (RuntimeError("SECRET"), 70, "portcullis: internal error: RuntimeError at test_command_errors.py line "),
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
    assert f"portcullis: failed; strings found: {len(done.texts)}; to continue: --resume {saved}" in done.error
    assert rules.exists()
    rest = audit(query(limit=30), "--batch", 4, "--resume", saved)
    assert (rest.status, done.texts + rest.texts) == (0, whole.texts)


def test_without_a_checkpoint_it_is_said_that_nothing_is_kept(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query(), model=Failing(ModelError("gone"), 3))
    assert "portcullis: failed; strings found: 0; without --checkpoint nothing is kept to continue from\n" in done.error


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
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)


def test_the_part_that_is_missing_is_named(query: Callable[..., Path]) -> None:
    done = without_numpy("audit", query())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "portcullis: audit needs an optional dependency: pip install -e '.[audit]'\n"


def test_strings_are_counted_without_it(query: Callable[..., Path]) -> None:
    done = without_numpy("audit", query(), "--count")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "10000000\n")


def test_there_may_be_no_end_to_them(query: Callable[..., Path]) -> None:
    done = portcullis("audit", query(query="My number is [0-9]+"), "--count")
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"infinite\n")


# -- the documentation -------------------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "audit.md"


def test_every_key_of_a_query_is_documented() -> None:
    assert [row[0] for row in table(PAGE, "query keys")] == list(QUERY_KEYS.forms)


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
