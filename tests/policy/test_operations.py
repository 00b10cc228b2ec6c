"""The parts for running it for weeks: admin listener, several upstreams, journal, telemetry, shared state; and which
files a configuration was read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import ConfigError, load, warnings
from gateway.policy.model import Balance, Fsync, Health, Journal, Listen, ListenAddress, ReadyWhen, Retries, Telemetry
from tests.support.policies import SECRET, read, read_parts, refused, text_of

TWO = "{u: {type: demo}, v: {type: demo}}"
KEY = "sixteen or more."

# What a valid file means

LISTENS = {
    "{admin: {port: 9090}}": Listen(admin=ListenAddress(host="127.0.0.1", port=9090)),
    "{port: 0, admin: {port: 0}}": Listen(port=0, admin=ListenAddress(host="127.0.0.1", port=0)),
    "{admin: {host: 0.0.0.0, port: 9090}}": Listen(admin=ListenAddress(host="0.0.0.0", port=9090)),
    "{admin: {host: '::1', port: 8080}}": Listen(admin=ListenAddress(host="::1", port=8080)),
    "{admin: {host: '::', port: 8080}}": Listen(admin=ListenAddress(host="::", port=8080)),
    "{admin: {host: 127.0.0.2, port: 8080}}": Listen(admin=ListenAddress(host="127.0.0.2", port=8080)),
    "{drain_timeout: 0.5}": Listen(drain_timeout=0.5),
    "{ready_when: always}": Listen(ready_when=ReadyWhen.ALWAYS),
    "{hosts: [Gateway.Internal, 10.0.0.5]}": Listen(hosts=("gateway.internal", "10.0.0.5")),
}


@pytest.mark.parametrize(("written", "listen"), LISTENS.items())
def test_listen(written: str, listen: Listen) -> None:
    assert read_parts(listen=written).listen == listen


def test_health_and_retries_keep_the_defaults_of_what_is_left_out() -> None:
    upstream = read_parts(upstreams="{u: {type: demo, health: {eject_after: 1}, retries: {budget: 0}}}").upstreams["u"]
    assert (upstream.health, upstream.retries) == (Health(eject_after=1), Retries(budget=0.0))


def test_a_route_over_several_upstreams() -> None:
    routes = (
        "[{model: a, upstreams: [v, u], policy: p}, {model: b, upstreams: [u], balance: first, policy: p}, "
        "{model: c, upstreams: [u, v], balance: least_busy, policy: p}]"
    )
    read_routes = read_parts(upstreams=TWO, routes=routes).routes
    assert [route.upstreams for route in read_routes] == [("v", "u"), ("u",), ("u", "v")]
    assert [route.balance for route in read_routes] == [Balance.FIRST, Balance.FIRST, Balance.LEAST_BUSY]


def test_a_journal_lies_beside_the_configuration(tmp_path: Path) -> None:
    text = text_of(journal=f"{{path: logs/j.jsonl, key: '{KEY}'}}")
    assert read(text, base_dir=tmp_path).journal == Journal(path=f"{tmp_path}/logs/j.jsonl", key=KEY)
    assert read(text).journal == Journal(path=str(Path("logs/j.jsonl").absolute()), key=KEY)
    elsewhere = read(text_of(journal=f"{{path: /var/j, key: '{KEY}', fsync: never, keep: 1000}}"), base_dir=tmp_path)
    assert elsewhere.journal == Journal(path="/var/j", key=KEY, fsync=Fsync.NEVER, keep=1000)


def test_the_least_telemetry() -> None:
    telemetry = read_parts(telemetry="{endpoint: 'https://collector.example:4318/otlp/'}").telemetry
    assert telemetry == Telemetry(endpoint="https://collector.example:4318/otlp")


STATES = [
    "redis://h",
    "redis://h/",
    "redis://127.0.0.1:6379/0",
    "redis://[::1]:6379/15",
    f"rediss://user:{SECRET}%40@h:6380/1?ssl_cert_reqs=required",
    "unix:///run/redis.sock",
    f"unix://user:{SECRET}@/run/redis.sock?db=1",
]


@pytest.mark.parametrize("url", STATES)
def test_shared_state(url: str) -> None:
    config = read_parts({"STATE": url}, state="'${STATE}'")
    assert config.state == url
    assert url not in repr(config)


def test_redis_and_state_are_two_names_of_one_key() -> None:
    url = "redis://127.0.0.1:6379/0"
    assert read_parts(redis=url) == read_parts(state=url)
    for key in ("redis", "state"):
        assert warnings(read_parts(**{key: url}))[-1].startswith(f"{key}: no key has a limit")
        refused(text_of(**{key: "http://h"}), key, "must be a redis:// or rediss:// URL with a host")
    both = refused(text_of(redis=url, state=url), "state", "is another name of redis, which is given too; remove one")
    assert both.others == ()


# What is refused

REFUSED = [
    # listen
    ("listen", "{admin: {}}", "listen.admin.port", "is required"),
    ("listen", "{admin: 9090}", "listen.admin", "must be a mapping with keys such as host, port, not 9090"),
    ("listen", "{admin: {prot: 1}}", "listen.admin.prot", "did you mean 'port'?"),
    ("listen", "{admin: {port: 65536}}", "listen.admin.port", "from 0 to 65535, not 65536"),
    ("listen", "{admin: {host: '', port: 1}}", "listen.admin.host", "is empty"),
    ("listen", "{admin: {port: 8080}}", "listen.admin.port", "than listen.port on the same host, not 8080"),
    ("listen", "{host: LocalHost, admin: {host: localhost, port: 8080}}", "listen.admin.port", "another port"),
    ("listen", "{host: '::1', admin: {host: '0:0::1', port: 8080}}", "listen.admin.port", "another port"),
    ("listen", "{admin: {host: 0.0.0.0, port: 8080}}", "listen.admin.port", "another port"),
    ("listen", "{drain_timeout: 0}", "listen.drain_timeout", "must be a positive number of seconds, not 0"),
    ("listen", "{ready_when: never}", "listen.ready_when", "must be one of always, any, all, not 'never'"),
    ("listen", "{hosts: []}", "listen.hosts", "is an empty list"),
    ("listen", "{hosts: gateway}", "listen.hosts", "write [...] around it"),
    ("listen", "{hosts: ['*.internal']}", "listen.hosts[0]", "an IP address (without brackets) or a host name"),
    ("listen", "{hosts: ['gateway:8080']}", "listen.hosts[0]", "an IP address (without brackets) or a host name"),
    # upstreams
    ("upstreams", "{u: {type: demo, health: []}}", "upstreams.u.health", "keys such as eject_after, eject_for"),
    ("upstreams", "{u: {type: demo, health: {eject: 1}}}", "upstreams.u.health.eject", "unknown key"),
    ("upstreams", "{u: {type: demo, health: {eject_after: 0}}}", "upstreams.u.health.eject_after", "at least 1, not 0"),
    ("upstreams", "{u: {type: demo, health: {eject_for: 0}}}", "upstreams.u.health.eject_for", "a positive number"),
    ("upstreams", "{u: {type: demo, retries: {attempts: 11}}}", "upstreams.u.retries.attempts", "from 0 to 10, not 11"),
    ("upstreams", "{u: {type: demo, retries: {budget: 1.1}}}", "upstreams.u.retries.budget", "from 0 to 1, not 1.1"),
    ("upstreams", "{u: {type: demo, retries: {budget: -1}}}", "upstreams.u.retries.budget", "from 0 to 1, not -1"),
    ("upstreams", "{u: {type: demo, retries: {budget: 20%}}}", "upstreams.u.retries.budget", "from 0 to 1, not '20%'"),
    # routes
    ("routes", "[{model: m, upstream: u, upstreams: [u], policy: p}]", "routes[0]", "and upstreams; it has both"),
    ("routes", "[{model: m, upstreams: [], policy: p}]", "routes[0].upstreams", "is an empty list"),
    ("routes", "[{model: m, upstreams: u, policy: p}]", "routes[0].upstreams", "write [...] around it"),
    ("routes", "[{model: m, upstreams: [u, v], policy: p}]", "routes[0].upstreams[1]", "upstream 'v'; known: u"),
    ("routes", "[{model: m, upstreams: [u, u], policy: p}]", "routes[0].upstreams[1]", "not list already, not 'u'"),
    ("routes", "[{model: m, upstream: u, balance: any, policy: p}]", "routes[0].balance", "one of first, least_busy"),
    # journal
    ("journal", "{}", "journal.path", "is required"),
    ("journal", "{path: j}", "journal.key", "is required"),
    ("journal", "j.jsonl", "journal", "must be a mapping with keys such as path, key, fsync, not 'j.jsonl'"),
    ("journal", f"{{path: '', key: '{KEY}'}}", "journal.path", "is empty"),
    ("journal", f'{{path: "a\\0b", key: "{KEY}"}}', "journal.path", "holds a NUL character"),
    ("journal", f"{{path: j, key: {SECRET[1:]}}}", "journal.key", "at least 16 characters (the value is not shown)"),
    ("journal", "{path: j, key: 1234567890123456}", "journal.key", "must be text (the value is not shown); unquoted"),
    ("journal", f"{{path: j, key: '{KEY}', fsync: yes}}", "journal.fsync", "one of always, second, never, not yes"),
    ("journal", f"{{path: j, key: '{KEY}', max_size: 1M}}", "journal.max_size", "must be a size from 1 B"),
    ("journal", f"{{path: j, key: '{KEY}', keep: 1001}}", "journal.keep", "from 0 to 1000, not 1001"),
    ("journal", f"{{path: j, key: '{KEY}', required: 1}}", "journal.required", "must be true or false, not 1"),
    ("journal", f"{{path: j, key: '{KEY}', rotate: 1}}", "journal.rotate", "unknown key"),
    # telemetry
    ("telemetry", "", "telemetry", "must be a mapping with keys such as endpoint, service, sample, not nothing"),
    ("telemetry", "{}", "telemetry.endpoint", "is required"),
    ("telemetry", "{endpoint: 'h:4318'}", "telemetry.endpoint", "such as http://127.0.0.1:4318, not 'h:4318'"),
    ("telemetry", f"{{endpoint: 'http://x:{SECRET}@h'}}", "telemetry.endpoint", "credentials do not belong in the"),
    ("telemetry", "{endpoint: 'http://h', service: ''}", "telemetry.service", "is empty"),
    ("telemetry", "{endpoint: 'http://h', sample: 2}", "telemetry.sample", "must be a number from 0 to 1, not 2"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "value", "path", "reason"), REFUSED)
def test_refused_parts(part: str, value: str, path: str, reason: str) -> None:
    error = refused(text_of(**{part: value}), path, reason)
    assert SECRET[1:] not in str(error)


BAD_STATES = [
    "''",
    f"'{SECRET}'",
    f"redis://:{SECRET}@",
    f"'redis://:{SECRET}@h:0'",
    f"'redis://:{SECRET}@h:x'",
    f"redis://:{SECRET}@h/one",
    f"redis://:{SECRET}#x@h",
    f"redis://:{SECRET}@h/0#x",
    f"'redis://:{SECRET} @h'",
    f"redis:/{SECRET}@h",
    f"http://:{SECRET}@h",
    f"unix://{SECRET}",
    f"unix://{SECRET}/run/redis.sock",
    "unix:///",
]


@pytest.mark.parametrize("url", BAD_STATES)
def test_a_state_that_is_no_redis_address_is_never_shown(url: str) -> None:
    refused(
        text_of(state=url), "state", "must be a redis:// or rediss:// URL with a host, or a unix:// URL with a path"
    )


# Which files it was read from

LISTS = "{p: {rules: [{id: a, words_file: a.txt}, {id: b, words_file: lists/b.txt}, {id: c, words_file: a.txt}]}}"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "lists").mkdir()
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "lists/b.txt").write_text("b")
    file = tmp_path / "portcullis.yaml"
    file.write_text(text_of(policies=LISTS))
    return file


def test_every_file_is_listed_once_in_the_order_of_reading(written: Path) -> None:
    here = written.parent
    assert load(written, {}).files == (str(written), f"{here}/a.txt", f"{here}/lists/b.txt")


def test_a_relative_name_is_listed_as_an_absolute_path(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load(written, {}).files
    monkeypatch.chdir(written.parent / "lists")
    config = load("../portcullis.yaml", {})
    assert all(Path(file).is_absolute() for file in config.files)
    assert [Path(file).resolve() for file in config.files] == [Path(file) for file in expected]


def test_symbolic_links_are_listed_as_themselves(written: Path) -> None:
    """A mounted ConfigMap is swapped by changing a link, so it is the link that has to be watched."""
    link = written.parent / "current.yaml"
    link.symlink_to(written)
    assert load(link, {}).files[0] == str(link)


FAILURES = {
    "file that is not there": (None, "a.txt", 0),
    "syntax": ("[", "a.txt", 1),
    "first list that is not there": (text_of(policies=LISTS), "a.txt", 3),  # the file is read on
    "second list that is not there": (text_of(policies=LISTS), "lists/b.txt", 3),
    "what is read after the lists": (text_of(policies=LISTS, state="x"), "other.txt", 3),
}


@pytest.mark.parametrize(("text", "missing", "count"), FAILURES.values(), ids=list(FAILURES))
def test_a_refusal_knows_the_files_that_were_opened(written: Path, text: str | None, missing: str, count: int) -> None:
    every = load(written, {}).files
    if text is None:
        written = written.with_name("none.yaml")
    else:
        written.write_text(text)
    (written.parent / missing).unlink(missing_ok=True)
    with pytest.raises(ConfigError) as caught:
        load(written, {})
    assert caught.value.files == (every[:count] if count else (str(written),))
