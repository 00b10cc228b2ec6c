"""The bench itself, quickly: real sockets and processes, the byte copy in between, a wrong count that fails it."""

import json
import subprocess
import sys
from pathlib import Path

from loadtest.__main__ import main
from loadtest.process import tree
from loadtest.scenario import SCENARIOS
from loadtest.targets import fill

ROOT = SCENARIOS.parent.parent


def bench(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loadtest", "--quick", "--out", str(out), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_direct_and_byte_copy(tmp_path: Path) -> None:
    done = bench(tmp_path, "--targets", "direct,bytecopy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("3/3 passed") == 3
    document = json.loads((tmp_path / "latest.json").read_text(encoding="utf-8"))
    assert [row["target"] for row in document["rows"]] == ["direct", "bytecopy", "bytecopy"]
    assert {"machine", "versions", "commit"} <= document["environment"].keys()
    assert "bytecopy" in (tmp_path / "latest.md").read_text(encoding="utf-8")


def test_several_targets_at_once(tmp_path: Path) -> None:
    done = bench(tmp_path, "--targets", "bytecopy,portcullis-10,portcullis-10-messages-over-chat")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "latest.json").read_text(encoding="utf-8"))["rows"]
    together = [row for row in rows if row["scenario"] == "quick-together"]
    assert [(row["target"], row["counts"]) for row in together] == [
        ("bytecopy", "3/3 passed"),
        ("portcullis-10", "3/3 redacted"),
    ]
    assert all(row["cpu_us"]["median"] > 0 and row["late_share"] <= 1 for row in together)
    assert together[1]["vs_bytecopy"]["median"] > 0
    others = [row for row in rows if row["scenario"] == "quick-dialects"]
    assert [(row["target"], row["counts"]) for row in others] == [("portcullis-10-messages-over-chat", "3/3 redacted")]
    assert others[0]["cpu_us"]["median"] > 0
    assert "portcullis-10-messages-over-chat  failed" not in done.stdout


def test_a_wrong_expected_count_fails_the_run(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    text = SCENARIOS.read_text(encoding="utf-8")
    wrong.write_text(text.replace("redactions = 3", "redactions = 4"), encoding="utf-8")
    done = bench(tmp_path, "--targets", "direct", "--scenarios", str(wrong))
    assert done.returncode == 1
    assert "0 redactions and 3 forbidden words, expected 0 and 4" in done.stdout


def test_a_wrong_file_or_target_is_refused(tmp_path: Path) -> None:
    for wrong in (["--scenarios", str(tmp_path / "absent.toml")], ["--targets", "squid"], ["--streams", "0"]):
        assert main(["--quick", "--out", str(tmp_path), *wrong]) == 2


def test_a_process_tree_is_followed() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 30 & wait"]) as shell:
        try:
            while len(found := tree(shell.pid)) < 2 and shell.poll() is None:
                pass
            assert found[0] == shell.pid
            assert len(found) == 2
        finally:
            for pid in reversed(found):
                subprocess.run(["kill", str(pid)], check=False)


def test_a_template_is_filled_outside_comments() -> None:
    assert fill("# @PORT@ stays\nlisten @PORT@; # $host\n", {"PORT": "81"}) == "# @PORT@ stays\nlisten 81; # $host\n"
