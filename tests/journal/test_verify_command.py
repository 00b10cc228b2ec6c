"""`portcullis journal verify`: which files, which key, what it prints, its exit status."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.journal.chain import head_path
from gateway.journal.command import run
from gateway.journal.writer import JournalWriter
from tests.support.commands import write_config
from tests.support.journal_samples import KEY, REQUEST, TIMEOUT, journal_at, matches

Verify = Callable[..., tuple[int, str, str]]


def write(path: Path, worker: int, *, chain: bool = True) -> Path:
    """What a worker of a gateway writes in its life."""
    told: list[str] = []
    writer = JournalWriter(journal_at(path, chain=chain), told.append, worker)
    writer.start()
    assert writer.write([*matches(3), REQUEST])
    writer.close(TIMEOUT)
    assert not told
    return path if worker == 0 else path.with_name(f"{path.name}.w{worker}")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.jsonl"
    for worker in range(2):
        write(path, worker)
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path, [{"id": "a", "words": ["b"]}], journal={"path": "journal.jsonl", "key": KEY})


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    def verifying(*arguments: str | Path) -> tuple[int, str, str]:
        try:
            status = run(["verify", *map(str, arguments)])
        except SystemExit as usage:
            status = int(usage.code or 0)
        return status, *capsys.readouterr()

    return verifying


def test_every_worker_has_a_chain(journal: Path, config: Path, verify: Verify) -> None:
    expected = "".join(f"{path}: intact; lines: 4, files: 1\n" for path in (journal, f"{journal}.w1"))
    assert verify("--config", config) == (0, expected, "")


def test_the_first_broken_line_of_each_is_named(journal: Path, config: Path, verify: Verify) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], *lines[2:]]))
    status, out, _ = verify("--config", config)
    assert status == 1
    assert out.splitlines()[0].startswith(f"{journal}:2: missing: ")
    assert out.splitlines()[1].endswith("intact; lines: 4, files: 1")


def test_a_file_that_is_gone_is_missed(journal: Path, config: Path, verify: Verify) -> None:
    journal.unlink()
    status, out, _ = verify("--config", config)
    assert status == 1
    assert out.startswith(f"{journal}: cut: ")


def test_files_may_be_given_with_a_key_of_a_file(tmp_path: Path, journal: Path, verify: Verify) -> None:
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n")
    assert verify("--key-file", key, journal)[0] == 0
    key.write_text("another key of somebody")
    status, out, _ = verify("--key-file", key, journal)
    assert (status, out.split(": ")[1]) == (1, "changed")


def test_without_a_key_only_hashes_are_compared_and_it_is_said(journal: Path, verify: Verify) -> None:
    status, _, err = verify(journal)
    assert (status, err) == (0, "no key was given: signatures were not checked\n")


def test_a_copy_of_a_head_misses_what_was_put_back(tmp_path: Path, journal: Path, config: Path, verify: Verify) -> None:
    lines, head = journal.read_bytes(), head_path(journal).read_bytes()
    write(journal, 0)
    copy = tmp_path / "copy"
    copy.write_bytes(head_path(journal).read_bytes())
    journal.write_bytes(lines)
    head_path(journal).write_bytes(head)
    assert verify("--config", config, journal)[0] == 0
    status, out, _ = verify("--config", config, "--head", copy, journal)
    assert (status, out) == (1, f"{journal}:4: cut: it is line 3 of the chain, and the head file names line 7\n")


def test_without_a_head_it_says_what_it_cannot_miss(journal: Path, config: Path, verify: Verify) -> None:
    head_path(journal).unlink()
    assert "without a head file" in verify("--config", config, journal)[1]


def test_a_journal_without_a_chain_is_said_to_be_one(tmp_path: Path, config: Path, verify: Verify) -> None:
    path = write(tmp_path / "journal.jsonl", 0, chain=False)
    assert verify("--config", config) == (0, f"{path}: no line of it is chained\n", "")


@pytest.mark.parametrize(
    "arguments", [[], ["--head", "nowhere", "journal.jsonl"], ["nowhere"], ["--key-file", "no", "a"]]
)
def test_what_cannot_be_told(
    arguments: list[str], journal: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(journal.parent)
    status, out, err = verify(*arguments)
    assert (status, out) == (2, "")
    assert err


def test_a_head_that_is_none_is_broken(journal: Path, config: Path, verify: Verify) -> None:
    head_path(journal).write_bytes(b"{}")
    status, out, _ = verify("--config", config, journal)
    assert (status, out.startswith(f"{head_path(journal)}: changed: ")) == (1, True)
