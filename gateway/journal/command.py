"""`portcullis journal`: update the index and search it, and verify a chained journal."""

from __future__ import annotations

import argparse
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from gateway.arguments import whole_number, with_example
from gateway.censor.compile import fold_word, pattern_folds
from gateway.config import ConfigError, load
from gateway.exits import USAGE
from gateway.journal.entries import Line, encode_line, text_hmac
from gateway.journal.files import index_path
from gateway.journal.index import search, update
from gateway.journal.verify_command import add_verify_command, verify_files
from gateway.policy.model import DEFAULT_FOLD, Config

MOST_LINES = 1_000_000
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class _Unusable(Exception):
    """A file or an option's value cannot be used."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")


def run(arguments: Sequence[str]) -> int:
    """Run `portcullis journal` with its arguments; returns the exit status, 0 or 2, of `verify` 1 besides."""
    options = command_parser().parse_args(arguments)
    if options.command == "verify":
        return verify_files(options)
    try:
        config = load(options.config)
        if config.journal is None:
            raise _Unusable(config.source, "journal: is missing; this configuration keeps no journal")
        hashes = _hmacs(options, config, config.journal.key)
        journal = Path(config.journal.path)
        with _index_errors(journal):
            indexed = update(journal, index_path(journal))
            found = _search(options, journal, hashes) if options.command == "search" else None
        if found is not None:
            for line in found:
                print(encode_line(line).decode() if options.json else _readable(line))
        else:
            print(f"{index_path(journal)}: {indexed.added} new lines, {indexed.files} files")
    except (ConfigError, _Unusable) as error:
        print(error, file=sys.stderr)
        return USAGE
    for path, count in indexed.damaged:
        print(f"{path}: warning: {count} damaged lines are left out", file=sys.stderr)
    return 0


def command_parser() -> argparse.ArgumentParser:
    """The options of `portcullis journal`."""
    example = with_example("portcullis journal search --config portcullis.yaml --rule password --since 2h")
    journal = argparse.ArgumentParser(
        prog="portcullis journal", description="Find decisions in the journal again, and verify it.", **example
    )
    commands = journal.add_subparsers(dest="command", required=True, metavar="COMMAND")
    searching = commands.add_parser("search", help="print lines of the journal, the newest first")
    text = searching.add_mutually_exclusive_group()
    text.add_argument("--text", metavar="TEXT", help="matches of this text, however it was written")
    text.add_argument("--text-file", metavar="F", help="the same, with the text in a file; - is standard input")
    searching.add_argument("--rule", metavar="R", help="matches of this rule")
    searching.add_argument("--request-id", metavar="ID", help="the request that had this x-request-id")
    searching.add_argument("--key", metavar="NAME", help="requests with the client key of this name")
    moment = "2026-01-31, 2026-01-31T12:00 (UTC, or with +01:00), Unix seconds, or how long ago: 90s, 15m, 2h, 7d"
    searching.add_argument("--since", type=_moment, metavar="T", help=moment)
    searching.add_argument("--until", type=_moment, metavar="T", help="the same, exclusive")
    limit = whole_number("a whole number", 1, MOST_LINES)
    searching.add_argument("--limit", type=limit, default=100, metavar="N", help="at most N lines (100)")
    searching.add_argument("--json", action="store_true", help="the lines as they are in the journal")
    indexing = commands.add_parser("index", help="bring the index up to date, as every search does")
    add_verify_command(commands)
    for command in (searching, indexing):
        command.add_argument("--config", type=Path, required=True, metavar="F", help="a configuration with a journal")
    return journal


def _moment(text: str) -> float:
    """Unix seconds."""
    if re.fullmatch(r"[0-9]{1,6}[smhd]", text):
        return (datetime.now(UTC) - timedelta(**{UNITS[text[-1]]: int(text[:-1])})).timestamp()
    if re.fullmatch(r"[0-9]{9,11}(\.[0-9]{1,9})?", text):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write 2026-01-31T12:00, or 2h for two hours ago"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _hmacs(options: argparse.Namespace, config: Config, key: str) -> list[str] | None:
    """The HMACs of the text to search for, through every lens under which it may have been journaled."""
    if options.command != "search" or (options.text is None and options.text_file is None):
        return None
    text = options.text if options.text is not None else _read_text(options.text_file)
    rules = [rule for policy in config.policies.values() for rule in policy.rules]
    lenses = {rule.fold if rule.words else pattern_folds(rule) for rule in rules} or {DEFAULT_FOLD}
    seen = {fold_word(text, folds) for folds in lenses} - {""}
    if not seen:
        # The text is not shown: it may be a secret.
        raise _Unusable(options.text_file or "--text", "no rule sees anything in this text")
    return [text_hmac(key, form) for form in sorted(seen)]


def _read_text(name: str) -> str:
    """The text of the file, without the line end that editors add."""
    try:
        text = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return text.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise _Unusable(name, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _Unusable(name, "is not UTF-8") from None


@contextmanager
def _index_errors(journal: Path) -> Iterator[None]:
    """Raises `_Unusable` for the errors of files and SQLite."""
    try:
        yield
    except OSError as error:
        raise _Unusable(str(error.filename or journal), f"cannot be used: {error.strerror}") from None
    except sqlite3.Error as error:
        busy = isinstance(error, sqlite3.OperationalError)
        advice = "" if busy else "; delete it, the next search builds it from the journal"
        raise _Unusable(str(index_path(journal)), f"cannot be used: {error}{advice}") from None


def _search(options: argparse.Namespace, journal: Path, hashes: list[str] | None) -> list[Line]:
    return search(
        index_path(journal),
        hashes=hashes,
        rule=options.rule,
        request_id=options.request_id,
        key_name=options.key,
        since=options.since,
        until=options.until,
        limit=options.limit,
    )


def _readable(line: Line) -> str:
    """The time in UTC, then every other field by name."""
    fields = msgspec.to_builtins(line)
    kind = fields.pop("type")
    fields.pop("v")
    moment = datetime.fromtimestamp(fields.pop("time"), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{moment} {kind} " + " ".join(
        f"{name}={_word(value)}" for name, value in fields.items() if value is not None
    )


def _word(value: object) -> str:
    """Quoted if it has a line break or a space in it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text.isprintable() and text and " " not in text else repr(text)
