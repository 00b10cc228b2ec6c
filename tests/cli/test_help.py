"""What `--help` says, and what shells complete."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gateway.audit.cli.options import command_parser as audit_parser
from gateway.cli import SHELLS, _parser, main
from gateway.journal.command import command_parser as journal_parser
from tests.support.commands import portcullis


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)


ALL = [*parsers(_parser()), audit_parser(), *parsers(journal_parser())]
OURS = [parser for parser in ALL if getattr(parser, "run_in", None) is None]


@pytest.mark.parametrize("parser", OURS, ids=lambda parser: parser.prog)
def test_each_option_has_its_line(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        assert action.help or isinstance(action, argparse._SubParsersAction), action


@pytest.mark.parametrize(
    "parser", [each for each in OURS if not each.prog.startswith("portcullis journal ")], ids=lambda parser: parser.prog
)
def test_each_command_has_an_example_that_is_one(parser: argparse.ArgumentParser) -> None:
    _, _, example = (parser.epilog or "").partition("example:\n")
    commands = re.findall(r"portcullis (.*?)(?= [|>&]|\)|$)", example.strip())
    assert commands and all(each.startswith(parser.prog.removeprefix("portcullis").strip()) for each in commands)
    for command in commands:
        name, *arguments = shlex.split(command)
        whose = {"audit": audit_parser, "journal": journal_parser}.get(name)
        if whose is None:
            _parser().parse_args([name, *arguments])
        else:
            whose().parse_args(arguments)


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("usage: portcullis ") and "    serve " in printed.out
    assert printed.err == ""


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "gateway", "version"], capture_output=True, check=True)
    assert done.stdout == portcullis("version").stdout


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("", ["serve", "audit", "journal"]),
        ("chec", ["check"]),
        ("serve --wor", ["--workers"]),
        ("audit --fail", ["--fail-on-findings"]),
        ("journal sea", ["search"]),
        ("scan --channel tool", ["tool_arguments"]),
    ],
)
def test_bash_completes(typed: str, completed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    words = ["portcullis", *typed.split(" ")]
    script = (
        f"{capsys.readouterr().out}\nCOMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}\n"
        f"_shtab_portcullis portcullis {shlex.quote(words[-1])} {shlex.quote(words[-2])}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert set(completed) <= set(done.stdout.split()) and done.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_its_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "--fail-on-findings" in capsys.readouterr().out
