"""How the gateway's applications are served over HTTP: one place for every process, and for tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.observe.facts import Fact
from gateway.proxy.asgi import REFUSAL, SERVER_SEND
from gateway.proxy.context import refuse
from gateway.proxy.downstream.browsers import LocalNames
from gateway.proxy.downstream.protocol import BoundedProtocol

SHUTDOWN_TIMEOUT = 2  # seconds for what still runs when draining has taken too long
KEEP_ALIVE = 65  # seconds; longer than the 60 of common balancers, which must be the ones that close


class Application(FastAPI):
    """The framework's application with a shortcut past its layers, which cost a small request as much as the guard.

    `direct` are the endpoints, by path, that a POST reaches past the framework; they are its routes as well, for what
    it says of other methods. `entry` takes every request: middleware is put around it. `local_names`, if there are any,
    refuse requests of web pages.
    """

    local_names: LocalNames | None = None

    def __init__(self, lifespan: Any = None) -> None:
        # A redirect's address would be built from the client's Host header.
        super().__init__(
            title="Portcullis",
            lifespan=lifespan,
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        self.direct: dict[str, ASGIApp] = {}
        self.entry: ASGIApp = self._dispatch

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # type: ignore[override]
        return self.entry(scope, receive, send)

    def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            if self.local_names is not None and (refused := self.local_names.refused(scope)) is not None:
                return refused(scope, receive, send)
            if scope["method"] == "POST" and (endpoint := self.direct.get(scope["path"])) is not None:
                return endpoint(scope, receive, send)
        return super().__call__(scope, receive, send)


class EntryMiddleware:
    """ASGI middleware for the outside: lets a relay write to the server itself, and answers what the protocol refuses.

    The framework wraps `send` several times to learn whether a response has begun. A relay answers every failure by
    itself, and each wrapper costs a coroutine for every chunk.
    """

    def __init__(self, app: ASGIApp, record: Callable[[Fact], None]) -> None:
        self._app = app.entry if isinstance(app, Application) else app
        self._record = record

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        refusal = scope.get(REFUSAL)
        if refusal is not None:
            return refuse(Request(scope), refusal, self._record)(scope, receive, send)
        scope[SERVER_SEND] = send
        return self._app(scope, receive, send)


def server_config(
    app: ASGIApp, record: Callable[[Fact], None], lifespan: Literal["on", "off"] = "on"
) -> uvicorn.Config:
    """`record` takes what is refused before the application sees it."""
    return uvicorn.Config(
        EntryMiddleware(app, record),
        http=BoundedProtocol,
        interface="asgi3",
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
