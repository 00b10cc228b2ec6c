"""Verification of a chained journal: the first line that is not as it was written, and why.

Files are given in the order of their age, those of one worker at a time. A line that was cut by a crash is passed over
where the lines around it follow one another: it never was a line. Pure but for reading the files that it is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from gateway.journal.chain import NOTHING, Link, Seal, digest_of, is_signed, seal_of
from gateway.journal.entries import decode
from gateway.journal.reader import raw_lines


class Why(StrEnum):
    """What is wrong with the first broken line."""

    CHANGED = "changed"
    MISSING = "missing"
    REORDERED = "reordered"
    FOREIGN = "foreign"
    CUT = "cut"


class Broken(Exception):
    """The first line at which the files are not what was written. `line` is counted from 1; 0 means the whole file."""

    def __init__(self, at: tuple[Path, int], why: Why, reason: str) -> None:
        self.file, self.line = at
        self.why = why
        super().__init__(f"{self.file}:{self.line}: {why}: {reason}" if self.line else f"{self.file}: {why}: {reason}")


@dataclass(frozen=True, slots=True)
class Verified:
    """The intact part. `unchained`: lines before the chain begins; `partial`: lines that a crash cut."""

    records: int
    first: int
    end: Link | None
    chains: int
    unchained: int
    partial: int


class _FileLine(NamedTuple):
    file: Path
    number: int
    text: bytes  # without its line break
    complete: bool
    seal: Seal | None

    @property
    def at(self) -> tuple[Path, int]:
        return self.file, self.number


def verify(files: Sequence[Path], key: bytes | None, head: Link | None) -> Verified:
    """Check the files of one worker, up to the end that its `head` names, if there is one.

    Without a key only the hashes are compared, which finds damage, and no change by somebody who can compute hashes.
    Raises `Broken`, and OSError for a file that cannot be read.
    """
    walk = _Walk(files, key, head)
    for file in files:
        walk.begins = True
        for line in _lines(file):
            walk.check(line)
    walk.finish()
    return Verified(walk.records, walk.first, walk.end, walk.chains, walk.unchained, walk.partial)


def _lines(file: Path) -> Iterator[_FileLine]:
    with file.open("rb") as opened:
        for number, line in enumerate(raw_lines(opened), start=1):
            text = line.text.removesuffix(b"\n")
            yield _FileLine(file, number, text, line.complete, seal_of(text) if line.complete else None)


class _Walk:
    """The state between two lines."""

    def __init__(self, files: Sequence[Path], key: bytes | None, head: Link | None) -> None:
        self._files, self._key, self._head = files, key, head
        self.begins = True  # is no line of this file checked yet?
        self.end: Link | None = None
        self.records = self.chains = self.unchained = self.partial = 0
        self.first = 0
        self._at: tuple[Path, int] | None = None  # of the line before
        self._unread: tuple[Path, int] | None = None  # a line since then that is none
        self._unread_whole = False
        self._stranger: tuple[Path, int] | None = None  # the first line without a seal
        self._head_seen = False

    def check(self, line: _FileLine) -> None:
        seal = line.seal
        if seal is None:
            self._pass_over(line)
            return
        if self._key is not None and not is_signed(line.text, self._key):
            other = "" if self.records else ", or it was signed with another key"
            raise Broken(line.at, Why.CHANGED, f"this is not what was signed{other}")
        self._check_place(line, seal)
        self.end = Link(seal.chain, seal.seq, digest_of(line.text))
        self._at, self._unread, self.begins = line.at, None, False
        self.records += 1
        self._compare_head()

    def finish(self) -> None:
        head, end = self._head, self.end
        if head is None or self._head_seen:
            return
        at = self._at or (self._files[-1], 0)
        if self._unread is not None:
            why = Why.CHANGED if self._unread_whole else Why.CUT
            raise Broken(self._unread, why, f"this is not a line, and line {head.seq} is in the head file only")
        if end is None or head.chain != end.chain:
            raise Broken(at, Why.CUT, f"the head file names line {head.seq} of a chain that does not end here")
        if head.seq > end.seq:
            raise Broken(at, Why.CUT, f"it is line {end.seq} of the chain, and the head file names line {head.seq}")

    def _pass_over(self, line: _FileLine) -> None:
        """A line without a seal: half a line, or one that the chain never had."""
        if line.complete and decode(line.text) is not None:
            if self.end is not None:
                raise Broken(line.at, Why.FOREIGN, "this line does not belong to the chain")
            self.unchained += 1
            self._stranger = self._stranger or line.at
        elif line.text.strip() or not line.complete:
            self.partial += 1
            if self._unread is None:
                self._unread, self._unread_whole = line.at, line.complete
        else:
            raise Broken(line.at, Why.FOREIGN, "this line is empty")

    def _check_place(self, line: _FileLine, seal: Seal) -> None:
        end = self.end
        if end is None:
            self.first = seal.seq
            self.chains = 1
            if self._stranger is not None and (seal.seq or self._stranger[0] == line.file):
                raise Broken(self._stranger, Why.FOREIGN, "this line does not belong to the chain")
        elif seal.chain != end.chain:
            if (seal.seq, seal.prev, seal.first) != (0, NOTHING, True):
                raise Broken(line.at, Why.FOREIGN, f"this is line {seal.seq} of another chain")
            self.chains += 1
        else:
            self._check_order(line, seal, end)
        if seal.seq == 0 and seal.prev != NOTHING:
            raise Broken(line.at, Why.CHANGED, "the first line of a chain follows no other")
        if self.begins and not seal.first:
            raise self._gap(line, seal.seq - 1, "lines before it in this file are missing")
        if seal.first and not self.begins:
            raise Broken(line.at, Why.REORDERED, "this line began a file, and others precede it")

    def _check_order(self, line: _FileLine, seal: Seal, end: Link) -> None:
        if seal.seq <= end.seq:
            raise Broken(line.at, Why.REORDERED, f"line {seal.seq} of the chain comes after line {end.seq}")
        if seal.seq > end.seq + 1:
            raise self._gap(
                line, end.seq + 1, f"the chain's lines {end.seq + 1} to {seal.seq - 1} are missing before it"
            )
        if seal.prev != end.digest:
            assert self._at is not None
            raise Broken(self._at, Why.CHANGED, "this is not the line that the next one was written after")

    def _gap(self, line: _FileLine, wanted: int, missing: str) -> Broken:
        """Why line number `wanted` of the chain does not stand before this one."""
        if self._unread is not None:
            return Broken(self._unread, Why.CHANGED, "this is no line, and the chain had one here")
        assert line.seal is not None
        if self._occurs_later(line, wanted):
            return Broken(line.at, Why.REORDERED, f"line {line.seal.seq} of the chain stands before line {wanted}")
        return Broken(line.at, Why.MISSING, missing)

    def _occurs_later(self, before: _FileLine, wanted: int) -> bool:
        assert before.seal is not None
        later = (line for file in self._files[self._files.index(before.file) :] for line in _lines(file))
        return any(
            line.seal is not None and (line.seal.chain, line.seal.seq) == (before.seal.chain, wanted) for line in later
        )

    def _compare_head(self) -> None:
        head, end = self._head, self.end
        assert end is not None and self._at is not None
        if head is not None and head[:2] == end[:2]:
            if head.digest != end.digest:
                raise Broken(self._at, Why.CHANGED, "the head file names another line in its place")
            self._head_seen = True
        elif head is not None and self.records == 1 and head.chain == end.chain and head.seq < end.seq:
            self._head_seen = True  # an old copy of a head: its line is not among the files any more
