"""`portcullis serve` and `portcullis demo`: from options and the environment to a running gateway."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.arguments import whole_number, with_example
from gateway.config import ConfigError, load, warnings
from gateway.demo.gandalf import demo_config
from gateway.exits import CANNOT_LISTEN, DONE, INTERRUPTED, NOT_STARTED, VLLM_FAILED
from gateway.policy.files import Files
from gateway.policy.listen import check_exposure, url_of
from gateway.policy.model import Auth, ClientKey, Config, Listen, Upstream
from gateway.policy.upstreams import read_upstreams
from gateway.policy.value import Node, Scalar, ScalarKind, Value, key_from
from gateway.serving.announce import announce, announce_if_read
from gateway.serving.health import ADDRESS_FILE, leave_address
from gateway.serving.vllm.command_line import (
    COMMAND_LINE,
    PreparationFailed,
    VllmLaunch,
    VllmOptions,
    add_vllm_options,
    default_upstream,
    exempt_from_proxies,
    prepare,
    require_base_urls,
    vllm_options_of,
)
from gateway.version import install_hint, unknown_versions

if TYPE_CHECKING:
    from gateway.observe.log import RequestLog
    from gateway.serving.reload import ConfigSource
    from gateway.serving.vllm.managed import ModelServer

MAX_WORKERS = 64
ENVIRONMENT = "environment"  # what an error names in place of a file


def add_serve_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-parsers of both commands."""
    example = with_example("portcullis serve --config portcullis.yaml --workers 4")
    serving = commands.add_parser("serve", help="run the gateway", description="Run the gateway.", **example)
    without = "without it: the demo policy, in front of UPSTREAM_BASE_URL or else the demo upstream"
    serving.add_argument("--config", type=Path, metavar="F", help=without)
    _add_listen(serving)
    count = whole_number("a number of workers", 1, MAX_WORKERS)
    serving.add_argument("--workers", type=count, default=1, metavar="N", help="processes that serve (1)")
    serving.add_argument(
        "--no-watch", dest="watch", action="store_false", help="reload on SIGHUP only, not when files change"
    )
    add_vllm_options(serving)
    serving.set_defaults(run=_serve)

    what = "serve with the embedded demo upstream and its policy"
    demo = commands.add_parser(
        "demo", help=what, description=f"{what.capitalize()}.", **with_example("portcullis demo")
    )
    _add_listen(demo)
    demo.set_defaults(run=_demo, config=None, workers=1, watch=False)


def _add_listen(parser: argparse.ArgumentParser) -> None:
    port = whole_number("a port", 0, 65535)
    parser.add_argument("--host", metavar="H", help="the address to listen on (listen.host of the file, or 127.0.0.1)")
    parser.add_argument("--port", type=port, metavar="P", help="0 takes a free one (listen.port of the file, or 8080)")
    logged = "the log's form on standard error; default: console on a terminal, else json"
    parser.add_argument("--log", choices=["json", "console"], help=logged)


def _serve(options: argparse.Namespace) -> int:
    _install_placeholder_handlers()
    vllm = vllm_options_of(options)
    if options.config is None:
        return _run(_default_config(os.environ, vllm), options, vllm=vllm)
    # A path that stays right if the working directory does not.
    path = options.config.absolute()
    return _run(load(options.config), options, lambda: load(path), vllm)


def _demo(options: argparse.Namespace) -> int:
    _install_placeholder_handlers()
    return _run(demo_config(None, Listen(), _auth_from(os.environ)), options)


