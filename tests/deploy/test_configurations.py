"""Every YAML file parses, and every configuration of the gateway passes `portcullis check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import cli
from tests.support.deploy_files import CONFIGURATIONS, DEPLOY, KEYS, ROOT, Resource, documents, mounted, resources

# Said of every address but the loopback. Here that is wanted: containers are reached from outside themselves.
EXPECTED_WARNING = "warning: listen.admin: metrics are readable by everybody"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


# Templates are no YAML yet.
YAML = [path for path in sorted(DEPLOY.glob("**/*.y*ml")) if "templates" not in path.parts]


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(ROOT)))
def test_it_parses(path: Path) -> None:
    assert all(isinstance(document, dict) for document in documents(path))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_pass_the_check(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(path, capsys)


@pytest.mark.parametrize("each", resources("ConfigMap"), ids=str)
def test_config_maps_pass_the_check(each: Resource, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(mounted(each.body, tmp_path), capsys)


def check(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["check", str(path)])
    said = capsys.readouterr()
    assert status == 0, said.err
    warnings = [line for line in said.out.splitlines() if "warning" in line]
    assert [line for line in warnings if not line.startswith(EXPECTED_WARNING)] == []
