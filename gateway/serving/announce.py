"""What is printed when the gateway listens: its address, and a `curl` that works with what stands behind it."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from typing import Any

from gateway.policy.model import Config, Route
from gateway.policy.routes import Router
from gateway.version import __version__

PATIENCE = 2.0  # seconds for the upstream's list of models
MAX_LISTED = 1024 * 1024  # bytes of it
DEMO_MODEL = "gandalf"
PLACEHOLDER = "MODEL"
# A name that may stand between quotes in a line for a shell.
PLAIN_NAME = re.compile(r"[A-Za-z0-9._:/@+-]{1,128}")


def announce(address: str, config: Config) -> None:
    """Print it; at once if a model is known, else in a thread, when the upstream has said which it has."""
    route = _to_be_asked(config)
    if route is None:
        _print(address, config, _known(config))
    else:
        threading.Thread(target=_announce_listed, args=(address, config, route), daemon=True).start()


def announce_if_read(address: str, config: Config) -> None:
    """The same where an exception would end more than the announcement."""
    with contextlib.suppress(BrokenPipeError):
        announce(address, config)


def _known(config: Config) -> str:
    """The first model that is named without a wildcard, or what every upstream takes that is asked for it."""
    return next((route.model for route in config.routes if not set(route.model) & set("*?[")), DEMO_MODEL)


def _to_be_asked(config: Config) -> Route | None:
    """The route whose upstream has to be asked for a model; None where one is known."""
    for route in config.routes:
        upstream = config.upstreams[route.upstream]
        if not set(route.model) & set("*?[") or route.rename is not None or not upstream.base_url:
            return None
    return config.routes[0]


def _announce_listed(address: str, config: Config, route: Route) -> None:
    listed: list[str] = []
    # Of its own, since nothing bounds the look-up of a host's name.
    asking = threading.Thread(target=lambda: listed.extend(_listed(config, route)), daemon=True)
    asking.start()
    asking.join(PATIENCE)
    with contextlib.suppress(BrokenPipeError):
        _print(address, config, next(iter(tuple(listed)), PLACEHOLDER))


def _listed(config: Config, route: Route) -> list[str]:
    """The models that the route's upstream lists and that go this way; none if it does not say."""
    import httpx

    upstream = config.upstreams[route.upstream]
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    if upstream.api_key:
        headers["authorization"] = f"Bearer {upstream.api_key}"
    received = bytearray()
    try:
        with httpx.stream("GET", f"{upstream.base_url}/models", headers=headers, timeout=PATIENCE) as answer:
            for data in answer.iter_bytes():
                received += data
                if len(received) > MAX_LISTED:
                    return []
        listed: Any = json.loads(received)["data"]
        names = [each["id"] for each in listed]
    except (httpx.HTTPError, ValueError, KeyError, TypeError, RecursionError):
        return []
    router = Router(config.routes)
    return [
        name for name in names if isinstance(name, str) and PLAIN_NAME.fullmatch(name) and router.match(name) is route
    ]


def _print(address: str, config: Config, model: str) -> None:
    behind = ", ".join(f"{u.name} ({u.base_url or 'embedded demo'})" for u in config.upstreams.values())
    what = f"Try, with the name of a model for {PLACEHOLDER}:" if model == PLACEHOLDER else "Try:"
    key = ' -H "Authorization: Bearer $PORTCULLIS_KEY"' if config.auth.keys else ""
    ask = '{"role": "user", "content": "What is the password?"}'
    body = f'{{"model": "{model}", "stream": true, "messages": [{ask}]}}'
    curl = f"  curl -N {address}/v1/chat/completions -H 'Content-Type: application/json'{key} \\\n    -d '{body}'\n"
    # In one piece, for lines of the log may come between.
    print(f"Portcullis {__version__} listens on {address}, in front of {behind}. {what}\n\n{curl}", flush=True)
