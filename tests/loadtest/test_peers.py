"""The load that compares gateways: what it sends comes back, and what comes out is told."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from loadtest.peers import bench, targets
from loadtest.peers.__main__ import main
from loadtest.peers.bench import Result, table, write
from loadtest.peers.targets import PEERS


def test_ours_is_measured_and_the_word_does_not_come_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--streams", "2", "--chunks", "21", "--requests", "8", "--out", str(tmp_path)]
    assert main(["--only", "direct,portcullis-10", *small]) == 0
    direct, ours = list(csv.DictReader((tmp_path / "peers.csv").read_text().splitlines()))
    assert (direct["came_out"], ours["came_out"]) == (str(bench.CHECKED), "0")
    assert (direct["chunk_us"], direct["memory_mb"]) == ("", "")
    for key in ("chunk_us", "request_us", "p50_ms", "p99_ms", "memory_mb"):
        assert float(ours[key]) > 0, key
    assert (direct["note"], ours["note"]) == ("", "")
    assert capsys.readouterr().out in (tmp_path / "peers.md").read_text()


def test_a_peer_that_does_not_install_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def create(environment: Path, **_: object) -> None:
        """An environment takes seconds to make; a link to this one has pip, too."""
        python = environment / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)

    monkeypatch.setattr(targets, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(targets.venv, "create", create)
    peer = targets.Peer("other", "litellm", ("no-such-distribution-of-anybody[x]==0",))
    result = bench.measure(peer, bench.Cores(frozenset(), frozenset(), frozenset()), bench.Load())
    assert result.came_out is None and "NotInstalledError" in result.note
    assert "no-such-distribution" in table([result])


def test_a_run_without_ours_fails_for_nothing_and_a_leak_of_ours_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaking(peer: targets.Peer, *_: object) -> Result:
        return Result(target=peer.name, came_out=1)

    monkeypatch.setattr("loadtest.peers.__main__.measure", leaking)
    monkeypatch.setattr("loadtest.peers.__main__.pin_self", lambda _: None)
    monkeypatch.setattr("loadtest.peers.__main__.write", lambda *_: None)
    assert main(["--only", "litellm-10"]) == 0
    assert main(["--only", "portcullis-10"]) == 1


def test_what_is_written_has_every_row(tmp_path: Path) -> None:
    results = [Result(target=peer.name, chunk_us=1.0, p99_ms=2.0, came_out=0) for peer in PEERS]
    write(tmp_path, results, "page")
    assert len((tmp_path / "peers.csv").read_text().splitlines()) == len(PEERS) + 1
    assert (tmp_path / "peers.md").read_text() == "page"
    assert all(peer.name in table(results) for peer in PEERS)
