"""The table, and what it was measured on."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from loadtest.process import Cores
from loadtest.targets import nginx_version
from loadtest.verdicts import Figure, Row, Verdict

_PACKAGES = (
    "portcullis-gateway",
    "uvloop",
    "httptools",
    "msgspec",
    "pyahocorasick",
    "fastapi",
    "starlette",
    "uvicorn",
    "httpx2",
)
_COLUMNS = (
    "scenario",
    "target",
    "CPU us/chunk",
    "x nginx",
    "x copy",
    "p50 ms",
    "p99 ms",
    "max ms",
    "+p50 ms",
    "+p99 ms",
    "kB/stream",
    "each stream",
)
_FOREIGN = 0.02  # share of the target's core beyond which its delays are not its own
_LATE = 0.01  # share of late chunks above which the upstream was not the one that was described


def environment(cores: Cores) -> dict[str, str]:
    """Machine, versions and commit, as lines of the report."""
    versions = [f"python {platform.python_version()}", f"nginx {nginx_version() or 'not installed'}"]
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} not installed")
    return {
        "machine": f"{_cpu_model()}, {_core_count()} cores, {platform.system()} {platform.release()}",
        "cores": cores.note,
        "versions": ", ".join(versions),
        "commit": _commit(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def _core_count() -> int:
    return sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())


def _commit() -> str:
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "unknown"


def table(rows: Sequence[Row]) -> str:
    """Fixed-width columns; a figure is its median over the rounds, with the least and the most where they differ."""
    lines = [_COLUMNS, *map(_cells, rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(_COLUMNS))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def _cells(row: Row) -> tuple[str, ...]:
    if row.skipped or (row.p50 is None and row.cpu_us is None):
        return (row.scenario, row.target, row.skipped or "failed", *[""] * (len(_COLUMNS) - 3))
    return (
        row.scenario,
        row.target,
        _show(row.cpu_us, 1),
        _show(row.vs_nginx, 2),
        _show(row.vs_bytecopy, 2),
        _show(row.p50, 2),
        _show(row.p99, 2),
        _show(row.longest, 1),
        _show(row.added_p50, 2),
        _show(row.added_p99, 2),
        _show(row.kb_per_stream, 1),
        row.counts,
    )


def _show(figure: Figure | None, digits: int) -> str:
    if figure is None:
        return "-"
    shown, least, most = (f"{number:.{digits}f}" for number in (figure.median, figure.least, figure.most))
    return shown if least == most else f"{shown} ({least}..{most})"


def verdict_lines(verdicts: Sequence[Verdict]) -> str:
    """One line for each limit."""
    words = {True: "holds", False: "OVER", None: "not measured"}
    lines = (f"{words[one.holds]:<13} {one.what}: {_show(one.figure, 2)} (limit {one.limit:g})" for one in verdicts)
    return "\n".join(lines)


def remarks(rows: Sequence[Row]) -> str:
    """What went wrong, and what makes a row doubtful."""
    lines = [f"WRONG  {row.scenario} {row.target}: {fault}" for row in rows for fault in row.faults]
    lines += [
        f"doubtful  {row.scenario} {row.target}: the upstream sent {row.late_share:.0%} of its chunks over 5 ms late"
        for row in rows
        if row.late_share > _LATE
    ]
    disturbed = [row.foreign_share for row in rows if row.foreign_share > _FOREIGN]
    if disturbed:
        lines.append(
            f"doubtful  other processes took part of the target's core in {len(disturbed)} of {len(rows)} rows,"
            f" up to {max(disturbed):.0%} of it: delays and noise are theirs too"
        )
    return "\n".join(lines)


def text(facts: dict[str, str], rows: Sequence[Row], censor: str, verdicts: Sequence[Verdict]) -> str:
    """The whole report; `censor` is the table of the censor alone, if it was measured."""
    head = "\n".join(f"{key:<9} {fact}" for key, fact in facts.items())
    return "\n\n".join(part for part in (head, table(rows), censor, verdict_lines(verdicts), remarks(rows)) if part)


def write(directory: Path, facts: dict[str, str], rows: Sequence[Row], verdicts: Sequence[Verdict], page: str) -> None:
    """Write `latest.json`, and `page` as `latest.md`. Raises `OSError` if the directory cannot be written."""
    directory.mkdir(parents=True, exist_ok=True)
    document = {
        "environment": facts,
        "rows": [asdict(row) for row in rows],
        "limits": [{**asdict(verdict), "holds": verdict.holds} for verdict in verdicts],
    }
    (directory / "latest.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (directory / "latest.md").write_text(f"# The latest `make bench`\n\n```text\n{page}\n```\n", encoding="utf-8")
