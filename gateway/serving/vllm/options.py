"""The options of `portcullis serve` for managed vLLM."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.arguments import whole_number
from gateway.policy.value import ConfigError
from gateway.serving.vllm.command_line import COMMAND_LINE, VllmOptions, read_vllm_options

DEPENDENT = ("--vllm-command", "--vllm-args", "--vllm-log", "--vllm-timeout")
DASHED_VALUES = ("--vllm-command", "--vllm-args")
MAX_TIMEOUT = 86_400  # seconds


def add_vllm_options(parser: argparse.ArgumentParser) -> None:
    seconds = whole_number("a number of seconds", 1, MAX_TIMEOUT)
    group = parser.add_argument_group("managed vLLM")
    group.add_argument("--vllm", metavar="MODEL", help="serve it with a managed vLLM: the upstream without base_url")
    group.add_argument("--vllm-command", metavar="C", help="the command that MODEL is appended to (vllm serve)")
    group.add_argument("--vllm-args", metavar="A", help="vLLM's own options, in one text")
    group.add_argument("--vllm-log", type=Path, metavar="FILE", help="a file for all of its output")
    group.add_argument("--vllm-timeout", type=seconds, metavar="S", help="seconds within which it must be ready (600)")


def attach_values(arguments: list[str]) -> list[str]:
    """The arguments, the values of some options attached to them by `=`: argparse would take a value that begins with
    `-` for another option."""
    attached: list[str] = []
    for argument in arguments:
        if attached and attached[-1] in DASHED_VALUES:
            attached[-1] += f"={argument}"
        else:
            attached.append(argument)
    return attached


def vllm_options_of(options: argparse.Namespace) -> VllmOptions | None:
    """None without --vllm. Raises `ConfigError`."""
    if options.vllm is not None:
        return read_vllm_options(options.vllm, options.vllm_command, options.vllm_args or "")
    for option in DEPENDENT:
        if getattr(options, option[2:].replace("-", "_")) is not None:
            raise ConfigError(COMMAND_LINE, option, "means nothing without --vllm MODEL")
    return None
