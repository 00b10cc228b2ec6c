"""`portcullis journal verify`: the files of each worker, one line on standard output for each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gateway.config import ConfigError, load
from gateway.exits import BROKEN, DONE, USAGE
from gateway.journal.chain import HEAD_SIZE, Link, head_path, read_head, signing_key
from gateway.journal.files import journal_files, owner_of
from gateway.journal.verify import Broken, Verified, Why, verify

ROUNDS = 5  # listings of files that are being closed and deleted meanwhile


def add_verify_command(commands: Any) -> None:
    """Add the sub-parser of `verify`."""
    verifying = commands.add_parser("verify", help="find the first line that is not what was written (journal.chain)")
    key = verifying.add_mutually_exclusive_group()
    key.add_argument("--config", type=Path, metavar="F", help="the key, and if no FILE is given the files, of this one")
    key.add_argument("--key-file", type=Path, metavar="F", help="the journal's key stands in this file")
    verifying.add_argument("--head", type=Path, metavar="F", help="a copy of the head file that was kept elsewhere")
    verifying.add_argument("files", type=Path, nargs="*", metavar="FILE", help="files of the journal, in any order")


def verify_files(options: argparse.Namespace) -> int:
    """Exit status 0: the files are as they were written; 1: they are not; 2: they could not be checked."""
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
        config = load(options.config)
        if config.journal is None:
            raise ConfigError(config.source, "journal", "is missing; this configuration keeps no journal")
        return Path(config.journal.path), signing_key(config.journal.key)
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
        raise Broken((path, 0), Why.CHANGED, "not a head file, or it was signed with another key")
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
