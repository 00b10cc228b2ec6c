"""Builds the documentation as a site into `build/site`: `make docs`, or `python docs/site.py`.

The pages are written for a reader of the repository, so some of their links leave `docs/`. A copy is made in which the
pages of the root stand beside the others, links to other files lead to the repository, and tables of `CHARTED` have a
chart below them. Zensical then builds it, and fails where a link or an anchor leads nowhere. It is the successor of
mkdocs-material by its authors, and reads `mkdocs.yml`. For programs that read it there are `llms.txt`, the list of
pages as https://llmstxt.org has it, and the copies of the pages beside their HTML.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS, BUILD = ROOT / "docs", ROOT / "build" / "docs"
SITE = "https://portcullis-gateway.github.io/portcullis"
REPOSITORY = "https://github.com/portcullis-gateway/portcullis/blob/main"
ROOT_PAGES = ("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md")

# Page → the columns of its tables that are drawn, by their heads.
CHARTED = {"benchmarks.md": ("CPU µs a chunk", "added delay p99", "kB a stream")}

_CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)
_PARAGRAPH = re.compile(r"^(?![#|<>\-\s]|```)(?:.+\n?)+", re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)\s#]*)(#[^)\s]*)?(\))")


def pages() -> dict[Path, Path]:
    """Each page of the repository → where it stands in the site, relative to its root."""
    found = {ROOT / name: Path(name.replace("README", "overview").lower()) for name in ROOT_PAGES}
    return found | {page: page.relative_to(DOCS) for page in sorted(DOCS.rglob("*.md"))}


def rewritten(text: str, page: Path, places: dict[Path, Path]) -> str:
    """The text of a page with its links changed to what they lead to in the site.

    Raises `FileNotFoundError` for a link to a file that does not exist.
    """

    def link(match: re.Match[str]) -> str:
        path, anchor = match[2], match[3] or ""
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        target = (page.parent / path).resolve()
        if not target.exists():
            raise FileNotFoundError(f"{page.relative_to(ROOT)} links to {path}, which does not exist")
        if target in places:
            up = "../" * (len(places[page].parts) - 1)
            return f"{match[1]}{up}{places[target].as_posix()}{anchor}{match[4]}"
        return f"{match[1]}{REPOSITORY}/{target.relative_to(ROOT).as_posix()}{anchor}{match[4]}"

    parts = _CODE.split(text)
    return "".join(part if number % 2 else _LINK.sub(link, part) for number, part in enumerate(parts))


def charted(text: str, columns: Sequence[str]) -> str:
    """The text of a page with a chart of bars below each table that has one of the columns."""

    def drawn(match: re.Match[str]) -> str:
        head, _, *rows = ([cell.strip() for cell in line.strip("| ").split("|")] for line in match[0].splitlines())
        charts = [
            chart(name, [(row[0], float(row[at].split()[0])) for row in rows])
            for at, name in enumerate(head)
            if name in columns
        ]
        return match[0] + "".join(f"\n{each}\n" for each in charts)

    return _TABLE.sub(drawn, text)


def chart(name: str, bars: Sequence[tuple[str, float]]) -> str:
    """An SVG with a bar for each name and value, in the colour of the page's text."""
    longest = max(value for _, value in bars)
    lines = [f'<figure markdown="0"><figcaption>{escape(name)}</figcaption>']
    lines.append(f'<svg viewBox="0 0 640 {28 * len(bars)}" role="img" fill="currentColor" font-size="14">')
    for place, (label, value) in enumerate(bars):
        width = 300 * value / longest
        lines.append(f'<text x="240" y="{28 * place + 19}" text-anchor="end">{escape(label)}</text>')
        lines.append(f'<rect x="250" y="{28 * place + 5}" width="{width:.1f}" height="18" opacity="0.6"/>')
        lines.append(f'<text x="{258 + width:.1f}" y="{28 * place + 19}">{value:g}</text>')
    return "\n".join([*lines, "</svg>", "</figure>"])


def llms(nav: list[Any]) -> str:
    """The list of pages for programs that read: sections as in the navigation, each page with its first sentence."""

    def entries(part: Any) -> Iterator[str]:
        for each in part:
            title, place = next(iter(each.items())) if isinstance(each, dict) else (None, each)
            if isinstance(place, list):
                yield from entries(place)
                continue
            text = (BUILD / place).read_text("utf-8")
            heading, first = _HEADING.search(text), _PARAGRAPH.search(text)
            said = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first[0].split())) if first else ""
            name = heading[1] if heading else title
            yield f"- [{name}]({SITE}/{place}): {re.split(r'(?<=[.]) ', said)[0]}"

    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    single = [each for each in nav if not isinstance(next(iter(each.values())), list)]
    for section, part in [("Start", single), *(next(iter(each.items())) for each in nav if each not in single)]:
        lines += [f"## {section}", "", *entries(part), ""]
    return "\n".join(lines)


def stage() -> None:
    """Write the copies of all pages."""
    shutil.rmtree(BUILD, ignore_errors=True)
    places = pages()
    for page, place in places.items():
        text = rewritten(page.read_text("utf-8"), page, places)
        (BUILD / place).parent.mkdir(parents=True, exist_ok=True)
        (BUILD / place).write_text(charted(text, CHARTED.get(place.as_posix(), ())), "utf-8")


def main() -> int:
    stage()
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "mkdocs.yml"]
    status = subprocess.run(build, cwd=ROOT, check=False).returncode  # noqa: S603
    site = ROOT / "build" / "site"
    for place in pages().values():
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BUILD / place, site / place)
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    (site / "llms.txt").write_text(llms(nav), "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
