"""A configuration file → `Config`, or a `ConfigError` that names file, key path and reason.

Nothing is guessed: unknown keys, keys of later versions, values of another type than the key wants and names that lead
nowhere are all refused. The reading goes on after an error, so that all are reported at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from gateway.policy.checks import Checks
from gateway.policy.decoding import check_decoding
from gateway.policy.exposure import check_exposure
from gateway.policy.files import Files
from gateway.policy.keys import read_auth
from gateway.policy.listen import host_is_shown, read_listen
from gateway.policy.model import Auth, Config, Limits, Listen, Policy, Upstream
from gateway.policy.rules import read_policies
from gateway.policy.services import read_journal, read_telemetry
from gateway.policy.sizes import read_size
from gateway.policy.upstreams import read_routes, read_upstreams
from gateway.policy.urls import read_state_url
from gateway.policy.value import ConfigError, Errors, TooManyErrors, Value
from gateway.policy.yaml_source import read_nodes

ROOT_KEYS = ("listen", "auth", "upstreams", "routes", "policies", "limits", "journal", "telemetry", "state")
LATER_ROOT_KEYS = {"otel": "use telemetry"}
LIMIT_KEYS = ("max_body", "max_streams", "max_event", "send_timeout")

MAX_STREAMS = 1_000_000


def load(path: Path | str, environ: Mapping[str, str], checks: Checks) -> Config:
    """Read the file at `path`: `gateway.config.load` with other checks than those of the censor and the decoder."""
    path = Path(path)
    source = str(path)
    files = Files(path.parent)
    try:
        text = files.config(path.name, lambda reason: ConfigError(source, "", reason))
        return _read(text, source, files, environ, checks)
    except ConfigError as error:
        error.files = files.opened
        raise


def parse(text: str, source: str, base_dir: Path, environ: Mapping[str, str], checks: Checks) -> Config:
    """Like `load`, from text; `source` names it in errors, word lists are relative to `base_dir`."""
    return _read(text, source, Files(base_dir), environ, checks)


def _read(text: str, source: str, files: Files, environ: Mapping[str, str], checks: Checks) -> Config:
    errors = Errors()
    try:
        config = _config(read_nodes(text, source, environ, errors=errors), files, checks, errors)
    except ConfigError as error:
        with contextlib.suppress(TooManyErrors):
            errors.note(error)
    except TooManyErrors:
        pass
    if errors.found:
        raise errors.as_one()
    return config


def _config(root: Value, files: Files, checks: Checks, errors: Errors) -> Config:
    section = root.section(ROOT_KEYS, LATER_ROOT_KEYS)
    listen = section.get("listen", read_listen, Listen())
    limits = section.get("limits", _limits, Limits())
    no_upstreams: dict[str, Upstream] = {}
    no_policies: dict[str, Policy] = {}
    upstreams = section.need("upstreams", lambda upstreams: read_upstreams(upstreams, files), no_upstreams)
    policies = section.need("policies", lambda policies: read_policies(policies, files, checks), no_policies)
    config = Config(
        upstreams=upstreams,
        routes=section.need("routes", lambda routes: read_routes(routes, upstreams, policies), ()),
        policies=policies,
        listen=listen,
        auth=section.get("auth", lambda auth: read_auth(auth, policies), Auth()),
        limits=limits,
        journal=section.get("journal", lambda journal: read_journal(journal, files), None),
        telemetry=section.get("telemetry", read_telemetry, None),
        state=section.get("state", read_state_url, None),
        source=root.source,
        files=files.opened,
    )
    if not errors.within("upstreams", "policies", "routes"):
        root.attempt(lambda _: check_decoding(config), None)
    if not errors.within("listen", "auth"):
        shown = section.get("listen", host_is_shown, True)
        root.attempt(lambda _: check_exposure(config, listen.host, shown=shown), None)
    return config


def _limits(value: Value) -> Limits:
    section = value.section(LIMIT_KEYS)
    default = Limits()
    return Limits(
        max_body=section.get("max_body", read_size, default.max_body),
        max_streams=section.get("max_streams", lambda number: number.integer(1, MAX_STREAMS), default.max_streams),
        max_event=section.get("max_event", read_size, default.max_event),
        send_timeout=section.get("send_timeout", Value.seconds, default.send_timeout),
    )
