"""The workflows: by their schema and linters, pinned, and what of them can be run here, run; versions and changelog."""

from __future__ import annotations

import email
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.version import __version__
from tests.support.deploy_files import ROOT, Json

WORKFLOWS = {path.stem: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
BIN = Path(sys.executable).parent
TIMEOUT = 300  # seconds; packages are downloaded
RELEASE = runpy.run_path(str(ROOT / "deploy" / "release.py"))


def workflow(name: str) -> Json:
    read: Json = yaml.safe_load(WORKFLOWS[name].read_text("utf-8"))
    return read


def steps(name: str) -> list[Json]:
    return [step for job in workflow(name)["jobs"].values() for step in job["steps"]]


def schema(name: str, *files: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", name, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout


@pytest.mark.services
def test_the_schemas_accept_workflows_and_renovate() -> None:
    schema("vendor.github-workflows", *WORKFLOWS.values())
    schema("vendor.renovate", ROOT / "renovate.json")


@pytest.mark.services
@pytest.mark.parametrize(
    ("platform", "machine", "built"),
    [
        ("linux", "x86_64", ["manylinux_x86_64", "musllinux_x86_64"]),
        ("linux", "aarch64", ["manylinux_aarch64", "musllinux_aarch64"]),
        ("macos", "arm64", ["macosx_arm64"]),
    ],
)
def test_wheels_are_built_once_for_each_platform(platform: str, machine: str, built: list[str]) -> None:
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--platform", platform]
    done = subprocess.run([*command, "--archs", machine, ROOT], capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.stdout.split(), done.returncode) == ([f"cp311-{each}" for each in built], 0), done.stderr


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_action_is_pinned_by_a_commit(name: str) -> None:
    text = WORKFLOWS[name].read_text("utf-8")
    used = re.findall(r"uses: (.+)", text)
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", each)] == []
    pins: dict[str, set[str]] = {}
    for each in (each for path in WORKFLOWS.values() for each in re.findall(r"uses: (.+)", path.read_text("utf-8"))):
        pins.setdefault(each.partition("@")[0], set()).add(each)
    assert [each for each in pins.values() if len(each) > 1] == [], "one action in two versions"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_nothing_may_be_written_unless_a_job_says_so(name: str) -> None:
    assert workflow(name)["permissions"] == {"contents": "read"}
    for job in workflow(name)["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_every_make_target_of_the_workflows_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {found for name in WORKFLOWS for found in re.findall(r"make ([a-z-]+)", WORKFLOWS[name].read_text("utf-8"))}
    assert named and named <= targets
    (matrix,) = [
        job["strategy"]["matrix"]["target"] for job in workflow("nightly")["jobs"].values() if "strategy" in job
    ]
    assert set(matrix) <= targets


def test_the_image_is_built_for_two_platforms_with_its_origin() -> None:
    (build,) = [step["with"] for step in steps("release") if "build-push-action" in step.get("uses", "")]
    assert build["platforms"] == "linux/amd64,linux/arm64"
    assert build["sbom"] and build["provenance"] == "mode=max"
    for variant in workflow("release")["jobs"]["image"]["strategy"]["matrix"]["include"]:
        assert (ROOT / "deploy" / variant["lock"]).exists()
    assert [step for step in steps("release") if str(step.get("run", "")).startswith("cosign sign --yes")]
    publish = workflow("release")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"} and "password" not in str(publish["steps"])


# -- the version -------------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for place in {place.strip() for place in RELEASE["PLACES"]}:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    log = tmp_path / "CHANGELOG.md"
    log.write_text(re.sub(r"^(## \S+) – .*$", r"\1 – 2026-12-01", log.read_text("utf-8"), count=1, flags=re.MULTILINE))
    return tmp_path


def test_every_place_names_one_version() -> None:
    assert RELEASE["problems"](ROOT) == []
    assert set(RELEASE["versions"](ROOT).values()) == {__version__}


def test_a_tag_is_the_version_with_a_date_in_the_changelog(copy: Path) -> None:
    tag = f"v{__version__}"
    assert RELEASE["problems"](copy, tag) == []
    assert RELEASE["problems"](copy, "v9.9.9") == [f"the tag is v9.9.9, not {tag}"]
    log = copy / "CHANGELOG.md"
    log.write_text(log.read_text("utf-8").replace("– 2026-12-01", "– unreleased"), "utf-8")
    assert RELEASE["problems"](copy, tag) == [f"CHANGELOG.md: {__version__} has no date"]


@pytest.mark.parametrize("place", sorted({place.strip() for place in RELEASE["PLACES"]} - {"gateway/version.py"}))
def test_a_place_with_another_version_is_told(place: str, copy: Path) -> None:
    file = copy / place
    file.write_text(file.read_text("utf-8").replace(__version__, "7.7.7"), "utf-8")
    found = RELEASE["problems"](copy)
    assert found and all(line == f"{place}: 7.7.7, not {__version__}" for line in found)


def test_the_notes_are_the_newest_section() -> None:
    notes = RELEASE["notes"](ROOT)
    assert notes.startswith(("The first version", "### "))
    assert "\n## " not in notes


# -- run here ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git knows of the working tree, without its environments."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.mark.services
@pytest.mark.parametrize("program, arguments", [("actionlint", []), ("zizmor", ["--offline", "--quiet"])])
def test_the_linters_find_nothing(program: str, arguments: list[str]) -> None:
    command = [str(BIN / program), *arguments, *map(str, WORKFLOWS.values())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.services
def test_what_can_be_run_here_runs(checkout: Path) -> None:
    """Steps that need neither a runner nor a registry, in their order: versions, packages, an empty environment."""
    environ: dict[str, Any] = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    run = [step for name in ("ci", "release") for step in steps(name) if str(step.get("id", "")).startswith("local")]
    assert [step["id"] for step in run] == ["local-versions", "local-build", "local-try", "local-notes"]
    for step in run:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=checkout,
            env=environ | step.get("env", {}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, f"{step['id']}\n{done.stdout}{done.stderr}"
    assert (checkout / "build" / "notes.md").read_text("utf-8") == RELEASE["notes"](ROOT)
    assert {path.suffix for path in (checkout / "dist").iterdir()} == {".gz", ".whl"}
    described = described_by(next((checkout / "dist").glob("*.whl")))
    licences = {f"{path.relative_to(checkout)}" for path in (checkout / "gateway").rglob("*.LICENSE")}
    assert {*described.get_all("License-File", ())} == {"LICENSE", *licences}
    # An index shows the README without the pages beside it.
    targets = re.findall(r"\]\(([^)]*)\)", str(described.get_payload()))
    assert targets and [each for each in targets if not each.startswith(("https://", "#"))] == []


def described_by(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(packed.read(name))
