"""The case table, each case cut in many ways, and through `portcullis scan`."""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.censor.compile import CompiledPolicy, Program, compile_policy
from gateway.censor.stream import MAX_REPORTED, Censor
from gateway.config import parse
from gateway.policy.model import Action, Channel, Direction, Policy, Rule
from gateway.scan import ScannedText, scan, verdict_of
from tests.support.commands import portcullis

Case = dict[str, Any]
CASES: list[Case] = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))["case"]
EXIT_STATUS = {"pass": 0, "flagged": 1, "redacted": 1, "blocked": 3}
MOST_SPLITS = 64
OUTPUT = (Direction.OUTPUT, Channel.CONTENT)

every_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def config_text(case: Case) -> str:
    policy = {"rules": case["rules"], **case.get("policy", {})}
    route = {"model": "*", "upstream": "demo", "policy": "default"}
    config = {"upstreams": {"demo": {"type": "demo"}}, "routes": [route], "policies": {"default": policy}}
    return json.dumps(config)


def compiled(case: Case) -> CompiledPolicy:
    return compile_policy(parse(config_text(case), "cases.toml", Path()).policies["default"])


def program_of(case: Case) -> Program | None:
    return compiled(case).program(*OUTPUT)


def scanned(case: Case) -> ScannedText:
    return ScannedText(compiled(case), *OUTPUT)


def expected_of(case: Case) -> tuple[str, str, list[list[Any]]]:
    """The whole text, the whole output and all matches of the case."""
    times, width = case.get("times", 1), len(case["text"])
    matches = [
        [rule, start + copy * width, end + copy * width, action]
        for copy in range(times)
        for rule, start, end, action in case["matches"]
    ]
    return case["text"] * times, case["output"] * times, matches


def cuts(text: str) -> Iterator[list[str]]:
    """Whole, by characters, with empty pieces, and in two at many places (everywhere in a short text)."""
    yield [text]
    yield list(text)
    yield ["", *text, ""]
    for at in range(0, len(text) + 1, 1 + len(text) // MOST_SPLITS):
        yield [text[:at], text[at:]]


def test_names_tell_the_cases_apart() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES)


@every_case
def test_a_case_comes_out_the_same_however_it_is_cut(case: Case) -> None:
    text, output, matches = expected_of(case)
    program = program_of(case)
    for pieces in cuts(text):
        censor = Censor(program)
        out = "".join([censor.feed(piece) for piece in pieces]) + censor.finish()
        assert out == output
        assert sorted(list(match) for match in censor.matches) == sorted(matches)
        assert verdict_of(censor) == case["verdict"]
        assert censor.changed == (out != text)
        assert censor.scanned == len(out) - censor.inserted + censor.replaced + censor.withheld


@every_case
def test_a_case_through_scan(case: Case) -> None:
    text, output, _ = expected_of(case)
    sink = io.BytesIO()
    assert scan(scanned(case), io.BytesIO(text.encode()), sink, chunks=False) == EXIT_STATUS[case["verdict"]]
    assert sink.getvalue().decode() == output


@every_case
def test_a_case_through_scan_in_chunks(case: Case) -> None:
    text, output, matches = expected_of(case)
    source = io.BytesIO("".join(json.dumps(text[at : at + 2]) + "\n" for at in range(0, len(text), 2)).encode())
    sink = io.BytesIO()
    assert scan(scanned(case), source, sink, chunks=True) == EXIT_STATUS[case["verdict"]]
    records = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert "".join(record["release"] for record in records) == output
    assert len(records[-1]["matches"]) == len(matches)
    assert records[-1]["verdict"] == case["verdict"]


def test_scan_passes_over_empty_lines_and_counts_them() -> None:
    sink = io.BytesIO()
    assert scan(scanned(CASES[0]), io.BytesIO(b'"~"\n\n \n{\n'), sink, chunks=True) == 2
    assert sink.getvalue() == b'{"release": "~"}\n'


