"""The demo upstream, asked directly: without a gateway, and without its pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from gateway.demo.server import build_demo

Post = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_demo(0))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost/v1") as client:
        yield client


@pytest.fixture
def post(client: httpx.AsyncClient) -> Post:
    """Posts a body of keyword arguments to a path."""

    async def send(path: str, **body: Any) -> httpx.Response:
        return await client.post(path, json={"model": "any", **body})

    return send
