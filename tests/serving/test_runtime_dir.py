"""What workers share lies in a folder that goes with its gateway, or with the next one where that was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.serving.runtime_dir import runtime_directory

HOLD = """
import sys
from gateway.serving.runtime_dir import runtime_directory
with runtime_directory() as folder:
    (folder / "metrics").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", None)  # forget what was found out before
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    tempfile.tempdir = None


def held() -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder, until its input ends."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_goes_with_its_owner(place: Path) -> None:
    with runtime_directory() as folder:
        assert list(place.iterdir()) == [folder]
    assert not list(place.iterdir())


def test_a_killed_owners_folder_goes_with_the_next_start_and_a_living_ones_stays(place: Path) -> None:
    (killed, abandoned), (living, used) = held(), held()
    killed.kill()
    killed.communicate()
    assert (abandoned / "metrics").is_dir()
    with runtime_directory() as folder:
        assert set(place.iterdir()) == {folder, used}
    assert (used / "metrics").is_dir()
    living.communicate()
    assert living.returncode == 0 and not list(place.iterdir())


def test_what_is_not_known_to_be_abandoned_stays(place: Path) -> None:
    without_owner = place / "portcullis-1"
    elsewhere = place / "elsewhere"
    for folder in (without_owner, elsewhere):
        folder.mkdir()
    (elsewhere / "owner").touch()
    (place / "portcullis-2").symlink_to(elsewhere)
    (place / "portcullis-3").touch()
    linked = place / "portcullis-4"
    linked.mkdir()
    (linked / "owner").symlink_to(elsewhere / "owner")
    before = set(place.iterdir())
    with runtime_directory():
        pass
    assert set(place.iterdir()) == before and (elsewhere / "owner").exists()
