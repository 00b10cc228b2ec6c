"""`portcullis serve` and `portcullis demo`: from options and the environment to a gateway that runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config import ConfigError, load, warnings
from gateway.policy.files import Files
from gateway.policy.listen import check_exposure
from gateway.policy.model import Auth, ClientKey, Config, Listen, Upstream
from gateway.policy.upstreams import read_upstreams
from gateway.policy.value import Node, Scalar, ScalarKind, Value
from gateway.serving.announce import announce, announce_if_read
from gateway.serving.vllm.command_line import (
    COMMAND_LINE,
    Launch,
    NotPrepared,
    Wanted,
    attach_none,
    exempt_from_proxies,
    prepared,
    upstream_of,
)
from gateway.serving.vllm.options import add_vllm_options, wanted_by

if TYPE_CHECKING:
    from gateway.observe.log import RequestLog
    from gateway.serving.reload import Source
    from gateway.serving.vllm.managed import ModelServer

CANNOT_LISTEN, NOT_STARTED, NOT_PREPARED, INTERRUPTED = 71, 72, 73, 130  # exit statuses
MAX_WORKERS = 64
ENVIRONMENT = "environment"  # what an error names in place of a file


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Put both commands among the others."""
    serving = commands.add_parser("serve", help="run the gateway")
    without = "without it: the demo policy, in front of UPSTREAM_BASE_URL or else the demo upstream"
    serving.add_argument("--config", type=Path, metavar="F", help=without)
    _add_listen(serving)
    serving.add_argument("--workers", type=_workers, default=1, metavar="N", help="processes that serve (1)")
    serving.add_argument(
        "--no-watch", dest="watch", action="store_false", help="reload on SIGHUP only, not when files change"
    )
    add_vllm_options(serving)
    serving.set_defaults(run=_serve)

    demo = commands.add_parser("demo", help="serve with the embedded demo upstream and its policy")
    _add_listen(demo)
    demo.set_defaults(run=_demo, config=None, workers=1, watch=False)


def _add_listen(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="H")
    parser.add_argument("--port", type=_port, metavar="P")
    parser.add_argument("--log", choices=["json", "console"], help="default: console on a terminal, else json")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers from 1 to {MAX_WORKERS}")
    return int(text)


def _serve(options: argparse.Namespace) -> int:
    _bear_signals()
    wanted = wanted_by(options)
    if options.config is None:
        return _run(_config_from(os.environ, wanted), options, wanted=wanted)
    # A path that stays right if the working directory does not.
    path = options.config.absolute()
    return _run(load(options.config), options, lambda: load(path), wanted)


