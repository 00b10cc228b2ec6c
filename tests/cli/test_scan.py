"""`portcullis scan`: what it writes, when it writes it, and its exit status."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.censor.compile import compile_policy
from gateway.guard.channels import ChannelCounts
from gateway.guard.findings import Finding
from gateway.guard.guardedjson import GuardedJson
from gateway.policy.model import Channel, Direction, Policy, Rule
from gateway.scan import ScannedText
from tests.support.commands import TIMEOUT, portcullis, running, write_config
from tests.support.examples import examples

PASSWORD = {"id": "password", "words": ["12MONKEYS"], "replacement": "[CENSORED]"}
NAME = {"id": "name", "words": ["falcon"], "action": "flag"}
STOP = {"id": "stop", "words": ["STOP"], "action": "block", "message": "Not here."}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path, [PASSWORD, NAME, STOP])


def lines(*deltas: str) -> bytes:
    return "".join(json.dumps(delta) + "\n" for delta in deltas).encode()


def records(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.decode().splitlines()]


@pytest.mark.parametrize(
    ("text", "output", "status"),
    [
        ("nothing to see", "nothing to see", 0),
        ("", "", 0),
        ("it is 12monkeys!", "it is [CENSORED]!", 1),
        ("a falcon", "a falcon", 1),
        ("continue, STOP there", "continue, ", 3),
        ("naïve 😀 密码\n", "naïve 😀 密码\n", 0),
    ],
)
def test_plain_text(config: Path, text: str, output: str, status: int) -> None:
    done = portcullis("scan", "--config", config, stdin=text.encode())
    assert (done.stdout.decode(), done.returncode) == (output, status)


def test_a_block_says_its_rule_and_message(config: Path) -> None:
    done = portcullis("scan", "--config", config, stdin=b"STOP")
    assert done.stderr == b"portcullis: blocked by rule 'stop': Not here.\n"


def test_a_block_without_a_message(tmp_path: Path) -> None:
    config = write_config(tmp_path, [{"id": "stop", "words": ["STOP"], "action": "block"}])
    done = portcullis("scan", "--config", config, stdin=b"STOP")
    assert done.stderr == b"portcullis: blocked by rule 'stop'\n"


def test_bytes_that_are_no_utf8_become_replacement_characters(config: Path) -> None:
    done = portcullis("scan", "--config", config, stdin=b"a\xff12MON\xc3")
    assert done.stdout.decode() == "a\ufffd12MON\ufffd"


def test_plain_text_is_released_before_the_input_ends(config: Path) -> None:
    with running("scan", "--config", config) as process:
        process.stdin.write("it is é"[:-1].encode() + b"\xc3")
        assert process.stdout.read(6) == b"it is "
        process.stdin.write(b"\xa9 12MON")
        assert process.stdout.read(3) == "é ".encode()
        process.stdin.write(b"KEYS")
        assert process.stdout.read(10) == b"[CENSORED]"
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(TIMEOUT) == 1


def test_chunks_are_answered_line_by_line(config: Path) -> None:
    expected = [("The is 12", "The is "), ("MON", ""), ("", ""), ("KEY", ""), ("S.", "[CENSORED]."), ("falc", "falc")]
    with running("scan", "--config", config, "--chunks") as process:
        for delta, release in expected:
            process.stdin.write(lines(delta))
            assert process.stdout.readline() == json.dumps({"release": release}).encode() + b"\n"
        process.stdin.write(lines("on 12MO"))
        assert json.loads(process.stdout.readline()) == {"release": "on "}
        process.stdin.close()
        assert json.loads(process.stdout.readline()) == {
            "end": True,
            "release": "12MO",
            "verdict": "redacted",
            "matches": [
                {"rule": "password", "start": 7, "end": 16, "action": "redact"},
                {"rule": "name", "start": 17, "end": 23, "action": "flag"},
            ],
            "truncated": False,
        }
        assert process.stdout.read() == b""
        assert process.wait(TIMEOUT) == 1


def test_after_a_block_every_release_is_empty(config: Path) -> None:
    done = portcullis("scan", "--config", config, "--chunks", stdin=lines("go STO", "P or 12MONKEYS", "not", ""))
    *releases, end = records(done.stdout)
    assert releases == [{"release": "go "}, {"release": ""}, {"release": ""}, {"release": ""}]
    assert (end["release"], end["verdict"]) == ("", "blocked")
    assert end["matches"] == [{"rule": "stop", "start": 3, "end": 7, "action": "block"}]
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("deltas", "verdict", "status"),
    [(["clean"], "pass", 0), ([], "pass", 0), (["falcon"], "flagged", 1), (["12MONKEYS"], "redacted", 1)],
)
def test_the_exit_status_follows_the_verdict(config: Path, deltas: list[str], verdict: str, status: int) -> None:
    done = portcullis("scan", "--config", config, "--chunks", stdin=lines(*deltas))
    assert (records(done.stdout)[-1]["verdict"], done.returncode) == (verdict, status)


def test_characters_outside_ascii_are_written_as_they_are(config: Path) -> None:
    done = portcullis("scan", "--config", config, "--chunks", stdin=b'"\\ud83d"\n"\\ude00 \\u00e9"\n')
    assert done.stdout.decode().splitlines()[:2] == ['{"release": ""}', '{"release": "😀 é"}']


@pytest.mark.parametrize("line", [b"{}", b"7", b"null", b"'single'", b'"open', b'"a" "b"', b'"\xff"', b"[" * 100_000])
def test_a_line_that_is_no_json_string_is_refused_by_its_number(config: Path, line: bytes) -> None:
    done = portcullis("scan", "--config", config, "--chunks", stdin=lines("free") + line + b"\n" + lines("never read"))
    assert records(done.stdout) == [{"release": "free"}]
    assert done.stderr == b"portcullis: standard input line 2: not a JSON string\n"
    assert done.returncode == 2


def policy_of(word: str, **keys: Any) -> dict[str, Any]:
    return {"rules": [{"id": "r", "words": [word], "replacement": "<>", **keys}]}


@pytest.fixture
def several(tmp_path: Path) -> Path:
    policies = {
        "default": policy_of("one"),
        "other": policy_of("two"),
        "prompts": policy_of("one", apply_to=["input"]),
        "thoughts": policy_of("one", channels=["reasoning"]),
    }
    return write_config(tmp_path, [], policies=policies)


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ([], "<> two"),
        (["--policy", "default"], "<> two"),
        (["--policy", "other"], "one <>"),
        (["--policy", "prompts"], "one two"),
        (["--policy", "prompts", "--direction", "input"], "<> two"),
        (["--direction", "input"], "one two"),
        (["--policy", "thoughts"], "one two"),
        (["--policy", "thoughts", "--channel", "reasoning"], "<> two"),
    ],
)
def test_policy_direction_and_channel(several: Path, options: list[str], output: str) -> None:
    assert portcullis("scan", "--config", several, *options, stdin=b"one two").stdout.decode() == output


def test_the_only_policy_is_the_default(tmp_path: Path) -> None:
    routes = [{"model": "*", "upstream": "demo", "policy": "mine"}]
    config = write_config(tmp_path, [], policies={"mine": policy_of("one")}, routes=routes)
    assert portcullis("scan", "--config", config, stdin=b"one").stdout == b"<>"


def test_an_unknown_policy_is_refused(several: Path) -> None:
    done = portcullis("scan", "--config", several, "--policy", "nosuch")
    known = "default, other, prompts, thoughts"
    assert done.stderr.decode() == f"{several}: policies.nosuch: no such policy; there are: {known}\n"
    assert done.returncode == 2


@pytest.mark.parametrize("option", [["--direction", "sideways"], ["--channel", "smell"], ["--colour"]])
def test_options_that_are_none_are_refused(several: Path, option: list[str]) -> None:
    assert portcullis("scan", "--config", several, *option).returncode == 2


def test_a_configuration_that_is_wrong_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    config = write_config(tmp_path, [{"id": "r"}])
    done = portcullis("scan", "--config", config, stdin=b"one")
    assert (done.stdout, done.returncode) == (b"", 2)
    assert done.stderr.decode().startswith(f"{config}: policies.default.rules[0]: needs exactly one of words")


def test_an_internal_error_has_a_status_of_its_own_and_quotes_nothing(config: Path) -> None:
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("/dev/full is Linux's")
    with device.open("wb") as full, running("scan", "--config", config, stdout=full) as process:
        process.stdin.write(b"a text that finds no room")
        process.stdin.close()
        errors = process.stderr.read()
        assert process.wait(TIMEOUT) == 70
    assert errors.startswith(b"portcullis: internal error: OSError at scan.py line ")
    assert len(errors.splitlines()) == 1


def test_a_reader_that_leaves_is_no_crash(config: Path) -> None:
    with running("scan", "--config", config) as process:
        process.stdout.close()
        process.stdin.write(b"text")
        process.stdin.close()
        assert process.wait(TIMEOUT) == 74
        assert process.stderr.read() == b""


def test_an_interrupt_ends_it_in_silence(config: Path) -> None:
    with running("scan", "--config", config) as process:
        process.stdin.write(b"x")
        assert process.stdout.read(1) == b"x"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
        assert process.stderr.read() == b""


CARD = {"id": "card", "words": ["4111"]}


@pytest.mark.parametrize(
    ("text", "output", "found"),
    [
        (r'{"a": "\u0031\u0032MONKEYS", "b": "é"}', '{"a": "[CENSORED]", "b": "é"}', r"\u0031\u0032MONKEYS"),
        ('{"card": 4111}', '{"card": "[REDACTED]"}', "4111"),
        (r'{"in": "{\"a\": \"12\\u004dONKEYS\"}"}', r'{"in": "{\"a\": \"[CENSORED]\"}"}', r"12\\u004dONKEYS"),
        ("no JSON: 12MONKEYS", "no JSON: [CENSORED]", "12MONKEYS"),
    ],
)
def test_arguments_of_tools_are_read_as_the_gateway_reads_them(
    tmp_path: Path, text: str, output: str, found: str
) -> None:
    config = write_config(tmp_path, [PASSWORD, CARD])
    done = portcullis("scan", "--config", config, "--channel", "tool_arguments", stdin=text.encode())
    assert (done.stdout.decode(), done.returncode) == (output, 1)
    cut = [text[at : at + 3] for at in range(0, len(text), 3)]
    done = portcullis("scan", "--config", config, "--channel", "tool_arguments", "--chunks", stdin=lines(*cut))
    *released, end = records(done.stdout)
    assert "".join(each["release"] for each in [*released, end]) == output
    (match,) = end["matches"]
    assert match["rule"] == ("card" if found == "4111" else "password")
    assert text[match["start"] : match["end"]] == found


def test_a_block_closes_the_arguments(config: Path) -> None:
    given = b'{"a": ["continue, STOP there"], "b": 1}'
    done = portcullis("scan", "--config", config, "--channel", "tool_arguments", stdin=given)
    assert (done.stdout, done.returncode) == (b'{"a": ["continue, "]}', 3)


def test_content_has_its_escapes_seen_through(config: Path) -> None:
    done = portcullis("scan", "--config", config, stdin=rb'{"a": "12\u004dONKEYS"}')
    assert (done.stdout, done.returncode) == (b'{"a": "[CENSORED]"}', 1)


VALUES = st.recursive(
    st.text('ab1" \\\\é', max_size=6) | st.integers(0, 200) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(value=VALUES.filter(lambda value: not isinstance(value, int)), cut=st.integers(0, 40))
@settings(max_examples=examples(100))
def test_what_is_told_of_arguments_is_what_came_out(value: object, cut: int) -> None:
    rules = tuple(Rule(id=word, words=(word,)) for word in ("ab", "1", "a1"))
    compiled = compile_policy(Policy(name="default", rules=rules))
    text = json.dumps(value)
    scanned, found = ScannedText(compiled, Direction.OUTPUT, Channel.TOOL_ARGUMENTS), list[Finding]()
    out = scanned.feed(text[:cut]) + scanned.feed(text[cut:]) + scanned.finish()
    guarded = GuardedJson(ChannelCounts(compiled, Direction.OUTPUT, found.append), Channel.TOOL_ARGUMENTS)
    assert out == guarded.feed(text) + guarded.finish()
    assert sorted(match.rule for match in scanned.censor.matches) == sorted(each.rule for each in found)
