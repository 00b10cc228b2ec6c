"""Errors for unknown paths and methods, with those that exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from starlette.routing import BaseRoute, Route

from gateway.proxy.errors import HTTPFailure, client_error
from gateway.wire.chat import CHAT
from gateway.wire.dialect import Dialect
from gateway.wire.dialects import SERVED

MAX_SHOWN = 200  # characters of a path
SIMILAR = 0.8  # of 1: so much of the letters that two paths have in common, at their places
_MOST_USED = "/v1"
# What belongs to answers that an upstream keeps as the model wrote them; `proxy.retrieval` has responses themselves.
_STORED = {
    "/responses/resp_[^/]+/": "Of a stored response only the answer is fetched: its input is known to the client that "
    "sent it, and answers before it have ids of their own.",
    "/conversations(/|$)|/chat/completions/chatcmpl[_-]": "No conversation is fetched from where an upstream keeps it: "
    "send its items as input.",
}
_DEPLOYMENT = re.compile("/openai/deployments/[^/]*")


def unknown_path(path: str, routes: Iterable[BaseRoute]) -> HTTPFailure:
    """404 for a path that is none of the `routes`."""
    for pattern, reason in _STORED.items():
        if re.search(pattern, path):
            return client_error(404, f"Unknown path {path[:MAX_SHOWN]!r}. {reason}", "unknown_url")
    known = {route.path for route in routes if isinstance(route, Route) and "{" not in route.path}
    near = nearest_path(path[:MAX_SHOWN], known)
    listed = ", ".join(sorted(name for name in known if name.startswith(_MOST_USED)) or sorted(known))
    advice = f"Did you mean {near}?" if near else f"This gateway has {listed}."
    return client_error(404, f"Unknown path {path[:MAX_SHOWN]!r}. {advice}", "unknown_url")


def nearest_path(path: str, known: Iterable[str]) -> str | None:
    """The known path closest to one with a part doubled, omitted or misspelled."""
    known = list(known)
    clean = re.sub("/{2,}", "/", path).rstrip("/").lower()
    parts = clean.split("/")
    clean = "/".join(part for at, part in enumerate(parts) if at == 0 or part != parts[at - 1])
    if deployment := _DEPLOYMENT.match(clean):
        near = nearest_path(_MOST_USED + clean[deployment.end() :], known)
        return None if near is None else path[: deployment.end()] + near.removeprefix(_MOST_USED)
    for wanted in (clean, _MOST_USED + clean):
        if wanted in known:
            return wanted
    if above := [name for name in known if name != "/" and clean.startswith(f"{name}/")]:
        return max(above, key=len)
    return next(iter(difflib.get_close_matches(clean, known, 1, SIMILAR)), None)


def dialect_of(path: str) -> Dialect:
    """The dialect whose clients ask for such a path, and so read its errors."""
    return next((dialect for dialect in SERVED if f"{dialect.path}/" in f"{path}/"), CHAT)


def wrong_method(method: str, headers: dict[str, str]) -> HTTPFailure:
    """405 for a path with another method; `headers` have those that it has, as `Allow`."""
    allowed = next((value for name, value in headers.items() if name.lower() == "allow"), "")
    advice = f" Use {allowed}." if allowed else ""
    refusal = client_error(405, f"Method {method[:32]!r} is not allowed here.{advice}", "method_not_allowed")
    refusal.headers = headers
    return refusal
