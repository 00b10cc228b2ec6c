"""Configuration files: what a valid file means."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import yaml

from gateway.config import ConfigError, load
from gateway.policy.listen import check_exposure, is_loopback
from gateway.policy.model import (
    Action,
    Auth,
    Balance,
    Channel,
    ClientKey,
    Config,
    Direction,
    Fsync,
    Health,
    Journal,
    Limits,
    Listen,
    ListenAddress,
    Mode,
    Overflow,
    Policy,
    Retries,
    Route,
    Rule,
    Telemetry,
    Timeouts,
    Unknown,
    Upstream,
)
from tests.support.policies import SECRET, read, read_parts, read_rule, refused, text_of

FULL = """
listen: {host: 127.0.0.1, port: 8080, admin: {port: 9090}, drain_timeout: 20}
auth:
  keys:
    - "${PORTCULLIS_KEY}"
    - {name: laptop, key: "${LAPTOP_KEY}", rpm: 60, tpm: 10000, max_streams: 4, policies: [strict], models: ["gpt-*"]}
upstreams:
  openai: {base_url: "https://api.openai.com/v1/", api_key: "${OPENAI_API_KEY}"}
  local:  {base_url: "http://127.0.0.1:8000/v1", timeouts: {connect: 1, first_byte: 2.5, idle: 3, total: 4},
    health: {eject_after: 3, eject_for: 1.5}, retries: {attempts: 0, budget: 1}}
  demo:   {type: demo}
routes:
  - {model: "gpt-*", upstream: openai, policy: default}
  - {model: "*",     upstreams: [local, openai], balance: least_busy, policy: strict, rename: "served-name"}
policies:
  default:
    mode: enforce
    max_hold: 1024
    on_overflow: release
    unknown: scan
    rules:
      - {id: password, words: ["12MONKEYS"], action: redact, replacement: "[CENSORED]", secret: true}
      - {id: profanity, words_file: lists/profanity.txt, whole_word: true, mask: "*"}
      - {id: cards, words: [visa], action: block, message: "Not shown here.", variants: [], edits: 0}
      - {id: ticket, words: [PROJ-1], action: flag, apply_to: [input, output], channels: [content, refusal]}
  strict: {mode: observe, max_hold: 1, on_overflow: block, unknown: refuse, rules: [
    {id: r, words: [x], fold: [], guard_tail: 0, replacement: ""}]}
