"""A page of results that several benches write, each its own section."""

from __future__ import annotations

import re
from pathlib import Path

RESULTS = Path(__file__).with_name("results") / "decode.md"
HEAD = "# Decoding: what masks and rollback cost, and how true they stay\n"


def put(page: Path, title: str, text: str, head: str = HEAD) -> None:
    """Replace the section `## title` of a page, or add it at the end; everything else stays as it is.

    Makes the page where there is none, with `head` before its sections. Raises `OSError` if it cannot be written.
    """
    before = page.read_text(encoding="utf-8") if page.exists() else head
    sections = re.split(r"(?m)^(?=## )", before)
    mine = f"## {title}\n\n{text.strip()}\n"
    places = [place for place, section in enumerate(sections) if section.startswith(f"## {title}\n")]
    if places:
        sections[places[0]] = mine
    else:
        sections.append(mine)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(section.rstrip("\n") + "\n" for section in sections), encoding="utf-8")
