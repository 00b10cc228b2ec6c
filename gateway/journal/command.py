"""`portcullis journal`: update the index and search it, and verify a chained journal."""

from __future__ import annotations

import argparse
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from gateway.arguments import whole_number, with_example
from gateway.censor.compile import fold_word, pattern_folds
from gateway.config import ConfigError, load
from gateway.exits import BROKEN, DONE, USAGE
from gateway.journal.chain import HEAD_SIZE, Link, head_path, read_head, signing_key
from gateway.journal.entries import Line, encode_line, text_hmac
from gateway.journal.files import index_path, journal_files, owner_of
from gateway.journal.index import ROUNDS, search, update
from gateway.journal.verify import Broken, Verified, Why, verify
from gateway.policy.model import DEFAULT_FOLD, Config, Journal

MOST_LINES = 1_000_000
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def run(arguments: Sequence[str]) -> int:
    """Run `portcullis journal` with its arguments; returns the exit status, 0 or 2, of `verify` 1 besides."""
    options = command_parser().parse_args(arguments)
    if options.command == "verify":
        return _verify(options)
    try:
        config, kept = _journal_of(options.config)
        hashes = _hmacs(options, config, kept.key)
        journal = Path(kept.path)
        with _index_errors(journal):
            indexed = update(journal, index_path(journal))
            found = None
            if options.command == "search":
                compared = {name: getattr(options, name) for name in ("rule", "request_id", "since", "until", "limit")}
                found = search(index_path(journal), hashes=hashes, key_name=options.key, **compared)
        if found is not None:
            for line in found:
                print(encode_line(line).decode() if options.json else _readable(line))
        else:
            print(f"{index_path(journal)}: {indexed.added} new lines, {indexed.files} files")
    except ConfigError as error:
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
    _add_verify(commands)
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


def _journal_of(path: Path) -> tuple[Config, Journal]:
    config = load(path)
    if config.journal is None:
        raise ConfigError(config.source, "journal", "is missing; this configuration keeps no journal")
    return config, config.journal


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
        raise ConfigError(options.text_file or "--text", "", "no rule sees anything in this text")
    return [text_hmac(key, form) for form in sorted(seen)]


def _read_text(name: str) -> str:
    """The text of the file, without the line break that editors add."""
    try:
        text = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return text.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ConfigError(name, "", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(name, "", "is not UTF-8") from None


@contextmanager
def _index_errors(journal: Path) -> Iterator[None]:
    """Raises `ConfigError` for the errors of files and SQLite."""
    try:
        yield
    except OSError as error:
        raise ConfigError(str(error.filename or journal), "", f"cannot be used: {error.strerror}") from None
    except sqlite3.Error as error:
        busy = isinstance(error, sqlite3.OperationalError)
        advice = "" if busy else "; delete it, the next search builds it from the journal"
        raise ConfigError(str(index_path(journal)), "", f"cannot be used: {error}{advice}") from None


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


# -- verify ------------------------------------------------------------------------------------------------------------


def _add_verify(commands: Any) -> None:
    verifying = commands.add_parser("verify", help="find the first line that is not what was written (journal.chain)")
    key = verifying.add_mutually_exclusive_group()
    key.add_argument("--config", type=Path, metavar="F", help="the key, and if no FILE is given the files, of this one")
    key.add_argument("--key-file", type=Path, metavar="F", help="the journal's key stands in this file")
    verifying.add_argument("--head", type=Path, metavar="F", help="a copy of the head file that was kept elsewhere")
    verifying.add_argument("files", type=Path, nargs="*", metavar="FILE", help="files of the journal, in any order")


def _verify(options: argparse.Namespace) -> int:
    """0: all is as it was written; 1: it is not; 2: nothing could be said."""
    try:
        journal, key = _journal_and_key(options)
        for _ in range(ROUNDS):
            files = options.files or _listed(journal)
            if not files:
                raise ConfigError(str(journal), "", "there are no files of this journal")
            status, lines = _verify_all(files, key, options.head)
            if status == DONE or options.files or _listed(journal) == files:
                break
    except ConfigError as error:
        print(error, file=sys.stderr)
        return USAGE
    except OSError as error:
        print(f"{error.filename}: cannot be read: {error.strerror}", file=sys.stderr)
        return USAGE
    for line in lines:
        print(line)
    if key is None:
        print("no key was given: signatures were not checked", file=sys.stderr)
    return status


def _journal_and_key(options: argparse.Namespace) -> tuple[Path, bytes | None]:
    if options.config is not None:
        _, journal = _journal_of(options.config)
        return Path(journal.path), signing_key(journal.key)
    if not options.files:
        raise ConfigError("portcullis journal verify", "", "give files, or a configuration")
    if options.key_file is None:
        return options.files[0], None
    return options.files[0], signing_key(options.key_file.read_text("utf-8").rstrip("\r\n"))


def _listed(journal: Path) -> list[Path]:
    """The journal's files, and those that only a head file speaks of."""
    heads = [head.with_name(head.name.removesuffix(".head")) for head in journal.parent.glob(f"{journal.name}*.head")]
    return [*journal_files(journal), *(path for path in heads if not path.exists())]


def _verify_all(files: Iterable[Path], key: bytes | None, head: Path | None) -> tuple[int, list[str]]:
    """The exit status, and a line for each worker."""
    owners: dict[Path, list[Path]] = {}
    for file in files:
        owners.setdefault(owner_of(file), []).append(file)
    status, lines = DONE, []
    for path, written in sorted(owners.items()):
        # Closed files are in the order of their names; the open one, whose name is the beginning of theirs, is last.
        ordered = sorted(written, key=lambda file: (file == path, file.name))
        try:
            link = None
            if head is not None or path in written:
                link = _head_for(head or head_path(path), key, needed=head is not None)
            if link is not None and not path.exists():
                ordered = [file for file in ordered if file != path]
                if not ordered:
                    raise Broken((path, 0), Why.CUT, f"it is not there, and its head file names line {link.seq}")
            lines.append(_shown(path, len(ordered), verify(ordered, key, link), link))
        except Broken as broken:
            status = BROKEN
            lines.append(str(broken))
    return status, lines


def _head_for(path: Path, key: bytes | None, *, needed: bool) -> Link | None:
    try:
        with path.open("rb") as file:
            text = file.read(HEAD_SIZE)
    except FileNotFoundError:
        if needed:
            raise
        return None
    link = read_head(text, key)
    if link is None:
        raise Broken((path, 0), Why.CHANGED, "this is no head file, or it was signed with another key")
    return link


def _shown(path: Path, files: int, found: Verified, head: Link | None) -> str:
    if found.end is None:
        return f"{path}: no line of it is chained"
    notes = [] if found.first == 0 else [f"those before line {found.first} are not among the files"]
    notes += [f"{found.unchained} lines before the chain begins are not protected"] * (found.unchained > 0)
    notes += [f"{found.partial} that a crash cut are left out"] * (found.partial > 0)
    notes += [f"{found.chains} chains"] * (found.chains > 1)
    notes += ["without a head file, lines that were cut off the end are not missed"] * (head is None)
    return "; ".join([f"{path}: intact; lines: {found.records}, files: {files}", *notes])
