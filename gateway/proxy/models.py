"""`/v1/models`: what the upstreams offer, as far as a route leads there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from gateway.policy.model import ClientKey, Config
from gateway.policy.select import Router
from gateway.proxy.asgi import PATTERN_WEIGHT, aside
from gateway.proxy.errors import HTTPFailure, from_transport
from gateway.proxy.fleet import Fleet
from gateway.proxy.upstream import UpstreamClient
from gateway.wire import json

PATIENCE = 5.0  # seconds for each upstream
MAX_MODELS = 2000  # of each upstream; those beyond are not listed
_SAFE_ID = re.compile(r"[\w.:/@+-]{1,256}", re.ASCII)


async def list_models(
    config: Config,
    router: Router,
    fleet: Fleet,
    key: ClientKey,
    clean: Callable[[str, str], bool],
) -> list[dict[str, Any]]:
    """Entries in OpenAI's shape. Of an upstream's answer only ids in the usual alphabet are passed on that the policy
    of their route finds `clean(policy, id)`; every other field is ours.

    `key` sees what it may use. Raises `HTTPFailure` when no upstream answers and no route names a model.
    """
    names = list(dict.fromkeys(name for route in config.routes for name in route.upstreams))
    answers = await asyncio.gather(*(_offered(fleet.clients[name]) for name in names))
    ids = [model for offered in answers if isinstance(offered, list) for model in offered]
    size = sum(map(len, ids)) * PATTERN_WEIGHT
    listed = await aside(size, _listed, config, router, dict(zip(names, answers, strict=True)), key, clean)
    failures = [answer for answer in answers if isinstance(answer, HTTPFailure)]
    if not listed and failures:
        raise failures[0]
    return listed


def _listed(
    config: Config,
    router: Router,
    answers: Mapping[str, list[str] | HTTPFailure],
    key: ClientKey,
    clean: Callable[[str, str], bool],
) -> list[dict[str, Any]]:
    """`answers` by the names of upstreams."""
    listed: dict[str, dict[str, Any]] = {}
    for route in config.routes:
        if not any(char in route.model for char in "*?[") and router.match(route.model, key) is not None:
            listed[route.model] = _entry(route.model, route.upstream)
    for name, offered in answers.items():
        for model in offered if isinstance(offered, list) else ():
            taken = router.match(model, key)
            reachable = taken is not None and name in taken.upstreams and taken.rename in (None, model)
            if taken is not None and reachable and clean(taken.policy, model):
                listed.setdefault(model, _entry(model, name))
    return list(listed.values())


def _entry(model: str, upstream: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": upstream}


async def _offered(upstream: UpstreamClient) -> list[str] | HTTPFailure:
    try:
        status, body = await upstream.get_json("/models", PATIENCE)
        ids = await aside(len(body), _ids, body) if status == 200 else None
    except httpx.HTTPError as error:
        return from_transport(error)
    return from_transport(httpx.RemoteProtocolError("models")) if ids is None else ids


def _ids(body: bytes) -> list[str] | None:
    """The models in an upstream's list; None for anything else."""
    try:
        received = json.decode(body)
    except json.JSONError:
        return None
    entries = received.get("data") if isinstance(received, dict) else None
    if not isinstance(entries, list):
        return None
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    return [model for model in ids if isinstance(model, str) and _SAFE_ID.fullmatch(model)][:MAX_MODELS]
