"""Versions of packages that this one was not made for."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.version import DISTRIBUTION, unknown_versions


def install(folder: Path, name: str, version: str, *required: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in required),
    ]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def test_the_installed_packages_are_those_that_this_was_made_for() -> None:
    assert list(unknown_versions()) == []


@pytest.mark.parametrize(
    ("required", "version", "found"),
    [
        ("made-up>=1.2,<2", "1.99.1", None),
        ("made-up<2,>=1.2", "2.0.0", "2"),
        ("made-up<0.60,>=0.53", "0.60", "0.60"),
        ("made-up<0.60,>=0.53", "0.59.9", None),
        ("made-up[more]<0.60; platform_system != 'Windows'", "1.0", "0.60"),
        ("made-up>=1; python_version < '3.0'", "9.0", None),
        ("not-installed<1", "9.0", None),
    ],
)
def test_later_ones_are_named(
    required: str, version: str, found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, DISTRIBUTION, "0.1.0", required)
    install(tmp_path, "made-up", version)
    monkeypatch.syspath_prepend(tmp_path)
    wanted = [f"made-up {version} is installed, and this version was made for those before {found}"]
    assert list(unknown_versions()) == (wanted if found else [])
