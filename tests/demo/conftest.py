"""The demo upstream, asked directly: without a gateway, and without its pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from gateway.demo.server import build_demo

Post = Callable[..., Awaitable[httpx2.Response]]


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(build_demo(0))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost/v1") as client:
        yield client


@pytest.fixture
def post(client: httpx2.AsyncClient) -> Post:
    """Posts a body of keyword arguments to a path."""

    async def send(path: str, **body: Any) -> httpx2.Response:
        return await client.post(path, json={"model": "any", **body})

    return send
