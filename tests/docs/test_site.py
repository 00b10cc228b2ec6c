"""The documentation as a site: every page is in its navigation, and links lead to pages or to the repository."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.pages import ROOT

SITE = runpy.run_path(str(ROOT / "docs" / "site.py"))


def leaves(nav: Any) -> Iterator[str]:
    for each in nav.values() if isinstance(nav, dict) else nav:
        if isinstance(each, str):
            yield each
        else:
            yield from leaves(each)


def test_every_page_is_in_the_navigation_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(leaves(nav)) == sorted(place.as_posix() for place in SITE["pages"]().values())


def test_links_between_pages_and_into_the_repository() -> None:
    def staged(name: str) -> str:
        page = ROOT / "docs" / name
        return str(SITE["rewritten"](page.read_text(), page, SITE["pages"]()))

    assert "](../decisions/0001-parse-and-rewrite.md)" in staged("decisions/index.md")
    assert "](overview.md#quickstart)" in staged("index.md")
    assert "/blob/main/loadtest/results/latest.md)" in staged("benchmarks.md")


def test_a_link_to_a_missing_file_is_an_error(tmp_path: Path) -> None:
    page = ROOT / "docs" / "index.md"
    (tmp_path / "page.md").write_text("see [this](missing.md)")
    with pytest.raises(FileNotFoundError, match="links to missing"):
        SITE["rewritten"]((tmp_path / "page.md").read_text(), page, SITE["pages"]())
