"""Client keys with names, limits and hashes: what is read, what is refused, and that no key is ever shown."""

from __future__ import annotations

import hashlib

import pytest

from gateway.policy.model import Auth, ClientKey
from tests.support.policies import SECRET, read_parts, refused, text_of

DIGEST = hashlib.sha256(SECRET.encode()).hexdigest()
NAMES = "1 to 64 of the characters A-Z a-z 0-9 _ . -"


def keys_of(listed: str, environ: dict[str, str] | None = None) -> tuple[ClientKey, ...]:
    return read_parts(environ, auth=f"{{keys: [{listed}]}}").auth.keys


def test_keys_in_clear_are_named_by_their_place() -> None:
    assert keys_of("'${C}'", {"C": "$c"}) == (ClientKey.of("$c", "key-1"),)
    assert keys_of("a, {name: x, key: b}, '${C}'", {"C": "c"}) == (
        ClientKey.of("a", "key-1"),
        ClientKey.of("b", "x"),
        ClientKey.of("c", "key-3"),
    )


@pytest.mark.parametrize("digits", [DIGEST, DIGEST.upper()], ids=["lower case", "upper case"])
def test_a_key_and_its_hash_are_the_same(digits: str) -> None:
    assert keys_of(f"{{name: x, key_sha256: '{digits}'}}") == keys_of(f"{{name: x, key: {SECRET}}}")


def test_a_hash_from_the_environment() -> None:
    assert keys_of("{name: x, key_sha256: '${H}'}", {"H": DIGEST}) == (ClientKey.of(SECRET, "x"),)


def test_limits_and_what_a_key_may_use() -> None:
    listed = "{name: A-z_.9, key: k, rpm: 1, tpm: '${TPM}', max_streams: 2, policies: [p, p], models: ['a*', b]}"
    (key,) = keys_of(listed, {"TPM": "1000000"})
    assert key == ClientKey.of(
        "k", "A-z_.9", rpm=1, tpm=1_000_000, max_streams=2, policies=frozenset({"p"}), models=("a*", "b")
    )


def test_nothing_but_a_name_and_a_key_is_no_limit_at_all() -> None:
    (key,) = keys_of("{name: x, key: k}")
    assert (key.rpm, key.tpm, key.max_streams, key.policies, key.models) == (None,) * 5


def test_policies_may_stand_behind_the_keys_in_the_file() -> None:
    text = "{name: x, key: k, policies: [later]}"
    config = read_parts(auth=f"{{keys: [{text}]}}", policies="{p: {}, later: {}}")
    assert config.auth == Auth(keys=(ClientKey.of("k", "x", policies=frozenset({"later"})),))


REFUSED = [
    # name
    ("{key: k}", ".name", "is required"),
    ("{name: '', key: k}", ".name", f"must be {NAMES}, not ''"),
    ("{name: 'a:b', key: k}", ".name", "not 'a:b'"),
    (f"{{name: {'a' * 65}, key: k}}", ".name", f"must be {NAMES}"),
    ("{name: 7, key: k}", ".name", "must be text, not 7"),
    # key, key_sha256
    ("{name: x}", "", "needs exactly one of key and key_sha256; it has neither"),
    (f"{{name: x, key: {SECRET}, key_sha256: '{DIGEST}'}}", "", "exactly one of key and key_sha256; it has both"),
    ("{name: x, key: ''}", ".key", "is empty"),
    (f"{{name: x, key: '{SECRET} '}}", ".key", "cannot travel in a header"),
    ("{name: x, key: 12345678}", ".key", "must be text (the value is not shown); unquoted"),
    (f"{{name: x, key_sha256: {SECRET}}}", ".key_sha256", "the 64 hexadecimal digits of the key's SHA-256 (the value"),
    (f"{{name: x, key_sha256: '{DIGEST}0'}}", ".key_sha256", "(the value is not shown)"),
    (f"{{name: x, key_sha256: '{'g' * 64}'}}", ".key_sha256", "(the value is not shown)"),
    (f"{{name: x, key_sha256: {'1' * 64}}}", ".key_sha256", "YAML reads this as a number: quote it"),
    (f"{{name: x, key_sha256: '{hashlib.sha256().hexdigest()}'}}", ".key_sha256", "is the SHA-256 of an empty text"),
    # limits
    ("{name: x, key: k, rpm: 0}", ".rpm", "must be a whole number, at least 1, not 0"),
    ("{name: x, key: k, tpm: 1.5}", ".tpm", "at least 1, not 1.5"),
    ("{name: x, key: k, max_streams: yes}", ".max_streams", "at least 1, not yes"),
    ("{name: x, key: k, max_streams: }", ".max_streams", "not nothing"),
    # policies, models
    ("{name: x, key: k, policies: []}", ".policies", "is an empty list"),
    ("{name: x, key: k, policies: p}", ".policies", "must be a list, not 'p'; write [...] around it"),
    ("{name: x, key: k, policies: [p, q]}", ".policies[1]", "unknown policy 'q'; known: p"),
    ("{name: x, key: k, models: []}", ".models", "is an empty list"),
    ("{name: x, key: k, models: [a, '']}", ".models[1]", "is empty"),
    # unknown keys
    ("{name: x, key: k, polcies: [p]}", ".polcies", "unknown key; did you mean 'policies'?"),
    ("{name: x, key: k, burst: 1}", "", "has an unknown key (not shown, it may be a client's key); known: name, key"),
    (f"{{{SECRET}}}", "", "has an unknown key (not shown"),
    (f"{{{SECRET}: laptop}}", "", "has an unknown key (not shown"),
    ("{}", ".name", "is required"),
]


@pytest.mark.parametrize(("key", "at", "reason"), REFUSED)
def test_refused_keys(key: str, at: str, reason: str) -> None:
    error = refused(text_of(auth=f"{{keys: [first, {key}]}}"), f"auth.keys[1]{at}", reason)
    assert DIGEST not in str(error)


@pytest.mark.parametrize("auth", [f"{{{SECRET}}}", f"{{{SECRET}: laptop}}", f"{{keys: [a], {SECRET}: b}}"])
def test_a_key_in_the_place_of_a_name_is_not_shown(auth: str) -> None:
    refused(text_of(auth=auth), "auth", "has an unknown key (not shown, it may be a client's key); known: keys")


def test_a_slip_of_the_pen_is_shown() -> None:
    refused(text_of(auth="{key: [a]}"), "auth.key", "unknown key; did you mean 'keys'?")


NOT_UNIQUE = {
    "in clear twice": (f"{SECRET}, b, {SECRET}", "is the same key as auth.keys[0]; remove one of them"),
    "in clear and hashed": (
        f"a, {{name: x, key_sha256: '{DIGEST}'}}, {{name: y, key: {SECRET}}}",
        "is the same key as auth.keys[1]",
    ),
    "one name twice": ("a, {name: x, key: b}, {name: x, key: c}", "has the name of auth.keys[1]"),
    "a name that a place gives": (
        "{name: key-3, key: a}, b, c",
        "has the name of auth.keys[0]; give each its own (a key without a name is named by its place, here key-3)",
    ),
}


@pytest.mark.parametrize(("listed", "reason"), NOT_UNIQUE.values(), ids=list(NOT_UNIQUE))
def test_keys_and_names_are_unique(listed: str, reason: str) -> None:
    refused(text_of(auth=f"{{keys: [{listed}]}}"), "auth.keys[2]", reason)


def test_names_differ_by_case() -> None:
    assert [key.name for key in keys_of("{name: x, key: a}, {name: X, key: b}")] == ["x", "X"]