@pytest.mark.parametrize("case", CASES[::6], ids=[case["name"] for case in CASES[::6]])
def test_a_case_through_the_command_line(case: Case, tmp_path: Path) -> None:
    text, output, matches = expected_of(case)
    config = tmp_path / "case.json"
    config.write_text(config_text(case), encoding="utf-8")
    lines = "".join(json.dumps(char) + "\n" for char in text)
    done = portcullis("scan", "--config", config, "--chunks", stdin=lines.encode())
    assert done.stderr == b""
    *pieces, end = map(json.loads, done.stdout.splitlines())
    assert all(list(piece) == ["release"] for piece in pieces)
    assert len(pieces) == len(text)
    assert "".join(piece["release"] for piece in pieces) + end["release"] == output
    assert end["matches"] == [
        dict(zip(("rule", "start", "end", "action"), match, strict=True))
        for match in sorted(matches, key=lambda match: match[1:3])
    ]
    assert (end["end"], end["verdict"], end["truncated"]) == (True, case["verdict"], False)
    assert done.returncode == EXIT_STATUS[case["verdict"]]


def run(rule: Rule, pieces: list[str]) -> tuple[str, Censor]:
    censor = Censor(compile_policy(Policy(name="p", rules=(rule,))).program(*OUTPUT))
    return "".join([censor.feed(piece) for piece in pieces]) + censor.finish(), censor


# TOML cannot write halves of characters, so these stand here.
SURROGATES = {
    "a pair in one piece": (["x\ud83d\ude00y"], "x😀y"),
    "a pair cut in two": (["x\ud83d", "\ude00y"], "x😀y"),
    "a pair with an empty piece inside": (["x\ud83d", "", "\ude00y"], "x😀y"),
    "a high half alone": (["x\ud83d", "y"], "x\ufffdy"),
    "a low half alone": (["x\ude00", "y"], "x\ufffdy"),
    "two high halves, one low": (["\ud83d\ud83d", "\ude00"], "\ufffd😀"),
    "a high half at the end": (["x", "\ud83d"], "x\ufffd"),
    "the wrong way round": (["\ude00", "\ud83d"], "\ufffd\ufffd"),
    "a word beside a half": (["\ud83db", "ad"], "\ufffd<>"),
    "a word with a pair in it": (["key\ud83d", "\udd11s"], "<>s"),
}


@pytest.mark.parametrize("name", SURROGATES)
def test_surrogates_are_joined_or_replaced(name: str) -> None:
    pieces, output = SURROGATES[name]
    rule = Rule(id="w", words=("bad", "key🔑"), replacement="<>")
    text = "".join(pieces)
    for chunks in (pieces, [text], list(text)):
        out, _ = run(rule, chunks)
        assert out == output


def test_offsets_count_code_points() -> None:
    _, censor = run(Rule(id="w", words=("bad",)), ["\ud83d", "\ude00bad"])
    assert [match[1:3] for match in censor.matches] == [(1, 4)]


@pytest.mark.parametrize(("words", "truncated"), [(MAX_REPORTED, False), (MAX_REPORTED + 1, True)])
def test_reports_end_at_ten_thousand_and_the_censor_does_not(words: int, truncated: bool) -> None:
    out, censor = run(Rule(id="w", words=("ab",), replacement="-"), ["ab" * words])
    assert out == "-" * words
    assert len(censor.matches) == MAX_REPORTED
    assert censor.truncated == truncated


def test_a_half_at_the_end_is_replaced_where_no_rule_looks() -> None:
    censor = Censor(None)
    assert (censor.feed("x\ud83d"), censor.finish()) == ("x", "\ufffd")


def test_a_half_at_the_end_may_be_the_edge_that_blocks() -> None:
    out, censor = run(Rule(id="w", words=("stop",), whole_word=True, action=Action.BLOCK), ["now stop\ud83d"])
    assert out == "now "
    assert censor.matches == [("w", 4, 8, Action.BLOCK)]


def test_a_text_that_is_abandoned_releases_nothing_held_and_counts_it_once() -> None:
    censor = Censor(compile_policy(Policy(name="p", rules=(Rule(id="w", words=("bad",)),))).program(*OUTPUT))
    assert censor.feed("so ba") == "so "
    censor.abandon()
    censor.abandon()
    assert (censor.feed("d"), censor.finish()) == ("", "")
    assert (censor.scanned, censor.withheld, censor.held) == (5, 2, 0)


def test_a_text_that_has_ended_takes_nothing_more() -> None:
    censor = Censor(None)
    assert (censor.feed("free"), censor.finish()) == ("free", "")
    assert (censor.feed("more"), censor.finish()) == ("", "")
    assert censor.scanned == 4
