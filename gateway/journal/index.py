"""The index: the journal's lines in SQLite, so that a search need not read every file.

It holds nothing that the files do not hold, and is updated before each search from where each file was last read. The
lines and that offset are one transaction, so several searches may update it at once. `BeginEntry`s are left out: a
request's other lines have all that it can be searched by.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gateway.files import open_private
from gateway.journal.entries import Line, MatchLine, RequestEntry
from gateway.journal.files import journal_files
from gateway.journal.reader import Identity, LinesRead, identity, read_lines

LAYOUT = 1  # in the database's user_version
LOCK_TIMEOUT = 30.0  # seconds that one search waits for another one that is updating the index
LINES_AT_ONCE = 10_000  # lines in one transaction
_SCHEMA = Path(__file__).with_name("schema.sql")
ROUNDS = 5  # listings of a directory whose files are being closed and deleted meanwhile


@dataclass(frozen=True, slots=True)
class Indexed:
    """What an update found: how many files have lines, how many lines are new, and how many in which file are
    damaged."""

    files: int
    added: int
    damaged: tuple[tuple[Path, int], ...]


# A part of a WHERE clause and the values of its question marks.
_Condition = tuple[str, Sequence[str | float]]


def update(journal: Path, database: Path) -> Indexed:
    """`index` with every file of the journal at `journal`, repeated while files are renamed."""
    added = 0
    for _ in range(ROUNDS):
        files = journal_files(journal)
        indexed = index(files, database)
        added += indexed.added
        if journal_files(journal) == files:
            break
    return Indexed(indexed.files, added, indexed.damaged)


def index(paths: Iterable[Path], database: Path) -> Indexed:
    """Update the index from these files, and delete the lines of files that were deleted.

    Raises OSError for a file that cannot be read and sqlite3.Error for an index that cannot be used.
    """
    with closing(_connect(database)) as connection:
        present: set[int] = set()
        inodes: set[int] = set()
        added = 0
        for path in paths:
            with suppress(FileNotFoundError), path.open("rb") as file:  # it may have been deleted since it was listed
                inodes.add(os.fstat(file.fileno()).st_ino)
                while (found := identity(file)) is not None:
                    with _transaction(connection):
                        number, start = _position_of(connection, found, path, os.fstat(file.fileno()).st_size)
                        read = read_lines(file, start, LINES_AT_ONCE)
                        _store(connection, number, read)
                    present.add(number)
                    added += len(read.lines)
                    if read.finished:
                        break
        _forget_deleted(connection, present, inodes)
        damaged = connection.execute("SELECT path, damaged FROM files WHERE damaged ORDER BY path").fetchall()
        return Indexed(len(present), added, tuple((Path(path), count) for path, count in damaged))


def search(
    database: Path,
    *,
    hashes: Sequence[str] | None = None,
    rule: str | None = None,
    request_id: str | None = None,
    key_name: str | None = None,
    since: float | None = None,
    until: float | None = None,
    limit: int = 100,
) -> list[Line]:
    """The newest `limit` lines that meet every condition, the newest first; times in Unix seconds, `until` excluded.

    `hashes` are made by `text_hmac`; one of them must match. Lines of requests have neither rule nor text, so these two
    conditions leave matches only. Raises sqlite3.Error for an index that cannot be used.
    """
    compared = {"request_id = ?": request_id, "key_name = ?": key_name, "time >= ?": since, "time < ?": until}
    common: list[_Condition] = [(text, (value,)) for text, value in compared.items() if value is not None]
    of_matches: list[_Condition] = [] if rule is None else [("rule = ?", (rule,))]
    if hashes is not None:
        of_matches.append((f"hmac IN ({', '.join('?' * len(hashes))})", hashes))
    with closing(_connect(database)) as connection:
        lines = _select(connection, "matches", MatchLine, common + of_matches, limit)
        if not of_matches:
            lines += _select(connection, "requests", RequestEntry, common, limit)
    return sorted(lines, key=lambda line: line.time, reverse=True)[:limit]


def _connect(database: Path) -> sqlite3.Connection:
    # SQLite would create the file readable by all, and it holds the names of keys and routes.
    os.close(open_private(database, os.O_RDWR))
    connection = sqlite3.connect(database, timeout=LOCK_TIMEOUT, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        with _transaction(connection):
            layout = connection.execute("PRAGMA user_version").fetchone()[0]
            if layout == 0:
                for statement in _SCHEMA.read_text("utf-8").split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {LAYOUT}")
            elif layout != LAYOUT:
                raise sqlite3.DatabaseError(f"it has layout {layout}, and this version reads layout {LAYOUT}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """With the write lock from the first statement on, so that what it reads still holds when it writes."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _position_of(connection: sqlite3.Connection, found: Identity, path: Path, size: int) -> tuple[int, int]:
    """The file's id in the index, and the offset up to which it was read."""
    row = connection.execute("SELECT id, read, path FROM files WHERE inode = ? AND head = ?", found).fetchone()
    if row is not None and row[1] > size:
        # The file was truncated; lines that were read from it may be gone.
        connection.execute("DELETE FROM files WHERE id = ?", (row[0],))
        row = None
    if row is None:
        new = "INSERT INTO files (inode, head, path, read, damaged) VALUES (?, ?, ?, 0, 0)"
        return connection.execute(new, (*found, str(path))).lastrowid or 0, 0
    if row[2] != str(path):
        connection.execute("UPDATE files SET path = ? WHERE id = ?", (str(path), row[0]))
    return row[0], row[1]


def _store(connection: sqlite3.Connection, number: int, read: LinesRead) -> None:
    for table, kind in (("matches", MatchLine), ("requests", RequestEntry)):
        rows = [(number, *msgspec.structs.astuple(line)[:-1]) for line in read.lines if isinstance(line, kind)]
        marks = ", ".join("?" * len(kind.__struct_fields__))
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608  our own names; values are bound
    connection.execute(
        "UPDATE files SET read = ?, damaged = damaged + ? WHERE id = ?", (read.end, read.damaged, number)
    )


def _forget_deleted(connection: sqlite3.Connection, present: set[int], inodes: set[int]) -> None:
    """Forget the files that are not `present`, unless they may well exist; `inodes` are those of all that were read."""
    with _transaction(connection):
        for number, path, inode in connection.execute("SELECT id, path, inode FROM files").fetchall():
            if number in present:
                continue
            # One that was not listed may be one that another search, with a newer listing, has just added.
            if inode in inodes or _inode(Path(path)) != inode:
                connection.execute("DELETE FROM files WHERE id = ?", (number,))


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _select(
    connection: sqlite3.Connection,
    table: str,
    kind: type[MatchLine] | type[RequestEntry],
    conditions: list[_Condition],
    limit: int,
) -> list[Line]:
    columns = kind.__struct_fields__[:-1]
    listed = ", ".join(f'"{column}"' for column in columns)
    where = " AND ".join(["TRUE", *(text for text, _ in conditions)])
    query = f"SELECT {listed} FROM {table} WHERE {where} ORDER BY time DESC, rowid DESC LIMIT ?"  # noqa: S608  as above
    values = [value for _, values in conditions for value in values]
    # SQLite has no booleans, hence not strict.
    return [
        msgspec.convert(dict(zip(columns, row, strict=True)), kind, strict=False)
        for row in connection.execute(query, (*values, limit))
    ]
