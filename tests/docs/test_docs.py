"""Every example of the documentation is run, every list in it compared with the code, every link followed."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from gateway import cli
from gateway.config import ConfigError, parse, warnings
from gateway.guard.findings import HELD_BOUNDS, HOLD_BOUNDS
from gateway.observe.facts import RequestFinished
from gateway.observe.log import request_fields
from gateway.observe.metrics import COUNTERS, GAUGES, Metrics
from gateway.policy.load import CONFIG
from gateway.policy.model import Config
from gateway.proxy.upstreams import client as upstream
from gateway.wire import chat, completions, message
from tests.support import console
from tests.support.pages import (
    EXAMPLES,
    PAGES,
    ROOT,
    Block,
    anchors,
    blocks,
    blocks_of,
    commands_with_output,
    links,
    table,
)

SEMANTICS, CONFIGURATION, HTTP, METRICS, CLI, OPERATIONS = (
    ROOT / "docs" / f"{name}.md" for name in ("semantics", "configuration", "http", "metrics", "cli", "operations")
)
CLIENTS = ROOT / "docs" / "clients"  # their programs are run by `make clients`, which has their packages
ENVIRONMENT = {
    "PORTCULLIS_KEY": "a-client-key",
    "PORTCULLIS_OLD_KEY": "an-older-client-key",
    "OPENAI_API_KEY": "an-upstream-key",
}
# The parts that an example in the documentation leaves out.
REST = {
    "upstreams": "upstreams: {demo: {type: demo}}",
    "routes": 'routes: [{model: "*", upstream: demo, policy: default}]',
    "policies": 'policies: {default: {rules: [{id: password, words: ["12MONKEYS"]}]}}',
}


def load_example(text: str) -> Config:
    """An example as a whole configuration: rules get a policy around them, missing parts are added."""
    parsed = yaml.safe_load(text)
    if isinstance(parsed, list):
        indented = "".join(f"      {line}\n" for line in text.splitlines())
        text = f"policies:\n  default:\n    rules:\n{indented}"
        parsed = {"policies": None}
    if isinstance(parsed, dict) and parsed.keys() & {*CONFIG.forms}:
        text = "\n".join([text, *(part for key, part in REST.items() if key not in parsed)])
    return parse(text, "F", EXAMPLES, ENVIRONMENT)


def place(block: Block) -> str:
    return block.place


# -- what is shown -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in page.read_text("utf-8")], ids=lambda p: p.name)
def test_python_sessions_print_what_is_shown(page: Path) -> None:
    """One page's `pycon` blocks are one session, so later ones may use the names of earlier ones."""
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report = io.StringIO()
    for block in blocks("pycon"):
        if block.page == page:
            test = doctest.DocTestParser().get_doctest(block.text, names, block.place, str(page), block.line - 1)
            runner.run(test, out=report.write, clear_globs=False)
            names.update(test.globs)
    assert runner.summarize(verbose=False).failed == 0, report.getvalue()


@pytest.mark.parametrize("block", [block for block in blocks("python") if block.page.parent != CLIENTS], ids=place)
def test_python_programs_print_what_their_last_comment_says(block: Block, demo_address: str) -> None:
    """The last line of a program is `# ` and what it prints."""
    *_, last = block.text.strip().splitlines()
    program = block.text.replace("http://127.0.0.1:8080", demo_address)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, block.place, "exec"), {"__name__": "example"})
    assert printed.getvalue().strip() == last.removeprefix("# ").strip()


@pytest.mark.parametrize("block", blocks("console"), ids=place)
def test_console_examples_print_what_is_shown(block: Block, demo_address: str) -> None:
    check_console(console.steps(block.text), demo_address)


@pytest.mark.parametrize("command, output", commands_with_output(), ids=lambda block: block.place)
def test_commands_print_the_text_below_them(command: Block, output: Block, demo_address: str) -> None:
    """A command that is meant to be copied stands in a block of its own, what it prints in the next one."""
    check_console([console.Step(command.text, output.text)], demo_address)


def check_console(shown: list[console.Step], address: str) -> None:
    steps = [console.Step(step.command.replace("http://127.0.0.1:8080", address), step.expected) for step in shown]
    if any("curl " in step.command for step in steps) and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    for step, printed in zip(steps, console.run(steps, ROOT, ENVIRONMENT), strict=True):
        assert console.agrees(step.expected, printed), f"$ {step.command}\n{printed}"


@pytest.mark.parametrize("block", blocks("yaml"), ids=place)
def test_configurations_load(block: Block) -> None:
    load_example(block.text)


@pytest.mark.parametrize("block", blocks("yaml"), ids=place)
def test_configurations_give_no_warning(block: Block) -> None:
    assert warnings(load_example(block.text)) == ()


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_example_files_pass_the_check(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["check", str(file)]) == 0
    assert "warning" not in capsys.readouterr().out


def test_the_readme_shows_the_example_file() -> None:
    shown = [block.text for block in blocks("yaml") if block.page.name == "README.md"]
    assert (EXAMPLES / "gateway.yaml").read_text("utf-8") in shown


