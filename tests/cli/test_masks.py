"""`masks`, and what `check` and `serve` say of rules that are masked."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.config import load
from gateway.decode.maskfile import banned_of, read_masks
from tests.support.commands import TIMEOUT, portcullis, portcullis_process, write_config

MASKED: dict[str, Any] = {"id": "password", "words": ["12MONKEYS", "swordfish"], "decode": "mask"}
BACK: dict[str, Any] = {"id": "codename", "words": ["Heron"], "action": "rollback"}
UPSTREAMS = {"local": {"type": "vllm", "base_url": "http://127.0.0.1:9/v1", "tokenizer": "tokenizer.json"}}
ROUTES = [{"model": "*", "upstream": "local", "policy": "default"}]


def config_of(folder: Path, *rules: dict[str, Any]) -> Path:
    (folder / "tokenizer.json").touch()
    return write_config(folder, list(rules), upstreams=UPSTREAMS, routes=ROUTES)


def test_the_file_holds_what_is_banned(tmp_path: Path) -> None:
    config, out = config_of(tmp_path, MASKED, BACK), tmp_path / "my masks.json"
    done = portcullis("masks", "--config", config, "--out", out)
    assert (done.stderr, done.returncode) == (b"", 0)
    assert read_masks(out) == banned_of(load(config).policies)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    own, exhausted, _, _, start, plugin = done.stdout.decode().splitlines()
    assert own == "policy default: 2 words of 1 rules"
    assert exhausted == "policy default/exhausted: 3 words of 2 rules"
    assert shlex.split(start.removesuffix(" \\"))[0] == f"PORTCULLIS_MASKS={out}"
    assert plugin.strip() == "--logits-processors gateway.decode.vllm_plugin:BannedWords"


def test_nothing_printed_gives_a_word_away(tmp_path: Path) -> None:
    config, out = config_of(tmp_path, MASKED, BACK), tmp_path / "masks.json"
    printed = portcullis("masks", "--config", config, "--out", out).stdout.decode()
    hidden = [policy["digest"] for policy in json.loads(out.read_text())["policies"].values()]
    assert len(hidden) == 2
    assert not any(secret in printed for secret in [*hidden, "MONKEYS", "swordfish", "Heron"])


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    config, real, link = config_of(tmp_path, MASKED), tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("what was there before")
    link.symlink_to(real.name)
    assert portcullis("masks", "--config", config, "--out", link).returncode == 0
    assert link.is_symlink()
    assert list(read_masks(real)) == ["default"]


@pytest.mark.parametrize("out", ["-", "/dev/stdout", "."])
def test_words_go_into_a_file_only(tmp_path: Path, out: str) -> None:
    done = portcullis_process("masks", "--config", config_of(tmp_path, MASKED), "--out", out)
    assert (done.stdout, done.returncode) == (b"", 2)
    assert done.stderr.decode() == (
        f"portcullis: {out}: not a file; the words are in clear and are written nowhere else\n"
    )


def test_a_pipe_of_ones_own_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = portcullis("masks", "--config", config_of(tmp_path, MASKED), "--out", pipe)
    assert (done.stdout, done.returncode) == (b"", 2)
    assert pipe.is_fifo()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    out = tmp_path / "nosuch" / "masks.json"
    done = portcullis("masks", "--config", config_of(tmp_path, MASKED), "--out", out)
    assert done.stderr.decode() == f"portcullis: {out}: No such file or directory\n"
    assert (done.stdout, done.returncode) == (b"", 2)


def test_a_configuration_without_masks(tmp_path: Path) -> None:
    config, out = config_of(tmp_path, {"id": "r", "words": ["w"]}), tmp_path / "masks.json"
    done = portcullis("masks", "--config", config, "--out", out)
    assert done.stderr.decode() == f"{config}: policies: no rule has words with decode: mask or action: rollback\n"
    assert (done.stdout, done.returncode) == (b"", 2)
    assert not out.exists()


def test_check_names_the_rules_that_are_masked(tmp_path: Path) -> None:
    done = portcullis("check", config_of(tmp_path, MASKED, {"id": "r", "words": ["w"]}))
    assert (done.stderr, done.returncode) == (b"", 0)
    line = "  masked while the model decodes: password; vLLM needs the file that `portcullis masks` writes"
    assert line in done.stdout.decode().splitlines()
    plain = portcullis("check", config_of(tmp_path, {"id": "r", "words": ["w"]}))
    assert b"masked" not in plain.stdout


# -- the base install, which has no numpy ------------------------------------------------------------------------------


def without_numpy(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = 'import sys; sys.modules["numpy"] = None; from gateway import cli; sys.exit(cli.main(sys.argv[1:]))'
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)


def test_the_words_to_mask_need_no_part(tmp_path: Path) -> None:
    config, out = config_of(tmp_path, {"id": "r", "words": ["w"]}, MASKED), tmp_path / "masks.json"
    for arguments in (["check", config], ["masks", "--config", config, "--out", out]):
        done = without_numpy(*arguments)
        assert (done.stderr, done.returncode) == ("", 0)
    assert read_masks(out) == banned_of(load(config).policies)


def test_the_tokenizer_of_what_is_rolled_back_needs_a_part_that_is_named(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"id": "r", "words": ["w"]}, BACK)
    for arguments in (["check", config], ["serve", "--port", "0", "--config", config]):
        done = without_numpy(*arguments)
        missing = "upstreams.local.tokenizer: needs an optional dependency: pip install -e '.[decode]'"
        assert (done.stderr, done.returncode) == (f"{config}: {missing}\n", 2)
