"""A head that a client repeats on its connection, but for the body's length: compared by its bytes, not parsed again.

A client library sends the same headers with every request. Where they equal those of a head that the parser took, byte
for byte, all that the parser and the checks behind it made of that one holds for this one, too.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from gateway.proxy.head import head_of

MAX_DIGITS = 7  # of a length; a body of more bytes does not come in one read
_LENGTH = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,7})\r\n")


class RepeatedHead(NamedTuple):
    """`before` and `after` are its bytes around the digits of the length, `scope` is its ASGI scope; `place` is that of
    the length among the headers."""

    before: bytes
    after: bytes
    scope: dict[str, Any]
    place: int

    @classmethod
    def of(cls, data: bytes, body: bytes, scope: Any) -> RepeatedHead | None:
        """From a read that was one whole request with this body; None for a head that must be parsed each time."""
        head = data[: len(data) - len(body)]
        lengths = [place for place, (name, _) in enumerate(scope["headers"]) if name == b"content-length"]
        found = _LENGTH.search(head)
        if found is None or len(lengths) != 1 or head.find(b"\r\n\r\n") != len(head) - 4 or int(found[1]) != len(body):
            return None
        head_of(scope)
        return cls(head[: found.start(1)], head[found.end(1) :], dict(scope), lengths[0])

    def request_of(self, data: bytes) -> tuple[Any, bytes] | None:
        """The ASGI scope and the body, where a read is this head and one whole body; else None."""
        if not data.startswith(self.before):
            return None
        begin = len(self.before)
        end = data.find(self.after[:1], begin, begin + MAX_DIGITS + 1)
        length = data[begin:end]
        if end < 0 or not length.isdigit() or not data.startswith(self.after, end):
            return None
        body = data[end + len(self.after) :]
        if len(body) != int(length):
            return None
        headers = self.scope["headers"].copy()
        headers[self.place] = (b"content-length", length)
        return {**self.scope, "headers": headers, "state": self.scope["state"].copy()}, body
