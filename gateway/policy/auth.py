"""The `auth` section. A key in clear is hashed here and kept nowhere."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection
from functools import partial

from gateway.policy.key_table import NAME, NONEMPTY, TEXT, Form, KeyTable, integer, reference, several
from gateway.policy.model import Auth, ClientKey
from gateway.policy.value import Scalar, ScalarKind, Section, Value

# No colon, unlike other names: where limits are shared, the name is a part of a key in another store.
KEY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
SHA256_OF_NOTHING = hashlib.sha256().digest()


def _read_name(value: Value) -> str:
    name = value.text()
    if not KEY_NAME.fullmatch(name):
        raise value.wrong("1 to 64 of the characters A-Z a-z 0-9 _ . -")
    return name


CLIENT_KEY = KeyTable(
    "auth.keys",
    ClientKey,
    {
        "name": Form("name", NAME.schema, _read_name),
        "key": Form("text", TEXT.schema),
        "key_sha256": Form("64 hexadecimal digits", TEXT.schema),
        "rpm": integer(1),
        "tpm": integer(1),
        "max_streams": integer(1),
        "policies": several(NAME, "list of names", frozenset),
        "models": several(NONEMPTY, "list of globs"),
    },
    one_of=("key", "key_sha256"),
)
AUTH = KeyTable(
    "auth",
    Auth,
    {
        "keys": Form(
            "list of text or mappings",
            {"type": "array", "minItems": 1, "items": {"anyOf": [TEXT.schema, CLIENT_KEY]}},
        ),
    },
    rules={"required": ["keys"]},
)


def read_auth(value: Value, policies: Collection[str]) -> Auth:
    """`policies` are the names that a key may be narrowed to. Raises `ConfigError`, which never shows a key."""
    match value.node:
        case Scalar(kind=ScalarKind.TEXT, text="none"):
            return Auth(open_to_all=True)
        case Scalar():
            raise value.hidden().wrong("none, or a mapping with keys", "to let everybody in, write auth: none")
    _refuse_unknown_keys(value, AUTH.forms)
    listed = AUTH.section(value)["keys"]
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
        if key.digest and (other := by_digest.get(key.digest)):
            entry.note(entry.fail(f"is the same key as {other.path}; remove one of them"))
        if other := by_name.get(key.name):
            unnamed = f"a key without a name is named by its place, here key-{position}"
            entry.note(entry.fail(f"has the name of {other.path}; give each its own ({unnamed})"))
        by_digest[key.digest] = by_name[key.name] = entry
        keys.append(key)
    return tuple(keys)


def _client_key(position: int, policies: Collection[str], value: Value) -> ClientKey | None:
    if not isinstance(value.node, dict):
        return ClientKey.of(value.no_default().key(), f"key-{position}")
    _refuse_unknown_keys(value, CLIENT_KEY.forms)
    section = CLIENT_KEY.section(value)
    value.attempt(lambda _: section["name"], None)
    digest = value.attempt(lambda _: _digest(section), b"")
    allowed = several(Form("", {}, reference("policy", policies)), "", frozenset)
    return ClientKey(digest=digest, **CLIENT_KEY.values(section, policies=allowed))


def _refuse_unknown_keys(value: Value, known: Collection[str]) -> None:
    """Out of `{KEY}` and `KEY: laptop` YAML makes a mapping whose key is the secret, so only a misspelt key is left to
    the usual error, which quotes it."""
    for key in value.node if isinstance(value.node, dict) else ():
        if not difflib.get_close_matches(key, known):
            names = ", ".join(known)
            raise value.fail(f"has an unknown key (not shown, it may be a client's key); known: {names}")


def _digest(section: Section) -> bytes:
    if section.only_one(CLIENT_KEY.one_of) == "key":
        return ClientKey.of(section["key"].no_default().key()).digest
    value = section["key_sha256"].hidden().no_default()
    text = value.text()
    if not SHA256.fullmatch(text):
        raise value.wrong("the 64 hexadecimal digits of the key's SHA-256")
    digest = bytes.fromhex(text)
    # What a shell makes of a variable that is not set; it would let in requests without a key.
    if digest == SHA256_OF_NOTHING:
        raise value.fail("is the SHA-256 of an empty text; hash the key itself")
    return digest
