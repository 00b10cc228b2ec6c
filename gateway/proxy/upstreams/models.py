"""`/v1/models`: what the upstreams offer, as far as a route leads there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import httpx

from gateway.censor.compile import CompiledPolicy
from gateway.policy.model import ClientKey, Direction
from gateway.policy.routes import Router
from gateway.proxy.asgi import PATTERN_WEIGHT, aside, weight
from gateway.proxy.cached import Cached
from gateway.proxy.errors import HTTPFailure, from_transport
from gateway.proxy.snapshot import Generation
from gateway.proxy.upstreams.client import UpstreamClient
from gateway.wire import json

MODELS_TTL = 5.0  # seconds that an upstream's list holds, and that it has none
PATIENCE = 5.0  # seconds for each upstream
MAX_MODELS = 2000  # of each upstream; those beyond are not listed
_SAFE_ID = re.compile(r"[\w.:/@+-]{1,256}", re.ASCII)

IsClean = Callable[[CompiledPolicy, str], bool]
_Offered = tuple[str, ...] | HTTPFailure  # ids, or why there are none
UNREADABLE = from_transport(httpx.RemoteProtocolError("models"))


class Models:
    """The lists of all upstreams; each is asked for at most once in `MODELS_TTL` seconds."""

    def __init__(self) -> None:
        self._offers: WeakKeyDictionary[UpstreamClient, _Offer] = WeakKeyDictionary()

    async def list(self, generation: Generation, key: ClientKey, is_clean: IsClean) -> list[dict[str, Any]]:
        """Entries in OpenAI's shape. Of an upstream's answer only ids in the usual alphabet are passed on that the
        policy of their route finds clean; every other field is ours.

        `key` sees what it may use. Raises `HTTPFailure` when no upstream answers and no route names a model.
        """
        routes, router = generation.config.routes, generation.router
        names = list(dict.fromkeys(name for route in routes for name in route.upstreams))
        offers = [self._offer(generation.fleet.clients[name]) for name in names]
        answers = await asyncio.gather(*(offer.ids() for offer in offers))
        listed: dict[str, dict[str, Any]] = {}
        for route in routes:
            if not any(char in route.model for char in "*?[") and router.match(route.model, key) is not None:
                listed[route.model] = _entry(route.model, route.upstream)
        for name, offer, offered in zip(names, offers, answers, strict=True):
            ids = offered if isinstance(offered, tuple) else ()
            policies = await aside(sum(map(len, ids)) * PATTERN_WEIGHT, _policies, router, key, name, ids)
            clean: set[str] = set()
            for policy in set(policies.values()):
                governed = [model for model in policies if policies[model] == policy]
                clean |= await offer.clean(generation.policies[policy], governed, is_clean)
            for model in policies:
                if model in clean:
                    listed.setdefault(model, _entry(model, name))
        failed = next((answer for answer in answers if isinstance(answer, HTTPFailure)), None)
        if not listed and failed is not None:
            raise HTTPFailure(failed.status, failed.body, failed.kind, dict(failed.headers))  # one for each request
        return list(listed.values())

    def _offer(self, client: UpstreamClient) -> _Offer:
        if client not in self._offers:
            self._offers[client] = _Offer(client)
        return self._offers[client]


class _Offer:
    """What one upstream offers, and which of it is clean under which policy: that is found out once for a list."""

    def __init__(self, client: UpstreamClient) -> None:
        # Not the client itself: it would be kept alive by its own entry in a dictionary that holds it weakly.
        self._cached: Cached[_Offered] = Cached(partial(_offered, ref(client)), MODELS_TTL, UNREADABLE)
        self._ids: _Offered = ()
        self._judged: dict[str, tuple[CompiledPolicy, dict[str, bool]]] = {}  # by the name of the policy
        self._judging = asyncio.Lock()

    async def ids(self) -> _Offered:
        """Of the models, or why there are none."""
        ids = await self._cached.get()
        if ids is not self._ids and ids != self._ids:
            self._ids = ids
            self._judged.clear()
        return ids

    async def clean(self, policy: CompiledPolicy, models: Sequence[str], is_clean: IsClean) -> set[str]:
        """Those of the models whose ids the policy finds clean."""
        async with self._judging:
            judged, verdicts = self._judged.get(policy.policy.name, (policy, {}))
            if judged is not policy:
                verdicts = {}
            left = [model for model in models if model not in verdicts]
            size = sum(map(len, left)) * weight(policy, Direction.OUTPUT)
            found = await aside(size, lambda: {model: is_clean(policy, model) for model in left})
            verdicts = {**verdicts, **found}
            self._judged[policy.policy.name] = policy, verdicts
            return {model for model in models if verdicts[model]}


def _policies(router: Router, key: ClientKey, upstream: str, ids: Sequence[str]) -> dict[str, str]:
    """The names of the policies of those models that lead to this upstream, by model."""
    found: dict[str, str] = {}
    for model in ids:
        taken = router.match(model, key)
        if taken is not None and upstream in taken.upstreams and taken.rename in (None, model):
            found[model] = taken.policy
    return found


def _entry(model: str, upstream: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": upstream}


async def _offered(client: ref[UpstreamClient]) -> _Offered:
    upstream = client()
    if upstream is None:
        return UNREADABLE
    try:
        status, body = await upstream.get_json("/models", PATIENCE)
        return await aside(len(body), _ids, body) if status == 200 else UNREADABLE
    except httpx.HTTPError as error:
        return from_transport(error)


def _ids(body: bytes) -> _Offered:
    """The models in an upstream's list."""
    try:
        received = json.decode(body)
    except json.JSONError:
        return UNREADABLE
    entries = received.get("data") if isinstance(received, dict) else None
    if not isinstance(entries, list):
        return UNREADABLE
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    return tuple(model for model in ids if isinstance(model, str) and _SAFE_ID.fullmatch(model))[:MAX_MODELS]
