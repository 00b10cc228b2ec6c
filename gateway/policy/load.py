"""A configuration file → `Config`, or a `ConfigError` that names file, key path and reason.

Nothing is guessed: unknown keys, keys of later versions, values of another type than the key wants and names that lead
nowhere are all refused. Reading continues after an error, so that all are reported at once. `gateway.config` has the
functions that other packages call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from gateway.policy.auth import AUTH, read_auth
from gateway.policy.checks import Checks
from gateway.policy.errors import ConfigError, Errors, TooManyErrors
from gateway.policy.files import Files
from gateway.policy.key_table import Form, KeyTable, named, nested
from gateway.policy.listen import LISTEN, check_exposure, check_origins, host_is_shown, read_listen
from gateway.policy.model import Config, Policy, Route, Upstream, UpstreamType
from gateway.policy.routes import ROUTE, read_routes, routed_pairs
from gateway.policy.rules import POLICY, read_policies
from gateway.policy.services import JOURNAL, LIMITS, TELEMETRY, read_journal
from gateway.policy.upstreams import UPSTREAM, read_upstreams
from gateway.policy.urls import REDIS_URL, read_redis_url
from gateway.policy.value import Section, Value
from gateway.policy.yaml_source import read_nodes

REDIS = Form("URL", REDIS_URL)
CONFIG = KeyTable(
    "file",
    Config,
    {
        "listen": nested(LISTEN, read_listen),
        "auth": Form("mapping", {"anyOf": [{"const": "none"}, AUTH]}),
        "upstreams": named(UPSTREAM),
        "routes": Form("list", {"type": "array", "minItems": 1, "items": ROUTE}),
        "policies": named(POLICY),
        "limits": nested(LIMITS),
        "journal": nested(JOURNAL),
        "telemetry": nested(TELEMETRY),
        "redis": REDIS,
        "state": REDIS,
    },
    later={"otel": "use telemetry"},
    rules={"not": {"required": ["redis", "state"]}},
)


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
    section = CONFIG.section(root)
    upstreams = root.attempt(lambda _: read_upstreams(section["upstreams"], files), dict[str, Upstream]())
    policies = root.attempt(lambda _: read_policies(section["policies"], files, checks), dict[str, Policy]())
    routes = root.attempt(lambda _: read_routes(section["routes"], upstreams, policies), tuple[Route, ...]())
    redis_key = "redis" if "redis" in section else "state"
    config = Config(
        upstreams=upstreams,
        policies=policies,
        routes=routes,
        state=root.attempt(lambda _: _redis_url(section), None),
        state_key=redis_key,
        source=root.source,
        files=files.opened,
        **CONFIG.values(
            section, auth=partial(read_auth, policies=policies), journal=lambda value: read_journal(value, files)
        ),
    )
    if not errors.within("upstreams", "policies", "routes"):
        root.attempt(lambda _: _check_steering(config), None)
    if not errors.within("listen", "auth"):
        shown = section.get("listen", host_is_shown, True)
        root.attempt(lambda _: check_exposure(config, config.listen.host, shown=shown), None)
        root.attempt(lambda _: check_origins(config), None)
    return config


def _redis_url(section: Section) -> str | None:
    if "redis" in section and "state" in section:
        raise section["state"].fail("is another name of redis, which is given too; remove one of them")
    given = next((key for key in ("redis", "state") if key in section), None)
    return None if given is None else read_redis_url(section[given])


def _check_steering(config: Config) -> None:
    """Raises `ConfigError` where a route leads to an upstream that cannot do what its policy requires."""
    for at, policy, upstream in routed_pairs(config):
        steered = upstream.type == UpstreamType.VLLM
        if policy.constrain is not None and policy.constrain.require and not steered:
            raise ConfigError(
                config.source,
                f"policies.{policy.name}.constrain",
                f"upstream {upstream.name} of {at} cannot hold a model to it: make it type: vllm, or say "
                "require: false, and answers are only checked",
            )
        if policy.rolls_back and steered and upstream.tokenizer is None:
            raise ConfigError(
                config.source,
                f"upstreams.{upstream.name}.tokenizer",
                f"is required: {at} has policy {policy.name}, which rolls back, token by token",
            )
