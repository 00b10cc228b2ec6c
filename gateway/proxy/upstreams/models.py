"""`/v1/models`: the models that upstreams list and routes lead to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import httpx2

from gateway.censor.compile import CompiledPolicy
from gateway.policy.model import ClientKey, Direction
from gateway.policy.routes import Router
from gateway.policy.servers import is_deployment
from gateway.proxy.asgi import PATTERN_COST, offload, scan_cost
from gateway.proxy.cached import Cached
from gateway.proxy.errors import HTTPFailure, from_transport
from gateway.proxy.snapshot import Snapshot
from gateway.proxy.upstreams.client import UpstreamClient
from gateway.wire import json

MODELS_TTL = 5.0  # seconds that an upstream's list is cached, and its failure
LIST_TIMEOUT = 5.0  # seconds for each upstream
MAX_MODELS = 2000  # of each upstream; those beyond are not listed
SAFE_ID = re.compile(r"[\w.:/@+-]{1,256}", re.ASCII)

IsClean = Callable[[CompiledPolicy, str], bool]
_Listed = tuple[str, ...] | HTTPFailure  # ids, or why there are none
UNREADABLE = from_transport(httpx2.RemoteProtocolError("models"))


class ModelList:
    """The lists of all upstreams; each is requested at most once in `MODELS_TTL` seconds."""

    def __init__(self) -> None:
        self._lists: WeakKeyDictionary[UpstreamClient, _UpstreamModels] = WeakKeyDictionary()

    async def list(self, generation: Snapshot, key: ClientKey, is_clean: IsClean) -> list[dict[str, Any]]:
        """Entries in OpenAI's shape. Of an upstream's answer only ids in the usual alphabet are passed on that the
        policy of their route finds clean; every other field is ours.

        Only models that `key` may use are listed. Raises `HTTPFailure` when no upstream answers and no route names one.
        """
        routes, router = generation.config.routes, generation.router
        names = list(dict.fromkeys(name for route in routes for name in route.upstreams))
        lists = [self._list_of(generation.fleet.clients[name]) for name in names]
        answers = await asyncio.gather(*(each.ids() for each in lists))
        listed: dict[str, dict[str, Any]] = {}
        for route in routes:
            if not any(char in route.model for char in "*?[") and router.match(route.model, key) is not None:
                listed[route.model] = _entry(route.model, route.upstream)
        for name, upstream, answer in zip(names, lists, answers, strict=True):
            ids = answer if isinstance(answer, tuple) else ()
            policies = await offload(sum(map(len, ids)) * PATTERN_COST, _policies, router, key, name, ids)
            clean: set[str] = set()
            for policy in set(policies.values()):
                governed = [model for model in policies if policies[model] == policy]
                clean |= await upstream.clean(generation.policies[policy], governed, is_clean)
            for model in policies:
                if model in clean:
                    listed.setdefault(model, _entry(model, name))
        failed = next((answer for answer in answers if isinstance(answer, HTTPFailure)), None)
        if not listed and failed is not None:
            raise HTTPFailure(failed.status, failed.body, failed.kind, dict(failed.headers))  # one for each request
        return list(listed.values())

    def _list_of(self, client: UpstreamClient) -> _UpstreamModels:
        if client not in self._lists:
            self._lists[client] = _UpstreamModels(client)
        return self._lists[client]


class _UpstreamModels:
    """One upstream's models, and which are clean under which policy: scanned once for each list."""

    def __init__(self, client: UpstreamClient) -> None:
        # Not the client itself: it would be kept alive by its own entry in a dictionary that holds it weakly.
        self._cached: Cached[_Listed] = Cached(partial(_fetch, ref(client)), MODELS_TTL, UNREADABLE)
        self._ids: _Listed = ()
        self._verdicts: dict[str, tuple[CompiledPolicy, dict[str, bool]]] = {}  # by the name of the policy
        self._scanning = asyncio.Lock()

    async def ids(self) -> _Listed:
        """The models' ids, or why there are none."""
        ids = await self._cached.get()
        if ids is not self._ids and ids != self._ids:
            self._ids = ids
            self._verdicts.clear()
        return ids

    async def clean(self, policy: CompiledPolicy, models: Sequence[str], is_clean: IsClean) -> set[str]:
        """Those of the models whose ids the policy finds clean."""
        async with self._scanning:
            known, verdicts = self._verdicts.get(policy.policy.name, (policy, {}))
            if known is not policy:
                verdicts = {}
            left = [model for model in models if model not in verdicts]
            size = sum(map(len, left)) * scan_cost(policy, Direction.OUTPUT)
            found = await offload(size, lambda: {model: is_clean(policy, model) for model in left})
            verdicts = {**verdicts, **found}
            self._verdicts[policy.policy.name] = policy, verdicts
            return {model for model in models if verdicts[model]}


def _policies(router: Router, key: ClientKey, upstream: str, ids: Sequence[str]) -> dict[str, str]:
    """The policy's name for each of the models that the router sends to this upstream."""
    found: dict[str, str] = {}
    for model in ids:
        route = router.match(model, key)
        if route is not None and upstream in route.upstreams and route.rename in (None, model):
            found[model] = route.policy
    return found


def _entry(model: str, upstream: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": upstream}


async def _fetch(client: ref[UpstreamClient]) -> _Listed:
    upstream = client()
    if upstream is None:
        return UNREADABLE
    if is_deployment(upstream.base_url):
        return ()  # what is listed there are models that could be deployed
    try:
        status, body = await upstream.call("GET", "/models", LIST_TIMEOUT)
        return await offload(len(body), _ids, body) if status == 200 else UNREADABLE
    except httpx2.HTTPError as error:
        return from_transport(error)


def _ids(body: bytes) -> _Listed:
    """The models in an upstream's list."""
    try:
        received = json.decode(body)
    except json.JSONError:
        return UNREADABLE
    entries = received.get("data") if isinstance(received, dict) else None
    if not isinstance(entries, list):
        return UNREADABLE
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    return tuple(model for model in ids if isinstance(model, str) and SAFE_ID.fullmatch(model))[:MAX_MODELS]
