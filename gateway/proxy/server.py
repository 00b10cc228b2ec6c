"""How the gateway's applications are served over HTTP: one place for every process, and for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.observe.facts import Fact
from gateway.proxy.asgi import REFUSAL, SERVER_SEND
from gateway.proxy.context import refuse
from gateway.proxy.downstream.protocol import BoundedProtocol

SHUTDOWN_TIMEOUT = 2  # seconds for what still runs when draining has taken too long
KEEP_ALIVE = 65  # seconds; longer than the 60 of common balancers, which must be the ones that close


class EntryMiddleware:
    """ASGI middleware for the outside: lets a relay write to the server itself, and answers what the protocol refuses.

    The framework wraps `send` several times to learn whether a response has begun. A relay answers every failure by
    itself, and each wrapper costs a coroutine for every chunk.
    """

    def __init__(self, app: ASGIApp, record: Callable[[Fact], None]) -> None:
        self._app = app
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = scope.get(REFUSAL)
        if refusal is not None:
            await refuse(Request(scope), refusal, self._record)(scope, receive, send)
            return
        scope[SERVER_SEND] = send
        await self._app(scope, receive, send)


def server_config(
    app: ASGIApp, record: Callable[[Fact], None], lifespan: Literal["on", "off"] = "on"
) -> uvicorn.Config:
    """`record` takes what is refused before the application sees it."""
    return uvicorn.Config(
        EntryMiddleware(app, record),
        http=BoundedProtocol,
        ws="none",
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
    )
