from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.limits import Limiter, MemoryLimiter
from gateway.limits.redis import RedisLimiter
from gateway.limits.shared import SharedLimiter
from tests.support.redis_servers import RedisServer


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["memory", "shared", pytest.param("redis", marks=pytest.mark.services)])
async def limiter(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Limiter]:
    """Every kind of limiter; what they have in common is tested on each."""
    made: MemoryLimiter | SharedLimiter | RedisLimiter
    if request.param == "memory":
        made = MemoryLimiter()
    elif request.param == "shared":
        made = SharedLimiter(tmp_path / "limits", 0)
    else:
        made = RedisLimiter(request.getfixturevalue("redis_server").url, timeout=30)
    yield made
    assert getattr(made, "failures", 0) == 0
    await made.close()
