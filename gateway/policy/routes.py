"""The `routes` section, and requested model → route: the first route whose glob matches wins."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Collection, Iterable, Iterator
from functools import partial

from gateway.policy.key_table import NAME, NONEMPTY, Form, KeyTable, choice, reference, several
from gateway.policy.model import Balance, ClientKey, Config, Policy, Route, Upstream
from gateway.policy.value import Section, Value

ROUTE = KeyTable(
    "routes",
    Route,
    {
        "model": Form("glob", NONEMPTY.schema, Value.nonempty),
        "upstream": Form("name", NAME.schema),
        "upstreams": Form("list of names", several(NAME, "").schema),
        "balance": choice(Balance),
        "policy": NAME,
        "rename": NONEMPTY,
    },
    one_of=("upstream", "upstreams"),
)


def read_routes(value: Value, upstreams: Collection[str], policies: Collection[str]) -> tuple[Route, ...]:
    """The routes in order, of which there is at least one. Raises `ConfigError`."""
    read = partial(_route, upstreams, policies)
    routes = (route.attempt(read, None) for route in value.nonempty_items())
    return tuple(route for route in routes if route is not None)


def _route(upstreams: Collection[str], policies: Collection[str], value: Value) -> Route | None:
    section = ROUTE.section(value)
    first, *others = value.attempt(lambda _: _upstreams_of(section, upstreams), [""])
    values = ROUTE.values(section, policy=reference("policy", policies))
    return Route(upstream=first, others=tuple(others), **values)


def _upstreams_of(section: Section, upstreams: Collection[str]) -> list[str]:
    if section.only_one(ROUTE.one_of) == "upstream":
        return [section["upstream"].reference("upstream", upstreams)]
    names: list[str] = []
    for item in section["upstreams"].nonempty_items():
        name = item.reference("upstream", upstreams)
        if name in names:
            raise item.wrong("an upstream that the route does not list already")
        names.append(name)
    return names


def routed_pairs(config: Config) -> Iterator[tuple[str, Policy, Upstream]]:
    """Each policy with each upstream that serves it, and the key path of their route."""
    for i, route in enumerate(config.routes):
        for name in route.upstreams:
            yield f"routes[{i}]", config.policies[route.policy], config.upstreams[name]


class Router:
    """The routes with their globs compiled once.

    Globs are case-sensitive, match the whole name and know `*`, `?`, `[abc]`, `[a-z]` and `[!abc]`. The standard
    library translates them to expressions with atomic groups, which never backtrack: a name takes linear time.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = tuple((_glob(route.model), route) for route in routes)

    def match(self, model: str, key: ClientKey | None = None) -> Route | None:
        """The route for `model`. A key that may not use a route's policy does not see the route, and one that may not
        use the model sees none."""
        if key is not None and key.models is not None and not any(_glob(glob).match(model) for glob in key.models):
            return None
        for glob, route in self._routes:
            if glob.match(model) and (key is None or _is_for(route, key)):
                return route
        return None

    def first(self, key: ClientKey) -> Route | None:
        """The first route that the key sees, for requests without a model."""
        return next(self.visible(key), None)

    def visible(self, key: ClientKey) -> Iterator[Route]:
        """The routes that the key sees for one model or another."""
        return (route for _, route in self._routes if _is_for(route, key))


def _is_for(route: Route, key: ClientKey) -> bool:
    return key.policies is None or route.policy in key.policies


@functools.lru_cache(4096)
def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(glob))
