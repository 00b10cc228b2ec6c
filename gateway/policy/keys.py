"""The `auth` part of a configuration file → `Auth`. A key in clear is hashed here and kept nowhere."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection
from functools import partial

from gateway.policy.model import Auth, ClientKey
from gateway.policy.upstreams import read_key, read_reference, refuse_default
from gateway.policy.value import Kind, Scalar, Section, Value

AUTH_KEYS = ("keys",)
CLIENT_KEYS = ("name", "key", "key_sha256", "rpm", "tpm", "max_streams", "policies", "models")

# No colon, unlike other names: where limits are shared, the name is a part of a key in another store.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
SHA256_OF_NOTHING = hashlib.sha256().digest()


def read_auth(value: Value, policies: Collection[str]) -> Auth:
    """`policies` are the names that a key may be narrowed to. Raises `ConfigError`, which never shows a key."""
    match value.node:
        case Scalar(kind=Kind.TEXT, text="none"):
            return Auth(open_to_all=True)
        case Scalar():
            raise value.hidden().wrong("none, or a mapping with keys", "to let everybody in, write auth: none")
        case _:
            _refuse_foreign_keys(value, AUTH_KEYS)
            listed = value.section(AUTH_KEYS)["keys"]
    # A list shows nothing of itself, and the names in it are no secret; anything else may be the key itself.
    entries = (listed if isinstance(listed.node, list) else listed.hidden()).items()
    if not entries:
        raise listed.fail("is an empty list; list at least one key, or write auth: none to let everybody in")
    return Auth(keys=_client_keys(entries, policies))


def _client_keys(entries: list[Value], policies: Collection[str]) -> tuple[ClientKey, ...]:
    keys: list[ClientKey] = []
    by_digest: dict[bytes, Value] = {}
    by_name: dict[str, Value] = {}
    for position, entry in enumerate(entries, start=1):
        key = entry.attempt(partial(_client_key, position, policies), None)
        if key is None:
            continue
        if other := by_digest.get(key.digest):
            entry.note(entry.fail(f"is the same key as {other.path}; remove one of them"))
        if other := by_name.get(key.name):
            unnamed = f"a key without a name is named by its place, here key-{position}"
            entry.note(entry.fail(f"has the name of {other.path}; give each its own ({unnamed})"))
        by_digest[key.digest] = by_name[key.name] = entry
        keys.append(key)
    return tuple(keys)


def _client_key(position: int, policies: Collection[str], value: Value) -> ClientKey | None:
    if not isinstance(value.node, dict):
        return ClientKey.of(read_key(refuse_default(value)), f"key-{position}")
    _refuse_foreign_keys(value, CLIENT_KEYS)
    section = value.section(CLIENT_KEYS)
    return ClientKey(
        name=section.need("name", _name, ""),
        digest=value.attempt(lambda _: _digest(section), b""),
        rpm=section.get("rpm", _limit, None),
        tpm=section.get("tpm", _limit, None),
        max_streams=section.get("max_streams", _limit, None),
        policies=section.get("policies", lambda names: _policies(names, policies), None),
        models=section.get("models", _models, None),
    )


def _refuse_foreign_keys(value: Value, known: Collection[str]) -> None:
    """Out of `{KEY}` and `KEY: laptop` YAML makes a mapping whose key is the secret, so only a slip of the pen is left
    to the usual error, which names it."""
    for key in value.node if isinstance(value.node, dict) else ():
        if not difflib.get_close_matches(key, known):
            names = ", ".join(known)
            raise value.fail(f"has an unknown key (not shown, it may be a client's key); known: {names}")


def _name(value: Value) -> str:
    name = value.text()
    if not NAME.fullmatch(name):
        raise value.wrong("1 to 64 of the characters A-Z a-z 0-9 _ . -")
    return name


def _digest(section: Section) -> bytes:
    given = [key for key in ("key", "key_sha256") if key in section]
    if len(given) != 1:
        raise section.value.fail(f"needs exactly one of key and key_sha256; it has {'both' if given else 'neither'}")
    if given == ["key"]:
        return ClientKey.of(read_key(refuse_default(section["key"]))).digest
    value = refuse_default(section["key_sha256"].hidden())
    text = value.text()
    if not SHA256.fullmatch(text):
        raise value.wrong("the 64 hexadecimal digits of the key's SHA-256")
    digest = bytes.fromhex(text)
    # What a shell makes of a variable that is not set; it would let in whoever sends no key.
    if digest == SHA256_OF_NOTHING:
        raise value.fail("is the SHA-256 of an empty text; hash the key itself")
    return digest


def _limit(value: Value) -> int:
    return value.integer(1)


def _policies(value: Value, names: Collection[str]) -> frozenset[str]:
    return frozenset(read_reference(name, "policy", names) for name in value.nonempty_items())


def _models(value: Value) -> tuple[str, ...]:
    return tuple(model.nonempty() for model in value.nonempty_items())
