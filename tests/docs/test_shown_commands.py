"""Commands of the documentation that are only shown: each is one that there is, with options and files that there are.

`console` blocks, and `sh` blocks with a `text` block below them, are run by `test_docs`. Of the others what needs
neither a network nor a container engine is run here; the rest is read as the program itself would read it.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.audit.cli.options import command_parser as audit_parser
from gateway.cli import _parser
from gateway.doctor.command import command_parser as doctor_parser
from gateway.journal.command import command_parser as journal_parser
from gateway.serving.vllm.command_line import attach_values
from tests.support.commands import COMMAND, TIMEOUT, portcullis, running
from tests.support.pages import PAGES, ROOT, blocks, commands_with_output

WITH_OUTPUT = {command.place for command, _ in commands_with_output()}
OWN_PARSERS = {"audit": audit_parser, "doctor": doctor_parser, "journal": journal_parser}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"].keys()
CONTAINERS = ("docker", "helm", "kubectl")  # no engine and no cluster is here: their files are looked at
PROGRAMS_OF_CLIENTS = ("claude", "codex")  # run by `make clients`
INLINE = re.compile(r"`((?:portcullis|docker|helm|kubectl|pip) [^`\n]+)`")
OF_OTHERS = {"values.yaml", "portcullis.yaml"}  # what a reader has written


def split(text: str) -> Iterator[list[str]]:
    """The commands of a block, without variables that are set in front of them."""
    for line in re.sub(r"\$\([^)]*\)", "printed", text.replace("\\\n", " ")).splitlines():
        words = shlex.split(line.partition(" > ")[0], comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if words and words[0] != "export":
            yield words


SHOWN = [
    pytest.param(words, id=f"{block.place} {words[0]}")
    for block in blocks("sh")
    if block.place not in WITH_OUTPUT
    for words in split(block.text)
]
INLINE_SHOWN = sorted(
    {found for page in PAGES if page.name != "CHANGELOG.md" for found in INLINE.findall(page.read_text("utf-8"))}
)


def parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (commands,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return dict(commands.choices)


def files_named(words: list[str]) -> list[str]:
    return [word for word in words if word.startswith(("deploy/", "docs/", "tests/", "loadtest/"))]


def check(words: list[str]) -> None:
    program, *arguments = words
    if program == "portcullis":
        own = OWN_PARSERS.get(arguments[0])
        (own() if own else _parser()).parse_args(arguments[1:] if own else attach_values(arguments))
    elif program == "make":
        done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
    elif program == "pip":
        assert arguments[0] == "install"
        extras = re.search(r"\[(.*)\]", arguments[-1])
        assert set(extras[1].split(",") if extras else ()) <= EXTRAS
    elif program == ".venv/bin/python":
        assert arguments[0] == "-m" and (ROOT / arguments[1].replace(".", "/")).exists()
    elif program == ".ci/run":
        subprocess.run(["bash", "-n", ROOT / program], check=True)
    else:
        assert program in (*CONTAINERS, *PROGRAMS_OF_CLIENTS, "curl", "sed", ".venv/bin/pytest"), program
    for name in files_named(words):
        assert list(ROOT.glob(name)), name


@pytest.mark.parametrize("words", SHOWN)
def test_a_command_is_one_that_there_is(words: list[str]) -> None:
    check(words)


@pytest.mark.parametrize(
    "slip",
    ["portcullis serve --wrokers 2", "portcullis chek F", "make tset", "pip install '.[reddis]'", "kubctl apply"],
)
def test_a_slip_would_be_seen(slip: str) -> None:
    with pytest.raises((AssertionError, SystemExit)):
        check(shlex.split(slip))


@pytest.mark.parametrize("command", INLINE_SHOWN)
def test_a_command_in_prose_has_only_options_that_there_are(command: str) -> None:
    """In prose a command may lack what it needs, and have what stands for something."""
    program, *words = re.findall(r"\S+", command)
    if program == "portcullis" and re.fullmatch("[a-z]+", words[0]):
        parser = parsers(_parser())[words[0]]
        if (own := OWN_PARSERS.get(words[0])) is not None:
            parser = own()
            if words[0] == "journal":
                parser = parsers(parser)[words[1]]
        known = {option for action in parser._actions for option in action.option_strings}
        assert set(re.findall(r"(?<=[\s\[])--[a-z-]+", command)) <= known
    for name in files_named(words):
        assert list(ROOT.glob(name.rstrip("…"))), name


# -- run ---------------------------------------------------------------------------------------------------------------


def test_the_quickstarts_configuration_is_checked_and_served(tmp_path: Path) -> None:
    (config,) = (block.text for block in blocks("yaml") if block.page.name == "quickstart.md")
    (tmp_path / "portcullis.yaml").write_text(config, "utf-8")
    keys = {"PORTCULLIS_KEY": "a-client-key", "OPENAI_API_KEY": "an-upstream-key"}
    checked, served = (words[1:] for words in split(next(b.text for b in blocks("sh") if "check portcullis" in b.text)))
    path = str(tmp_path / "portcullis.yaml")
    done = portcullis(*(path if word == "portcullis.yaml" else word for word in checked), **keys)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{path}: valid".encode())
    arguments = [path if word == "portcullis.yaml" else word for word in served]
    with running(*arguments, "--port", "0", **keys) as gateway:
        address = re.search(rb"http://[\d.]+:\d+", gateway.stdout.readline())
        assert address and portcullis("health", address[0].decode()).returncode == 0


def test_an_editor_gets_its_schema(tmp_path: Path) -> None:
    shutil.copy(ROOT / "deploy" / "examples" / "password.yaml", tmp_path / "portcullis.yaml")
    (block,) = (each for each in blocks("sh") if "portcullis schema" in each.text)
    script = block.text.replace("portcullis schema", f"{shlex.join(COMMAND)} schema")
    subprocess.run(["sh", "-e", "-c", script], cwd=tmp_path, check=True, timeout=TIMEOUT)
    first, *_ = (tmp_path / "portcullis.yaml").read_text("utf-8").splitlines()
    assert first == "# yaml-language-server: $schema=portcullis.schema.json"
    assert (tmp_path / "portcullis.schema.json").read_text("utf-8").startswith("{")
