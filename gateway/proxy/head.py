"""The headers of a request that the gateway reads, found in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.proxy.snapshot import OWN_KEY
from gateway.proxy.upstreams.client import CALLERS_KEY, FORWARDED_UP, FORWARDED_UP_PREFIXES

POLICY_HEADER, ANNOTATE_HEADER = "x-portcullis-policy", "x-portcullis-annotate"
HEAD = "portcullis.head"  # in an ASGI scope: its `Head`, once somebody has asked for it
_READ = frozenset(name.encode() for name in (OWN_KEY, POLICY_HEADER, ANNOTATE_HEADER, *FORWARDED_UP, *CALLERS_KEY))
_READ_PREFIXES = tuple(prefix.encode() for prefix in FORWARDED_UP_PREFIXES)


class Head(NamedTuple):
    """`headers` are those that the gateway or an upstream reads, with names in lower case, and of one that came
    twice the first value; the others are all values of Host, Origin and Content-Type."""

    headers: Mapping[str, str]
    hosts: list[str]
    origins: list[str]
    types: list[str]


def head_of(scope: Any) -> Head:
    """Of an ASGI scope, which keeps it."""
    head: Head | None = scope.get(HEAD)
    if head is None:
        head = scope[HEAD] = Head({}, [], [], [])
        listed = {b"host": head.hosts, b"origin": head.origins, b"content-type": head.types}
        headers: dict[str, str] = head.headers  # type: ignore[assignment]
        for name, value in scope["headers"]:
            if name in listed:
                listed[name].append(value.decode("latin-1"))
            elif name in _READ or name.startswith(_READ_PREFIXES):
                headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return head
