"""A vLLM that belongs to the gateway: how it is started, and what the gateway has to know of it.

`managed.py` starts it, watches it and ends it.
"""

from __future__ import annotations

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

from gateway.policy.model import Config, Route, Upstream, UpstreamType
from gateway.policy.value import ConfigError
from gateway.serving.workers.runtime_dir import scratch_folder
from gateway.version import missing_part

HOST = "127.0.0.1"
UPSTREAM = "local"  # the upstream's name where no file gives it one
PLUGIN = "gateway.decode.vllm_plugin:BannedWords"
MASKS = "PORTCULLIS_MASKS"  # the environment variable in which the plugin finds its file
COMMAND_LINE = "command line"  # what an error names in place of a file
HOW_TO_INSTALL = (
    "there is no vllm beside the Python that runs Portcullis, nor on PATH: install it (pip install vllm, best in an "
    'environment of its own), or say how to start it, as in --vllm-command "/opt/vllm/bin/vllm serve"'
)
SHORTEST = 5  # characters of an option that vLLM may take for one of a longer name

# Options of vLLM that would break the arrangement, and why.
REFUSED = {
    "--api-key": "vLLM gets a key of its own, in its environment",
    "--headless": "the gateway has to reach it",
    "--host": f"it listens on {HOST}, where only the gateway is; to reach it from elsewhere, start it yourself",
    "--model": "the model is what --vllm names",
    "--root-path": "the gateway asks it at /v1",
    "--ssl-ca-certs": "it speaks plain HTTP to the gateway",
    "--ssl-certfile": "it speaks plain HTTP to the gateway",
    "--ssl-keyfile": "it speaks plain HTTP to the gateway",
    "--uds": f"it listens on {HOST}",
}


class NotPrepared(Exception):
    """What the server needs on this machine cannot be had; says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line says: the `command` that `model` is added to, and `arguments` behind that."""

    model: str
    command: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model that `arguments` choose."""
        return tuple(_values(self.arguments, "--served-model-name") or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command with its whole environment, and where it will be listening for whom."""

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
            raise ConfigError(
                config.source, "upstreams", f"--vllm starts a server, but none of these is it: write {_example()}"
            )
        for name in names:
            if config.upstreams[name].api_key is not None:
                raise ConfigError(
                    config.source, f"upstreams.{name}.api_key", f"means nothing with --vllm: {REFUSED['--api-key']}"
                )
        reached = {name: replace(config.upstreams[name], base_url=self.base_url, api_key=self.key) for name in names}
        return replace(config, upstreams={**config.upstreams, **reached})


# -- what a configuration says -----------------------------------------------------------------------------------------


def managed_upstreams(config: Config) -> tuple[str, ...]:
    """The names of the upstreams that have no address because the gateway is to start them."""
    return tuple(name for name, up in config.upstreams.items() if up.type == UpstreamType.VLLM and not up.base_url)


def attach_none(config: Config) -> Config:
    """The configuration as it is, where no server is started. Raises `ConfigError` if it needs one."""
    for name in managed_upstreams(config):
        reason = "is required, unless the gateway starts the server: serve --vllm MODEL"
        raise ConfigError(config.source, f"upstreams.{name}.base_url", reason)
    return config


def upstream_of(model: str) -> Upstream:
    """The upstream where no file describes it."""
    known = (Path(model) / "tokenizer.json").is_file()
    return Upstream(name=UPSTREAM, type=UpstreamType.VLLM, tokenizer=str(Path(model).absolute()) if known else None)


def names_asked_for(config: Config, model: str) -> tuple[str, ...]:
    """The names of the model by which the routes will ask for it; `model` itself where clients choose the name."""
    managed = managed_upstreams(config)
    routes = [route for route in config.routes if not set(managed).isdisjoint(route.upstreams)]
    return tuple(dict.fromkeys(_name_asked_for(route, model) for route in routes))


def _name_asked_for(route: Route, model: str) -> str:
    return route.rename or (model if set(route.model) & set("*?[") else route.model)


def _example() -> str:
    return f"`{UPSTREAM}: {{type: {UpstreamType.VLLM}}}`, without base_url, and a route to it"


# -- the command line --------------------------------------------------------------------------------------------------


def read_wanted(model: str, command: str | None, arguments: str) -> Wanted:
    """From the options' texts. Raises `ConfigError` for what cannot be."""
    if not model:
        raise ConfigError(COMMAND_LINE, "--vllm", "names no model")
    wanted = Wanted(model=model, command=_command(command), arguments=_split("--vllm-args", arguments))
    for word in wanted.arguments:
        for option, reason in REFUSED.items():
            if _is(word, option):
                raise ConfigError(COMMAND_LINE, f"--vllm-args: {option}", f"cannot be given here: {reason}")
    return wanted


