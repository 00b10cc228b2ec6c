"""The `listen` part of a configuration file → `Listen`."""

from __future__ import annotations

import ipaddress
import re

from gateway.policy.model import Address, Listen
from gateway.policy.value import Value

LISTEN_KEYS = ("host", "port", "admin", "drain_timeout", "hosts")
ADMIN_KEYS = ("host", "port")
HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")


def read_listen(value: Value) -> Listen:
    """Raises `ConfigError`. Whether the address may be reached from other machines is `check_exposure`'s to say."""
    section = value.section(LISTEN_KEYS)
    default = Listen()
    clients = Address(
        host=section.get("host", _host, default.host),
        port=section.get("port", _port, default.port),
    )
    return Listen(
        host=clients.host,
        port=clients.port,
        admin=section.get("admin", lambda admin: _admin(admin, clients), None),
        drain_timeout=section.get("drain_timeout", Value.seconds, default.drain_timeout),
        hosts=section.get("hosts", _hosts, default.hosts),
    )


def host_is_shown(value: Value) -> bool:
    """Whether an error may quote the host of a `listen` that was read before."""
    return value.section(LISTEN_KEYS).get("host", lambda host: host.shown, True)


def _admin(value: Value, clients: Address) -> Address:
    section = value.section(ADMIN_KEYS)
    admin = Address(host=section.get("host", _host, Listen().host), port=_port(section["port"]))
    if admin.port == clients.port != 0 and _meet(admin.host, clients.host):
        raise section["port"].wrong("another port than listen.port on the same host")
    return admin


def _port(value: Value) -> int:
    return value.integer(0, 65535)


def _hosts(value: Value) -> tuple[str, ...]:
    return tuple(_host(host).lower() for host in value.nonempty_items())


def _host(value: Value) -> str:
    host = value.nonempty()
    if _ip_address(host) is None and not HOST_NAME.fullmatch(host):
        raise value.wrong("an IP address (without brackets) or a host name")
    return host


def _meet(one: str, other: str) -> bool:
    """Whether two listeners with one port get in each other's way: on the same host, or on one and on all of them.

    IPv4 and IPv6 do not meet, and a name is not looked up.
    """
    first, second = _ip_address(one), _ip_address(other)
    if first is None or second is None:
        return one.lower() == other.lower()
    return first == second or (first.version == second.version and (first.is_unspecified or second.is_unspecified))


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
