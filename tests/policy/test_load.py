"""Configuration files: what is read, and every refusal with its exact key path and without secrets."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import yaml

from gateway.config import ConfigError, load
from gateway.policy.listen import check_exposure, is_loopback
from gateway.policy.model import (
    DEFAULT_FOLD,
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
from tests.support.policies import PARTS, SECRET, read, read_parts, read_rule, refused, text_of

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


# The environment


SUBSTITUTIONS = {
    "${A}": "one",
    "<${A}${A}>": "<oneone>",
    "${EMPTY}": "",
    "${EMPTY:-default}": "default",
    "${UNSET:-}": "",
    "${UNSET:-a b$c:-d}": "a b$c:-d",
    "${A:-default}": "one",
    "$${A}": "${A}",
    "$$${A}": "$${A}",
    "$A $ {A} $": "$A $ {A} $",
    "${YAML}": "a: [b]\n- ${A}",
}


@pytest.mark.parametrize(("written", "expected"), SUBSTITUTIONS.items())
def test_substitution_happens_after_parsing_and_once(written: str, expected: str) -> None:
    environ = {"A": "one", "EMPTY": "", "YAML": "a: [b]\n- ${A}"}
    rule = f"{{id: r, words: [x], replacement: '{written}'}}"
    assert read_rule(rule, environ).replacement == expected


BAD_REFERENCES = [
    "${",
    "a ${A",
    "${}",
    "${1A}",
    "${A-b}",
    "${A:?b}",
    "${a b}",
    "${A:-${B}}",
    "${A:-{}",
    f"${{{SECRET}-1}}",
]


@pytest.mark.parametrize("written", BAD_REFERENCES)
def test_bad_references_are_errors(written: str) -> None:
    text = text_of(auth=f"{{keys: ['{written}']}}")
    refused(text, "auth.keys[0]", "a ${ must go on as ${NAME}", {"A": "x"})


def test_a_missing_variable_is_named() -> None:
    reason = "environment variable NOWHERE is not set; set it"
    error = refused(text_of(auth="{keys: ['${NOWHERE}']}"), "auth.keys[0]", reason)
    assert str(error) == f"F: auth.keys[0]: {reason} (line 4)"


def test_numbers_from_the_environment() -> None:
    upstreams = '{u: {base_url: "http://h", timeouts: {idle: "${IDLE}", total: "${T:-20}"}}}'
    config = read_parts({"PORT": "9999", "IDLE": "1.5"}, listen='{port: "${PORT:-8080}"}', upstreams=upstreams)
    assert config.listen.port == 9999
    assert config.upstreams["u"].timeouts == Timeouts(idle=1.5, total=20.0)
    assert read_parts(listen="\n  port: ${PORT:-8080}").listen.port == 8080


SUBSTITUTED_ERRORS = {
    "listen.port": ("listen", '{port: "${S}"}'),
    "listen.host": ("listen", '{host: "${S} x"}'),
    "auth": ("auth", '"${S}"'),
    "auth.keys[0]": ("auth", '{keys: ["${S} x"]}'),
    "auth.keys[0].name": ("auth", '{keys: [{name: "${S} x", key: k}]}'),
    "auth.keys[0].key": ("auth", '{keys: [{name: a, key: "${S} x"}]}'),
    "auth.keys[0].key_sha256": ("auth", '{keys: [{name: a, key_sha256: "${S}"}]}'),
    "auth.keys[0].policies[0]": ("auth", '{keys: [{name: a, key: k, policies: ["${S}"]}]}'),
    "listen.admin.host": ("listen", '{admin: {host: "${S} x", port: 1}}'),
    "telemetry.endpoint": ("telemetry", '{endpoint: "${S}"}'),
    "state": ("state", '"${S}"'),
    "limits.max_body": ("limits", '{max_body: "${S}"}'),
    "limits.send_timeout": ("limits", '{send_timeout: "${S}"}'),
    "upstreams.u.type": ("upstreams", '{u: {type: "${S}"}}'),
    "upstreams.u.base_url": ("upstreams", '{u: {base_url: "${S}"}}'),
    "upstreams.u.api_key": ("upstreams", '{u: {base_url: "http://h", api_key: "${S} x"}}'),
    "routes[0].upstream": ("routes", '[{model: "*", upstream: "${S}", policy: p}]'),
    "routes[0].policy": ("routes", '[{model: "*", upstream: u, policy: "${S}"}]'),
    "policies.p.mode": ("policies", '{p: {mode: "${S}"}}'),
    "policies.p.rules[0].id": ("policies", '{p: {rules: [{id: "${S} x", words: [y]}]}}'),
    "policies.p.rules[0].mask": ("policies", '{p: {rules: [{id: r, words: [y], mask: "${S}"}]}}'),
    "policies.p.rules[0].words": ("policies", '{p: {rules: [{id: r, words: "${S}"}]}}'),
    "policies.p.rules[0].words_file": ("policies", '{p: {rules: [{id: r, words_file: "${S}"}]}}'),
    "policies.p.rules[0].secret": ("policies", '{p: {rules: [{id: r, words: [y], secret: "${S}"}]}}'),
}


@pytest.mark.parametrize(("path", "part"), SUBSTITUTED_ERRORS.items(), ids=list(SUBSTITUTED_ERRORS))
def test_what_came_from_the_environment_is_never_shown(path: str, part: tuple[str, str]) -> None:
    refused(text_of(**{part[0]: part[1]}), path, "", {"S": SECRET})


def test_a_later_value_from_the_environment_is_refused_without_showing_it() -> None:
    policies = '{p: {rules: [{id: r, words: [x], fold: ["${T}"]}]}}'
    refused(text_of(policies=policies), "policies.p.rules[0].fold[0]", "this value is not available", {"T": "leet"})


# Text that is no configuration

NOT_A_CONFIGURATION = {
    "empty": ("", "", "the file is empty"),
    "only a comment": ("# nothing\n", "", "the file is empty"),
    "a list": ("- a", "", "must be a mapping with keys such as listen, auth, upstreams, not a list"),
    "text": ("hello", "", "must be a mapping with keys such as listen, auth, upstreams, not 'hello'"),
    "nothing": ("---\n", "", "not nothing"),
    "two documents": (text_of() + "\n---\n" + text_of(), "", "line 4, column 1: not valid YAML: but found another"),
    "syntax": ("listen: {host: x\nauth: y", "", "line 2, column 5: not valid YAML: "),
    "half JSON": ('{"listen": {', "", "line 1, column 13: not valid YAML: "),
    "unquoted reference": ("auth: {keys: [${A}]}", "", "quote values that hold characters such as"),
    "unquoted star": (f"auth: {{keys: [*{SECRET}]}}", "", "line 1, column 15: not valid YAML: found undefined alias"),
    "tab as indentation": ("listen:\n\thost: x", "", "line 2, column 1: not valid YAML: found character '\\t'"),
    "unknown tag handle": (f"auth: !{SECRET}!x y", "", "line 1, column 7: not valid YAML: found undefined tag handle"),
    "sign that begins no value": ("listen: @x", "", "found character '@' that cannot start any token"),
    "bad escape": ('listen: "\\UFFFFFFFF"', "", "an escape such as \\U names no character"),
    "NUL": ("listen:\n  {host: a\0b}", "", "line 2: the character U+0000 is not allowed in YAML"),
    "lone surrogate in the text": ("listen: \ud800", "", "line 1: the character U+D800 is not allowed"),
    "very deep YAML": ("listen: " + "[" * 5000, "", "nested too deeply"),
    "very deep JSON": ('{"listen": ' + "[" * 100_000, "", "nested too deeply"),
    "tag": (f"auth: !{SECRET} x", "auth", "YAML tags are not supported"),
    "tag of a mapping": ("listen: !!set {a, b}", "listen", "YAML tags are not supported"),
    "alias inside itself": ("listen: &a [*a]", "listen[0]", "an alias stands inside the value that it repeats"),
    "merge key": ("listen: {<<: {port: 1}}", "listen", "merge keys (<<) are not supported"),
    "list as a key": ("listen: {? [a] : b}", "listen", "a key must be text, not a list or a mapping"),
    "boolean as a key": ("listen: {on: 1}", "listen.on", "reads the key on as true or false: quote it"),
    "number as a key": ("policies: {007: {}}", "policies.007", "reads the key 007 as a number: quote it"),
    "date as a key": ("policies: {2026-01-02: {}}", "policies.2026-01-02", "as a date: quote it"),
    "tagged key": ("policies: {!x y: {}}", "policies.y", "a key must be text"),
    "same key twice": (
        "listen:\n  port: 1\n  host: h\n  port: 1",
        "listen.port",
        "'port' is written twice, again on line 4",
    ),
    "same key twice in JSON": ('{"listen": {"port": 1, "port": 1}}', "listen.port", "the key 'port' is written twice"),
    "same key at the top": ("listen: {}\nlisten: {}", "listen", "the key 'listen' is written twice"),
    "half a pair in a value": (r'auth: {keys: ["\ud83d"]}', "auth.keys[0]", "holds half of a surrogate pair"),
    "half a pair in JSON": (r'{"auth": {"keys": ["\ude00\ud83d"]}}', "auth.keys[0]", "half of a surrogate pair"),
    "half a pair in a key": (r'listen: {"\ud83d": 1}', "listen", "half of a surrogate pair"),
}


@pytest.mark.parametrize("case", NOT_A_CONFIGURATION.values(), ids=list(NOT_A_CONFIGURATION))
def test_text_that_is_no_configuration(case: tuple[str, str, str]) -> None:
    refused(*case)


def test_a_variable_that_is_no_text() -> None:
    refused(text_of(auth="{keys: ['${A}']}"), "auth.keys[0]", "half of a surrogate pair", {"A": "\udcff"})


FILES = {
    "invalid UTF-8": (b"listen:\n  host: \xff\n", "line 2: not valid UTF-8"),
    "UTF-16": ("listen: {}".encode("utf-16"), "line 1: not valid UTF-8"),
    "UTF-16 without a mark": ("# x\nlisten: {}".encode("utf-16-le"), "line 1: holds a NUL character"),
    "empty": (b"", "the file is empty"),
}


@pytest.mark.parametrize(("data", "reason"), FILES.values(), ids=list(FILES))
def test_files_that_cannot_be_text(data: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "F"
    file.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert str(caught.value).startswith(f"{file}: {reason}")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for path, reason in {tmp_path / "none": "file not found", tmp_path: "is a directory, not a file"}.items():
        with pytest.raises(ConfigError) as caught:
            load(path, {})
        assert str(caught.value) == f"{path}: {reason}"
    (tmp_path / "file").touch()
    for path in (tmp_path / "file/below", "a\0b"):
        with pytest.raises(ConfigError, match="cannot be read: "):
            load(path, {})


# Keys and values

REFUSED_PARTS = [
    # Unknown keys, with the nearest known one
    ('"a\\nb"', "1", "'a\\nb'", "unknown key"),
    ("auht", "none", "auht", "unknown key; did you mean 'auth'?"),
    ("xyzzy", "1", "xyzzy", "unknown key; known: listen, auth, upstreams, routes"),
    ("listen", "{prot: 1}", "listen.prot", "unknown key; did you mean 'port'?"),
    ("auth", "{key: [a]}", "auth.key", "unknown key; did you mean 'keys'?"),
    ("limits", "{max_boddy: 1}", "limits.max_boddy", "did you mean 'max_body'?"),
    ("upstreams", "{u: {url: x}}", "upstreams.u.url", "unknown key"),
    ("upstreams", "{u: {timeouts: {conect: 1}}}", "upstreams.u.timeouts.conect", "did you mean 'connect'?"),
    ("routes", "[{modle: x}]", "routes[0].modle", "did you mean 'model'?"),
    ("policies", "{p: {rule: []}}", "policies.p.rule", "did you mean 'rules'?"),
    ("policies", "{p: {rules: [{word: x}]}}", "policies.p.rules[0].word", "did you mean 'words'?"),
    # Later versions
    ("otel", "", "otel", "not available in this version; use telemetry"),
    ("upstreams", "{u: {tokenizer: x}}", "upstreams.u.tokenizer", "means nothing with type: openai; it is"),
    # listen
    ("listen", "[]", "listen", "must be a mapping with keys such as host, port, admin, not a list"),
    ("listen", "", "listen", "must be a mapping with keys such as host, port, admin, not nothing"),
    ("listen", "{port: 65536}", "listen.port", "must be a whole number from 0 to 65535, not 65536"),
    ("listen", "{port: -1}", "listen.port", "must be a whole number from 0 to 65535, not -1"),
    ("listen", "{port: 0o17}", "listen.port", "not '0o17'"),
    ("listen", "{port: 0100}", "listen.port", "not 0100"),
    ("listen", "{port: 0x50}", "listen.port", "not 0x50"),
    ("listen", "{port: 8_080}", "listen.port", "not 8_080"),
    ("listen", "{port: 1:30}", "listen.port", "not 1:30"),
    ("listen", "{port: 80.0}", "listen.port", "not 80.0"),
    ("listen", "{port: yes}", "listen.port", "not yes"),
    ("listen", "{port: '8080'}", "listen.port", "not '8080'; remove the quotes"),
    ("listen", f"{{port: {'9' * 5000}}}", "listen.port", "must be a whole number from 0 to 65535, not 999"),
    ("listen", "{port: [1]}", "listen.port", "must be a whole number from 0 to 65535, not a list"),
    ("listen", "{host: 1}", "listen.host", "must be text, not 1; unquoted, YAML reads this as a number: quote it"),
    ("listen", "{host: ''}", "listen.host", "is empty"),
    ("listen", "{host: '[::1]'}", "listen.host", "an IP address (without brackets) or a host name, not '[::1]'"),
    ("listen", "{host: 0.0.0.0}", "listen.host", "'0.0.0.0' can be reached from other machines: set auth.keys, or"),
    ("listen", "{host: '::'}", "listen.host", "can be reached from other machines"),
    # auth
    ("auth", "", "auth", "must be none, or a mapping with keys, not nothing; to let everybody in, write auth: none"),
    ("auth", "~", "auth", "not nothing"),
    ("auth", "no", "auth", "to let everybody in, write auth: none"),
    ("auth", SECRET, "auth", "(the value is not shown)"),
    ("auth", "{}", "auth.keys", "is required"),
    ("auth", "[]", "auth", "not a list"),
    ("auth", "{keys: []}", "auth.keys", "is an empty list; list at least one key, or write auth: none"),
    ("auth", f"{{keys: {SECRET}}}", "auth.keys", "must be a list (the value is not shown); write [...] around it"),
    ("auth", "{keys: ['']}", "auth.keys[0]", "is empty"),
    ("auth", f"{{keys: [a, '{SECRET} x']}}", "auth.keys[1]", "cannot travel in a header"),
    ("auth", f"{{keys: ['{SECRET}é']}}", "auth.keys[0]", "cannot travel in a header"),
    ("auth", "{keys: [12345678]}", "auth.keys[0]", "must be text (the value is not shown); unquoted, YAML reads"),
    ("auth", "{keys: [[a]]}", "auth.keys[0]", "must be text, not a list"),
    # limits
    ("limits", "{max_body: 0}", "limits.max_body", "must be a size from 1 B to 1024 GiB"),
    ("limits", "{max_body: 1025GiB}", "limits.max_body", "not '1025GiB'"),
    ("limits", "{max_event: 1.5MiB}", "limits.max_event", "not '1.5MiB'"),
    ("limits", "{max_event: 4M}", "limits.max_event", "a unit out of B, kB, MB, GB, KiB, MiB, GiB, not '4M'"),
    ("limits", "{max_event: '4'}", "limits.max_event", "not '4'"),
    ("limits", "{max_event: 1.0}", "limits.max_event", "not 1.0"),
    ("limits", "{max_event: true}", "limits.max_event", "not true"),
    ("limits", "{max_streams: 0}", "limits.max_streams", "from 1 to 1000000, not 0"),
    ("limits", "{send_timeout: 0}", "limits.send_timeout", "must be a positive number of seconds, not 0"),
    ("limits", "{send_timeout: yes}", "limits.send_timeout", "not yes"),
    ("limits", "{send_timeout: .inf}", "limits.send_timeout", "not .inf"),
    ("limits", "{send_timeout: 5s}", "limits.send_timeout", "not '5s'"),
    ("limits", f"{{send_timeout: 1{'0' * 400}}}", "limits.send_timeout", "must be a positive number of seconds"),
    # upstreams
    ("upstreams", "{}", "upstreams", "is an empty mapping; it needs at least one entry"),
    ("upstreams", "[]", "upstreams", "must be a mapping of names, not a list"),
    ("upstreams", "{'a b': {}}", "upstreams", "the name 'a b' must be 1 to 64 of the characters"),
    ("upstreams", "{u: demo}", "upstreams.u", "keys such as type, base_url, api_key, not 'demo'"),
    ("upstreams", "{u: {}}", "upstreams.u.base_url", "is required"),
    ("upstreams", "{u: {type: azure}}", "upstreams.u.type", "must be one of openai, vllm, demo, not 'azure'"),
    ("upstreams", "{u: {type: demo, base_url: x}}", "upstreams.u.base_url", "means nothing with type: demo"),
    ("upstreams", "{u: {type: demo, api_key: x}}", "upstreams.u.api_key", "means nothing with type: demo"),
    ("upstreams", "{u: {base_url: 'http://h', api_key: ''}}", "upstreams.u.api_key", "is empty"),
    ("upstreams", "{u: {base_url: 'http://h', timeouts: {idle: -1}}}", "upstreams.u.timeouts.idle", "not -1"),
    # routes
    ("routes", "[]", "routes", "is an empty list; it needs at least one entry"),
    ("routes", "{}", "routes", "must be a list, not a mapping"),
    ("routes", "[{upstream: u, policy: p}]", "routes[0].model", "is required"),
    ("routes", "[{model: '', upstream: u, policy: p}]", "routes[0].model", "is empty"),
    ("routes", "[{model: 4, upstream: u, policy: p}]", "routes[0].model", "quote it"),
    ("routes", "[{model: m, policy: p}]", "routes[0]", "exactly one of upstream and upstreams; it has neither"),
    ("routes", "[{model: m, upstream: v, policy: p}]", "routes[0].upstream", "unknown upstream 'v'; known: u"),
    ("routes", "[{model: m, upstream: u}]", "routes[0].policy", "is required"),
    ("routes", "[{model: m, upstream: u, policy: q}]", "routes[0].policy", "unknown policy 'q'; known: p"),
    ("routes", "[{model: m, upstream: u, policy: p, rename: ''}]", "routes[0].rename", "is empty"),
    # policies
    ("policies", "{}", "policies", "is an empty mapping"),
    ("policies", "{p: }", "policies.p", "must be a mapping with keys such as mode, max_hold, on_overflow, not nothing"),
    ("policies", "{p: {mode: off}}", "policies.p.mode", "must be one of enforce, observe, not off"),
    ("policies", "{p: {max_hold: 0}}", "policies.p.max_hold", "from 1 to 1000000, not 0"),
    ("policies", "{p: {max_hold: 1000001}}", "policies.p.max_hold", "from 1 to 1000000, not 1000001"),
    ("policies", "{p: {on_overflow: drop}}", "policies.p.on_overflow", "one of release, redact, block, not 'drop'"),
    ("policies", "{p: {unknown: 1}}", "policies.p.unknown", "must be one of scan, drop, refuse, not 1"),
    ("policies", "{p: {rules: }}", "policies.p.rules", "must be a list, not nothing"),
    ("policies", "{p: {rules: [x]}}", "policies.p.rules[0]", "must be a mapping with keys such as id, words"),
    ("policies", "{p: {rules: [{id: a, words: [x]}, {id: a}]}}", "policies.p.rules[1]", "it has none"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "value", "path", "reason"), REFUSED_PARTS)
def test_refused_parts(part: str, value: str, path: str, reason: str) -> None:
    refused(text_of(**{part: value}), path, reason)


def test_rule_ids_are_unique_within_a_policy_only() -> None:
    rules = "[{id: a, words: [x]}, {id: b, words: [x]}, {id: a, words: [y]}]"
    reason = "must be an id that no earlier rule of the policy has, not 'a'"
    refused(text_of(policies=f"{{p: {{rules: {rules}}}}}"), "policies.p.rules[2].id", reason)
    config = read_parts(policies="{p: {rules: [{id: a, words: [x]}]}, q: {rules: [{id: a, words: [x]}]}}")
    assert [policy.rules[0].id for policy in config.policies.values()] == ["a", "a"]


@pytest.mark.parametrize("part", PARTS)
def test_required_parts(part: str) -> None:
    text = "\n".join(f"{key}: {value}" for key, value in PARTS.items() if key != part)
    refused(text, part, "is required")


BAD_URLS = {
    "ftp://h": "must be an http or https URL with a host, such as https://api.openai.com/v1, not 'ftp://h'",
    "api.openai.com/v1": "not 'api.openai.com/v1'",
    "http://": "not 'http://'",
    "http:///v1": "not 'http:///v1'",
    "http://h:0": "not 'http://h:0'",
    "http://h:99999": "not 'http://h:99999'",
    "http://h:x": "not 'http://h:x'",
    "http://[::1": "not 'http://[::1'",
    "http://h /v1": "in ASCII without spaces",
    "http://hé": "in ASCII without spaces",
    "http://h\\x": "in ASCII without spaces",
    f"http://user:{SECRET}@h": "(the value is not shown); without user name, query and fragment",
    f"http://h/?key={SECRET}": "(the value is not shown)",
    f"http://h/#{SECRET}": "(the value is not shown)",
    f"user:{SECRET}@h": "(the value is not shown)",
    "": "not ''",
}


@pytest.mark.parametrize(("url", "reason"), BAD_URLS.items())
def test_bad_base_urls(url: str, reason: str) -> None:
    refused(text_of(upstreams=f"{{u: {{base_url: '{url}'}}}}"), "upstreams.u.base_url", reason)


def test_long_values_are_cut() -> None:
    error = refused(text_of(policies=f"{{p: {{mode: {'x' * 1000}}}}}"), "policies.p.mode", "x…'")
    assert len(str(error)) < 200


# Rules

REFUSED_RULES = [
    ("{words: [x]}", "id", "is required"),
    ("{id: 007, words: [x]}", "id", "must be text, not 007; unquoted, YAML reads this as a number: quote it"),
    ("{id: '', words: [x]}", "id", "must be 1 to 64 of the characters A-Z a-z 0-9 _ . : -, not ''"),
    ("{id: a b, words: [x]}", "id", "not 'a b'"),
    (f"{{id: {'a' * 65}, words: [x]}}", "id", "must be 1 to 64 of the characters"),
    ("{id: r}", "", "needs exactly one of words, words_file, pattern, detector; it has none of them"),
    ("{id: r, words: [x], words_file: y}", "", "exactly one of words, words_file, pattern, detector; it has words and"),
    ("{id: r, protect: x}", "protect", "not available in this version; use words, pattern or detector"),
    ("{id: r, words: [x], variants: [reverse]}", "variants", "not available in this version"),
    ("{id: r, words: [x], variants: 0}", "variants", "must be a list, not 0"),
    ("{id: r, words: [x], edits: 1}", "edits", "not available in this version"),
    ("{id: r, words: [x], edits: 3}", "edits", "must be a whole number from 0 to 2, not 3"),
    (
        "{id: r, words: [x], action: censor}",
        "action",
        "one of redact, block, flag, rollback, pseudonymize, not",
    ),
    ("{id: r, words: [x], fold: [case, leet]}", "fold[1]", "'leet' is not available in this version"),
    ("{id: r, words: [x], fold: [confusables]}", "fold[0]", "'confusables' is not available in this version"),
    ("{id: r, words: [x], fold: [spacing]}", "fold[0]", "'spacing' is not available in this version"),
    ("{id: r, words: [x], fold: [upper]}", "fold[0]", "must be one of case, width, accents, invisible, not 'upper'"),
    ("{id: r, words: [x], fold: case}", "fold", "must be a list, not 'case'; write [...] around it"),
    (f"{{id: r, words: {SECRET}}}", "words", "must be a list (the value is not shown); write [...] around it"),
    (f"{{id: r, words: {{{SECRET}: x}}}}", "words", "must be a list, not a mapping"),
    ("{id: r, words: []}", "words", "is an empty list; it needs at least one entry"),
    ("{id: r, words: [a, '']}", "words[1]", "is empty; a word needs at least one character"),
    ("{id: r, words: [a, b, yes]}", "words[2]", "(the value is not shown); unquoted, YAML reads this as true or false"),
    ("{id: r, words: [007]}", "words[0]", "unquoted, YAML reads this as a number: quote it"),
    ("{id: r, words: [7.5]}", "words[0]", "unquoted, YAML reads this as a decimal number: quote it"),
    ("{id: r, words: [2026-01-02]}", "words[0]", "unquoted, YAML reads this as a date: quote it"),
    ("{id: r, words: [=]}", "words[0]", "unquoted, YAML reads this as a sign of YAML's own: quote it"),
    ("{id: r, words: [<<]}", "words[0]", "quote it"),
    ("{id: r, words: [null]}", "words[0]", "must be text, not nothing; quote it if it begins with #"),
    ("{id: r, words: [&x ]}", "words[0]", "must be text, not nothing; quote it if it begins with #, &"),
    (f"{{id: r, words: [{SECRET}: y]}}", "words[0]", "must be text, not a mapping"),
    ("{id: r, words: [x], mask: ''}", "mask", "must be exactly one character, not ''"),
    ("{id: r, words: [x], mask: '**'}", "mask", "must be exactly one character, not '**'"),
    ("{id: r, words: [x], mask: '*', replacement: y}", "mask", "give either mask or replacement, not both"),
    ("{id: r, words: [x], replacement: 1}", "replacement", "quote it"),
    ("{id: r, words: [x], action: block, message: [y]}", "message", "must be text, not a list"),
    ("{id: r, words: [x], guard_tail: -1}", "guard_tail", "must be a whole number, at least 0, not -1"),
    ("{id: r, words: [x], guard_tail: true}", "guard_tail", "not true"),
    ("{id: r, words: [x], secret: 1}", "secret", "must be true or false, not 1"),
    ("{id: r, words: [x], whole_word: 'yes'}", "whole_word", "must be true or false, not 'yes'"),
    ("{id: r, words: [x], whole_word: !!bool maybe}", "whole_word", "must be true or false, not maybe"),
    ("{id: r, words: [x], apply_to: []}", "apply_to", "is an empty list"),
    ("{id: r, words: [x], apply_to: input}", "apply_to", "must be a list, not 'input'; write [...] around it"),
    ("{id: r, words: [x], apply_to: [inptu]}", "apply_to[0]", "must be one of input, output, not 'inptu'"),
    ("{id: r, words: [x], channels: []}", "channels", "is an empty list"),
    ("{id: r, words: [x], channels: [audio]}", "channels[0]", "must be one of content, refusal, reasoning"),
    ("{id: r, words_file: ''}", "words_file", "is empty"),
    ("{id: r, words_file: none.txt}", "words_file", "none.txt: file not found"),
]


@pytest.mark.parametrize(("rule", "key", "reason"), REFUSED_RULES)
def test_refused_rules(rule: str, key: str, reason: str) -> None:
    text = text_of(policies=f"{{p: {{rules: [{{id: first, words: [w]}}, {rule}]}}}}")
    path = "policies.p.rules[1]" + (f".{key}" if key else "")
    refused(text, path, reason)


def test_rule_defaults() -> None:
    rule = read_rule("{id: A-z0.9_:x, words: [' ', '#tag']}")
    assert rule == Rule(id="A-z0.9_:x", words=(" ", "#tag"))
    assert rule.fold == DEFAULT_FOLD
    assert rule.guard_tail is None


# Word lists


def test_a_word_list_drops_comments_spaces_and_blank_lines(tmp_path: Path) -> None:
    lines = [
        "\ufeff# comment",
        "// another",
        "  # indented",
        "#tag",
        " two words\t",
        "",
        "  ",
        "naïve\r",
        "a # b",
        "${A}",
    ]
    (tmp_path / "list.txt").write_bytes("\n".join(lines).encode() + b"\n//\nlast")
    rule = read_rule("{id: r, words_file: list.txt}", base_dir=tmp_path)
    assert rule.words == ("#tag", "two words", "naïve", "a # b", "${A}", "last")
    absolute = read_rule(f"{{id: r, words_file: '{tmp_path}/list.txt'}}")
    assert absolute.words == rule.words


BAD_LISTS = {
    "empty": (b"", "list.txt: holds no words"),
    "only comments": (b"# a\n//b\n\n", "list.txt: holds no words"),
    "invalid UTF-8": (SECRET.encode() + b"\n\xff", "list.txt: line 2: not valid UTF-8"),
    "NUL": (b"a\nb\0", "list.txt: line 2: holds a NUL character"),
}


@pytest.mark.parametrize("sign", ["#", "  #", "\t#"])
def test_e9_a_lone_number_sign_is_refused_with_its_line(sign: str, tmp_path: Path) -> None:
    text = text_of(policies="{p: {rules: [{id: r, words_file: list.txt}]}}")
    path = "policies.p.rules[0].words_file"
    for before, line in (("", 1), ("# a\n# \n#tag\n", 4)):
        (tmp_path / "list.txt").write_text(f"{before}{sign}\nb")
        refused(text, path, f"list.txt line {line}: a lone # could be a comment or a word", base_dir=tmp_path)
    hidden = text_of(policies='{p: {rules: [{id: r, words_file: "${S}"}]}}')
    reason = "the file line 4: a lone # could be a comment or a word"
    refused(hidden, path, reason, {"S": "list.txt"}, base_dir=tmp_path)


def test_e9_other_number_signs_are_comments_or_words(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"# a\n# \n#tag\n##\nb #\n")
    assert read_rule("{id: r, words_file: list.txt}", base_dir=tmp_path).words == ("#tag", "##", "b #")
    assert read_rule("{id: r, words: ['#']}").words == ("#",)


@pytest.mark.parametrize(("data", "reason"), BAD_LISTS.values(), ids=list(BAD_LISTS))
def test_bad_word_lists(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(data)
    text = text_of(policies="{p: {rules: [{id: r, words_file: list.txt}]}}")
    refused(text, "policies.p.rules[0].words_file", reason, base_dir=tmp_path)


def test_a_directory_as_a_word_list(tmp_path: Path) -> None:
    text = text_of(policies="{p: {rules: [{id: r, words_file: .}]}}")
    refused(text, "policies.p.rules[0].words_file", ".: is a directory", base_dir=tmp_path)


def test_a_word_of_which_folding_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"{SECRET}\n\u200b\u200b\n")
    cases = {
        r'words: [x, "\u200b"]': ("words[1]", "after folding (case, invisible, width)"),
        "words_file: list.txt": ("words_file", "list.txt line 2: nothing of this word is left after folding"),
    }
    for words, (key, reason) in cases.items():
        text = text_of(policies=f"{{p: {{rules: [{{id: r, {words}}}]}}}}")
        path = f"policies.p.rules[0].{key}"
        refused(text, path, reason, base_dir=tmp_path)
    exact = read_rule(r'{id: r, words: ["\u200b"], fold: []}')
    assert exact.words == ("\u200b",)


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
