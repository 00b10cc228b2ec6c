"""Requested model → route. Pure: the first route whose glob matches wins."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from gateway.policy.model import Config, Route


class Router:
    """The routes with their globs compiled once.

    Globs are case-sensitive, match the whole name and know `*`, `?`, `[abc]`, `[a-z]` and `[!abc]`. The standard
    library translates them to expressions with atomic groups, which never go back: a name takes linear time.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = tuple((re.compile(fnmatch.translate(route.model)), route) for route in routes)

    def match(self, model: str) -> Route | None:
        return next((route for glob, route in self._routes if glob.match(model)), None)


def select(config: Config, model: str) -> Route | None:
    """The route for `model`, or None. Whoever selects more than once builds a `Router` and keeps it."""
    return Router(config.routes).match(model)
