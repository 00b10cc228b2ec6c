"""`portcullis doctor`: query a running gateway and its upstreams, and print what is wrong."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NamedTuple

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from gateway.arguments import with_example
from gateway.config import load
from gateway.doctor.findings import Observed, findings
from gateway.exits import DONE, FOUND, NO_MODEL
from gateway.policy.listen import url_of
from gateway.policy.model import Config
from gateway.serving.health import reachable
from gateway.serving.upstream_probe import probe, probed_upstreams
from gateway.wire import json

DEFAULT_URL = "http://127.0.0.1:8080"
NOT_OURS = "does not answer as Portcullis does: is this its address? With listen.admin give --config, or that address"
ASK_SECONDS = 10.0  # /readyz and /metrics wait for probes of upstreams
CLOCK_SECONDS = 3.0
MAX_METRICS = 32 * 1024 * 1024  # bytes


def command_parser() -> argparse.ArgumentParser:
    """The options of `portcullis doctor`."""
    parser = argparse.ArgumentParser(
        prog="portcullis doctor",
        description="Say what is not as it should be with a gateway that runs, and what to do.",
        **with_example("portcullis doctor --config portcullis.yaml"),
    )
    parser.add_argument("--config", type=Path, metavar="F", help="its configuration: upstreams are asked, too")
    where = f"where it listens (listen of the configuration, or {DEFAULT_URL})"
    parser.add_argument("url", nargs="?", type=_url, metavar="URL", help=where)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Run `portcullis doctor` with its arguments: `DONE`, `FOUND`, or `NO_MODEL` where the gateway cannot be reached.
    Raises `ConfigError`."""
    options = command_parser().parse_args(arguments)
    config = load(options.config) if options.config is not None else None
    url, admin = addresses(config, options.url)
    try:
        seen = observe(url, admin, config)
    except _RequestError as error:
        print(f"portcullis: {error}", file=sys.stderr)
        return NO_MODEL
    found = tuple(findings(seen))
    for finding in found:
        print(finding)
    print(f"{url}: {len(found) or 'nothing'} found; upstreams asked: {len(seen.problems)}")
    return FOUND if found else DONE


def addresses(config: Config | None, url: str | None) -> tuple[str, str]:
    """Where to ask the gateway, and where its metrics are."""
    if config is None:
        return url or DEFAULT_URL, url or DEFAULT_URL
    listen = config.listen
    url = url or reachable(url_of(listen.host, listen.port))
    return url, url if listen.admin is None else reachable(url_of(listen.admin.host, listen.admin.port))


def observe(url: str, admin: str, config: Config | None) -> Observed:
    """Ask everything, one after the other. Raises `_RequestError`."""
    # What is asked is on this machine or in its network: no proxy of the environment is in between.
    with httpx2.Client(timeout=ASK_SECONDS, trust_env=False) as client:
        ready, metrics = _fetch(client, f"{admin}/readyz"), _fetch(client, f"{admin}/metrics")
        try:
            samples = tuple(
                sample for family in text_string_to_metric_families(metrics.body.decode()) for sample in family.samples
            )
            state = json.decode(ready.body)
        except ValueError:
            raise _RequestError(f"{admin}: {NOT_OURS}") from None
        keyless = _fetch(client, f"{url}/v1/models")
        if not isinstance(state, dict) or not any(each.name.startswith("portcullis_") for each in samples):
            raise _RequestError(f"{admin}: {NOT_OURS}")
    upstreams = tuple(probed_upstreams(config)) if config is not None else ()
    probes = {each.name: probe(each) for each in upstreams}
    skews = {each.name: _upstream_skew(each.base_url) for each in upstreams if probes[each.name].status is not None}
    return Observed(
        url=url,
        metrics_url=admin,
        ready=state,
        samples=samples,
        keyless=keyless.status,
        skew=_skew(keyless.headers),
        skews={name: skew for name, skew in skews.items() if skew is not None},
        problems={name: None if found.works else str(found) for name, found in probes.items()},
        config=config,
    )


class _RequestError(Exception):
    pass


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def _fetch(client: httpx2.Client, url: str) -> _Answer:
    """The answer, of at most `MAX_METRICS` bytes. Raises `_RequestError`."""
    try:
        with client.stream("GET", url) as response:
            body = bytearray()
            for data in response.iter_bytes():
                body += data
                if len(body) > MAX_METRICS:
                    raise _RequestError(f"{url}: answers more than {MAX_METRICS} bytes")
            return _Answer(response.status_code, response.headers, bytes(body))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        what = f"{url}: cannot be reached ({type(error).__name__})"
        raise _RequestError(f"{what}: does the gateway run, and listen there?") from None


def _upstream_skew(base_url: str) -> float | None:
    """Request a path that does not exist, without a key: any answer has the clock."""
    try:
        return _skew(httpx2.head(base_url, timeout=CLOCK_SECONDS).headers)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):  # a proxy of the environment may have no valid address
        return None


def _skew(headers: Mapping[str, str]) -> float | None:
    try:
        told = parsedate_to_datetime(headers["date"])
        return (told - datetime.now(UTC)).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#@]+/?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as {DEFAULT_URL}")
    return text.rstrip("/")
