"""A journal's chain: each line names the line before it by its hash and is signed, so that a change shows.

A sealed line has, behind its own fields, `chain` (which chain it is of), `seq` (its number in it, from 0), `prev` (the
SHA-256 of the line before it), in a file's first line `first`, and last `mac`: HMAC-SHA256 of everything before it. The
head file beside the journal names the last line, so that lines that are cut off the end are missed, too.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from gateway.files import open_private
from gateway.journal.entries import Count
from gateway.wire.json import reader

SEAL_SIZE = 300  # bytes; a seal is never longer
HEAD_SIZE = 256  # bytes; always as many, so that a new head replaces the old one in one write
CHAIN_DIGITS = 16
NOTHING = "0" * 64  # `prev` of a chain's first line
_MAC = b',"mac":"'
_MAC_SIZE = len(_MAC) + 64 + len(b'"}')

Hex = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Seal(msgspec.Struct, frozen=True):
    """A line's place in the chain."""

    chain: str
    seq: Count
    prev: Hex
    first: bool = False


class Link(NamedTuple):
    """The end of a chain: the number and the hash of its last line."""

    chain: str
    seq: int
    digest: str


class _Head(msgspec.Struct, frozen=True):
    chain: str
    seq: Count
    line: Hex
    mac: Hex


# A line's seal, unchecked; None for one without, and for what is no line.
seal_of: Callable[[bytes], Seal | None] = reader(Seal)
_read_head: Callable[[bytes], _Head | None] = reader(_Head)


def signing_key(key: str) -> bytes:
    """The chain's key, made of the journal's: what signs lines must never be an HMAC of a matched text."""
    return hmac.digest(key.encode(), b"portcullis journal chain 1", "sha256")


def head_path(path: Path) -> Path:
    """The head file of the worker that writes `path`."""
    return path.with_name(f"{path.name}.head")


def digest_of(line: bytes) -> str:
    """The hash by which the next line names this one, which is without its line break."""
    return hashlib.sha256(line).hexdigest()


def is_signed(line: bytes, key: bytes) -> bool:
    """Was this line, without its line break, signed with the key, and not changed since?"""
    return hmac.compare_digest(line[-_MAC_SIZE:], _signature(line[:-_MAC_SIZE], key))


def read_head(text: bytes, key: bytes | None) -> Link | None:
    """The contents of a head file; None where it is damaged or, with a key, not signed with it."""
    head = _read_head(text)
    if head is None:
        return None
    link = Link(head.chain, head.seq, head.line)
    return link if key is None or text.rstrip() == _head(link, key).rstrip() else None


def _signature(text: bytes, key: bytes) -> bytes:
    return _MAC + hmac.digest(key, text, "sha256").hex().encode() + b'"}'


def _head(link: Link, key: bytes) -> bytes:
    text = msgspec.json.encode({"chain": link.chain, "seq": link.seq, "line": link.digest})[:-1]
    return (text + _signature(b"head" + text, key)).ljust(HEAD_SIZE - 1) + b"\n"


class Chain:
    """One worker's chain, as it is being written."""

    def __init__(self, path: Path, key: str) -> None:
        self._head = head_path(path)
        self._key = signing_key(key)
        self._end: Link | None = None
        self._sealed: list[Link] = []
        self._saved: Link | None = None

    @property
    def resumed(self) -> bool:
        return self._end is not None

    def resume(self, last: bytes | None) -> bool:
        """Continue behind the last line of the journal's files, or behind the head's where that is further: what is
        missing between them then shows. False: neither is of this key, and a new chain begins, in a file of its own.

        Raises OSError for a head that cannot be read.
        """
        head = read_head(self._read_head(), self._key)
        end = None if last is None else self._link_of(last)
        if head is not None and (end is None or end.chain != head.chain or end.seq < head.seq):
            end = head
        self._end = end or Link(secrets.token_hex(CHAIN_DIGITS // 2), -1, NOTHING)
        return end is not None

    def seal(self, lines: Sequence[bytes], *, first: bool) -> list[bytes]:
        """The lines as the next ones of the chain; `first`: they begin a file. Nothing is kept until `advance`."""
        assert self._end is not None
        self._sealed, end, sealed = [], self._end, list[bytes]()
        for line in lines:
            mark = b',"first":true' if first and not sealed else b""
            place = b',"chain":"%b","seq":%d,"prev":"%b"%b' % (
                end.chain.encode(),
                end.seq + 1,
                end.digest.encode(),
                mark,
            )
            text = line[:-2] + place  # without its `}` and its line break
            text += _signature(text, self._key)
            end = Link(end.chain, end.seq + 1, digest_of(text))
            self._sealed.append(end)
            sealed.append(text + b"\n")
        return sealed

    def advance(self, count: int) -> None:
        """The first `count` of the lines that were sealed last are written."""
        if count:
            self._end = self._sealed[count - 1]

    def save(self) -> None:
        """Write the head, if it is not that of the last line. Raises OSError."""
        if self._end is None or self._end == self._saved or self._end.seq < 0:
            return
        descriptor = open_private(self._head, os.O_RDWR)
        try:
            os.pwrite(descriptor, _head(self._end, self._key), 0)
            os.ftruncate(descriptor, HEAD_SIZE)
        finally:
            os.close(descriptor)
        self._saved = self._end

    def _read_head(self) -> bytes:
        try:
            with self._head.open("rb") as file:
                return file.read(HEAD_SIZE)
        except FileNotFoundError:
            return b""

    def _link_of(self, line: bytes) -> Link | None:
        seal = seal_of(line)
        if seal is None or not is_signed(line, self._key):
            return None
        return Link(seal.chain, seal.seq, digest_of(line))
