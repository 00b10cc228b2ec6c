"""The `listen` section, and whether an address can be reached from other machines."""

from __future__ import annotations

import ipaddress
import re

from gateway.policy.errors import ConfigError
from gateway.policy.key_table import SECONDS, Form, KeyTable, choice, integer, nested, several
from gateway.policy.model import Config, CrossOrigin, Listen, ListenAddress, ReadyWhen
from gateway.policy.value import Scalar, Value

EVERY_ORIGIN = "*"
_LEFT_OUT = {"http": ":80", "https": ":443"}  # by browsers, from an origin
ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._:\[\]-]+")
HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")


def _read_host(value: Value) -> str:
    host = value.nonempty()
    if _ip_address(host) is None and not HOST_NAME.fullmatch(host):
        raise value.wrong("an IP address (without brackets) or a host name")
    return host


def _read_origin(value: Value) -> str:
    origin = value.text()
    if origin != EVERY_ORIGIN and not ORIGIN.fullmatch(origin):
        raise value.wrong("an origin, as https://app.example or http://localhost:3000, or *", "without a path")
    origin = origin.lower()
    return origin.removesuffix(_LEFT_OUT.get(origin.partition(":")[0], ""))


HOST = Form("address or host name", {"type": "string", "pattern": r"\S"}, _read_host)
ADMIN = KeyTable("listen.admin", ListenAddress, {"host": HOST, "port": integer(0, 65535)})
CORS = KeyTable(
    "listen.cors",
    CrossOrigin,
    {"origins": several(Form("origin", {"type": "string", "minLength": 1}, _read_origin), "list of origins")},
)
LISTEN = KeyTable(
    "listen",
    Listen,
    {
        "host": HOST,
        "port": integer(0, 65535),
        "admin": nested(ADMIN),
        "drain_timeout": SECONDS,
        "ready_when": choice(ReadyWhen),
        "hosts": several(HOST, "list of host names or addresses", lambda hosts: tuple(host.lower() for host in hosts)),
        "cors": nested(CORS),
    },
)


def read_listen(value: Value) -> Listen:
    """Raises `ConfigError`. Whether the address may be reached from other machines is left to `check_exposure`."""
    listen = LISTEN.read(value)
    admin = listen.admin
    if admin is not None and admin.port == listen.port != 0 and _overlap(admin.host, listen.host):
        port = ADMIN.section(LISTEN.section(value)["admin"])["port"]
        raise port.wrong("another port than listen.port on the same host")
    return listen


def _overlap(one: str, other: str) -> bool:
    """Whether two listeners on one port conflict: on the same host, or one on all addresses. IPv4 and IPv6 do not
    conflict, and a name is not looked up."""
    first, second = _ip_address(one), _ip_address(other)
    if first is None or second is None:
        return one.lower() == other.lower()
    return first == second or (first.version == second.version and (first.is_unspecified or second.is_unspecified))


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """127.0.0.0/8, ::1 and the name localhost; any other name counts as reachable, without a look-up."""
    address = _ip_address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def url_of(host: str, port: int) -> str:
    """The URL of a listener; an IPv6 address stands in brackets there."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def host_is_shown(listen: Value) -> bool:
    """Whether an error may quote the host: it did not come from the environment."""
    host = listen.node.get("host") if isinstance(listen.node, dict) else None
    return not (isinstance(host, Scalar) and host.substituted)


def check_origins(config: Config) -> None:
    """Raises `ConfigError` where any page on the web could use a gateway that asks for no key."""
    cors = config.listen.cors
    if cors is not None and EVERY_ORIGIN in cors.origins and not config.auth.keys:
        reason = "* would let every page use a gateway that asks for no key: list the origins, or set auth.keys"
        raise ConfigError(config.source, "listen.cors.origins", reason)


def check_exposure(config: Config, host: str, *, shown: bool = True) -> None:
    """Raises `ConfigError` at `listen.host` when `host` is not a loopback address and the configuration has neither
    keys nor `auth: none`; with `shown` false the error does not quote the host."""
    if is_loopback(host) or config.auth.keys or config.auth.open_to_all:
        return
    what = f"{host!r} " if shown else "this address "
    reason = "can be reached from other machines: set auth.keys, or write auth: none to let everybody in"
    raise ConfigError(config.source, "listen.host", what + reason)
