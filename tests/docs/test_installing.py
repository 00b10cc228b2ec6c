"""What the repository says about installing: the name `portcullis` on the package index is another project's."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import version
from gateway.version import DISTRIBUTION, install_hint, missing_part

ROOT = Path(__file__).parents[2]
SUFFIXES = {"", ".cfg", ".ini", ".j2", ".js", ".json", ".md", ".mjs", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
MADE = {"node_modules", "__pycache__", "results", "build", "dist"}

NAME = r"(?<![\w/.-])portcullis(?![\w/-]|\.\w)"
INSTALLERS = r"\b(?:pip[3x]?|uvx?|poetry|pdm|rye|conda|mamba|easy_install)"
COMMAND = re.compile(rf"{INSTALLERS} (?:[^`;&|\n]{{0,80}}?[ '\"=])?{NAME}", re.IGNORECASE)
REQUIREMENT = re.compile(rf"{NAME}\s?(?:\[[a-z][a-z,_-]*\]|(?:[=~<>!]=|[<>@])\s?[\w.]+)", re.IGNORECASE)


def foreign(text: str) -> list[str]:
    """Where a text has somebody install the other project, or names it as a requirement."""
    text = re.sub(r"\b(install|add|run)\s*\n\s*", r"\1 ", text)  # prose that was wrapped within a command
    return [found[0] for form in (COMMAND, REQUIREMENT) for found in form.finditer(text)]


def texts() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part not in (".ci", ".dockerignore", ".github") for part in parts)
        if hidden or MADE & set(parts) or path.suffix not in SUFFIXES or not path.is_file() or path == Path(__file__):
            continue
        yield path, path.read_text("utf-8", errors="replace")


@pytest.mark.parametrize(
    "text",
    [
        "pip install portcullis",
        "pip install -U portcullis[redis]",
        "pip3 install 'portcullis[redis,otel]'",
        'python -m pip install --upgrade "portcullis>=0.1"',
        "pip install\nportcullis",
        "pipx install portcullis",
        "pipx run portcullis serve",
        "uv add portcullis",
        "uvx portcullis demo",
        "uv tool install portcullis",
        "uv pip install portcullis==0.1.0",
        "poetry add portcullis",
        'dependencies = ["portcullis[audit]"]',
        "portcullis==0.1.0",
        "portcullis >= 0.1",
        "portcullis @ https://example.org/x.whl",
    ],
)
def test_an_instruction_to_install_the_other_project_is_recognised(text: str) -> None:
    assert foreign(text)
    assert not foreign(text.replace("portcullis", DISTRIBUTION))


def test_no_text_has_anybody_install_the_other_project() -> None:
    found = {str(path.relative_to(ROOT)): foreign(text) for path, text in texts()}
    assert len(found) > 300  # the repository has been looked through
    assert {path: what for path, what in found.items() if what} == {}


def test_the_distribution_has_one_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == DISTRIBUTION == "portcullis-gateway"
    assert list(project["scripts"]) == ["portcullis"]


def test_a_checkout_is_installed_from_its_folder() -> None:
    assert install_hint("redis") == "pip install -e '.[redis]'"
    assert install_hint() == "pip install -e ."
    assert missing_part("otel") == "needs an optional dependency: pip install -e '.[otel]'"


def test_an_installed_distribution_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "__file__", str(tmp_path / "site-packages" / "gateway" / "version.py"))
    assert install_hint("redis") == "pip install 'portcullis-gateway[redis]'"
    assert install_hint() == "pip install portcullis-gateway"


def test_every_hint_names_a_part_that_there_is() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    sources = "".join(text for path, text in texts() if path.is_relative_to(ROOT / "gateway"))
    hinted = set(re.findall(r"(?:install_hint|missing_part)\(['\"](\w+)['\"]\)", sources))
    assert hinted == {"audit", "decode", "otel", "ray", "redis"} <= set(extras)
