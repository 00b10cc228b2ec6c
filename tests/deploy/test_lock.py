"""The image's locks: whole, with hashes, within pyproject.toml's ranges, and what these tests run with."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.deploy_files import DEPLOY, ROOT

EXTRAS = ("redis", "otel")  # of the image
ENVIRONMENT = {"python_version": "3.13", "python_full_version": "3.13.16", "platform_system": "Linux", "extra": ""}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def locked(name: str) -> dict[str, Version]:
    """The versions of a lock. Every line of it is a comment, a package or one of its hashes."""
    versions: dict[str, Version] = {}
    hashed: dict[str, int] = {}
    for line in (DEPLOY / name).read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        if found := re.fullmatch(r"([a-z0-9-]+)==([0-9][0-9a-z.]*) \\", line):
            package = found[1]
            versions[package], hashed[package] = Version(found[2]), 0
        else:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line
            hashed[package] += 1
    assert versions and all(hashed.values())
    return versions


LOCKED = locked("requirements.lock")


def wanted(requirements: list[str]) -> list[Requirement]:
    parsed = map(Requirement, requirements)
    return [each for each in parsed if each.marker is None or each.marker.evaluate(ENVIRONMENT)]


@pytest.mark.parametrize("name", ["requirements.lock", "decode.lock", "build.lock"])
def test_d35_a_lock_names_hashes_and_no_index(name: str) -> None:
    assert locked(name)
    text = (DEPLOY / name).read_text("utf-8")
    assert not re.search(r"://|index|find-links|file:", text)


def test_d35_the_lock_satisfies_the_project() -> None:
    optional = PROJECT["optional-dependencies"]
    for requirement in wanted([*PROJECT["dependencies"], *(each for extra in EXTRAS for each in optional[extra])]):
        assert requirement.specifier.contains(LOCKED[canonicalize_name(requirement.name)]), requirement
    assert "hatchling" in locked("build.lock")


def test_the_image_that_steers_a_vllm_has_the_same_versions() -> None:
    decode = locked("decode.lock")
    assert decode.items() >= LOCKED.items()
    for requirement in wanted(PROJECT["optional-dependencies"]["decode"]):
        assert requirement.specifier.contains(decode[canonicalize_name(requirement.name)]), requirement


def test_d35_the_lock_is_whole_and_the_tests_run_with_it() -> None:
    for name, version in LOCKED.items():
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # one that only the image's platform or version of Python wants
        assert Version(installed.version) == version, f"{name}: run `make test`, or `make lock` for what is installed"
        for requirement in wanted(installed.requires or []):
            assert requirement.specifier.contains(LOCKED[canonicalize_name(requirement.name)]), (name, requirement)


def test_d35_what_is_known_from_the_inside_has_bounds_on_both_sides() -> None:
    (uvicorn,) = (each for each in wanted(PROJECT["dependencies"]) if each.name == "uvicorn")
    assert {each.operator for each in uvicorn.specifier} == {">=", "<"}
    assert not uvicorn.specifier.contains("0.52.0") and uvicorn.specifier.contains("0.53.0")


def test_d35_the_plugin_installs_beside_vllm() -> None:
    """What vLLM 0.32 has in its environment, which the ranges must take as it is."""
    beside = {"fastapi": "0.136.3", "starlette": "1.10.0", "uvicorn": "0.54.0", "uvloop": "0.23.0"}
    beside |= {"httptools": "0.9.0", "msgspec": "0.22.0", "regex": "2026.11.15", "prometheus-client": "0.26.0"}
    ranges = {canonicalize_name(each.name): each.specifier for each in wanted(PROJECT["dependencies"])}
    for name, version in beside.items():
        assert ranges[canonicalize_name(name)].contains(version), name