def _install_placeholder_handlers() -> None:
    """Signal handlers for the time until the server has its own."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


# -- the configuration without a file ----------------------------------------------------------------------------------


def _default_config(environ: Mapping[str, str], vllm: VllmOptions | None) -> Config:
    """What `serve` runs without a file: the demo policy in front of a managed vLLM, or the server that the environment
    names, or the demo upstream."""
    auth = _auth_from(environ)
    if vllm is None:
        upstream = _upstream_from(environ) if environ.get("UPSTREAM_BASE_URL") else None
        return demo_config(upstream, Listen(), auth)
    if environ.get("UPSTREAM_BASE_URL"):
        raise ConfigError(ENVIRONMENT, "UPSTREAM_BASE_URL", "names another server than --vllm; unset one of them")
    config = demo_config(default_upstream(vllm.model), Listen(), auth)
    # Whatever model a client asks for, it gets the one that runs.
    name = (*vllm.names, vllm.model)[0]
    return replace(config, routes=tuple(replace(route, rename=name) for route in config.routes))


def _upstream_from(environ: Mapping[str, str]) -> Upstream:
    url = Scalar(environ["UPSTREAM_BASE_URL"], ScalarKind.TEXT, substituted=True)
    node: Node = {"upstream": {"base_url": url}}
    try:
        upstream = read_upstreams(Value(ENVIRONMENT, "", node), Files(Path()))["upstream"]
    except ConfigError as error:
        raise ConfigError(ENVIRONMENT, "UPSTREAM_BASE_URL", error.reason) from None
    return replace(upstream, api_key=key_from(environ, "UPSTREAM_API_KEY") or key_from(environ, "OPENAI_API_KEY"))


def _auth_from(environ: Mapping[str, str]) -> Auth:
    key = key_from(environ, "PORTCULLIS_KEY")
    return Auth(keys=(ClientKey.of(key, "default"),)) if key else Auth()


# -- running -----------------------------------------------------------------------------------------------------------


def _run(
    config: Config,
    options: argparse.Namespace,
    read: Callable[[], Config] | None = None,
    vllm: VllmOptions | None = None,
) -> int:
    config = _with_listen_options(config, options)
    # Nothing of what is imported is garbage, which the collector would look for again and again.
    gc.disable()
    # FastAPI takes longest to import; `check` and `scan` need not wait for it.
    try:
        from gateway.app import check_parts
        from gateway.observe.log import RequestLog
        from gateway.serving.reload import ConfigSource, fingerprint
        from gateway.serving.servers import NotStarted
    except ImportError as error:  # uvicorn and prometheus-client are used from the inside
        return _failed(f"{error}; {install_hint()} installs what this version was made for", NOT_STARTED)

    gc.enable()

    log = RequestLog(options.log or ("console" if sys.stderr.isatty() else "json"))
    check_parts(config)
    attach, model_server, source = require_base_urls, None, None
    with contextlib.ExitStack() as stack:
        try:
            if vllm is not None:
                exempt_from_proxies(os.environ)
                launch = stack.enter_context(prepare(vllm, config))
                attach, model_server = launch.attach, _model_server(launch, options, log)
                stack.callback(model_server.stop)
            config = attach(config)
            if read is not None:
                source = ConfigSource(
                    lambda: attach(_with_listen_options(read(), options)),
                    config.files,
                    fingerprint(config.files),
                    options.watch,
                )
            stopped_by = _serve_until_stopped(config, source, options, log, model_server)
        except _CannotListen as error:
            return _failed(error, CANNOT_LISTEN)
        except NotStarted as error:
            return _failed(error, NOT_STARTED)
        except PreparationFailed as error:
            return _failed(error, VLLM_FAILED)
    if model_server is not None and model_server.failure is not None:
        return _failed(model_server.failure, VLLM_FAILED)
    return INTERRUPTED if stopped_by is signal.SIGINT else DONE


def _failed(reason: object, status: int) -> int:
    print(f"portcullis: {reason}", file=sys.stderr)
    return status


def _serve_until_stopped(
    config: Config,
    source: ConfigSource | None,
    options: argparse.Namespace,
    log: RequestLog,
    model_server: ModelServer | None,
) -> signal.Signals:
    """Returns the signal that stopped it. Raises `_CannotListen`, and `NotStarted` if no worker comes up."""
    import uvloop

    from gateway.guard.bytes_path import is_native
    from gateway.observe.metrics import metrics_problem
    from gateway.proxy.hotpath import hot_path_problem
    from gateway.serving import servers
    from gateway.serving.acceptor import ADMIN, CLIENT
    from gateway.serving.workers import supervisor

    _raise_descriptor_limit()
    for warning in warnings(config):
        print(f"{config.source}: warning: {warning}", file=sys.stderr)
    for unknown in unknown_versions():
        print(f"portcullis: warning: {unknown}; {install_hint()} installs one of those", file=sys.stderr)
    if (problem := metrics_problem()) is not None:
        raise servers.NotStarted(f"metrics cannot be kept in the prometheus-client that is installed: {problem}")
    listener, address = _listen(config.listen.host, config.listen.port)
    listeners, admin_address = [(CLIENT, listener)], None
    if (admin := config.listen.admin) is not None:
        listener, admin_address = _listen(admin.host, admin.port)
        listeners.append((ADMIN, listener))

    def on_ready() -> None:
        try:
            leave_address(admin_address or address)
        except OSError as error:
            print(f"portcullis: {ADDRESS_FILE}: cannot be written: {error.strerror}", file=sys.stderr)
        log.event("listening", url=address, admin=admin_address, workers=options.workers)
        reason = hot_path_problem()
        log.event("hot_path", on=reason is None, reason=reason, native=is_native())
        threading.Thread(target=_log_upstream_problems, args=(config, log), daemon=True).start()
        if model_server is None:
            announce(address, config)
        else:
            model_server.start(lambda: announce_if_read(address, config))

    if options.workers == 1:
        return uvloop.run(servers.serve(config, source, log, listeners, on_ready))
    return supervisor.run(config, source, options.workers, log, listeners, on_ready)


def _log_upstream_problems(config: Config, log: RequestLog) -> None:
    """What is wrong with the addresses and keys of upstreams, as far as they say so themselves."""
    from gateway.serving.upstream_probe import probe, probed_upstreams

    for upstream in probed_upstreams(config):
        if (problem := probe(upstream).problem) is not None:
            log.event("upstream", upstream=upstream.name, problem=problem)


def _model_server(launch: VllmLaunch, options: argparse.Namespace, log: RequestLog) -> ModelServer:
    """Raises `ConfigError` for a log that cannot be written."""
    from gateway.serving.vllm.managed import LogFile, ModelServer, RestartPolicy

    try:
        file = LogFile(options.vllm_log) if options.vllm_log is not None else None
    except OSError as error:
        raise ConfigError(COMMAND_LINE, "--vllm-log", f"cannot be written: {error.strerror}") from None
    policy = RestartPolicy() if options.vllm_timeout is None else RestartPolicy(start_timeout=options.vllm_timeout)
    # A gateway without its model is stopped in order, like any other.
    return ModelServer(launch, log, lambda: os.kill(os.getpid(), signal.SIGTERM), file=file, policy=policy)


def _raise_descriptor_limit() -> None:
    """A stream takes two descriptors, and many systems start with a soft limit of 1,024."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _CannotListen(Exception):
    pass


def _with_listen_options(config: Config, options: argparse.Namespace) -> Config:
    """With the command line's host and port in the file's place. Raises `ConfigError` for an address that is open to
    others without keys."""
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
    return listener, url_of(host, listener.getsockname()[1])
