"""`portcullis journal`: what it finds, how it prints it, and how it refuses."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.censor.compile import fold_word
from gateway.journal.command import run
from gateway.journal.entries import JournalEntry, encode
from gateway.journal.files import index_path
from gateway.policy.model import DEFAULT_FOLD, Fold
from tests.support.commands import write_config
from tests.support.journal_samples import KEY, MATCH, REQUEST, SECRET

RULES: list[dict[str, Any]] = [
    {"id": "password", "words": ["12MONKEYS"]},
    {"id": "name", "words": ["Hélène"], "fold": ["case", "accents"]},
    {"id": "exact", "words": ["Falcon"], "fold": []},
]
ENTRIES: list[JournalEntry] = [
    MATCH,
    replace(MATCH, offset=1, rule="name", seen=fold_word("Hélène", frozenset({Fold.CASE, Fold.ACCENTS}))),
    replace(MATCH, offset=2, rule="exact", seen="Falcon", time=MATCH.time + 0.5),
    REQUEST,
]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(encode(entry, KEY) for entry in ENTRIES))
    return path


@pytest.fixture
def config(tmp_path: Path, journal: Path) -> Path:
    return write_config(tmp_path, RULES, journal={"path": journal.name, "key": KEY})


@pytest.fixture
def journal_command(config: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`portcullis journal COMMAND --config F ARGUMENTS`: exit status, standard output, standard error."""

    def command(name: str, *arguments: str) -> tuple[int, str, str]:
        try:
            status = run([name, "--config", str(config), *arguments])
        except SystemExit as usage:
            status = int(usage.code or 0)
        return status, *capsys.readouterr()

    return command


Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], [3, 2, 1, 0]),
        (["--text", "12MONKEYS"], [0]),
        (["--text", "１２monkeys"], [0]),
        (["--text", "12\u200bMonkeys"], [0]),
        (["--text", "helene"], [1]),
        (["--text", "HÉLÈNE"], [1]),
        (["--text", "Falcon"], [2]),
        (["--text", "falcon"], []),
        (["--text", "nothing"], []),
        (["--rule", "exact"], [2]),
        (["--request-id", "req_1", "--limit", "1"], [3]),
        (["--key", "nobody"], []),
        (["--since", "2026-01-01T12:00:01"], [3]),
        (["--until", "2026-01-01T13:00:00.5+01:00"], [1, 0]),
        (["--since", "1767268800.5", "--until", "2026-01-02"], [3, 2]),
        (["--since", "1s"], []),
        (["--until", "1s", "--rule", "name"], [1]),
    ],
)
def test_what_is_found(journal_command: Command, arguments: list[str], expected: list[int]) -> None:
    status, out, err = journal_command("search", "--json", *arguments)
    assert (status, err) == (0, "")
    assert out == "".join(encode(ENTRIES[number], KEY).decode() for number in expected)


def test_lines_for_the_eye(journal_command: Command) -> None:
    _, out, _ = journal_command("search", "--text", "12monkeys")
    assert out == (
        "2026-01-01T12:00:00.250Z match request_id=req_1 key_name=app route=gpt-* policy=default direction=output "
        "rule=password action=redact channel=content choice=0 offset=17 length=9 "
        f"hmac={json.loads(encode(MATCH, KEY))['hmac']}\n"
    )


def test_a_name_that_is_no_word_is_quoted(journal: Path, journal_command: Command) -> None:
    journal.write_bytes(encode(replace(REQUEST, request_id="a b\nc", key_name=""), KEY))
    _, out, _ = journal_command("search")
    assert out.count("\n") == 1
    assert "request_id='a b\\nc' key_name='' " in out
    assert "stream=true" in out


@pytest.mark.parametrize("line_end", ["", "\n", "\r\n"])
def test_the_text_may_stand_in_a_file(tmp_path: Path, journal_command: Command, line_end: str) -> None:
    file = tmp_path / "text"
    file.write_bytes(f"12MONKEYS{line_end}".encode())
    assert "rule=password" in journal_command("search", "--text-file", str(file))[1]


