"""The command line: one sub-parser for each command, and the mapping of exceptions to exit statuses."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gateway import exits
from gateway.arguments import with_example
from gateway.censor.compile import compile_policy
from gateway.config import ConfigError, load, warnings
from gateway.policy.lint import large_list
from gateway.policy.listen import url_of
from gateway.policy.model import Balance, Channel, Config, Direction, Rule
from gateway.progress import shown_while_slow
from gateway.serving.command import add_serve_commands
from gateway.serving.vllm.command_line import attach_values, managed_upstreams
from gateway.version import TELEMETRY, __version__, is_installed

# The others need no locks, signals or processes that Windows has not.
ON_WINDOWS = ("check", "scan", "detectors", "schema", "doctor", "health", "version", "--help", "-h")
SHELLS = ("bash", "zsh")  # for tcsh shtab leaves the options of nested commands out


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit status (`gateway.exits`)."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        arguments = ["version"]
    parser = _parser()
    if not arguments:
        parser.print_help()
        return exits.DONE
    if sys.platform == "win32" and arguments[0] not in ON_WINDOWS:
        print(f"portcullis: {arguments[0]} does not run on Windows; it does in WSL 2 and in the image", file=sys.stderr)
        return exits.USAGE
    options = parser.parse_args(attach_values(arguments))
    try:
        status: int = options.run(options)
    except ConfigError as error:
        for each in error.all:
            print(each, file=sys.stderr)
        return exits.USAGE
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        exits.discard_stdout()
        return exits.UNWRITTEN
    except Exception as error:
        # Python's own status for this is 1, which means "redacted".
        print(f"portcullis: internal error: {exits.error_place(error)}", file=sys.stderr)
        return exits.INTERNAL
    return status


class _Command(argparse.ArgumentParser):
    """A sub-parser. One with `run_in` leaves its arguments, `--help` among them, to the function `run` of that module,
    which the other commands need not wait to be imported; its function `command_parser` says what they are."""

    def __init__(self, *, run_in: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.run_in = run_in

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if (module := self.run_in) is None:
            return super().parse_known_args(args, namespace)
        return argparse.Namespace(run=lambda _: importlib.import_module(module).run(args)), []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="portcullis",
        description="A streaming guardrail proxy for LLM APIs.",
        **with_example(
            "portcullis check portcullis.yaml && portcullis serve --config portcullis.yaml",
            "portcullis COMMAND --help has the options of one; portcullis --version is portcullis version.",
        ),
    )
    commands: Any = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Command)

    def add(name: str, what: str, example: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        description = f"{what[0].upper()}{what[1:]}."
        command = commands.add_parser(name, help=what, description=description, **with_example(example))
        command.set_defaults(run=run)
        assert isinstance(command, argparse.ArgumentParser)
        return command

    add_serve_commands(commands)

    check = add("check", "validate a configuration, explain its rules", "portcullis check portcullis.yaml", _check)
    check.add_argument("config", type=Path, metavar="F", help="the configuration, YAML or JSON")
    check.add_argument("--online", action="store_true", help="also request each upstream's list of models")

    example = "echo 'The word is SECRET.' | portcullis scan --config portcullis.yaml"
    scan = add("scan", "run standard input through a policy", example, _scan)
    scan.add_argument("--config", type=Path, required=True, metavar="F", help="the configuration that has the policy")
    scan.add_argument("--policy", metavar="NAME", help="default: the policy named default, or the only one")
    which = "whose rules: those for answers (output, the default) or for prompts"
    scan.add_argument("--direction", type=Direction, choices=list(Direction), default=Direction.OUTPUT, help=which)
    where = "what kind of text it is (content)"
    scan.add_argument("--channel", type=Channel, choices=list(Channel), default=Channel.CONTENT, help=where)
    scan.add_argument("--chunks", action="store_true", help="JSON strings in, one a line; JSON lines out")

    example = "portcullis masks --config portcullis.yaml --out /run/portcullis/masks.json"
    masks = add("masks", "write the words that vLLM is to mask into a file", example, _masks)
    masks.add_argument("--config", type=Path, required=True, metavar="F", help="a configuration with decode: mask")
    masks.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="holds the words in clear, readable by you alone"
    )

    what = "list what a rule's `detector` can be, with examples"
    detectors = add("detectors", what, "portcullis detectors --json", _detectors)
    detectors.add_argument("--json", action="store_true", help="a JSON object a line")

    example = "portcullis schema > portcullis.schema.json"
    add("schema", "print the JSON Schema of a configuration, for editors", example, _schema)

    what = "say what is not as it should be with a gateway that runs"
    commands.add_parser("doctor", help=what, run_in="gateway.doctor.command")
    commands.add_parser("audit", help="search for what a model would say", run_in="gateway.audit.cli.command")
    commands.add_parser("journal", help="search the journal of decisions, verify it", run_in="gateway.journal.command")

    example = "portcullis health http://127.0.0.1:8080"
    health = add("health", "ask a gateway that runs whether it is up, as the image's probe does", example, _health)
    where = "default: HEALTH_URL, or what a gateway has left in PORTCULLIS_ADDRESS_FILE, or http://127.0.0.1:8080"
    health.add_argument("url", nargs="?", metavar="URL", help=where)
    health.add_argument("--config", type=Path, metavar="F", help="the address that this configuration listens on")

    what = "print what completes commands and options in a shell"
    completion = add("completion", what, 'eval "$(portcullis completion bash)"', _completion)
    completion.add_argument("shell", choices=SHELLS, help="the shell to complete for")

    add("version", "version, Python, platform, optional parts", "portcullis version", _version)
    return parser


def _check(options: argparse.Namespace) -> int:
    from gateway.censor.explain import explain

    with shown_while_slow(sys.stderr, lambda seconds: f"{seconds:.0f} s: {options.config} is read"):
        config = load(options.config)
    for name, policy in config.policies.items():
        print(f"policy {name}: mode {policy.mode}, max_hold {policy.max_hold}, on_overflow {policy.on_overflow}")
        lines = explain(policy)
        for rule in policy.rules:
            with shown_while_slow(sys.stderr, partial(_compiling, rule)):
                line = next(lines)
            print(f"  {line}")
        if policy.constrain is not None:
            from gateway.decode.constraints import describe

            print(f"  {describe(policy.constrain)}")
        if policy.masked:
            masked = ", ".join(rule.id for rule in policy.masked)
            print(f"  masked while the model decodes: {masked}; vLLM needs the file that `portcullis masks` writes")
    rolled_back = any(policy.rolls_back for policy in config.policies.values())
    if sys.platform != "win32" and (rolled_back or config.state is not None or config.telemetry is not None):
        from gateway.app import check_parts

        check_parts(config)
    for name in managed_upstreams(config):
        print(f"upstream {name}: managed, since it has no base_url; start it with serve --vllm MODEL")
    for route in config.routes:
        renamed = f", renamed {route.rename}" if route.rename else ""
        behind = ", then ".join(route.upstreams) if route.balance is Balance.FIRST else " or ".join(route.upstreams)
        print(f"route {route.model!r}: upstream {behind}, policy {route.policy}{renamed}")
    with shown_while_slow(sys.stderr, lambda seconds: f"{seconds:.0f} s: warnings are looked for"):
        found = warnings(config)
    for warning in found:
        print(f"warning: {warning}")
    print(f"{options.config}: valid")
    return _check_online(config) if options.online else exits.DONE


def _compiling(rule: Rule, seconds: float) -> str:
    return f"{seconds:.0f} s: rule {rule.id}: {large_list(rule) or 'is compiled'}"


def _check_online(config: Config) -> int:
    from gateway.serving.upstream_probe import probe, probed_upstreams

    probes = {upstream.name: probe(upstream) for upstream in probed_upstreams(config)}
    for name, found in probes.items():
        print(f"upstream {name}: {found}")
    return exits.DONE if all(found.works for found in probes.values()) else exits.NO_MODEL


def _scan(options: argparse.Namespace) -> int:
    from gateway.scan import ScannedText, scan

    config = load(options.config)
    name = options.policy
    if name is None:
        name = "default" if "default" in config.policies or len(config.policies) != 1 else next(iter(config.policies))
    if name not in config.policies:
        known = ", ".join(config.policies)
        raise ConfigError(str(options.config), f"policies.{name}", f"no such policy; there are: {known}")
    text = ScannedText(compile_policy(config.policies[name]), options.direction, options.channel)
    return scan(text, sys.stdin.buffer, sys.stdout.buffer, chunks=options.chunks)


def _masks(options: argparse.Namespace) -> int:
    import shlex

    from gateway.decode.maskfile import MaskFileError, banned_of, write_masks

    config = load(options.config)
    policies = banned_of(config.policies)
    if not policies:
        raise ConfigError(config.source, "policies", "no rule has words with decode: mask or action: rollback")
    try:
        if options.out == Path("-") or (options.out.exists() and not options.out.is_file()):
            raise MaskFileError(f"{options.out}: not a file; the words are in clear and are written nowhere else")
        path = options.out.resolve()
        write_masks(path, policies)
    except (MaskFileError, OSError) as error:
        reason = f"{options.out}: {error.strerror}" if isinstance(error, OSError) else error
        print(f"portcullis: {reason}", file=sys.stderr)
        return exits.USAGE
    for name, policy in policies.items():
        words = sum(len(banned.words) for banned in policy.banned)
        print(f"policy {name}: {words} words of {len(policy.banned)} rules")
    print("The file holds them in clear, for its owner only. vLLM reads it once, when it starts:\n")
    print(f"  PORTCULLIS_MASKS={shlex.quote(str(path))} python -m vllm.entrypoints.openai.api_server --model MODEL \\")
    print("    --logits-processors gateway.decode.vllm_plugin:BannedWords")
    return exits.DONE


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
    return exits.DONE


def _schema(_: argparse.Namespace) -> int:
    import json

    from gateway.policy.schema import schema

    print(json.dumps(schema(), indent=2, ensure_ascii=False))
    return exits.DONE


def _completion(options: argparse.Namespace) -> int:
    import shtab

    parser = _parser()
    (commands,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        if isinstance(command, _Command) and command.run_in is not None:
            commands.choices[name] = importlib.import_module(command.run_in).command_parser()
    for command in commands.choices.values():
        for action in command._actions:
            if action.type is Path:
                vars(action)["complete"] = shtab.FILE
    print(shtab.complete(parser, options.shell))
    return exits.DONE


def _health(options: argparse.Namespace) -> int:
    from gateway.serving import health

    if options.config is not None and options.url is None:
        listen = load(options.config).listen
        address = listen.admin or listen
        options.url = health.reachable(url_of(address.host, address.port))
    problem = health.problem(options.url)
    if problem is not None:
        print(f"portcullis: {problem}", file=sys.stderr)
    return exits.DONE if problem is None else exits.UNHEALTHY


def _version(_: argparse.Namespace) -> int:
    import platform

    print(f"portcullis {__version__}")
    print(f"python {platform.python_version()} ({platform.python_implementation()})")
    print(f"platform {platform.platform()}")
    for part in ("uvloop", "vllm", "torch", "transformers", "redis", "opentelemetry", "ray"):
        modules = TELEMETRY if part == "opentelemetry" else (part,)
        print(f"{part}: {'present' if is_installed(*modules) else 'not installed'}")
    return exits.DONE


if __name__ == "__main__":
    sys.exit(main())
