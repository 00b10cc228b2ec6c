"""The index: always what the files say, however they change, and whoever else is reading."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.journal.entries import JournalEntry, MatchLine, encode, encode_line, text_hmac
from gateway.journal.files import closed_files, journal_files
from gateway.journal.index import LINES_AT_ONCE, index, search, update
from gateway.journal.reader import MAX_LINE
from gateway.journal.writer import JournalWriter
from tests.support.journal_samples import BEGIN, KEY, MATCH, REQUEST, SECRET, TIMEOUT, journal_at, matches


def write(path: Path, entries: Sequence[JournalEntry], mode: str = "ab") -> None:
    with path.open(mode) as file:
        file.write(b"".join(encode(entry, KEY) for entry in entries))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "index"


def found(database: Path, **conditions: Any) -> list[int]:
    """The offsets of the matches that a search finds, sorted."""
    lines = search(database, **{"limit": 100_000, **conditions})
    return sorted(line.offset for line in lines if isinstance(line, MatchLine))


# -- searching ---------------------------------------------------------------------------------------------------------

ENTRIES: list[JournalEntry] = [
    MATCH,
    REQUEST,
    replace(MATCH, time=2_000_000_000.0, request_id="req_2", key_name="other", offset=1, seen="falcon"),
    replace(MATCH, time=2_000_000_000.5, request_id="req_2", key_name="other", offset=2, rule="name", choice=None),
    replace(REQUEST, time=2_000_000_001.0, request_id="req_2", key_name="other", stream=False),
]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, [4, 3, 2, 1, 0]),
        ({"limit": 2}, [4, 3]),
        ({"hashes": [text_hmac(KEY, SECRET)]}, [3, 0]),
        ({"hashes": [text_hmac(KEY, "falcon"), text_hmac(KEY, SECRET)]}, [3, 2, 0]),
        ({"hashes": [text_hmac(KEY, "unknown")]}, []),
        ({"hashes": []}, []),
        ({"rule": "name"}, [3]),
        ({"request_id": "req_1"}, [1, 0]),
        ({"key_name": "other"}, [4, 3, 2]),
        ({"since": 2_000_000_000.0}, [4, 3, 2]),
        ({"until": 2_000_000_000.0}, [1, 0]),
        ({"since": 2_000_000_000.25, "until": 2_000_000_000.75}, [3]),
        ({"rule": "password", "key_name": "other"}, [2]),
        ({"hashes": [text_hmac(KEY, SECRET)], "rule": "password", "until": 2_000_000_000.0, "limit": 1}, [0]),
        ({"rule": "' OR TRUE --"}, []),
    ],
)
def test_lines_are_found_as_they_were_written(
    journal: Path, database: Path, conditions: dict[str, Any], expected: list[int]
) -> None:
    write(journal, ENTRIES)
    index([journal], database)
    lines = [encode(ENTRIES[number], KEY) for number in expected]
    assert [json.loads(line) for line in lines] == [
        json.loads(encode_line(line)) for line in search(database, **conditions)
    ]


# -- keeping up --------------------------------------------------------------------------------------------------------


def test_a_beginning_is_no_damage_and_nothing_to_find(journal: Path, database: Path) -> None:
    journal.write_bytes(b"".join(encode(entry, KEY) for entry in (BEGIN, MATCH, REQUEST)))
    assert index([journal], database).damaged == ()
    assert found(database) == [MATCH.offset]
    assert len(search(database, request_id=BEGIN.request_id)) == 2


def test_only_what_is_new_is_read(journal: Path, database: Path) -> None:
    write(journal, matches(10))
    assert index([journal], database).added == 10
    assert index([journal], database).added == 0
    write(journal, matches(5, 10))
    assert index([journal], database).added == 5
    assert found(database) == list(range(15))


def test_more_lines_than_one_transaction_takes(journal: Path, database: Path) -> None:
    write(journal, matches(2 * LINES_AT_ONCE))
    assert index([journal], database).added == 2 * LINES_AT_ONCE
    assert len(found(database)) == 2 * LINES_AT_ONCE


def test_a_file_that_was_closed_is_known_under_its_new_name(journal: Path, database: Path) -> None:
    write(journal, matches(10))
    index([journal], database)
    closed = journal.rename(journal.with_name("journal.20260131T120000Z-000"))
    write(journal, matches(5, 10))
    assert index([closed, journal], database).added == 5
    assert found(database) == list(range(15))


def test_what_was_deleted_is_forgotten(journal: Path, database: Path) -> None:
    other = journal.with_name("journal.w1")
    write(journal, matches(3))
    write(other, matches(3, 10))
    index([journal, other], database)
    journal.unlink()
    index([other], database)
    assert found(database) == [10, 11, 12]
    other.unlink()
    assert index([], database).files == 0
    assert found(database) == []


def test_a_file_that_was_not_listed_but_is_there_stays(journal: Path, database: Path) -> None:
    write(journal, matches(3))
    index([journal], database)
    index([], database)
    assert found(database) == [0, 1, 2]


def test_a_file_that_was_written_anew_in_place_is_read_anew(journal: Path, database: Path) -> None:
    write(journal, matches(10))
    index([journal], database)
    write(journal, matches(20, 100), mode="wb")
    index([journal], database)
    assert found(database) == list(range(100, 120))


def test_a_file_that_was_emptied_is_forgotten(journal: Path, database: Path) -> None:
    write(journal, matches(10))
    index([journal], database)
    journal.write_bytes(b"")
    index([journal], database)
    assert found(database) == []


def test_a_file_that_was_cut_is_read_anew(journal: Path, database: Path) -> None:
    write(journal, matches(10))
    index([journal], database)
    journal.write_bytes(b"".join(encode(entry, KEY) for entry in matches(4)))
    index([journal], database)
    assert found(database) == list(range(4))


# -- damage ------------------------------------------------------------------------------------------------------------


def test_every_place_where_the_last_line_can_be_cut(journal: Path, database: Path) -> None:
    """The half line is waited for while it is the last one, and left out once another line follows."""
    first, second, third = (encode(entry, KEY) for entry in matches(3))
    for cut in range(1, len(second)):
        for path in (journal, database):
            path.unlink(missing_ok=True)
        journal.write_bytes(first + second[:cut])
        assert index([journal], database).damaged == ()
        assert found(database) == [0]
        if cut % 2:
            with journal.open("ab") as file:
                file.write(second[cut:] + third)
            assert index([journal], database).damaged == ()
            assert found(database) == [0, 1, 2]
        elif cut < len(second) - 1:
            with journal.open("ab") as file:
                file.write(b"\n" + third)
            assert index([journal], database).damaged == ((journal, 1),)
            assert found(database) == [0, 2]


@pytest.mark.parametrize(
    ("damage", "counted"),
    [
        pytest.param(b"\n", 0, id="empty line"),
        pytest.param(b"\x00" * 4096 + b"\n", 1, id="zeros"),
        pytest.param(b"x" * (3 * MAX_LINE) + b"\n", 1, id="endless line"),
        pytest.param(b"{}\n[]\n\xff\n", 3, id="no lines of ours"),
    ],
)
@pytest.mark.parametrize("at_the_beginning", [False, True])
def test_damage_is_passed_over_and_counted(
    journal: Path, database: Path, damage: bytes, counted: int, at_the_beginning: bool
) -> None:
    if not at_the_beginning:
        write(journal, matches(1))
    with journal.open("ab") as file:
        file.write(damage)
    write(journal, matches(2, 1))
    for _ in range(2):
        assert index([journal], database).damaged == (((journal, counted),) if counted else ())
    assert found(database) == ([] if at_the_beginning else [0]) + [1, 2]


def test_a_file_without_a_whole_line_is_empty(journal: Path, database: Path) -> None:
    journal.write_bytes(encode(MATCH, KEY)[:-1])
    assert index([journal], database).files == 0


def test_an_index_that_is_none_is_refused_and_left_alone(database: Path) -> None:
    database.write_bytes(b"something else " * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        index([], database)
    assert database.read_bytes() == b"something else " * 1000


def test_an_index_of_another_version_is_refused(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(sqlite3.DatabaseError, match="layout 7"):
        search(database)


def test_only_the_owner_may_read_it(database: Path) -> None:
    index([], database)
    assert database.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to], ids=["symbolic", "hard"])
def test_d27_an_index_behind_a_link_is_left_alone(database: Path, link: Callable[[Path, Path], None]) -> None:
    victim = database.with_name("victim")
    victim.touch()
    link(database, victim)
    for use in (lambda: index([], database), lambda: search(database)):
        with pytest.raises(OSError, match=r"it is a symbolic link|it has a second name") as refused:
            use()
        assert refused.value.filename == str(database)
    assert victim.read_bytes() == b""


def test_d27_an_index_that_was_there_becomes_its_owners_only(database: Path) -> None:
    index([], database)
    database.chmod(0o666)
    search(database)
    assert database.stat().st_mode & 0o777 == 0o600


# -- at the same time --------------------------------------------------------------------------------------------------


def test_searches_at_the_same_time_find_everything_once(journal: Path, database: Path) -> None:
    write(journal, matches(5000))
    with ThreadPoolExecutor(8) as threads:
        added = [indexed.added for indexed in threads.map(lambda _: update(journal, database), range(8))]
    assert sum(added) == 5000
    assert found(database) == list(range(5000))


def test_searches_while_files_are_written_closed_and_deleted(journal: Path, database: Path) -> None:
    """Whatever was written before a search and is not deleted yet is found by it."""
    writer = JournalWriter(journal_at(journal, max_size=20_000, keep=3), print)
    writer.start()
    for first in range(0, 10_000, 500):
        writer.write(matches(500, first))
        update(journal, database)
        seen = found(database)
        assert len(seen) == len(set(seen))
    writer.close(TIMEOUT)
    update(journal, database)
    kept = [json.loads(line)["offset"] for file in journal_files(journal) for line in file.read_bytes().splitlines()]
    assert found(database) == sorted(kept)
    assert max(kept) == 9999
    assert len(closed_files(journal)) == 3
