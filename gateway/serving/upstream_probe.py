"""The answer of an upstream to `GET /models`: its models, or the problem with its address or key."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from gateway.policy.model import Config, Upstream
from gateway.proxy.errors import from_transport
from gateway.proxy.upstreams.client import UpstreamClient
from gateway.wire import json

PROBE_SECONDS = 2.0  # for each request
_VERSION_AT_END = re.compile(r"/v[0-9]+[a-z0-9.]*$")


@dataclass(frozen=True, slots=True)
class UpstreamProbe:
    """`models`: those listed. `status`: of the answer, None without one, and then `failure` is its kind, one of those
    of `portcullis_upstream_errors_total`. `problem`: what has to be changed, if that is known."""

    models: tuple[str, ...] = ()
    status: int | None = None
    failure: str | None = None
    problem: str | None = None

    @property
    def works(self) -> bool:
        return self.problem is None and self.status is not None and self.status < 500

    def __str__(self) -> str:
        if self.problem is not None:
            return self.problem
        if self.status == 200:
            return f"answers, and lists {len(self.models)} models"
        return f"answers {self.status} to GET /models" if self.status else f"cannot be reached ({self.failure})"


def probed_upstreams(config: Config) -> Iterable[Upstream]:
    """Those with an address of their own."""
    return (upstream for upstream in config.upstreams.values() if upstream.base_url)


def probe(upstream: Upstream) -> UpstreamProbe:
    """Ask it; blocks. Nothing bounds the look-up of a host's name, which happens in this thread."""
    # By the loop it would happen in a thread that the interpreter waits for at its end.
    with contextlib.suppress(OSError, UnicodeError):
        socket.getaddrinfo(urlsplit(upstream.base_url).hostname, None)
    return asyncio.run(_probe(upstream))


async def _probe(upstream: Upstream) -> UpstreamProbe:
    base_url = upstream.base_url
    try:
        status, models = await _listed(upstream, base_url)
    except httpx2.HTTPError as error:
        return UpstreamProbe(failure=from_transport(error).kind)
    problem = None
    if status in (401, 403) and upstream.api_key:
        problem = f"answers {status} to GET /models: it does not take its api_key"
    elif status == 404:
        version = _VERSION_AT_END.search(base_url)
        if await _lists(upstream, f"{base_url}/v1"):
            problem = "has its API below /v1: write /v1 at the end of base_url"
        elif version is not None and await _lists(upstream, base_url.removesuffix(version[0])):
            problem = f"has its API above {version[0]}: take that from the end of base_url"
    return UpstreamProbe(models, status, None, problem)


async def _lists(upstream: Upstream, base_url: str) -> bool:
    """Is there a list of models? Asking for a key is a yes."""
    try:
        status, models = await _listed(upstream, base_url)
    except httpx2.HTTPError:
        return False
    return bool(models) or status in (401, 403)


async def _listed(upstream: Upstream, base_url: str) -> tuple[int, tuple[str, ...]]:
    """Status and models. Raises httpx2's errors."""
    client = UpstreamClient(upstream, base_url, max_connections=1)
    try:
        status, body = await client.call("GET", "/models", PROBE_SECONDS)
    finally:
        await client.close()
    try:
        listed: Any = json.decode(body)
        names = [each["id"] for each in listed["data"]]
    except (ValueError, KeyError, TypeError):
        names = []
    return status, tuple(name for name in names if isinstance(name, str)) if status == 200 else ()
