from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(place: Path, *options: str) -> Iterator[Path]:
    """A file system of its own at `place`, or the test is skipped."""
    place.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no mount command to make a file system with")
    done = subprocess.run(["mount", *options, str(place)], capture_output=True, text=True, timeout=60)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip().splitlines()[0]}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True, timeout=60)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one mebibyte."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as place:
        yield place


@pytest.fixture
def failing_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system that takes more than the disk below it has room for, so that syncing it fails."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4 to make a file system with")
    with mounted(tmp_path / "below", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as below:
        image = below / "image"
        with image.open("wb") as file:
            file.truncate(16 * 2**20)
        # Without a journal of its own, which would turn the whole file system read-only at the first failure.
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], check=True, timeout=60)
        with mounted(tmp_path / "disk", "-o", "loop", str(image)) as place:
            yield place