def _bear_signals() -> None:
    """What signals mean until the server has handlers of its own."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _demo(options: argparse.Namespace) -> int:
    _bear_signals()
    from gateway.app import demo_config

    return _run(demo_config(None, Listen(), _auth_from(os.environ)), options)


def _config_from(environ: Mapping[str, str], wanted: Wanted | None) -> Config:
    """What `serve` runs without a file: the demo policy in front of its own vLLM or the server that the environment
    names."""
    from gateway.app import demo_config

    if wanted is not None:
        return _config_for(wanted, environ)
    upstream = _upstream_from(environ) if environ.get("UPSTREAM_BASE_URL") else None
    return demo_config(upstream, Listen(), _auth_from(environ))


def _config_for(wanted: Wanted, environ: Mapping[str, str]) -> Config:
    """Whatever model a client asks for, it gets the one that runs."""
    from gateway.app import demo_config

    if environ.get("UPSTREAM_BASE_URL"):
        raise ConfigError(ENVIRONMENT, "UPSTREAM_BASE_URL", "names another server than --vllm; unset one of them")
    config = demo_config(upstream_of(wanted.model), Listen(), _auth_from(environ))
    name = (*wanted.names, wanted.model)[0]
    return replace(config, routes=tuple(replace(route, rename=name) for route in config.routes))


def _upstream_from(environ: Mapping[str, str]) -> Upstream:
    node: Node = {"upstream": {"base_url": _scalar(environ["UPSTREAM_BASE_URL"])}}
    try:
        upstream = read_upstreams(Value(ENVIRONMENT, "", node), Files(Path()))["upstream"]
    except ConfigError as error:
        raise ConfigError(ENVIRONMENT, "UPSTREAM_BASE_URL", error.reason) from None
    return replace(upstream, api_key=_key_from(environ, "UPSTREAM_API_KEY") or _key_from(environ, "OPENAI_API_KEY"))


def _auth_from(environ: Mapping[str, str]) -> Auth:
    key = _key_from(environ, "PORTCULLIS_KEY")
    return Auth(keys=(ClientKey.of(key, "default"),)) if key else Auth()


def _key_from(environ: Mapping[str, str], name: str) -> str | None:
    """The key in a variable; one that is set to nothing counts as not set."""
    key = environ.get(name)
    return Value(ENVIRONMENT, name, _scalar(key)).key() if key else None


def _scalar(text: str) -> Scalar:
    return Scalar(text, ScalarKind.TEXT, substituted=True)


# -- what runs ---------------------------------------------------------------------------------------------------------


def _run(
    config: Config,
    options: argparse.Namespace,
    read: Callable[[], Config] | None = None,
    wanted: Wanted | None = None,
) -> int:
    # FastAPI takes longest to import; `check` and `scan` need not wait for it.
    from gateway.app import check_parts
    from gateway.observe.log import RequestLog
    from gateway.serving.servers import NotStarted

    style = options.log or ("console" if sys.stderr.isatty() else "json")
    log = RequestLog(style)
    config = _listening_as_told(config, options)
    check_parts(config)
    attach, model_server = attach_none, None
    with contextlib.ExitStack() as stack:
        try:
            if wanted is not None:
                exempt_from_proxies(os.environ)
                launch = stack.enter_context(prepared(wanted, config))
                attach, model_server = launch.attach, _model_server(launch, options, log)
                stack.callback(model_server.stop)
            config = attach(config)
            source = None
            if read is not None:
                source = _source(config, options, lambda: attach(_listening_as_told(read(), options)))
            stopped_by = _run_until_stopped(config, source, options, log, style, model_server)
        except _CannotListen as error:
            return _said(error, CANNOT_LISTEN)
        except NotStarted as error:
            return _said(error, NOT_STARTED)
        except NotPrepared as error:
            return _said(error, NOT_PREPARED)
    if model_server is not None and model_server.failure is not None:
        return _said(model_server.failure, NOT_PREPARED)
    return INTERRUPTED if stopped_by is signal.SIGINT else 0


def _said(reason: object, status: int) -> int:
    print(f"portcullis: {reason}", file=sys.stderr)
    return status


def _source(config: Config, options: argparse.Namespace, read: Callable[[], Config]) -> Source:
    """What the configuration is read from again."""
    from gateway.serving.reload import Source
    from gateway.serving.watch import fingerprint

    return Source(read, config.files, fingerprint(config.files), options.watch)


def _run_until_stopped(
    config: Config,
    source: Source | None,
    options: argparse.Namespace,
    log: RequestLog,
    style: str,
    model_server: ModelServer | None,
) -> signal.Signals:
    """Returns the signal that stopped it. Raises `_CannotListen`, and `NotStarted` if no worker can be."""
    from gateway.serving import single
    from gateway.serving.workers import supervisor

    _allow_many_sockets()
    for warning in warnings(config):
        print(f"{config.source}: warning: {warning}", file=sys.stderr)
    listener, address = _listen(config.listen.host, config.listen.port)
    admin = config.listen.admin
    admin_listener, admin_address = (None, None) if admin is None else _listen(admin.host, admin.port)

    def on_ready() -> None:
        log.event("listening", url=address, admin=admin_address, workers=options.workers)
        if model_server is None:
            announce(address, config)
        else:
            model_server.start(lambda: announce_if_read(address, config))

    if options.workers == 1:
        return single.run(config, source, log, listener, admin_listener, on_ready)
    return supervisor.run(config, source, options.workers, log, style, listener, admin_listener, on_ready)


def _model_server(launch: Launch, options: argparse.Namespace, log: RequestLog) -> ModelServer:
    """Raises `ConfigError` for a log that cannot be written."""
    from gateway.serving.vllm.managed import ModelServer, Pace
    from gateway.serving.vllm.output import LogFile

    try:
        file = LogFile(options.vllm_log) if options.vllm_log is not None else None
    except OSError as error:
        raise ConfigError(COMMAND_LINE, "--vllm-log", f"cannot be written: {error.strerror}") from None
    pace = Pace() if options.vllm_timeout is None else Pace(start=options.vllm_timeout)
    # A gateway without its model is stopped in order, like any other.
    return ModelServer(launch, log, lambda: os.kill(os.getpid(), signal.SIGTERM), file=file, pace=pace)


def _allow_many_sockets() -> None:
    """A stream takes two descriptors, and many systems start with a soft limit of 1,024."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _CannotListen(Exception):
    pass


def _listening_as_told(config: Config, options: argparse.Namespace) -> Config:
    """With the command line's host and port in the file's place. Raises `ConfigError` for an open door."""
    host = options.host if options.host is not None else config.listen.host
    port = options.port if options.port is not None else config.listen.port
    check_exposure(config, host)
    return replace(config, listen=replace(config.listen, host=host, port=port))


def _listen(host: str, port: int) -> tuple[socket.socket, str]:
    """A listening socket and its URL."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise _CannotListen(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    shown = f"[{host}]" if ":" in host else host
    return listener, f"http://{shown}:{listener.getsockname()[1]}"
