"""The preprocessor that the documentation shows, installed as it says, is found and used by the command."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

from tests.support.commands import portcullis
from tests.support.pages import ROOT, blocks_of


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the package, as an installer leaves it."""
    page = list(blocks_of(ROOT / "docs" / "audit.md"))
    (program,) = (block.text for block in page if block.text.startswith("# even_digits.py\n"))
    (project,) = (tomllib.loads(block.text) for block in page if block.text.startswith("[project]\n"))
    folder = tmp_path / "installed"
    described = folder / "even_digits-1.dist-info"
    described.mkdir(parents=True)
    (folder / "even_digits.py").write_text(program, encoding="utf-8")
    named = project["project"]
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {named['name']}\nVersion: {named['version']}\n")
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {function}\n" for name, function in functions.items())
        for group, functions in named["entry-points"].items()
    )
    (described / "entry_points.txt").write_text(points)
    return folder


def test_a_package_brings_a_change(installed: Path, tmp_path: Path) -> None:
    query = tmp_path / "query.yaml"
    query.write_text(yaml.safe_dump({"query": "[0-9]{2}", "preprocess": [{"user": "even"}]}), encoding="utf-8")
    done = portcullis("audit", query, "--count", PYTHONPATH=str(installed))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"50\n", b"")
    without = portcullis("audit", query, "--count")
    assert (without.returncode, without.stdout) == (2, b"")
    assert "preprocess[0]: no installed package has this preprocessor" in without.stderr.decode()
