"""Requested model → route. Pure: the first route whose glob matches wins."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable

from gateway.policy.model import ClientKey, Config, Route


class Router:
    """The routes with their globs compiled once.

    Globs are case-sensitive, match the whole name and know `*`, `?`, `[abc]`, `[a-z]` and `[!abc]`. The standard
    library translates them to expressions with atomic groups, which never go back: a name takes linear time.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = tuple((_glob(route.model), route) for route in routes)

    def match(self, model: str, key: ClientKey | None = None) -> Route | None:
        """The route for `model`. A key that may not use a route's policy does not see the route, and one that may not
        use the model sees none."""
        if key is not None and key.models is not None and not any(_glob(glob).match(model) for glob in key.models):
            return None
        for glob, route in self._routes:
            if glob.match(model) and (key is None or key.policies is None or route.policy in key.policies):
                return route
        return None


@functools.lru_cache(4096)
def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(glob))


def select(config: Config, model: str) -> Route | None:
    """The route for `model`, or None. Whoever selects more than once builds a `Router` and keeps it."""
    return Router(config.routes).match(model)