def test_the_text_may_come_from_standard_input(journal_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("hélène\n".encode())))
    assert "rule=name" in journal_command("search", "--text-file", "-")[1]


def test_a_search_sees_what_was_written_since_the_last(journal: Path, journal_command: Command) -> None:
    assert journal_command("index") == (0, f"{index_path(journal)}: 4 new lines, 1 files\n", "")
    with journal.with_name(f"{journal.name}.w1").open("ab") as file:
        file.write(encode(replace(MATCH, rule="late"), KEY))
    assert "rule=late" in journal_command("search", "--rule", "late")[1]
    journal.unlink()
    assert "rule=password" not in journal_command("search")[1]


def test_damage_is_mentioned(journal: Path, journal_command: Command) -> None:
    with journal.open("ab") as file:
        file.write(b'{"type":"mat\n')
    warning = f"{journal}: warning: 1 damaged lines are left out\n"
    for _ in range(2):
        assert journal_command("search", "--rule", "name")[2] == warning


# -- refused -----------------------------------------------------------------------------------------------------------


def refused(outcome: tuple[int, str, str]) -> str:
    status, out, err = outcome
    assert (status, out) == (2, "")
    return err.strip()


def test_a_configuration_without_a_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, RULES)
    assert run(["index", "--config", str(config)]) == 2
    assert capsys.readouterr().err == f"{config}: journal: is missing; this configuration keeps no journal\n"


def test_a_configuration_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "--config", str(tmp_path / "none.yaml")]) == 2
    assert str(tmp_path / "none.yaml") in capsys.readouterr().err


def test_a_directory_that_is_not_there(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    write_config(tmp_path, RULES, journal={"path": str(missing / "journal"), "key": KEY})
    assert run(["search", "--config", str(config)]) == 2
    assert capsys.readouterr().err == f"{missing}: cannot be used: No such file or directory\n"


def test_a_text_file_that_is_not_there(journal_command: Command) -> None:
    assert (
        refused(journal_command("search", "--text-file", "/none")) == "/none: cannot be read: No such file or directory"
    )


def test_a_text_that_is_no_text(tmp_path: Path, journal_command: Command) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"\xff")
    assert refused(journal_command("search", "--text-file", str(file))) == f"{file}: is not UTF-8"


def test_a_text_of_which_nothing_is_seen(journal_command: Command) -> None:
    assert refused(journal_command("search", "--text", "")) == "--text: no rule sees anything in this text"


def test_an_index_that_is_none(journal: Path, journal_command: Command) -> None:
    index_path(journal).write_bytes(b"something else " * 1000)
    err = refused(journal_command("search"))
    assert err.startswith(f"{index_path(journal)}: cannot be used: ")
    assert err.endswith("; delete it, the next search builds it from the journal")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--since", "yesterday"], "'yesterday' is not a time"),
        (["--until", "2026-13-01"], "'2026-13-01' is not a time"),
        (["--limit", "0"], "'0' is not a whole number from 1 to 1000000"),
        (["--limit", "many"], "'many' is not a whole number"),
        (["--text", "a", "--text-file", "b"], "not allowed with"),
    ],
)
def test_arguments_that_mean_nothing(journal_command: Command, arguments: list[str], reason: str) -> None:
    assert reason in refused(journal_command("search", *arguments))


def test_the_key_and_the_text_are_in_nothing_that_is_printed(journal_command: Command) -> None:
    for outcome in (
        journal_command("search", "--text", "12MONKEYS"),
        journal_command("search", "--text", "12MONKEYS", "--json"),
        journal_command("search", "--text", "12MONKEYS", "--since", "never"),
    ):
        printed = "".join(outcome[1:]).lower()
        assert SECRET not in printed and KEY not in printed


def test_the_lens_of_the_samples_is_the_default_one() -> None:
    assert fold_word("12MONKEYS", DEFAULT_FOLD) == SECRET
