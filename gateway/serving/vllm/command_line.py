"""Managed vLLM: its command, environment and port, and the configuration of its upstream.

`managed.py` starts, monitors and stops it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

from gateway.arguments import whole_number
from gateway.policy.errors import ConfigError
from gateway.policy.model import Config, Upstream, UpstreamType

HOST = "127.0.0.1"
UPSTREAM = "local"  # the upstream's name where no file gives it one
PLUGIN = "gateway.decode.vllm_plugin:BannedWords"
MASKS = "PORTCULLIS_MASKS"  # the environment variable in which the plugin finds its file
COMMAND_LINE = "command line"  # what an error names in place of a file
NOT_INSTALLED = (
    "there is no vllm beside the Python that runs Portcullis, nor on PATH: install it (pip install vllm, best in an "
    'environment of its own), or give its command, as in --vllm-command "/opt/vllm/bin/vllm serve"'
)
# Options of ours that mean nothing without --vllm, and those whose values begin with a dash.
DEPENDENT = ("--vllm-command", "--vllm-args", "--vllm-log", "--vllm-timeout")
DASHED_VALUES = ("--vllm-command", "--vllm-args")
MAX_TIMEOUT = 86_400  # seconds, of --vllm-timeout
MIN_PREFIX = 5  # characters of an option that vLLM may take for a longer one

# Options of vLLM that the gateway sets or relies on, and why they are refused.
REFUSED = {
    "--api-key": "vLLM gets a key of its own, in its environment",
    "--headless": "the gateway has to reach it",
    "--host": f"it listens on {HOST}, where only the gateway is; to reach it from elsewhere, start it yourself",
    "--model": "the model is what --vllm names",
    "--root-path": "the gateway reaches it at /v1",
    "--ssl-ca-certs": "it speaks plain HTTP to the gateway",
    "--ssl-certfile": "it speaks plain HTTP to the gateway",
    "--ssl-keyfile": "it speaks plain HTTP to the gateway",
    "--uds": f"it listens on {HOST}",
}


class PreparationFailed(Exception):
    """vLLM cannot be started on this machine; the message names what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """From our command line: the `command` that `model` is appended to, and `arguments` behind it."""

    model: str
    command: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model that `arguments` choose."""
        return tuple(_option_values(self.arguments, "--served-model-name") or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmLaunch:
    """vLLM's command and environment, its port, and the API key that only the gateway has."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    port: int
    key: str = field(repr=False)

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    def attach(self, config: Config) -> Config:
        """A configuration whose upstreams without an address are this server. Raises `ConfigError` if there is none."""
        names = managed_upstreams(config)
        if not names:
            example = f"`{UPSTREAM}: {{type: {UpstreamType.VLLM}}}`, without base_url, and a route to it"
            reason = f"--vllm starts a server, but none of these is it: write {example}"
            raise ConfigError(config.source, "upstreams", reason)
        for name in names:
            if config.upstreams[name].api_key is not None:
                raise ConfigError(
                    config.source, f"upstreams.{name}.api_key", f"means nothing with --vllm: {REFUSED['--api-key']}"
                )
        reached = {name: replace(config.upstreams[name], base_url=self.base_url, api_key=self.key) for name in names}
        return replace(config, upstreams={**config.upstreams, **reached})


# -- the configuration -------------------------------------------------------------------------------------------------


def managed_upstreams(config: Config) -> tuple[str, ...]:
    """The names of the upstreams without an address, which the gateway starts itself."""
    return tuple(name for name, up in config.upstreams.items() if up.type == UpstreamType.VLLM and not up.base_url)


def require_base_urls(config: Config) -> Config:
    """The configuration unchanged, where no vLLM is started. Raises `ConfigError` if it has a managed upstream."""
    for name in managed_upstreams(config):
        reason = "is required, unless the gateway starts the server: serve --vllm MODEL"
        raise ConfigError(config.source, f"upstreams.{name}.base_url", reason)
    return config


def default_upstream(model: str) -> Upstream:
    """The managed upstream where there is no configuration file."""
    known = (Path(model) / "tokenizer.json").is_file()
    return Upstream(name=UPSTREAM, type=UpstreamType.VLLM, tokenizer=str(Path(model).absolute()) if known else None)


def served_names(config: Config, model: str) -> tuple[str, ...]:
    """The model names that the routes send to it; `model` itself where clients choose the name."""
    managed = managed_upstreams(config)
    routes = [route for route in config.routes if not set(managed).isdisjoint(route.upstreams)]
    names = (route.rename or (model if set(route.model) & set("*?[") else route.model) for route in routes)
    return tuple(dict.fromkeys(names))


# -- the command line --------------------------------------------------------------------------------------------------


def read_vllm_options(model: str, command: str | None, arguments: str) -> VllmOptions:
    """From the options' texts. Raises `ConfigError`."""
    if not model:
        raise ConfigError(COMMAND_LINE, "--vllm", "names no model")
    options = VllmOptions(model=model, command=_command(command), arguments=_split("--vllm-args", arguments))
    for word in options.arguments:
        for option, reason in REFUSED.items():
            if _is_option(word, option):
                raise ConfigError(COMMAND_LINE, f"--vllm-args: {option}", f"cannot be given here: {reason}")
    return options


def _command(given: str | None) -> tuple[str, ...]:
    if given is None:
        beside = Path(sys.executable).with_name("vllm")
        found = str(beside) if os.access(beside, os.X_OK) else shutil.which("vllm")
        if found is None:
            raise ConfigError(COMMAND_LINE, "--vllm", NOT_INSTALLED)
        return found, "serve"
    words = _split("--vllm-command", given)
    if not words or shutil.which(words[0]) is None:
        raise ConfigError(COMMAND_LINE, "--vllm-command", "does not begin with an executable program")
    return words