def _command(given: str | None) -> tuple[str, ...]:
    if given is None:
        beside = Path(sys.executable).with_name("vllm")
        found = str(beside) if os.access(beside, os.X_OK) else shutil.which("vllm")
        if found is None:
            raise ConfigError(COMMAND_LINE, "--vllm", HOW_TO_INSTALL)
        return found, "serve"
    words = _split("--vllm-command", given)
    if not words or shutil.which(words[0]) is None:
        raise ConfigError(COMMAND_LINE, "--vllm-command", "does not begin with a program that can be run")
    return words


def _split(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(COMMAND_LINE, option, f"cannot be split into words: {error}") from None


def _is(word: str, option: str) -> bool:
    """Does vLLM take this word for the option? `_` is `-` to it, and a beginning is enough if it is clear."""
    name = word.partition("=")[0].replace("_", "-")
    return name == option or (len(name) >= SHORTEST and option.startswith(name))


def _values(arguments: Sequence[str], option: str) -> list[str] | None:
    """What stands behind an option the last time, which counts; None if it is not there."""
    values = None
    for place, word in enumerate(arguments):
        if _is(word, option):
            _, equals, value = word.partition("=")
            values = [value] if equals else list(takewhile(lambda other: other[:1] != "-", arguments[place + 1 :]))
    return values


# -- preparations ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def prepared(wanted: Wanted, config: Config, environ: Mapping[str, str] = os.environ) -> Iterator[Launch]:
    """How to start the server for a configuration. To the end its port is kept for it, and its masks lie in a folder.

    Raises `ConfigError` and `NotPrepared`.
    """
    with contextlib.ExitStack() as stack:
        reserved = stack.enter_context(_reserved(_port(wanted.arguments)))
        port, key = reserved.getsockname()[1], secrets.token_urlsafe(32)
        if sys.platform != "linux":
            reserved.close()  # elsewhere nobody else could listen there
        masks = _write_masks(stack, config)
        arguments = _arguments(wanted, names_asked_for(config, wanted.model), port, masked=masks is not None)
        # Not the gateway's own list of words, if it has one: a server that masks nothing is to have none.
        environment = {name: value for name, value in environ.items() if name != MASKS}
        environment["VLLM_API_KEY"] = key
        if masks is not None:
            environment[MASKS] = str(masks)
        yield Launch(command=arguments, environment=environment, port=port, key=key)


def _arguments(wanted: Wanted, names: tuple[str, ...], port: int, *, masked: bool) -> tuple[str, ...]:
    words = [*wanted.command, wanted.model]
    if not wanted.names and names not in ((), (wanted.model,)):
        words += ["--served-model-name", *names]
    processors = _values(wanted.arguments, "--logits-processors")
    if masked and processors is None:
        words += ["--logits-processors", PLUGIN]
    elif masked and PLUGIN not in (processors or ()):
        reason = f"the policies have words to mask, so {PLUGIN} must be among them"
        raise ConfigError(COMMAND_LINE, "--vllm-args: --logits-processors", reason)
    if not any("access-log" in word.replace("_", "-") for word in wanted.arguments):
        words.append("--disable-uvicorn-access-log")  # the gateway has a line of its own for each request
    return (*words, "--host", HOST, "--port", str(port), *wanted.arguments)


def _port(arguments: Sequence[str]) -> int:
    """0 where there is none."""
    values = _values(arguments, "--port")
    if values is None:
        return 0
    text = values[0] if len(values) == 1 else ""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 65535:
        raise ConfigError(COMMAND_LINE, "--vllm-args: --port", "must be a port from 1 to 65535")
    return int(text)


def exempt_from_proxies(environ: MutableMapping[str, str]) -> None:
    """The gateway reaches the server directly, whatever proxy the environment names for other addresses."""
    names = environ.get("no_proxy") or environ.get("NO_PROXY", "")
    if names.strip() != "*":
        environ["no_proxy"] = ",".join(filter(None, (names, HOST)))


@contextlib.contextmanager
def _reserved(port: int) -> Iterator[socket.socket]:
    """A socket that is bound to a port and does not listen. On Linux the server can still listen there, and nobody gets
    the port by chance while it is restarted."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reserved.bind((HOST, port))
        except OSError as error:
            raise NotPrepared(f"vLLM cannot listen on {HOST}:{port}: {error.strerror}") from None
        yield reserved


def _write_masks(stack: contextlib.ExitStack, config: Config) -> Path | None:
    """The file of the policies' words; None if there are none to mask."""
    from gateway.decode.policies import banned_of

    try:
        banned = banned_of(config.policies)
        if not banned:
            return None
        from gateway.decode.maskfile import write_masks

        path = stack.enter_context(scratch_folder()) / "masks.json"
        write_masks(path, banned)
    except ImportError:
        raise ConfigError(config.source, "policies", missing_part("decode")) from None
    except OSError as error:
        raise NotPrepared(f"the file of masks cannot be written: {error.strerror}") from None
    except ValueError as error:  # too many words; what is said of it holds none
        raise ConfigError(config.source, "policies", str(error)) from None
    return path
