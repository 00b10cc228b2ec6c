"""Heads that clients repeat, but for the body's length: compared by their bytes, not parsed again.

A client library sends the same headers with every request. Where they equal those of a head that the parser took, byte
for byte, all that the parser and the checks behind it made of that one holds for this one, too. It depends on nothing
else, so that the head may have come on another connection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.proxy.head import HEAD, head_of

MAX_REPEATED = 8 * 1024  # bytes of such a head with its body
MAX_DIGITS = 7  # of a length; a body of more bytes does not come in one read
MAX_HEADS = 64  # that are known, the last ones that were seen twice
MAX_ONCE = 1024  # heads that have come once, of which only a hash is kept
_FIELDS = ("http_version", "method", "path", "raw_path", "query_string", HEAD)
_NAME = b"\r\ncontent-length:"


class RepeatedHead(NamedTuple):
    """`fields` are those of its ASGI scope that it decides; `place` is that of the length among its `headers`."""

    fields: dict[str, Any]
    headers: list[tuple[bytes, bytes]]
    place: int

    def headers_with(self, length: bytes) -> list[tuple[bytes, bytes]]:
        headers = self.headers.copy()
        headers[self.place] = (b"content-length", length)
        return headers


class RepeatedHeads:
    """The heads that are known, by their bytes without the digits of the length: looked up by a hash, so that the time
    it takes says nothing of how much of a head, with its key, is like another's."""

    def __init__(self) -> None:
        self._known: dict[bytes, RepeatedHead] = {}
        self._once: set[int] = set()

    def find(self, data: bytes) -> tuple[RepeatedHead, bytes, bytes] | None:
        """The head, the digits of the length, and the body, where a read is a known head and one whole body."""
        if (cut := _cut(data)) is None or (head := self._known.get(cut[0])) is None:
            return None
        return head, cut[1], cut[2]

    def learn(self, data: bytes, body: bytes, scope: Any) -> None:
        """From a read that was one whole request with this body. What comes only once is not kept."""
        cut = _cut(data)
        if cut is None or cut[2] != body or b"\0" in data[: len(data) - len(body)]:
            return
        key, length, _ = cut
        before = key.partition(b"\0")[0].removesuffix(b" ").lower()
        lengths = [place for place, (name, _) in enumerate(scope["headers"]) if name == b"content-length"]
        if len(lengths) != 1 or not before.endswith(_NAME) or scope["headers"][lengths[0]][1] != length:
            return
        if (seen := hash(key)) not in self._once:
            if len(self._once) >= MAX_ONCE:
                self._once.clear()
            self._once.add(seen)
            return
        head_of(scope)
        if len(self._known) >= MAX_HEADS:
            del self._known[next(iter(self._known))]
        fields = {name: scope[name] for name in _FIELDS}
        self._known[key] = RepeatedHead(fields, scope["headers"].copy(), lengths[0])


def _cut(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """A head without the digits of the first length in it, these digits, and the body, which has that length."""
    end = data.find(b"\r\n\r\n", 0, MAX_REPEATED) + 4
    begin = data.find(b"-Length:", 0, end)
    if begin < 0 and (begin := data.find(b"-length:", 0, end)) < 0:
        return None
    begin += 8
    if data[begin] == 32:
        begin += 1
    stop = data.find(b"\r", begin, begin + MAX_DIGITS + 1)
    length = data[begin:stop]
    if not length.isdigit() or len(data) - end != int(length):
        return None
    return data[:begin] + b"\0" + data[stop:end], length, data[end:]
