"""A configuration file → `Config`, or a `ConfigError` that names file, key path and reason.

Nothing is guessed: unknown keys, keys of later versions, values of another type than the key wants and names that lead
nowhere are all refused. The first error ends the reading.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path

from gateway.policy.advice import warnings
from gateway.policy.exposure import check_exposure, is_loopback
from gateway.policy.model import Auth, Config, Limits, Listen
from gateway.policy.rules import FoldWord, read_policies
from gateway.policy.upstreams import read_key, read_routes, read_upstreams
from gateway.policy.value import NOT_AVAILABLE, WHOLE_NUMBER, ConfigError, Kind, Scalar, Value
from gateway.policy.yaml_source import read_nodes, read_text

__all__ = ["ConfigError", "FoldWord", "check_exposure", "is_loopback", "load", "parse", "warnings"]

ROOT_KEYS = ("listen", "auth", "upstreams", "routes", "policies", "limits")
LATER_ROOT_KEYS = {"journal": "", "state": "", "telemetry": "", "otel": ""}
LISTEN_KEYS = ("host", "port")
LATER_LISTEN_KEYS = {"admin": "", "drain_timeout": ""}
AUTH_KEYS = ("keys",)
LIMIT_KEYS = ("max_body", "max_streams", "max_event", "send_timeout")

MAX_STREAMS = 1_000_000
MAX_SIZE = 1024**4
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
SIZE = re.compile(rf"([0-9]{{1,15}}) ?({'|'.join(UNITS)})")
HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")


def load(path: Path | str, environ: Mapping[str, str] = os.environ, *, fold_word: FoldWord | None = None) -> Config:
    """Read the file at `path`; word lists are looked for beside it.

    `fold_word` says what is left of a word under a set of folds; with it, words of which nothing is left are refused.
    Raises `ConfigError` for everything that is wrong.
    """
    path = Path(path)
    source = str(path)
    text = read_text(path, lambda reason: ConfigError(source, "", reason))
    return parse(text, source, path.parent, environ, fold_word=fold_word)


def parse(
    text: str,
    source: str,
    base_dir: Path,
    environ: Mapping[str, str] = os.environ,
    *,
    fold_word: FoldWord | None = None,
) -> Config:
    """Like `load`, from a text already read; `source` names it in errors, `base_dir` is where word lists are."""
    root = read_nodes(text, source, environ)
    section = root.section(ROOT_KEYS, LATER_ROOT_KEYS)
    listen = section.get("listen", _listen, Listen())
    auth = section.get("auth", _auth, Auth())
    limits = section.get("limits", _limits, Limits())
    upstreams = read_upstreams(section["upstreams"])
    policies = read_policies(section["policies"], base_dir, fold_word)
    routes = read_routes(section["routes"], upstreams, policies)
    config = Config(
        upstreams=upstreams,
        routes=routes,
        policies=policies,
        listen=listen,
        auth=auth,
        limits=limits,
        source=source,
    )
    check_exposure(config, listen.host, shown=section.get("listen", _host_is_shown, True))
    return config


def _listen(value: Value) -> Listen:
    section = value.section(LISTEN_KEYS, LATER_LISTEN_KEYS)
    default = Listen()
    return Listen(
        host=section.get("host", _host, default.host),
        port=section.get("port", lambda port: port.integer(0, 65535), default.port),
    )


def _host_is_shown(value: Value) -> bool:
    return value.section(LISTEN_KEYS).get("host", lambda host: host.shown, True)


def _host(value: Value) -> str:
    host = value.nonempty()
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if not HOST_NAME.fullmatch(host):
            raise value.wrong("an IP address (without brackets) or a host name") from None
    return host


def _auth(value: Value) -> Auth:
    match value.node:
        case Scalar(kind=Kind.TEXT, text="none"):
            return Auth(open_to_all=True)
        case Scalar():
            raise value.hidden().wrong("none, or a mapping with keys", "to let everybody in, write auth: none")
        case _:
            section = value.hidden().section(AUTH_KEYS)
    keys = section["keys"].items()
    if not keys:
        raise section["keys"].fail("is an empty list; list at least one key, or write auth: none to let everybody in")
    return Auth(keys=tuple(_client_key(key) for key in keys))


def _client_key(value: Value) -> str:
    if isinstance(value.node, dict):
        raise value.fail(f"a key with a name or other properties is {NOT_AVAILABLE}; write the key as text")
    return read_key(value)


def _limits(value: Value) -> Limits:
    section = value.section(LIMIT_KEYS)
    default = Limits()
    return Limits(
        max_body=section.get("max_body", _size, default.max_body),
        max_streams=section.get("max_streams", lambda number: number.integer(1, MAX_STREAMS), default.max_streams),
        max_event=section.get("max_event", _size, default.max_event),
        send_timeout=section.get("send_timeout", Value.seconds, default.send_timeout),
    )


def _size(value: Value) -> int:
    """Bytes, written as a number or as text with a unit."""
    wanted = f"a size from 1 B to 1024 GiB: a whole number of bytes, or one with a unit out of {', '.join(UNITS)}"
    match value.node:
        case Scalar(text=text, kind=Kind.TEXT) if found := SIZE.fullmatch(text):
            size = int(found[1]) * UNITS[found[2]]
        case Scalar(text=text, kind=kind, substituted=substituted) if (
            kind is Kind.INTEGER or substituted
        ) and WHOLE_NUMBER.fullmatch(text):
            size = int(text)
        case _:
            raise value.wrong(wanted)
    if not 0 < size <= MAX_SIZE:
        raise value.wrong(wanted)
    return size