limits: {max_body: 4MiB, max_streams: 2000, max_event: 1MiB, send_timeout: 30}
journal: {path: decisions.jsonl, key: "${JOURNAL_KEY}", fsync: always, max_size: 1MiB, keep: 0, required: true}
telemetry: {endpoint: "http://127.0.0.1:4318/", service: front, sample: 0.25}
state: "redis://127.0.0.1:6379/0"
"""
FULL_ENVIRONMENT = {
    "PORTCULLIS_KEY": "client-key",
    "LAPTOP_KEY": "laptop-key",
    "OPENAI_API_KEY": "upstream-key",
    "JOURNAL_KEY": "sixteen or more.",
}


# What a valid file means


def test_the_whole_example(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/profanity.txt").write_text("darn\n")
    file = tmp_path / "portcullis.yaml"
    file.write_text(FULL)
    assert load(file, FULL_ENVIRONMENT) == load(str(file), FULL_ENVIRONMENT)
    assert load(file, FULL_ENVIRONMENT) == Config(
        source=str(file),
        files=(str(file), str(tmp_path / "lists/profanity.txt")),
        listen=Listen(
            host="127.0.0.1", port=8080, admin=ListenAddress(host="127.0.0.1", port=9090), drain_timeout=20.0
        ),
        auth=Auth(
            keys=(
                ClientKey.of("client-key", "key-1"),
                ClientKey.of(
                    "laptop-key",
                    "laptop",
                    rpm=60,
                    tpm=10_000,
                    max_streams=4,
                    policies=frozenset({"strict"}),
                    models=("gpt-*",),
                ),
            )
        ),
        upstreams={
            "openai": Upstream(name="openai", base_url="https://api.openai.com/v1", api_key="upstream-key"),
            "local": Upstream(
                name="local",
                base_url="http://127.0.0.1:8000/v1",
                timeouts=Timeouts(connect=1.0, first_byte=2.5, idle=3.0, total=4.0),
                health=Health(eject_after=3, eject_for=1.5),
                retries=Retries(attempts=0, budget=1.0),
            ),
            "demo": Upstream(name="demo", type="demo"),
        },
        routes=(
            Route(model="gpt-*", upstream="openai", policy="default"),
            Route(
                model="*",
                upstream="local",
                policy="strict",
                rename="served-name",
                others=("openai",),
                balance=Balance.LEAST_BUSY,
            ),
        ),
        policies={
            "default": Policy(
                name="default",
                rules=(
                    Rule(id="password", words=("12MONKEYS",), replacement="[CENSORED]", secret=True),
                    Rule(id="profanity", words=("darn",), whole_word=True, mask="*"),
                    Rule(id="cards", words=("visa",), action=Action.BLOCK, message="Not shown here."),
                    Rule(
                        id="ticket",
                        words=("PROJ-1",),
                        action=Action.FLAG,
                        apply_to=frozenset(Direction),
                        channels=frozenset({Channel.CONTENT, Channel.REFUSAL}),
                    ),
                ),
            ),
            "strict": Policy(
                name="strict",
                mode=Mode.OBSERVE,
                max_hold=1,
                on_overflow=Overflow.BLOCK,
                unknown=Unknown.REFUSE,
                rules=(Rule(id="r", words=("x",), fold=frozenset(), guard_tail=0, replacement=""),),
            ),
        },
        limits=Limits(),
        journal=Journal(
            path=str(tmp_path / "decisions.jsonl"),
            key="sixteen or more.",
            fsync=Fsync.ALWAYS,
            max_size=1024**2,
            keep=0,
            required=True,
        ),
        telemetry=Telemetry(endpoint="http://127.0.0.1:4318", service="front", sample=0.25),
        state="redis://127.0.0.1:6379/0",
    )


def test_the_least_file_takes_every_default() -> None:
    assert read_parts(policies="{p: {}}") == Config(
        source="F",
        upstreams={"u": Upstream(name="u", base_url="http://127.0.0.1:8000/v1")},
        routes=(Route(model="*", upstream="u", policy="p"),),
        policies={"p": Policy(name="p")},
    )


@pytest.mark.parametrize("indent", [None, 2, "\t"], ids=["one line", "spaces", "tabs"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte-order mark"])
def test_json_means_the_same_as_yaml(indent: int | str | None, mark: str, tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/profanity.txt").write_text("darn")
    as_json = json.dumps(yaml.safe_load(FULL), indent=indent)
    expected = read(FULL, FULL_ENVIRONMENT, tmp_path)
    assert read(mark + as_json, FULL_ENVIRONMENT, tmp_path) == expected


def test_json_scalars_of_every_type() -> None:
    rule = {"id": "r", "words": ["\U0001f600"], "whole_word": True, "secret": False}
    document = {
        "listen": {"port": 0},
        "upstreams": {"u": {"base_url": "http://h", "timeouts": {"connect": 1.5, "idle": 2e3}}},
        "routes": [{"model": "*", "upstream": "u", "policy": "p"}],
        "policies": {"p": {"rules": [rule]}},
    }
    config = read(json.dumps(document))
    assert config.policies["p"].rules[0] == Rule(id="r", words=("\U0001f600",), whole_word=True)
    assert config.upstreams["u"].timeouts == Timeouts(connect=1.5, idle=2000.0)
    assert config.listen.port == 0
    for constant in (None, float("nan"), float("inf")):
        document["upstreams"]["u"]["timeouts"] = {"total": constant}
        refused(json.dumps(document), "upstreams.u.timeouts.total", "must be a positive number of seconds, not ")


def test_surrogate_pairs_of_a_flow_mapping_that_is_not_quite_json_are_joined() -> None:
    assert read_rule(r'{id: r, words: ["\ud83d\ude00!"], mask: "\ud83d\ude00"}').words == ("\U0001f600!",)


def test_anchors_and_aliases() -> None:
    policies = "{p: {rules: [{id: a, words: &w [x, y]}, {id: b, words: *w}]}}"
    assert [rule.words for rule in read_parts(policies=policies).policies["p"].rules] == [("x", "y"), ("x", "y")]


@pytest.mark.parametrize("endpoint", ["chat/completions", "completions", "responses", "embeddings", "models"])
@pytest.mark.parametrize("end", ["", "/", "//"])
def test_e10_an_address_of_an_endpoint_is_no_base_url(endpoint: str, end: str) -> None:
    text = text_of(upstreams=f"{{u: {{base_url: 'https://h/v1/{endpoint}{end}'}}}}")
    reason = f"ends with /{endpoint}, which the gateway adds itself; write https://h/v1"
    assert refused(text, "upstreams.u.base_url", reason).reason == reason


def test_e10_an_address_of_an_endpoint_out_of_the_environment_is_not_shown() -> None:
    text = text_of(upstreams="{u: {base_url: '${URL}'}}")
    error = refused(text, "upstreams.u.base_url", "write the part", {"URL": f"https://{SECRET}/v1/chat/completions"})
    assert error.reason == "ends with /chat/completions, which the gateway adds itself; write the part before it"


@pytest.mark.parametrize(
    ("path", "version", "once"),
    [("v1/v1", "/v1", "v1"), ("v1/v1/", "/v1", "v1"), ("a/v1beta/v1beta/openai", "/v1beta", "a/v1beta/openai")],
)
def test_a_version_stands_once_in_a_base_url(path: str, version: str, once: str) -> None:
    text = text_of(upstreams=f"{{u: {{base_url: 'https://h/{path}'}}}}")
    reason = f"has {version} twice in its path; write it once, as in https://h/{once}"
    assert refused(text, "upstreams.u.base_url", reason).reason == reason
    text = text_of(upstreams="{u: {base_url: '${URL}'}}")
    hidden = refused(text, "upstreams.u.base_url", "twice", {"URL": f"https://h/{path}"})
    assert hidden.reason == f"has {version} twice in its path; write it once"


@pytest.mark.parametrize("path", ["v1/v2", "v1/v1beta", "v1x/v1/models-of/v1", "v1/"])
def test_other_paths_with_versions_are_base_urls(path: str) -> None:
    read_parts(upstreams=f"{{u: {{base_url: 'https://h/{path}'}}}}")


KEY_PLACES = {
    "auth.keys[0]": {"auth": "{keys: ['KEY']}"},
    "auth.keys[0].key": {"auth": "{keys: [{name: a, key: 'KEY'}]}"},
    "auth.keys[0].key_sha256": {"auth": "{keys: [{name: a, key_sha256: 'KEY'}]}"},
    "upstreams.u.api_key": {"upstreams": "{u: {base_url: 'http://h', api_key: 'KEY'}}"},
    "journal.key": {"journal": "{path: j, key: 'KEY'}"},
}


@pytest.mark.parametrize("path", KEY_PLACES)
@pytest.mark.parametrize("key", ["${KEY:-%s}", "sk-${KEY:-%s}", "${SET}${KEY:-%s}"])
def test_e10_a_key_is_no_default_of_the_file(path: str, key: str) -> None:
    default = "ab" * 32
    parts = {part: text.replace("KEY", key % default) for part, text in KEY_PLACES[path].items()}
    error = refused(text_of(**parts), path, "is a default in the file, and so no secret", {"SET": "0"})
    assert default not in str(error)
    if key == "${KEY:-%s}":
        read_parts({"KEY": "cd" * 32}, **parts)  # the variable is set, and the default not taken


@pytest.mark.parametrize("path", KEY_PLACES)
def test_e10_no_default_is_advised_for_a_key(path: str) -> None:
    parts = {part: text.replace("KEY", "${KEY}") for part, text in KEY_PLACES[path].items()}
    assert refused(text_of(**parts), path, "").reason == "environment variable KEY is not set; set it"


def test_aliases_of_aliases_do_not_grow() -> None:
    lists = "[&a0 [x], " + ", ".join(f"&a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 64)) + "]"
    refused(text_of(policies=lists), "policies[19]", "holds more than 1000000 values")


SIZES = {
    "1": 1,
    "1B": 1,
    "1kB": 1000,
    "10MB": 10_000_000,
    "2GB": 2_000_000_000,
    "512KiB": 512 * 1024,
    "4 MiB": 4 * 1024**2,
    "1024GiB": 1024**4,
    "'1GiB'": 1024**3,
    "'${SIZE}'": 77,
    "'${MEBI}MiB'": 3 * 1024**2,
}


@pytest.mark.parametrize(("written", "size"), SIZES.items())
def test_sizes(written: str, size: int) -> None:
    config = read_parts({"SIZE": "77", "MEBI": "3"}, limits=f"{{max_body: {written}, max_event: {written}}}")
    assert (config.limits.max_body, config.limits.max_event) == (size, size)


BASE_URLS = {
    "https://api.openai.com/v1//": "https://api.openai.com/v1",
    "http://[::1]:8000": "http://[::1]:8000",
    "HTTPS://h/a@b": None,
    "HTTPS://h/a": "HTTPS://h/a",
}


@pytest.mark.parametrize(("url", "expected"), BASE_URLS.items())
def test_base_urls(url: str, expected: str | None) -> None:
    text = text_of(upstreams=f"{{u: {{base_url: '{url}'}}}}")
    if expected is None:
        refused(text, "upstreams.u.base_url", "without user name, query and fragment")
    else:
        assert read(text).upstreams["u"].base_url == expected


def test_booleans_as_yaml_and_the_environment_write_them() -> None:
    environ = {"YES": "true", "NO": "false"}
    for written, expected in {
        "true": True,
        "Yes": True,
        "on": True,
        "'${YES}'": True,
        "off": False,
        "'${NO}'": False,
    }.items():
        assert read_rule(f"{{id: r, words: [x], secret: {written}}}", environ).secret is expected


# Exposure


LOOPBACK = {
    "127.0.0.1": True,
    "127.9.9.9": True,
    "::1": True,
    "localhost": True,
    "LOCALHOST": True,
    "0.0.0.0": False,
    "::": False,
    "10.0.0.1": False,
    "example.org": False,
    "127.0.0.1.example.org": False,
}


@pytest.mark.parametrize(("host", "loopback"), LOOPBACK.items())
def test_who_can_reach_a_host(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    closed = read_parts()
    if loopback:
        check_exposure(closed, host)
    else:
        with pytest.raises(ConfigError) as caught:
            check_exposure(closed, host)
        assert (caught.value.source, caught.value.key_path) == ("F", "listen.host")
    check_exposure(read_parts(auth="{keys: [k]}"), host)
    check_exposure(read_parts(auth="none"), host)
    for auth in ("none", "'none'", "{keys: [k]}"):
        assert read_parts(listen=f"{{host: '{host}'}}", auth=auth).listen.host == host


def test_an_exposed_host_from_the_environment_is_not_shown() -> None:
    error = refused(text_of(listen="{host: '${H}'}"), "listen.host", "this address can be reached", {"H": "10.1.2.3"})
    assert "10.1.2.3" not in str(error)


# Secrets


def test_no_secret_in_the_repr_of_a_configuration() -> None:
    config = read_parts(
        auth=f"{{keys: ['{SECRET}']}}",
        journal=f"{{path: j, key: '{SECRET}'}}",
        state=f"redis://:{SECRET}@h",
        upstreams=f"{{u: {{base_url: 'http://h', api_key: '{SECRET}'}}}}",
        policies=f"{{p: {{rules: [{{id: r, words: ['{SECRET}']}}]}}}}",
    )
    assert config.auth.keys == (ClientKey.of(SECRET, "key-1"),)
    assert SECRET not in repr(config)


def test_errors_can_be_pickled() -> None:
    error = ConfigError("F", "a.b", "reason")
    error.files = ("/F",)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.files) == ("F: a.b: reason", ("/F",))
    assert isinstance(error, ValueError)
