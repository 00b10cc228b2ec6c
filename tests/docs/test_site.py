"""The documentation as a site: every page is in its navigation, and links lead to pages or to the repository."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.pages import ROOT, links

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


def test_install_quickstart_and_every_client_are_within_two_clicks() -> None:
    docs = ROOT / "docs"
    one = {(docs / link.partition("#")[0]).resolve() for link in links(docs / "index.md") if "://" not in link}
    two = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in one
        if page.suffix == ".md"
        for link in links(page)
        if "://" not in link
    }
    assert docs / "quickstart.md" in one
    assert {*(docs / "clients").glob("*.md")} <= one
    assert {*(docs / "gateways").glob("*.md")} <= one | two


def test_a_chart_is_drawn_of_the_tables_own_figures() -> None:
    table = "| 400 streams | kB a stream | other |\n|---|---|---|\n| nginx | 17.6 (1-2) | 1 |\n| ours < | 35.2 | 2 |\n"
    drawn = SITE["charted"](f"# T\n\n{table}\ntext\n", ("kB a stream",))
    assert table in drawn and drawn.count("<svg") == 1
    assert 'width="150.0"' in drawn and 'width="300.0"' in drawn and "ours &lt;" in drawn
    assert SITE["charted"](table, ()) == table
    for page, columns in SITE["CHARTED"].items():
        assert SITE["charted"]((ROOT / "docs" / page).read_text("utf-8"), columns).count("<svg") == len(columns)


def test_programs_that_read_get_a_list_of_all_pages() -> None:
    SITE["stage"]()
    listed = SITE["llms"](yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert listed.startswith("# Portcullis\n\n> A streaming guardrail proxy for LLM APIs\n\n## Start\n")
    for place in SITE["pages"]().values():
        assert f"({SITE['SITE']}/{place.as_posix()}): " in listed, place
    assert "](../" not in listed
