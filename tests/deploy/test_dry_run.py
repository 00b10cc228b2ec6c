"""Every job's commands, run to their end with stand-ins for what needs a runner, a registry or minutes.

A stand-in writes down how it was called. `make` stands for `make -n`: it says what it would do.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.deploy_files import ROOT, Json

TIMEOUT = 60  # seconds; ends a hang
STAND_IN = """#!/bin/bash
echo "${0##*/} $*" >> "$CALLS"
case "${0##*/} $1" in
    "docker inspect") echo healthy ;;
    "docker build" | "docker run" | "docker compose") [ -e Dockerfile ] ;;
    "helm package") mkdir -p "$4" ;;
    "helm push") echo 'Digest: sha256:0123' ;;
    "git diff") exit 1 ;;
    make\\ *) exec /usr/bin/env -i PATH=/usr/bin:/bin make -n "$@" ;;
esac
"""
STOOD_IN = ("docker", "helm", "cosign", "gh", "git", "sudo", "make", "uv", "python", "check-wheel-contents", "curl")
IN_FOLDERS = (".venv/bin/pytest", "build/clean/bin/python", "build/clean/bin/portcullis")
OF_GITHUB = {
    "GITHUB_REF_NAME": "v1.2.3",
    "GITHUB_REPOSITORY": "owner/portcullis",
    "GITHUB_REPOSITORY_OWNER": "owner",
    "GITHUB_RUN_ID": "1",
}
JOBS: list[tuple[str, Json, Json]] = [
    (f"{path.stem}.{name}", workflow, job)
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    for workflow in [yaml.safe_load(path.read_text("utf-8"))]
    for name, job in workflow["jobs"].items()
    if any("run" in step for step in job["steps"])
]


def filled(text: str, matrix: Json) -> str:
    """Expressions of the workflow with what they might be; one of the matrix must be in it."""

    def value(found: re.Match[str]) -> str:
        where, _, key = found[1].partition(".")
        return str(matrix[key]) if where == "matrix" else "stands-for-it"

    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text)


def combinations(job: Json) -> list[Json]:
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    included: list[Json] = matrix.pop("include", [])
    return included + [{key: value} for key, values in matrix.items() for value in values] or [{}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout, as far as the steps look into it, and the stand-ins in `bin`."""
    for path in ROOT.iterdir():
        if path.name not in (".git", ".venv", "build", "dist"):
            (tmp_path / path.name).symlink_to(path)
    for name in [*(f"bin/{name}" for name in STOOD_IN), *IN_FOLDERS]:
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(STAND_IN)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def called(folder: Path, workflow: Json, job: Json, matrix: Json) -> str:
    """What the stand-ins were called with, one call a line."""
    calls = folder / "calls"
    calls.touch()
    own = {"PATH": f"{folder / 'bin'}{os.pathsep}/usr/bin:/bin", "CALLS": str(calls), "GITHUB_OUTPUT": os.devnull}
    for step in job["steps"]:
        given: dict[str, Any] = {**workflow.get("env", {}), **job.get("env", {}), **step.get("env", {})}
        if "run" in step:
            done = subprocess.run(
                ["bash", "-eu", "-o", "pipefail", "-c", filled(step["run"], matrix)],
                cwd=folder,
                env={**OF_GITHUB, **own, **{name: filled(value, matrix) for name, value in given.items()}},
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
            )
            assert done.returncode == 0, f"{step['run']}\n{done.stdout}{done.stderr}"
    return calls.read_text("utf-8")


@pytest.mark.parametrize(("name", "workflow", "job"), JOBS, ids=[name for name, _, _ in JOBS])
def test_the_commands_of_a_job_run_to_their_end(name: str, workflow: Json, job: Json, folder: Path) -> None:
    for matrix in combinations(job):
        assert called(folder, workflow, job, matrix), name


def test_what_is_pushed_is_what_is_signed(folder: Path) -> None:
    release = {name: (workflow, job) for name, workflow, job in JOBS}
    calls = called(folder, *release["release.chart"], {})
    assert "helm push build/portcullis-*.tgz oci://ghcr.io/owner/charts\n" in calls
    assert calls.endswith("cosign sign --yes ghcr.io/owner/charts/portcullis@sha256:0123\n")


def test_a_command_that_fails_or_lacks_a_variable_would_be_seen(folder: Path) -> None:
    for run in ("make no-such-target", 'echo "$NOT_SET"', "cat missing.txt"):
        with pytest.raises(AssertionError, match=r"make|unbound|missing"):
            called(folder, {}, {"steps": [{"run": run}]}, {})
