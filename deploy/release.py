"""The version of a release: `python deploy/release.py check [TAG]`, `python deploy/release.py notes`.

`check` ends with status 1 and a line for each place that has another version than `gateway/version.py`; with a tag also
if the changelog has no date for it. `notes` prints the changelog's section for the version.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Each place that names the version, by the expression that finds it there, every time.
PLACES = {
    "gateway/version.py": r'^__version__ = "(.+)"$',
    "CHANGELOG.md": r"^## ([0-9]\S*) – ",
    "Dockerfile": r"^ARG VERSION=(.+)$",
    "deploy/vllm/Dockerfile": r"^ARG VERSION=(.+)$",
    "deploy/chart/Chart.yaml": r"^version: (.+)$",
    "deploy/chart/Chart.yaml ": r"^appVersion: (.+)$",
    "deploy/compose.yaml": r"^    image: portcullis:(.+)$",
    "deploy/kubernetes/gateway.yaml": r"^ +image: \S+/portcullis:(.+)$",
    "deploy/kubernetes/sidecar.yaml": r"^ +image: \S+/portcullis:(.+)$",
    "deploy/kubernetes/vllm.yaml": r"^ +image: \S+/portcullis:(.+)-decode$",
    "docs/quickstart.md": r"/portcullis:([0-9][^` ]*)",
    "docs/deploy.md": r"charts/portcullis --version (\S+)",
    "docs/deploy.md ": r"portcullis:([0-9]\S+)",
}


def versions(root: Path) -> dict[str, str]:
    """Place → the version that it names, several with commas between them; an empty text where it has none. Of the
    changelog the newest."""
    found = {}
    for place, expression in PLACES.items():
        named = re.findall(expression, (root / place.strip()).read_text("utf-8"), re.MULTILINE)
        found[place] = ", ".join(dict.fromkeys(named[:1] if place == "CHANGELOG.md" else named))
    return found


def problems(root: Path, tag: str | None = None) -> list[str]:
    """One line for each."""
    found = versions(root)
    version = found["gateway/version.py"]
    lines = [f"{place.strip()}: {other or 'none'}, not {version}" for place, other in found.items() if other != version]
    if tag is not None:
        if tag != f"v{version}":
            lines.append(f"the tag is {tag}, not v{version}")
        heading = rf"^## {re.escape(version)} – \d{{4}}-\d\d-\d\d$"
        if not re.search(heading, (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
            lines.append(f"CHANGELOG.md: {version} has no date")
    return lines


def notes(root: Path) -> str:
    """The newest section of the changelog without its heading."""
    _, first, *_ = re.split(r"^## .*\n", (root / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    return first.strip() + "\n"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["notes"]:
            print(notes(ROOT), end="")
            return 0
        case ["check"] | ["check", _]:
            found = problems(ROOT, *arguments[1:])
            for line in found:
                print(line, file=sys.stderr)
            return 1 if found else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