@pytest.mark.parametrize("row", table(CONFIGURATION, "errors"), ids=lambda row: row[0])
def test_errors_read_as_documented(row: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        load_example(row[0])
    assert str(refused.value).removesuffix(" (line 1)") == row[1]


@pytest.mark.parametrize("row", table(CONFIGURATION, "warnings"), ids=lambda row: row[0])
def test_warnings_read_as_documented(row: list[str]) -> None:
    assert warnings(load_example(row[0])) == (row[1],)


# -- what is listed ----------------------------------------------------------------------------------------------------


def reasons(page: Path, name: str) -> dict[str, str]:
    return dict(table(page, name))


def test_the_tables_of_fields_are_the_codes() -> None:
    assert reasons(SEMANTICS, "dropped in answers") == message.DROPPED_IN_ANSWERS
    assert reasons(SEMANTICS, "kept in answers") == message.KEPT_AROUND
    assert reasons(SEMANTICS, "dropped in requests") == chat.DROPPED_IN_REQUESTS
    assert reasons(SEMANTICS, "refused in requests") == chat.REFUSED_IN_REQUESTS
    assert reasons(SEMANTICS, "refused in text completions") == completions.REFUSED_IN_REQUESTS
    assert {row[0] for row in table(SEMANTICS, "dropped in audio")} == message.DROPPED_IN_AUDIO


def test_every_metric_is_documented_with_its_labels() -> None:
    metrics = Metrics(HELD_BOUNDS, HOLD_BOUNDS)
    documented = {name: sorted(re.findall(r"\w+", labels)) for name, _, labels, _ in table(METRICS, "metrics")}
    assert documented.keys() == {exposed_name(family.name, family.type) for family in metrics.registry.collect()}
    labels = {f"portcullis_{name}_total": labels for name, (_, *labels) in COUNTERS.items()}
    labels |= {name: list(labels) for name, (_, labels, _) in GAUGES.items()}
    assert {name: sorted(each) for name, each in labels.items()} == {name: documented[name] for name in labels}


def exposed_name(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_a_metric_that_does_not_exist(page: Path) -> None:
    documented = {row[0] for row in table(METRICS, "metrics")}
    for name in re.findall(r"portcullis_[a-z_]+", page.read_text("utf-8")):
        assert re.sub("_(bucket|sum|count)$", "", name) in documented, name


def error_codes() -> set[str]:
    """Every code that `client_error(status, message, code)` or `failure(message, code)` is called with."""
    codes: set[str] = set()
    for file in [*(ROOT / "gateway" / "proxy").rglob("*.py"), *(ROOT / "gateway" / "guard").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                position = {"client_error": 2, "failure": 1}.get(node.func.id)
                code = node.args[position] if position is not None else None
                if isinstance(code, ast.Constant) and isinstance(code.value, str):
                    codes.add(code.value)
    return codes


def test_every_error_code_is_documented() -> None:
    documented = {code for row in table(HTTP, "errors") for code in re.findall(r"\w+", row[1])}
    assert documented - {"null"} == error_codes()


def log_events() -> set[tuple[str, frozenset[str]]]:
    """Every line that `event(name, field=…)` or `_write(name, {field: …})` is called for, its own fields left out."""
    events: set[tuple[str, frozenset[str]]] = set()
    for file in (ROOT / "gateway").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Call(ast.Attribute(attr="event"), [ast.Constant(str(name))], keywords):
                    events.add((name, frozenset(keyword.arg for keyword in keywords if keyword.arg)))
                case ast.Call(ast.Attribute(attr="_write"), [ast.Constant(str(name)), ast.Dict(keys)]):
                    events.add((name, frozenset(str(key.value) for key in keys if isinstance(key, ast.Constant))))
    return events


def test_every_line_of_the_log_is_documented() -> None:
    rows = table(OPERATIONS, "log events")
    documented = {(event, frozenset(re.findall(r"`(\w+)`", f"`{fields}`"))) for event, fields, _ in rows}
    written = log_events()
    assert {name for name, _ in documented - written} == {"request"}  # its fields are below
    for name, fields in written:
        assert any(name == event and fields <= listed for event, listed in documented), (name, fields)


def test_the_line_of_a_request_is_shown_with_all_its_fields() -> None:
    shown = next(json.loads(block.text) for block in blocks("text") if block.page == CLI)
    request = RequestFinished("", "", "", "", "", status=200, outcome="ok", stream=True, duration=0.0)
    assert list(shown) == ["time", "event", *request_fields(request)]


def test_the_headers_that_travel_are_documented() -> None:
    rows = {direction: set(re.findall(r"`([^`]+)`", names)) for direction, names in table(HTTP, "headers")}
    assert rows["to the upstream"] == upstream.FORWARDED_UP | {f"{name}*" for name in upstream.FORWARDED_UP_PREFIXES}
    assert rows["not to an upstream that has an `api_key`"] == upstream.BILLING_HEADERS
    assert rows["to an upstream with `api_key: passthrough`"] == upstream.CALLERS_KEY
    assert rows["to the client"] == upstream.FORWARDED_DOWN | {f"{name}*" for name in upstream.FORWARDED_DOWN_PREFIXES}


def test_every_make_target_of_the_pages_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PAGES:
        named = re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE)
        assert {target for pair in named for target in pair if target} <= targets, page.name


# -- where it leads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}, which is not there"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}, but {target.name} has no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, ways = set(), [ROOT / "README.md"]
    while ways:
        page = ways.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = ((page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link)
        ways.extend(target for target in targets if target in PAGES)
    assert {page.name for page in PAGES} == {page.name for page in reached}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_only_known_languages_stand_on_fences(page: Path) -> None:
    """`sh`, `text` and `promql` are only shown; an example in any other language would be run by nothing."""
    known = {"pycon", "python", "console", "yaml", "sh", "text", "promql"} | (
        {"js", "toml"} if page.parent == CLIENTS else set()
    )
    assert {block.language for block in blocks_of(page)} <= known
