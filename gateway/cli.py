"""The command line: serve, demo, check, scan, masks, audit, detectors, version."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.censor.compile import compile_policy
from gateway.decode.checks import CHECKS
from gateway.policy.files import Files
from gateway.policy.load import ConfigError, check_exposure, load, warnings
from gateway.policy.model import Auth, Balance, Channel, ClientKey, Config, Direction, Listen, Upstream
from gateway.policy.upstreams import read_key, read_upstreams
from gateway.policy.value import Kind, Node, Scalar, Value
from gateway.serving.options import add_vllm_options, attach_values, wanted_by
from gateway.serving.vllm import (
    COMMAND_LINE,
    Launch,
    NotPrepared,
    Wanted,
    attach_none,
    exempt_from_proxies,
    managed_upstreams,
    prepared,
    upstream_of,
)
from gateway.version import __version__

if TYPE_CHECKING:
    from gateway.observe.log import RequestLog
    from gateway.serving.managed import ModelServer

EXIT_USAGE = 2
EXIT_INTERNAL = 70
MAX_WORKERS = 64
ENVIRONMENT = "environment"  # what an error names in place of a file


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit status (§2)."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] == "journal":
        from gateway.journal.command import run as journal

        return journal(arguments[1:])
    if arguments and arguments[0] == "audit":
        options = argparse.Namespace(run=_audit, arguments=arguments[1:])
    else:
        options = _parser().parse_args(attach_values(arguments))
    try:
        status: int = options.run(options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; point stdout at nothing so that closing it stays quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INTERNAL + 4
    except Exception as error:
        # Python's own status for this is 1, which means "redacted"; and an exception's message may quote text.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name} line {frame.lineno}"
        print(f"portcullis: internal error: {type(error).__name__} at {where}", file=sys.stderr)
        return EXIT_INTERNAL
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="portcullis", description="The gateway that language-model output passes through on its way to people."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

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

    check = commands.add_parser("check", help="validate a configuration, explain its rules")
    check.add_argument("config", type=Path, metavar="F")
    check.set_defaults(run=_check)

    scan = commands.add_parser("scan", help="run standard input through a policy")
    scan.add_argument("--config", type=Path, required=True, metavar="F")
    scan.add_argument("--policy", metavar="NAME", help="default: the policy named default, or the only one")
    scan.add_argument("--direction", type=Direction, choices=list(Direction), default=Direction.OUTPUT)
    scan.add_argument("--channel", type=Channel, choices=list(Channel), default=Channel.CONTENT)
    scan.add_argument("--chunks", action="store_true", help="JSON strings in, one a line; JSON lines out")
    scan.set_defaults(run=_scan)

    masks = commands.add_parser("masks", help="write the words that vLLM is to mask into a file")
    masks.add_argument("--config", type=Path, required=True, metavar="F")
    masks.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="holds the words in clear, readable by you alone"
    )
    masks.set_defaults(run=_masks)

    detectors = commands.add_parser("detectors", help="list what a rule's `detector` can be, with examples")
    detectors.add_argument("--json", action="store_true", help="a JSON object a line")
    detectors.set_defaults(run=_detectors)

    commands.add_parser("audit", help="ask a model what it would say (portcullis audit --help)")
    commands.add_parser("journal", help="search the journal of decisions (portcullis journal --help)")

    version = commands.add_parser("version", help="version, Python, platform, optional parts")
    version.set_defaults(run=_version)
    return parser


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
    return _run(load(options.config, checks=CHECKS), options, lambda: load(path, checks=CHECKS), wanted)


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
    return read_key(Value(ENVIRONMENT, name, _scalar(key))) if key else None


def _scalar(text: str) -> Scalar:
    return Scalar(text, Kind.TEXT, substituted=True)


def _run(
    config: Config,
    options: argparse.Namespace,
    read: Callable[[], Config] | None = None,
    wanted: Wanted | None = None,
) -> int:
    # FastAPI takes longest to import; `check` and `scan` need not wait for it.
    from gateway.app import check_parts
    from gateway.observe.log import RequestLog
    from gateway.serving import single, supervisor
    from gateway.serving.reload import Source
    from gateway.serving.servers import NotStarted
    from gateway.serving.watch import fingerprint

    style = options.log or ("console" if sys.stderr.isatty() else "json")
    log = RequestLog(style)
    with contextlib.ExitStack() as stack:
        attach, model_server = attach_none, None
        config = _listening_as_told(config, options)
        check_parts(config)
        try:
            if wanted is not None:
                exempt_from_proxies(os.environ)
                launch = stack.enter_context(prepared(wanted, config))
                attach, model_server = launch.attach, _model_server(launch, options, log)
                stack.callback(model_server.stop)
            config = attach(config)
            _allow_many_sockets()
            for warning in warnings(config, CHECKS):
                print(f"{config.source}: warning: {warning}", file=sys.stderr)
            source = None
            if read is not None:
                source = Source(
                    lambda: attach(_listening_as_told(read(), options)),
                    config.files,
                    fingerprint(config.files),
                    options.watch,
                )
            listener, address = _listen(config.listen.host, config.listen.port)
            admin = config.listen.admin
            admin_listener, admin_address = (None, None) if admin is None else _listen(admin.host, admin.port)

            def on_ready() -> None:
                log.event("listening", url=address, admin=admin_address, workers=options.workers)
                if model_server is None:
                    _announce(address, config)
                else:
                    model_server.start(lambda: _announce_if_read(address, config))

            if options.workers == 1:
                stopped_by = single.run(config, source, log, listener, admin_listener, on_ready)
            else:
                stopped_by = supervisor.run(
                    config,
                    source,
                    options.workers,
                    log,
                    style,
                    listener,
                    admin_listener,
                    on_ready,
                )
        except _CannotListen as error:
            print(f"portcullis: {error}", file=sys.stderr)
            return EXIT_INTERNAL + 1
        except NotStarted as error:
            print(f"portcullis: {error}", file=sys.stderr)
            return EXIT_INTERNAL + 2
        except NotPrepared as error:
            print(f"portcullis: {error}", file=sys.stderr)
            return EXIT_INTERNAL + 3
    if model_server is not None and model_server.failure is not None:
        print(f"portcullis: {model_server.failure}", file=sys.stderr)
        return EXIT_INTERNAL + 3
    return 130 if stopped_by is signal.SIGINT else 0


def _model_server(launch: Launch, options: argparse.Namespace, log: RequestLog) -> ModelServer:
    """Raises `ConfigError` for a log that cannot be written."""
    from gateway.serving.managed import ModelServer, Pace
    from gateway.serving.output import LogFile

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


def _announce_if_read(address: str, config: Config) -> None:
    with contextlib.suppress(BrokenPipeError):  # in the model server's thread, where it would end the watch
        _announce(address, config)


def _announce(address: str, config: Config) -> None:
    behind = ", ".join(f"{u.name} ({u.base_url or 'embedded demo'})" for u in config.upstreams.values())
    model = next((route.model for route in config.routes if not set(route.model) & set("*?[")), "gandalf")
    key = ' -H "Authorization: Bearer $PORTCULLIS_KEY"' if config.auth.keys else ""
    ask = '{"role": "user", "content": "What is the password?"}'
    body = f'{{"model": "{model}", "stream": true, "messages": [{ask}]}}'
    print(f"Portcullis {__version__} listens on {address}, in front of {behind}. Try:\n")
    print(f"  curl -N {address}/v1/chat/completions -H 'Content-Type: application/json'{key} \\\n    -d '{body}'\n")
    sys.stdout.flush()


def _check(options: argparse.Namespace) -> int:
    from gateway.censor.explain import explain

    config = load(options.config, checks=CHECKS)
    for name, policy in config.policies.items():
        print(f"policy {name}: mode {policy.mode}, max_hold {policy.max_hold}, on_overflow {policy.on_overflow}")
        for line in explain(policy):
            print(f"  {line}")
        if policy.constrain is not None:
            from gateway.decode.constraints import describe

            print(f"  {describe(policy.constrain)}")
        if policy.masked:
            masked = ", ".join(rule.id for rule in policy.masked)
            print(f"  masked while the model decodes: {masked}; vLLM needs the file that `portcullis masks` writes")
        # Whatever the loader let pass must compile, and its parts must be installed.
        compile_policy(policy)
    masks = any(policy.masked for policy in config.policies.values())
    steered = masks or any(policy.rolls_back for policy in config.policies.values())
    if steered or config.state is not None or config.telemetry is not None:
        from gateway.app import check_parts

        check_parts(config)
    for name in managed_upstreams(config):
        print(f"upstream {name}: managed, since it has no base_url; start it with serve --vllm MODEL")
    for route in config.routes:
        renamed = f", renamed {route.rename}" if route.rename else ""
        behind = ", then ".join(route.upstreams) if route.balance is Balance.FIRST else " or ".join(route.upstreams)
        print(f"route {route.model!r}: upstream {behind}, policy {route.policy}{renamed}")
    for warning in warnings(config, CHECKS):
        print(f"warning: {warning}")
    return 0


def _scan(options: argparse.Namespace) -> int:
    from gateway.scan import scan

    config = load(options.config, checks=CHECKS)
    name = options.policy
    if name is None:
        name = "default" if "default" in config.policies or len(config.policies) != 1 else next(iter(config.policies))
    if name not in config.policies:
        known = ", ".join(config.policies)
        raise ConfigError(str(options.config), f"policies.{name}", f"no such policy; there are: {known}")
    program = compile_policy(config.policies[name]).program(options.direction, options.channel)
    return scan(program, sys.stdin.buffer, sys.stdout.buffer, chunks=options.chunks)


def _masks(options: argparse.Namespace) -> int:
    import shlex

    from gateway.decode.policies import banned_of
    from gateway.proxy.decoding.vocabularies import MISSING

    config = load(options.config, checks=CHECKS)
    try:
        policies = banned_of(config.policies)
    except ImportError:
        raise ConfigError(config.source, "policies", MISSING) from None
    if not policies:
        raise ConfigError(config.source, "policies", "no rule has words with decode: mask or action: rollback")
    from gateway.decode.maskfile import MaskFileError, write_masks

    try:
        if options.out == Path("-") or (options.out.exists() and not options.out.is_file()):
            raise MaskFileError(f"{options.out}: is no file; the words are written in clear, so they go nowhere else")
        path = options.out.resolve()
        write_masks(path, policies)
    except (MaskFileError, OSError) as error:
        reason = f"{options.out}: {error.strerror}" if isinstance(error, OSError) else error
        print(f"portcullis: {reason}", file=sys.stderr)
        return EXIT_USAGE
    for name, policy in policies.items():
        words = sum(len(banned.words) for banned in policy.banned)
        print(f"policy {name}: {words} words of {len(policy.banned)} rules")
    print("The file holds them in clear, for its owner only. vLLM reads it once, when it starts:\n")
    print(f"  PORTCULLIS_MASKS={shlex.quote(str(path))} python -m vllm.entrypoints.openai.api_server --model MODEL \\")
    print("    --logits-processors gateway.decode.vllm_plugin:BannedWords")
    return 0


def _audit(options: argparse.Namespace) -> int:
    from gateway.audit.command import run

    return run(options.arguments)


def _detectors(options: argparse.Namespace) -> int:
    import json

    from gateway.censor.detectors import DETECTORS

    for detector in DETECTORS.values():
        shown = {key: getattr(detector, key) for key in ("title", "examples", "source", "note")}
        if options.json:
            print(json.dumps({"name": detector.name, **shown}))
            continue
        print(f"{detector.name}: {detector.title}")
        for example in detector.examples:
            print(f"  example: {example!r}" if not example.isprintable() else f"  example: {example}")
        print(f"  source: {detector.source}")
        if detector.note:
            print(f"  note: {detector.note}")
    return 0


def _version(_: argparse.Namespace) -> int:
    import importlib.util
    import platform

    print(f"portcullis {__version__}")
    print(f"python {platform.python_version()} ({platform.python_implementation()})")
    print(f"platform {platform.platform()}")
    for part in ("uvloop", "vllm", "torch", "transformers", "redis", "opentelemetry", "ray"):
        print(f"{part}: {'present' if importlib.util.find_spec(part) else 'not installed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
