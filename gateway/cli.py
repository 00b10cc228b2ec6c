"""The command line: one sub-parser for each command, and the mapping of exceptions to exit statuses."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from gateway.censor.compile import compile_policy
from gateway.config import ConfigError, load, warnings
from gateway.exits import DONE, INTERNAL, INTERRUPTED, NO_MODEL, UNWRITTEN, USAGE, discard_stdout, error_place
from gateway.policy.lint import large_list
from gateway.policy.model import Balance, Channel, Config, Direction
from gateway.serving.command import add_serve_commands
from gateway.serving.vllm.command_line import managed_upstreams
from gateway.serving.vllm.options import attach_values
from gateway.version import TELEMETRY, __version__, is_installed, missing_part


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit status (`gateway.exits`)."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        arguments = ["version"]
    options = _parser().parse_args(attach_values(arguments))
    try:
        status: int = options.run(options)
    except ConfigError as error:
        for each in error.all:
            print(each, file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        discard_stdout()
        return UNWRITTEN
    except Exception as error:
        # Python's own status for this is 1, which means "redacted".
        print(f"portcullis: internal error: {error_place(error)}", file=sys.stderr)
        return INTERNAL
    return status


class _Command(argparse.ArgumentParser):
    """A sub-parser. One with `run_in` leaves its arguments, `--help` among them, to the function `run` of that module,
    which the other commands need not wait to be imported."""

    def __init__(self, *, run_in: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._run_in = run_in

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if (module := self._run_in) is None:
            return super().parse_known_args(args, namespace)
        return argparse.Namespace(run=lambda _: importlib.import_module(module).run(args)), []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="portcullis",
        description="A streaming guardrail proxy for LLM APIs.",
        epilog="portcullis --version is portcullis version.",
    )
    commands: Any = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Command)

    add_serve_commands(commands)

    check = commands.add_parser("check", help="validate a configuration, explain its rules")
    check.add_argument("config", type=Path, metavar="F")
    check.add_argument("--online", action="store_true", help="ask each upstream for its models, too")
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

    schema = commands.add_parser("schema", help="print the JSON Schema of a configuration, for editors")
    schema.set_defaults(run=_schema)

    commands.add_parser("audit", help="search for what a model would say", run_in="gateway.audit.cli.command")
    commands.add_parser("journal", help="search the journal of decisions, verify it", run_in="gateway.journal.command")

    version = commands.add_parser("version", help="version, Python, platform, optional parts")
    version.set_defaults(run=_version)
    return parser


def _check(options: argparse.Namespace) -> int:
    from gateway.censor.explain import explain

    config = load(options.config)
    for name, policy in config.policies.items():
        print(f"policy {name}: mode {policy.mode}, max_hold {policy.max_hold}, on_overflow {policy.on_overflow}")
        for rule in policy.rules:
            if (cost := large_list(rule)) is not None:
                print(f"rule {rule.id}: {cost} …", file=sys.stderr, flush=True)
        for line in explain(policy):
            print(f"  {line}")
        if policy.constrain is not None:
            from gateway.decode.constraints import describe

            print(f"  {describe(policy.constrain)}")
        if policy.masked:
            masked = ", ".join(rule.id for rule in policy.masked)
            print(f"  masked while the model decodes: {masked}; vLLM needs the file that `portcullis masks` writes")
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
    for warning in warnings(config):
        print(f"warning: {warning}")
    print(f"{options.config}: valid")
    return _check_online(config) if options.online else DONE


def _check_online(config: Config) -> int:
    from gateway.serving.upstream_probe import probe, probed_upstreams

    probes = {upstream.name: probe(upstream) for upstream in probed_upstreams(config)}
    for name, found in probes.items():
        print(f"upstream {name}: {found}")
    return DONE if all(found.works for found in probes.values()) else NO_MODEL


def _scan(options: argparse.Namespace) -> int:
    from gateway.scan import scan

    config = load(options.config)
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

    config = load(options.config)
    try:
        policies = banned_of(config.policies)
    except ImportError:
        raise ConfigError(config.source, "policies", missing_part("decode")) from None
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
        return USAGE
    for name, policy in policies.items():
        words = sum(len(banned.words) for banned in policy.banned)
        print(f"policy {name}: {words} words of {len(policy.banned)} rules")
    print("The file holds them in clear, for its owner only. vLLM reads it once, when it starts:\n")
    print(f"  PORTCULLIS_MASKS={shlex.quote(str(path))} python -m vllm.entrypoints.openai.api_server --model MODEL \\")
    print("    --logits-processors gateway.decode.vllm_plugin:BannedWords")
    return DONE


def _detectors(options: argparse.Namespace) -> int:
    import json

    from gateway.censor.detectors import DETECTORS

    for detector in DETECTORS.values():
        shown = {key: getattr(detector, key) for key in ("title", "introduction", "examples", "source", "note")}
        if options.json:
            print(json.dumps({"name": detector.name, **shown}))
            continue
        print(f"{detector.name}: {detector.title}")
        for example in detector.examples:
            example = detector.introduction + example
            print(f"  example: {example!r}" if not example.isprintable() else f"  example: {example}")
        print(f"  source: {detector.source}")
        if detector.note:
            print(f"  note: {detector.note}")
    return DONE


def _schema(_: argparse.Namespace) -> int:
    import json

    from gateway.policy.schema import schema

    print(json.dumps(schema(), indent=2, ensure_ascii=False))
    return DONE


def _version(_: argparse.Namespace) -> int:
    import platform

    print(f"portcullis {__version__}")
    print(f"python {platform.python_version()} ({platform.python_implementation()})")
    print(f"platform {platform.platform()}")
    for part in ("uvloop", "vllm", "torch", "transformers", "redis", "opentelemetry", "ray"):
        modules = TELEMETRY if part == "opentelemetry" else (part,)
        print(f"{part}: {'present' if is_installed(*modules) else 'not installed'}")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
