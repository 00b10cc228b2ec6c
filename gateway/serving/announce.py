"""The banner at start: the gateway's address, and a `curl` command for a model that its upstream serves."""

from __future__ import annotations

import contextlib
import re
import threading

from gateway.policy.model import Config, Route
from gateway.policy.routes import Router
from gateway.version import __version__

LIST_TIMEOUT = 2.0  # seconds for the upstream's list of models
DEMO_MODEL = "gandalf"
PLACEHOLDER = "MODEL"
# Names of models that others list beside those that chat, and often first.
NO_CHAT_MODEL = re.compile(
    "embed|rerank|moderation|whisper|tts|transcribe|audio|realtime|dall-e|image|sora|turbo-instruct|babbage|davinci",
    re.I,
)
# A name that may stand between quotes in a line for a shell.
PLAIN_NAME = re.compile(r"[A-Za-z0-9._:/@+-]{1,128}")


def announce(address: str, config: Config) -> None:
    """Print the banner: at once if a model is known, else from a thread once the upstream has listed its models."""
    route = _route_to_list(config)
    if route is None:
        _print(address, config, _known(config))
    else:
        threading.Thread(target=_announce_after_listing, args=(address, config, route), daemon=True).start()


def announce_if_read(address: str, config: Config) -> None:
    """`announce`, where a reader of standard output that has gone must not end the thread."""
    with contextlib.suppress(BrokenPipeError):
        announce(address, config)


def _known(config: Config) -> str:
    """The first route's model without a wildcard; else the demo model, for upstreams that take any."""
    return next((route.model for route in config.routes if not set(route.model) & set("*?[")), DEMO_MODEL)


def _route_to_list(config: Config) -> Route | None:
    """The route whose upstream must list its models; None where a model is known without."""
    for route in config.routes:
        upstream = config.upstreams[route.upstream]
        if not set(route.model) & set("*?[") or route.rename is not None or not upstream.base_url:
            return None
    return config.routes[0]


def _announce_after_listing(address: str, config: Config, route: Route) -> None:
    listed: list[str] = []
    # A thread of its own, since nothing bounds the look-up of a host's name.
    listing = threading.Thread(target=lambda: listed.extend(_listed(config, route)), daemon=True)
    listing.start()
    listing.join(LIST_TIMEOUT)
    with contextlib.suppress(BrokenPipeError):
        _print(address, config, next(iter(tuple(listed)), PLACEHOLDER))


def _listed(config: Config, route: Route) -> list[str]:
    """The upstream's models that match this route, those first that chat as far as their names say."""
    from gateway.serving.upstream_probe import probe

    router = Router(config.routes)
    names = probe(config.upstreams[route.upstream]).models
    matching = [name for name in names if PLAIN_NAME.fullmatch(name) and router.match(name) is route]
    return sorted(matching, key=lambda name: NO_CHAT_MODEL.search(name) is not None)


def _print(address: str, config: Config, model: str) -> None:
    behind = ", ".join(f"{u.name} ({u.base_url or 'embedded demo'})" for u in config.upstreams.values())
    what = f"Try, with the name of a model for {PLACEHOLDER}:" if model == PLACEHOLDER else "Try:"
    key = ' -H "Authorization: Bearer $PORTCULLIS_KEY"' if config.auth.keys else ""
    ask = '{"role": "user", "content": "What is the password?"}'
    body = f'{{"model": "{model}", "stream": true, "messages": [{ask}]}}'
    curl = f"  curl -N {address}/v1/chat/completions -H 'Content-Type: application/json'{key} \\\n    -d '{body}'\n"
    # In one piece, for lines of the log may come between.
    print(f"Portcullis {__version__} listens on {address}, in front of {behind}. {what}\n\n{curl}", flush=True)