def _split(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(COMMAND_LINE, option, f"cannot be split into words: {error}") from None


def _is_option(word: str, option: str) -> bool:
    """Whether vLLM takes this word for the option: `_` equals `-` for it, and it accepts unambiguous prefixes."""
    name = word.partition("=")[0].replace("_", "-")
    return name == option or (len(name) >= MIN_PREFIX and option.startswith(name))


def _option_values(arguments: Sequence[str], option: str) -> list[str] | None:
    """The values of an option's last occurrence, which counts; None without one."""
    values = None
    for index, word in enumerate(arguments):
        if _is_option(word, option):
            _, equals, value = word.partition("=")
            values = [value] if equals else list(takewhile(lambda other: other[:1] != "-", arguments[index + 1 :]))
    return values


# -- our own options ---------------------------------------------------------------------------------------------------


def add_vllm_options(parser: argparse.ArgumentParser) -> None:
    seconds = whole_number("a number of seconds", 1, MAX_TIMEOUT)
    group = parser.add_argument_group("managed vLLM")
    group.add_argument("--vllm", metavar="MODEL", help="start, watch and stop it: the upstream without base_url")
    group.add_argument("--vllm-command", metavar="C", help="what MODEL is added to (vllm serve)")
    group.add_argument("--vllm-args", metavar="A", help="vLLM's own options, in one text")
    group.add_argument("--vllm-log", type=Path, metavar="FILE", help="what it writes; else the last lines are kept")
    group.add_argument("--vllm-timeout", type=seconds, metavar="S", help="seconds until it has to be ready (600)")


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


# -- preparations ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def prepare(options: VllmOptions, config: Config, environ: Mapping[str, str] = os.environ) -> Iterator[VllmLaunch]:
    """How to start vLLM for a configuration; keeps its port reserved and its mask file in place until the exit.

    Raises `ConfigError` and `PreparationFailed`.
    """
    with contextlib.ExitStack() as stack:
        reserved = stack.enter_context(_reserve_port(_port(options.arguments)))
        port, key = reserved.getsockname()[1], secrets.token_urlsafe(32)
        if sys.platform != "linux":
            reserved.close()  # elsewhere vLLM could not listen there
        masks = _write_masks(stack, config)
        arguments = _arguments(options, served_names(config, options.model), port, masked=masks is not None)
        # Without the gateway's own mask file, if it has one: a server that masks nothing must not load it.
        environment = {name: value for name, value in environ.items() if name != MASKS}
        environment["VLLM_API_KEY"] = key
        if masks is not None:
            environment[MASKS] = str(masks)
        yield VllmLaunch(command=arguments, environment=environment, port=port, key=key)


def _arguments(options: VllmOptions, names: tuple[str, ...], port: int, *, masked: bool) -> tuple[str, ...]:
    words = [*options.command, options.model]
    if not options.names and names not in ((), (options.model,)):
        words += ["--served-model-name", *names]
    processors = _option_values(options.arguments, "--logits-processors")
    if masked and processors is None:
        words += ["--logits-processors", PLUGIN]
    elif masked and PLUGIN not in (processors or ()):
        reason = f"the policies have words to mask, so {PLUGIN} must be among them"
        raise ConfigError(COMMAND_LINE, "--vllm-args: --logits-processors", reason)
    if not any("access-log" in word.replace("_", "-") for word in options.arguments):
        words.append("--disable-uvicorn-access-log")  # the gateway has a line of its own for each request
    return (*words, "--host", HOST, "--port", str(port), *options.arguments)


def _port(arguments: Sequence[str]) -> int:
    """The port that the arguments choose; 0 without one."""
    values = _option_values(arguments, "--port")
    if values is None:
        return 0
    text = values[0] if len(values) == 1 else ""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 65535:
        raise ConfigError(COMMAND_LINE, "--vllm-args: --port", "must be a port from 1 to 65535")
    return int(text)


def exempt_from_proxies(environ: MutableMapping[str, str]) -> None:
    """Add vLLM's address to `no_proxy`, so that the gateway reaches it directly."""
    names = environ.get("no_proxy") or environ.get("NO_PROXY", "")
    if names.strip() != "*":
        environ["no_proxy"] = ",".join(filter(None, (names, HOST)))


@contextlib.contextmanager
def _reserve_port(port: int) -> Iterator[socket.socket]:
    """A socket that is bound to a port and does not listen. On Linux vLLM can still listen there, and no other program
    gets the port by chance while vLLM restarts."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reserved.bind((HOST, port))
        except OSError as error:
            raise PreparationFailed(f"vLLM cannot listen on {HOST}:{port}: {error.strerror}") from None
        yield reserved


def _write_masks(stack: contextlib.ExitStack, config: Config) -> Path | None:
    """The file of the words to mask; None if there are none."""
    # Only here: they take locks and modes of files, which Windows has not.
    from gateway.decode.maskfile import banned_of, write_masks
    from gateway.serving.runtime_dir import runtime_directory

    banned = banned_of(config.policies)
    if not banned:
        return None
    try:
        path = stack.enter_context(runtime_directory()) / "masks.json"
        write_masks(path, banned)
    except OSError as error:
        raise PreparationFailed(f"the file of masks cannot be written: {error.strerror}") from None
    except ValueError as error:  # too many words; the message contains none
        raise ConfigError(config.source, "policies", str(error)) from None
    return path
