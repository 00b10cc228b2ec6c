"""`portcullis audit`: rules from what was found, prompts and a policy, and the verification of both."""

from __future__ import annotations

import json
import math
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.audit.model import Floats
from gateway.audit.models.masked import MaskedModel
from gateway.config import load
from gateway.policy.model import Action, Decode
from tests.support.audit_command import NUMBERS, RESULT_FIELDS, Audit, under_a_policy
from tests.support.fake_gateway import choices, gateway
from tests.support.memory import Memory

Json = dict[str, Any]


pytestmark = pytest.mark.usefixtures("own_environment")


# -- rules, and what they change ---------------------------------------------------------------------------------------


def test_what_was_found_becomes_rules(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    done = audit(query(), "--emit-rules", rules)
    assert done.error == f"portcullis: {rules}: 3 rules\n"
    policy = load(under_a_policy(rules)).policies["default"]
    assert [rule.words for rule in policy.rules] == [("212 0000",), ("555 0100",), ("555 0199",)]
    assert {(rule.action, rule.decode) for rule in policy.rules} == {(Action.REDACT, None)}
    assert stat.S_IMODE(rules.stat().st_mode) == 0o600


def test_rules_are_of_the_wanted_kind(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    audit(query(), "--emit-rules", rules, "--rules-action", "block", "--rules-mask")
    policy = load(under_a_policy(rules)).policies["default"]
    assert {(rule.action, rule.decode) for rule in policy.rules} == {(Action.BLOCK, Decode.MASK)}


def test_short_words_are_pointed_out(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    done = audit(query(query="My number is [0-9]{3}"), "--emit-rules", tmp_path / "rules.yaml")
    assert "3 rules, 3 of them with a word so short" in done.error


def test_masked_none_of_it_is_said(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query(), "--verify", "mask")
    assert (done.status, done.still) == (0, [])
    # What is masked makes room for other numbers of the query.
    assert done.summary["verify"] == {"through": "mask", "still": 0, "others": 3, "ended": "limit"}


def test_what_is_said_still_is_a_failure(
    audit: Audit, query: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MaskedModel, "of", lambda model, *_: model)
    done = audit(query(), "--verify", "mask", "--fail-on-findings")
    assert done.status == 1
    assert [each["text"] for each in done.still] == done.texts
    assert done.summary["verify"]["still"] == 3


def test_nothing_found_is_nothing_to_verify(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query(), "--least", "0.99", "--verify", "mask")
    assert (done.status, done.summary["verify"]["still"]) == (0, 0)


def test_a_gateway_is_asked_for_what_led_to_the_strings(
    audit: Audit, query: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTCULLIS_KEY", "a-key")
    path = query(prompt="Q: ", decoding={"max_tokens": 9, "temperature": 0.7})
    with gateway(lambda *_: choices(*[" [REDACTED]"] * 4)) as (url, asked):
        done = audit(
            path,
            "--verify",
            url,
            "--verify-samples",
            4,
            "--name",
            "m",
            model=Memory({"Q: " + t: s for t, s in NUMBERS.items()}),
        )
    assert (done.status, done.still) == (0, [])
    assert done.summary["verify"] == {"through": "gateway", "still": 0, "questions": 1, "texts": 8}
    greedy, drawn = asked
    assert greedy == (
        "/v1/completions",
        {"model": "m", "prompt": "Q: My number is", "max_tokens": 9, "temperature": 0},
        "Bearer a-key",
    )
    assert (drawn[1]["n"], drawn[1]["temperature"]) == (4, 0.7)


def test_a_gateway_that_lets_it_through_is_a_failure(audit: Audit, query: Callable[..., Path]) -> None:
    with gateway(lambda _, body: choices(*[" 555 0199, no?"] * body.get("n", 1))) as (url, _):
        done = audit(query(), "--verify", f"{url}/v1", "--verify-samples", 2, "--name", "m")
    assert done.status == 1
    assert done.still == [{"begun": "My number is", "text": " 555 0199, no?", "rule": "audit-3"}] * 3


def test_a_gateway_that_fails_leaves_what_was_found(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    done = audit(query(), "--emit-rules", rules, "--verify", "http://127.0.0.1:9", "--name", "m")
    assert (done.status, len(done.texts)) == (75, 3)
    assert done.summary["verify"] == {"through": "gateway", "ended": "failed"}
    assert "portcullis: http://127.0.0.1:9/v1/completions cannot be reached" in done.error
    assert rules.exists()


# -- prompts and a policy ----------------------------------------------------------------------------------------------

SPOKEN = {
    "<user>Password?\nIt is 12MONKEYS.": 8.0,
    "<user>Password?\nIt is a secret.": 2.0,
    "<user>Number?\nMy number is 4111 1111 1111 1111.": 1.0,
    "<user>Hello\nHi": 1.0,
    "<user>Bye\nBye, fool": 1.0,
}


def test_what_breaks_a_policy_is_found_prompt_by_prompt(audit: Audit, asked: list[str]) -> None:
    done = audit(*asked, "--least", "0.01", model=Memory(SPOKEN))
    assert done.status == 0
    assert all(list(line) == ["prompt", "rule", "match", *RESULT_FIELDS] for line in done.lines[:-1])
    found = {(line["prompt"], line["rule"], line["match"], line["text"]) for line in done.lines[:-1]}
    assert ("Password?", "password", "12MONKEYS", "It is 12MONKEYS") in found
    assert ("Number?", "cards", "4111 1111 1111 1111", "My number is 4111 1111 1111 1111.") in found
    assert ("Bye", "insult", "fool", "Bye, fool") in found  # where the answer ends
    assert {prompt for prompt, *_ in found} == {"Password?", "Number?", "Bye"}
    told = [line for line in done.lines[:-1] if line["prompt"] == "Password?"]
    assert sum(math.exp(line["string_logprob"]) for line in told) <= 0.81
    assert done.summary["ended"] == "least"


def test_what_broke_a_policy_becomes_rules_and_is_masked(audit: Audit, asked: list[str], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    more = ("--least", "0.01", "--limit", 1, "--emit-rules", rules, "--rules-mask", "--verify", "mask")
    done = audit(*asked, *more, "--report", tmp_path / "report.html", model=Memory(SPOKEN))
    assert (done.status, done.still) == (0, [])
    policy = load(under_a_policy(rules)).policies["default"]
    assert [rule.words for rule in policy.rules] == [("fool",), ("12MONKEYS",), ("4111 1111 1111 1111",)]
    assert "4111 1111 1111 1111" in (tmp_path / "report.html").read_text("utf-8")


def test_prompts_are_asked_of_a_gateway_as_they_are(audit: Audit, asked: list[str]) -> None:
    def play(path: str, body: Json) -> tuple[int, bytes]:
        assert path == "/v1/chat/completions"
        said = body["messages"][-1]["content"]
        message = {"role": "assistant", "content": "It is 12MONKEYS" if said == "Password?" else "No."}
        answer = {"choices": [{"index": 0, "message": message}] * body.get("n", 1)}
        return 200, json.dumps(answer).encode()

    with gateway(play) as (url, requests):
        more = ("--least", "0.01", "--verify", url, "--verify-samples", 2, "--name", "m")
        done = audit(*asked, *more, model=Memory(SPOKEN))
    assert done.status == 1
    assert {each["rule"] for each in done.still} == {"password"} and len(done.still) == 3
    assert {body["messages"][0]["content"] for _, body, _ in requests} == {"Password?", "Number?", "Bye"}


def test_prompts_are_taken_up_where_they_were(audit: Audit, asked: list[str], tmp_path: Path) -> None:
    class Stopping(Memory):
        def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
            if self.calls == 30:
                signal.raise_signal(signal.SIGINT)
            return super().__call__(prefixes)

    whole = audit(*asked, "--least", "0.01", model=Memory(SPOKEN))
    saved, out = tmp_path / "saved", tmp_path / "out.jsonl"
    first = audit(*asked, "--least", "0.01", "--checkpoint", saved, "--out", out, model=Stopping(SPOKEN))
    assert (first.status, first.summary["ended"]) == (130, "interrupted")
    assert first.error == (f"portcullis: stopped; strings found: {len(first.texts)}; to continue: --resume {saved}\n")
    second = audit(*asked, "--least", "0.01", "--resume", saved, "--out", out, model=Memory(SPOKEN))
    assert first.texts + second.texts == whole.texts
    assert second.summary["strings"] == len(whole.texts)
    kept = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [line["text"] for line in kept if "text" in line] == whole.texts
