"""Files and folders that only their owner may read, whatever somebody else put in their place."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.files import open_private, private_folder

APPEND = os.O_RDWR | os.O_APPEND
NOBODY = 65534


def opened(path: Path, flags: int = APPEND) -> None:
    os.close(open_private(path, flags))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("before", [None, 0o600, 0o666, 0o644, 0o640, 0o606, 0o777])
def test_d27_a_file_is_made_its_owners_only(tmp_path: Path, before: int | None) -> None:
    path = tmp_path / "file"
    if before is not None:
        path.write_bytes(b"kept")
        path.chmod(before)
    old = os.umask(0)
    try:
        opened(path)
    finally:
        os.umask(old)
    assert mode_of(path) == 0o600
    assert path.read_bytes() == (b"" if before is None else b"kept")


def test_d27_a_mode_that_is_narrower_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o400)
    opened(path, os.O_RDONLY)
    assert mode_of(path) == 0o400


@pytest.mark.parametrize("target", ["victim", "missing", "."])
def test_d27_a_symbolic_link_is_not_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "victim").write_bytes(b"theirs")
    (tmp_path / "victim").chmod(0o644)
    path = tmp_path / "link"
    path.symlink_to(target)
    with pytest.raises(OSError, match="it is a symbolic link: name the file or folder itself") as refused:
        opened(path)
    assert refused.value.filename == str(path)
    assert (mode_of(tmp_path / "victim"), (tmp_path / "victim").read_bytes()) == (0o644, b"theirs")
    assert not (tmp_path / "missing").exists()


def test_d27_a_second_name_is_refused(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "link"
    victim.write_bytes(b"theirs")
    victim.chmod(0o644)
    path.hardlink_to(victim)
    with pytest.raises(OSError, match="it has a second name") as refused:
        opened(path)
    assert refused.value.filename == str(path)
    assert mode_of(victim) == 0o644
    victim.unlink()
    opened(path)
    assert mode_of(path) == 0o600


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_d27_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path = Path(os.devnull)
    before = mode_of(path)
    with pytest.raises(OSError, match=r"it is not a regular file|Is a directory") as refused:
        opened(path)
    assert refused.value.filename == str(path)
    assert mode_of(path) == before


def test_d27_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    """But one of the folder's owner, whose services root may look after."""
    if os.geteuid():
        pytest.skip("only root can give a file away")
    path = tmp_path / "file"
    path.touch(0o666)
    os.chown(path, NOBODY, -1)
    with pytest.raises(OSError, match=r"it belongs to another user \(65534\)") as refused:
        opened(path)
    assert refused.value.filename == str(path)
    os.chown(tmp_path, NOBODY, -1)
    opened(path)
    assert (mode_of(path), path.stat().st_uid) == (0o600, NOBODY)


@pytest.mark.parametrize("before", [None, 0o700, 0o755, 0o777, 0o1777])
def test_d27_a_folder_is_made_its_owners_only(tmp_path: Path, before: int | None) -> None:
    path = tmp_path / "folder"
    if before is not None:
        path.mkdir()
        path.chmod(before)
    private_folder(path)
    assert mode_of(path) == 0o700


def test_d27_folders_are_no_links_and_no_files(tmp_path: Path) -> None:
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "link"
    elsewhere.mkdir(0o755)
    link.symlink_to(elsewhere)
    with pytest.raises(OSError, match="it is a symbolic link") as refused:
        private_folder(link)
    assert refused.value.filename == str(link)
    assert mode_of(elsewhere) == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        private_folder(tmp_path / "file")


def test_d27_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    path = tmp_path / "folder"
    path.mkdir(0o777)
    os.chown(path, NOBODY, -1)
    with pytest.raises(OSError, match="it belongs to another user"):
        private_folder(path)
