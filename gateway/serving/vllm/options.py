"""What the command line can say of a vLLM of the gateway's own."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.policy.value import ConfigError
from gateway.serving.vllm.command_line import COMMAND_LINE, Wanted, read_wanted

ONLY_WITH_IT = ("--vllm-command", "--vllm-args", "--vllm-log", "--vllm-timeout")
BEGIN_WITH_DASHES = ("--vllm-command", "--vllm-args")
LONGEST = 86_400  # seconds


def add_vllm_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a vLLM of the gateway's own")
    group.add_argument("--vllm", metavar="MODEL", help="start, watch and stop it: the upstream without base_url")
    group.add_argument("--vllm-command", metavar="C", help="what MODEL is added to (vllm serve)")
    group.add_argument("--vllm-args", metavar="A", help="vLLM's own options, in one text")
    group.add_argument("--vllm-log", type=Path, metavar="FILE", help="what it writes; else the last lines are kept")
    group.add_argument("--vllm-timeout", type=_seconds, metavar="S", help="seconds until it has to be ready (600)")


def attach_values(arguments: list[str]) -> list[str]:
    """The arguments, the values of some options attached to them by `=`: argparse would take a value that begins with
    `-` for another option."""
    attached: list[str] = []
    for argument in arguments:
        if attached and attached[-1] in BEGIN_WITH_DASHES:
            attached[-1] += f"={argument}"
        else:
            attached.append(argument)
    return attached


def wanted_by(options: argparse.Namespace) -> Wanted | None:
    """None if there is to be none. Raises `ConfigError`."""
    if options.vllm is not None:
        return read_wanted(options.vllm, options.vllm_command, options.vllm_args or "")
    for option in ONLY_WITH_IT:
        if getattr(options, option[2:].replace("-", "_")) is not None:
            raise ConfigError(COMMAND_LINE, option, "means nothing without --vllm MODEL")
    return None


def _seconds(text: str) -> float:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to {LONGEST}")
    return float(text)
