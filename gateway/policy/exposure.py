"""Whether an address can be reached from other machines, and what a configuration must say before it may be."""

from __future__ import annotations

import ipaddress

from gateway.policy.model import Config
from gateway.policy.value import ConfigError


def is_loopback(host: str) -> bool:
    """127.0.0.0/8, ::1 and the name localhost; any other name counts as reachable, without a look-up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_exposure(config: Config, host: str, *, shown: bool = True) -> None:
    """Refuse to listen on `host` for everybody unless the configuration says so.

    Raises `ConfigError` at `listen.host` when `host` is not a loopback address and there are neither keys nor
    `auth: none`. `shown` false keeps the host, which came from the environment, out of the error.
    """
    if is_loopback(host) or config.auth.keys or config.auth.open_to_all:
        return
    what = f"{host!r} " if shown else "this address "
    reason = "can be reached from other machines: set auth.keys, or write auth: none to let everybody in"
    raise ConfigError(config.source, "listen.host", what + reason)
