"""The composition root: everything is made and wired here, where it can be seen, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn
from fastapi import FastAPI

from gateway.censor.compile import compile_policy
from gateway.guard.texts import HELD_BOUNDS, HOLD_BOUNDS
from gateway.observe.facts import Fact
from gateway.observe.log import RequestLog
from gateway.observe.metrics import Metrics
from gateway.policy.model import Action, Auth, Config, Listen, Policy, Route, Rule, Upstream
from gateway.proxy.asgi import ServerSend
from gateway.proxy.demo import PASSWORD, TOKEN_PAUSE, build_demo
from gateway.proxy.routes import Gateway, add_routes
from gateway.proxy.server import BoundedProtocol
from gateway.proxy.upstream import UpstreamClient

SHUTDOWN_PATIENCE = 5  # seconds for running answers when the server stops


def demo_policy() -> Policy:
    """What `portcullis demo` enforces: the password stays in, however Gandalf spells it."""
    rule = Rule(id="password", words=(PASSWORD,), action=Action.REDACT, replacement="[CENSORED]", secret=True)
    return Policy(name="default", rules=(rule,))


def demo_config(upstream: Upstream | None, listen: Listen, auth: Auth) -> Config:
    """The configuration that needs no file: the demo policy in front of the demo upstream, or of `upstream`."""
    behind = upstream if upstream is not None else Upstream(name="demo", type="demo")
    policy = demo_policy()
    return Config(
        upstreams={behind.name: behind},
        routes=(Route(model="*", upstream=behind.name, policy=policy.name),),
        policies={policy.name: policy},
        listen=listen,
        auth=auth,
        source="<demo>",
    )


def build_app(config: Config, log: RequestLog, *, demo_pause: float = TOKEN_PAUSE) -> FastAPI:
    """The gateway as an ASGI application. Upstream connections open and close with its lifespan."""
    metrics = Metrics(HELD_BOUNDS, HOLD_BOUNDS)

    def record(fact: Fact) -> None:
        metrics.record(fact)
        log.record(fact)

    policies = {name: compile_policy(policy) for name, policy in config.policies.items()}
    gateway = Gateway(config, policies, metrics, record)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for name, upstream in config.upstreams.items():
                base_url = upstream.base_url
                if upstream.type == "demo":
                    base_url = await stack.enter_async_context(_demo_server(demo_pause))
                client = UpstreamClient(upstream, base_url, max_connections=config.limits.max_streams + 64)
                stack.push_async_callback(client.close)
                gateway.upstreams[name] = client
            yield

    app = FastAPI(
        title="Portcullis",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # A redirect's address would be made of the client's Host header.
        redirect_slashes=False,
    )
    add_routes(app, gateway)
    return app


class _QuietServer(uvicorn.Server):
    """A server within a server: signals belong to the outer one."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def _demo_server(pause: float) -> AsyncIterator[str]:
    """The demo upstream on a real socket of its own, because an in-process transport would not stream."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = _QuietServer(uvicorn.Config(build_demo(pause), log_config=None, access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving


class _ServerLog(logging.Handler):
    """What uvicorn and asyncio have to say, as lines of our log. Of an exception only its type and place: its text may
    quote what was scanned."""

    def __init__(self, log: RequestLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        where = None
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            where = type(error).__name__ + (f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else "")
        message = record.getMessage().strip().partition("\n")[0]
        self._log.event("server", level=record.levelname.lower(), message=message, error=where)


def _log_servers_to(log: RequestLog) -> None:
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [_ServerLog(log)]
        logger.propagate = False


def serve(config: Config, log: RequestLog, on_ready: Callable[[str], None]) -> bool:
    """Run the gateway until a signal stops it. `on_ready` gets the address once connections are accepted.

    Returns whether it ever came up. Raises OSError when the address cannot be had.
    """
    _log_servers_to(log)
    host, port = config.listen.host, config.listen.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=2048)
    bound = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                on_ready(f"http://{shown}:{bound}")

    server = Server(
        uvicorn.Config(
            ServerSend(build_app(config, log)),
            http=BoundedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            timeout_keep_alive=65,
            timeout_graceful_shutdown=SHUTDOWN_PATIENCE,
        )
    )
    # What was loaded so far lives as long as the process; the collector need not go through it again and again.
    gc.collect()
    gc.freeze()
    server.run([listener])
    return server.started
