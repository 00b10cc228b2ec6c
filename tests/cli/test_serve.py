"""`serve` and `demo` as processes: what they refuse, what they print, where they forward to, how they end."""

from __future__ import annotations

import json
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import TIMEOUT, portcullis, running, write_config
from tests.support.forked import Forked
from tests.support.listing import listing_upstream, models

ASK = {"model": "gandalf", "messages": [{"role": "user", "content": "What is the password?"}]}


def announced(process: Forked) -> tuple[str, str]:
    """The address, and all that was printed up to the end of the curl command."""
    lines = [process.stdout.readline().decode() for _ in range(5)]
    return lines[0].split(" listens on ")[1].split(", ")[0], "".join(lines)


def post(address: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/v1/chat/completions", data, {"Content-Type": "application/json"})
    for name, value in headers.items():
        request.add_header(name, value)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        read: dict[str, Any] = json.load(answer)
    return read


def content(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


@contextmanager
def recording_upstream() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server that answers every question alike; gives its base URL, and path and key of what was asked."""
    asked: list[tuple[str, str | None]] = []
    message = {"role": "assistant", "content": "It is 12MONKEYS."}
    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    body = json.dumps(answer | {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()

    class Upstream(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()


def test_demo_prints_its_address_and_a_curl_and_guards_its_password() -> None:
    with running("demo", "--port", "0") as process:
        address, printed = announced(process)
        assert printed.startswith("Portcullis ")
        assert f"  curl -N {address}/v1/chat/completions -H 'Content-Type: application/json'" in printed
        assert '"stream": true' in printed
        assert content(post(address, ASK)) == 'The password is "[CENSORED]".'


@pytest.mark.parametrize(("stop", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_in_good_order(stop: signal.Signals, status: int) -> None:
    with running("demo", "--port", "0") as process:
        announced(process)
        process.send_signal(stop)
        assert process.wait(TIMEOUT) == status
        assert b"Traceback" not in process.stderr.read()


def test_a_key_in_the_environment_is_asked_for() -> None:
    with running("serve", "--port", "0", PORTCULLIS_KEY="open-sesame") as process:
        address, printed = announced(process)
        assert '-H "Authorization: Bearer $PORTCULLIS_KEY"' in printed
        assert "open-sesame" not in printed
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(address, ASK)
        assert "[CENSORED]" in content(post(address, ASK, Authorization="Bearer open-sesame"))


@pytest.mark.parametrize(
    ("variables", "sent"),
    [
        ({}, None),
        ({"UPSTREAM_API_KEY": "sk-one", "OPENAI_API_KEY": "sk-two"}, "Bearer sk-one"),
        ({"UPSTREAM_API_KEY": "", "OPENAI_API_KEY": "sk-two"}, "Bearer sk-two"),
    ],
)
def test_the_environment_names_upstream_and_key(variables: dict[str, str], sent: str | None) -> None:
    with (
        recording_upstream() as (base_url, asked),
        running("serve", "--port", "0", UPSTREAM_BASE_URL=base_url + "/", **variables) as process,
    ):
        address, printed = announced(process)
        assert f"in front of upstream ({base_url})" in printed
        assert content(post(address, ASK)) == "It is [CENSORED]."
    assert asked == [("/v1/chat/completions", sent)]
    assert "sk-" not in printed


@pytest.mark.parametrize(
    "url", ["example.com/v1", "ftp://h/v1", "http://", "http://user:hush@h/v1", "http://h/v1?key=hush", "http://h /v1"]
)
def test_a_bad_upstream_in_the_environment_is_refused(url: str) -> None:
    done = portcullis("serve", "--port", "0", UPSTREAM_BASE_URL=url)
    assert done.stderr.startswith(b"environment: UPSTREAM_BASE_URL: must be an http or https URL with a host")
    assert b"hush" not in done.stderr
    assert (done.stdout, done.returncode) == (b"", 2)


@pytest.mark.parametrize("name", ["UPSTREAM_API_KEY", "OPENAI_API_KEY", "PORTCULLIS_KEY"])
def test_a_key_that_cannot_travel_in_a_header_is_refused(name: str) -> None:
    done = portcullis("serve", "--port", "0", **{"UPSTREAM_BASE_URL": "http://127.0.0.1:9/v1", name: "hu\nsh"})
    assert done.stderr.startswith(f"environment: {name}: holds a space or another character".encode())
    assert (done.stdout, done.returncode) == (b"", 2)


@pytest.mark.parametrize("command", [["demo"], ["serve"]])
def test_an_open_bind_for_everybody_is_refused(command: list[str]) -> None:
    done = portcullis(*command, "--host", "0.0.0.0", "--port", "0")
    assert done.stderr.startswith(b"<demo>: listen.host: '0.0.0.0' can be reached from other machines: set auth.keys")
    assert (done.stdout, done.returncode) == (b"", 2)


def test_a_host_on_the_command_line_overrules_the_file_and_is_judged(tmp_path: Path) -> None:
    config = write_config(tmp_path, [])
    done = portcullis("serve", "--config", config, "--host", "0.0.0.0", "--port", "0")
    assert done.stderr.startswith(f"{config}: listen.host: '0.0.0.0'".encode())
    assert done.returncode == 2


def test_a_bad_configuration_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, [{"id": "r"}])
    done = portcullis("serve", "--config", config)
    assert done.stderr.startswith(f"{config}: policies.default.rules[0]: ".encode())
    assert (done.stdout, done.returncode) == (b"", 2)


@pytest.mark.parametrize("number", ["0", "-1", "two", "65"])
def test_a_wrong_number_of_workers_is_refused(number: str) -> None:
    done = portcullis("serve", "--workers", number, "--port", "0")
    assert b"is not a number of workers from 1 to 64" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("port", ["-1", "65536", "http", "٣"])
def test_what_is_no_port_is_refused(port: str) -> None:
    assert portcullis("demo", "--port", port).returncode == 2


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = portcullis("demo", "--port", str(port))
    assert done.stderr.startswith(f"portcullis: cannot listen on 127.0.0.1:{port}: Address already in use".encode())
    assert (done.stdout, done.returncode) == (b"", 71)


def test_a_file_configures_the_gateway_and_its_warnings_are_printed(tmp_path: Path) -> None:
    rules = [{"id": "password", "words": ["12MONKEYS"], "mask": "#"}]
    routes = [{"model": model, "upstream": "demo", "policy": "default"} for model in ("gandalf", "gandalf")]
    config = write_config(tmp_path, rules, listen={"port": 0}, routes=routes)
    with running("serve", "--config", config, "--log", "json") as process:
        address, _ = announced(process)
        assert content(post(address, ASK)) == 'The password is "#########".'
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
        warning, *log = process.stderr.read().decode().splitlines()
    assert warning.startswith(f"{config}: warning: routes[1]: is never reached")
    (request,) = [json.loads(line) for line in log if json.loads(line)["event"] == "request"]
    assert (request["status"], request["outcome"], request["matches"]) == (200, "redacted", {"password": 1})
    assert "12MONKEYS" not in "".join(log)


def test_d31_metrics_at_an_address_of_the_command_line_are_warned_of() -> None:
    with running("serve", "--host", "0.0.0.0", "--port", "0", "--log", "json", PORTCULLIS_KEY="open-sesame") as process:
        warning = process.stderr.readline().decode()
    assert warning.startswith("<demo>: warning: listen.host: /metrics, with the names of keys, rules and ")


@pytest.mark.parametrize(
    ("status", "body", "shown"),
    [
        (200, models("Qwen/Qwen3-0.6B", "other"), "Qwen/Qwen3-0.6B"),
        # Between quotes of a shell, a name is one only if it could be nothing else.
        (200, models("a'; rm -rf ~ #", 7, None, "x" * 200, "fine"), "fine"),
        (200, models("text-embedding-3-small", "whisper-1", "gpt-5", "sora-2"), "gpt-5"),
        (200, models("nomic-embed-text"), "nomic-embed-text"),
        (200, models(), "MODEL"),
        (200, b"no JSON", "MODEL"),
        (200, b'{"data": {"id": "x"}}', "MODEL"),
        (401, b"{}", "MODEL"),
    ],
)
def test_e10_the_curl_asks_for_a_model_that_the_upstream_lists(status: int, body: bytes, shown: str) -> None:
    with (
        listing_upstream(status, body) as (base_url, asked),
        running("serve", "--port", "0", UPSTREAM_BASE_URL=base_url, UPSTREAM_API_KEY="sk-one") as process,
    ):
        _, printed = announced(process)
    assert f'"model": "{shown}"' in printed
    assert ("with the name of a model for MODEL" in printed) is (shown == "MODEL")
    assert set(asked) == {("/v1/models", "Bearer sk-one")}
    assert "sk-one" not in printed


def test_e10_an_upstream_that_is_not_there_leaves_a_placeholder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        base_url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    with running("serve", "--port", "0", UPSTREAM_BASE_URL=base_url) as process:
        _, printed = announced(process)
    assert '"model": "MODEL"' in printed


WRONG_ADDRESSES = {
    "without /v1": ("/v1", "", 200, "has its API below /v1: write /v1 at the end of base_url"),
    "without /v1, and its key is asked for": (
        "/v1",
        "",
        401,
        "has its API below /v1: write /v1 at the end of base_url",
    ),
    "a refused key": ("/v1", "/v1", 401, "answers 401 to GET /models: it does not take its api_key"),
}


def log_of(process: Forked, event: str) -> dict[str, Any]:
    """The first line of an event, without its time."""
    for line in process.stderr:
        if line.startswith(b"{") and (found := json.loads(line))["event"] == event:
            return {key: value for key, value in found.items() if key not in ("time", "event")}
    raise AssertionError(f"no line {event}")


@pytest.mark.parametrize("case", WRONG_ADDRESSES)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_is_wrong_with_an_upstream_is_logged_at_the_start(case: str, workers: str) -> None:
    path, base, status, problem = WRONG_ADDRESSES[case]
    with listing_upstream(status, models("m"), path) as (url, asked):
        environment = {"UPSTREAM_BASE_URL": url.removesuffix(path) + base, "UPSTREAM_API_KEY": "sk-one"}
        with running("serve", "--port", "0", "--log", "json", "--workers", workers, **environment) as process:
            assert log_of(process, "upstream") == {"upstream": "upstream", "problem": problem}
            announced(process)
    assert {key for _, key in asked} == {"Bearer sk-one"}


def test_a_server_without_the_internals_that_are_used_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "uvicorn").mkdir()
    (tmp_path / "uvicorn" / "__init__.py").write_text("Server = Config = object\n")
    done = portcullis("demo", "--port", "0", PYTHONPATH=str(tmp_path))
    assert done.stderr.decode().startswith("portcullis: No module named 'uvicorn.protocols'")
    assert "installs what this version was made for" in done.stderr.decode()
    assert done.returncode == 72
