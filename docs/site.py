"""Builds the documentation as a site into `build/site`: `make docs`, or `python docs/site.py`.

The pages are written for a reader of the repository, so some of their links leave `docs/`. A copy is made in which the
pages of the root stand beside the others and links to other files lead to the repository. Zensical then builds it, and
fails where a link or an anchor leads nowhere. It is the successor of mkdocs-material by its authors, and reads
`mkdocs.yml`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS, BUILD = ROOT / "docs", ROOT / "build" / "docs"
REPOSITORY = "https://github.com/portcullis-gateway/portcullis/blob/main"
ROOT_PAGES = ("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md")

_CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
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


def stage() -> None:
    """Write the copies of all pages."""
    shutil.rmtree(BUILD, ignore_errors=True)
    places = pages()
    for page, place in places.items():
        (BUILD / place).parent.mkdir(parents=True, exist_ok=True)
        (BUILD / place).write_text(rewritten(page.read_text("utf-8"), page, places), "utf-8")


def main() -> int:
    stage()
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "mkdocs.yml"]
    return subprocess.run(build, cwd=ROOT, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
