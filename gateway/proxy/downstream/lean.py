"""uvicorn's HTTP protocol without what this gateway needs none of: its own costs as much on each connection as half a
request, for loggers, addresses, an access log, websockets and a parser that most heads do not need."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.proxy.downstream.cycle import RequestCycle

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_LOGGERS = logging.getLogger("uvicorn.error"), logging.getLogger("uvicorn.access")


class LeanProtocol(HttpToolsProtocol):
    """See the module. Its subclass sets transport, flow and reader, and calls `open_scope` where a request begins."""

    logger, access_logger = _LOGGERS
    access_log = False
    ws_protocol_class = None
    scheme = "http"
    parser: Any = None  # `open_parser` makes it for the first head that is not a repeated one
    transport: asyncio.Transport = None  # type: ignore[assignment]
    flow: Any = None
    scope: Any = None
    headers: Any = None
    expect_100_continue = False
    timeout_keep_alive_task: asyncio.TimerHandle | None = None

    cycle: RequestCycle = None  # type: ignore[assignment] # that came last

    def __init__(
        self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.config, self.app, self.loop = config, config.loaded_app, _loop or asyncio.get_running_loop()
        self.timeout_keep_alive, self.root_path = config.timeout_keep_alive, config.root_path
        self.server, self.app_state = (config.host, config.port), app_state  # its address: nothing here asks for more
        self.server_state = server_state
        self.connections, self.tasks = server_state.connections, server_state.tasks

    def open_scope(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.headers, self.expect_100_continue = headers, False
        self.scope = {
            "type": "http",
            "asgi": _ASGI.copy(),
            "http_version": "1.1",
            "server": self.server,
            "client": None,
            "scheme": "http",
            "root_path": self.root_path,
            "headers": headers,
            "state": self.app_state.copy(),
        }

    def open_parser(self) -> Any:
        self.parser = httptools.HttpRequestParser(self)
        # As in the base, which says why.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return self.parser

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        if (cycle := self.cycle) is not None:
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            cycle.message_event.set()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser = None
