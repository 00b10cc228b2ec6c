"""The documentation as data: its pages, their fenced blocks, their tables, their links."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "deploy" / "examples"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_INLINE_CODE = re.compile(r"`[^`\n]*`")


class Block(NamedTuple):
    """A fenced block; `line` is where its text begins, counted from 1."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """Every fenced block in one of the languages, page by page."""
    return [block for page in PAGES for block in blocks_of(page) if block.language in languages]


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        yield Block(page, text.count("\n", 0, found.start(2)) + 1, found[1], found[2])


def commands_with_output() -> list[tuple[Block, Block]]:
    """Each `sh` block that has a `text` block directly below it, and that block."""
    shown = blocks("sh", "text")
    return [
        (command, output)
        for command, output in itertools.pairwise(shown)
        if (command.language, output.language, command.page) == ("sh", "text", output.page)
        and output.line - command.line - command.text.count("\n") <= 3
    ]


def table(page: Path, name: str) -> list[list[str]]:
    """The rows of the table behind `<!-- table: NAME -->`, its head left out, a cell's code marks taken off."""
    text = page.read_text(encoding="utf-8")
    _, marker, behind = text.partition(f"<!-- table: {name} -->\n")
    assert marker, f"{page.name} has no table {name!r}"
    lines = []
    for line in behind.lstrip("\n").splitlines():
        if not line.startswith("|"):
            break
        lines.append([_plain(cell) for cell in line.strip("|").split("|")])
    return lines[2:]


def _plain(cell: str) -> str:
    cell = cell.strip()
    whole_is_code = len(cell) > 1 and cell[0] == cell[-1] == "`" and "`" not in cell[1:-1]
    return cell[1:-1] if whole_is_code else cell


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    return _LINK.findall(_INLINE_CODE.sub("", prose(page)))


def anchors(page: Path) -> set[str]:
    """What `#…` may name on the page, as GitHub makes it out of headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in _HEADING.findall(prose(page))
    }
