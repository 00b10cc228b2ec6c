"""Constraints at the guard: what a client may not ask for, and answers that leave the language or stay in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.guard.commands import failure
from gateway.guard.constrained import FORMATS
from gateway.guard.findings import Finding
from gateway.guard.open import open_guard
from gateway.guard.prompt import BadRequest, apply_request_table, guard_prompt
from gateway.observe.facts import RequestFinished, TextScanned
from gateway.observe.log import outcome_of, request_fields
from gateway.policy.model import Action, Conflict, Constrain, Language, Mode, Policy, Rule, Violation
from gateway.wire.chat import CHAT
from tests.support.guard_client import (
    Client,
    answer_for,
    broken,
    call,
    calls,
    chunk,
    completion,
    event,
    plain,
    play,
    rule,
    script,
    stream,
)
from tests.support.pages import ROOT, table

YEAR = Constrain(language=Language.REGEX, texts=("[A-Z][a-zé]+ [0-9]{4}",))
JSON = Constrain(language=Language.JSON_SCHEMA, texts=('{"type": "object", "required": ["a"]}',))
HELD, LEFT, UNFINISHED = ({outcome: 1} for outcome in ("held", "left", "unfinished"))


def policy(constrain: Constrain = YEAR, *rules: Rule, **given: Any) -> Policy:
    return Policy(name="p", rules=rules, constrain=constrain, **given)


def flagging(constrain: Constrain = YEAR) -> Constrain:
    return Constrain(language=constrain.language, texts=constrain.texts, on_violation=Violation.FLAG)


def said(*texts: str, finish: str | None = "stop") -> list[dict[str, Any]]:
    return [*(chunk({"content": text}) for text in texts), *([chunk(finish=finish)] if finish else [])]


# (name, content, finish reason, what comes out, finish reason, outcome)
ANSWERS: list[tuple[str, str, str, str, str, dict[str, int]]] = [
    ("whole", "René 1950", "stop", "René 1950", "stop", HELD),
    ("whole, cut by its length", "René 1950", "length", "René 1950", "length", HELD),
    ("left in the middle", "René was born", "stop", "René ", "content_filter", LEFT),
    ("left at the first character", "so, René 1950", "stop", "", "content_filter", LEFT),
    ("left behind a whole text", "René 1950.", "stop", "René 1950", "content_filter", LEFT),
    ("too short", "René 195", "stop", "René 195", "content_filter", LEFT),
    ("empty", "", "stop", "", "content_filter", LEFT),
    ("too short for an unknown reason", "René", "eos", "René", "content_filter", LEFT),
    ("cut short by its length", "René 195", "length", "René 195", "length", UNFINISHED),
    ("cut short by another filter", "René", "content_filter", "René", "content_filter", UNFINISHED),
    ("cut short by the engine", "René", "abort", "René", "abort", UNFINISHED),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer[0])
def test_a_stream_however_it_is_cut(answer: Any) -> None:
    _, text, finish, out, finally_, outcome = answer
    cuts = [[text], list(text), *([text[:at], text[at:]] for at in range(1, len(text)))]
    for pieces in cuts:
        client = play(policy(), script(chunk({"role": "assistant", "content": ""}), *said(*pieces, finish=finish)))
        assert (client.content, client.finish, client.done) == (out, {0: finally_}, True), pieces
        assert client.scanned.constraints == outcome
        assert client.scanned.blocked_by == ("constrain" if outcome == LEFT else None)
        assert client.errors == []


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer[0])
def test_a_plain_answer(answer: Any) -> None:
    _, text, finish, out, finally_, outcome = answer
    whole = completion({"role": "assistant", "content": text})
    whole["choices"][0]["finish_reason"] = finish
    for given in (json.dumps(whole).encode(), script(*said(text, finish=finish))):
        body, fact = plain(policy(), given)
        assert (body["choices"][0]["message"]["content"] or "") == out
        assert body["choices"][0]["finish_reason"] == finally_
        assert fact.constraints == outcome


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer[0])
def test_nothing_is_changed_where_it_is_only_reported(answer: Any) -> None:
    _, text, finish, _, _, outcome = answer
    for lenient in (policy(flagging()), policy(mode=Mode.OBSERVE)):
        client = stream(lenient, *said(*text, finish=finish))
        assert (client.content, client.finish) == (text, {0: finish})
        assert client.scanned.constraints == outcome and client.scanned.blocked_by is None
        whole = completion({"role": "assistant", "content": text})
        whole["choices"][0]["finish_reason"] = finish
        body, fact = plain(lenient, json.dumps(whole).encode())
        assert body == whole and fact.constraints == outcome


AMOUNT = Constrain(language=Language.REGEX, texts=(r"([0-9]*)?\.?[0-9]*",))
NOTHING_OR = Constrain(language=Language.CHOICE, texts=("yes", ""))


@pytest.mark.parametrize("constrain", [AMOUNT, NOTHING_OR], ids=["regex", "choice"])
@pytest.mark.parametrize("content", ["", None])
@pytest.mark.parametrize("finish", ["stop", "length", None])
def test_e11_an_empty_answer_is_held_where_it_is_one(constrain: Constrain, content: Any, finish: str | None) -> None:
    client = play(policy(constrain), script(chunk({"role": "assistant", "content": content}), *said(finish=finish)))
    assert (client.content, client.scanned.blocked_by) == ("", None)
    assert client.scanned.constraints == HELD
    whole = completion({"role": "assistant", "content": content})
    whole["choices"][0]["finish_reason"] = finish
    body, fact = plain(policy(constrain), json.dumps(whole).encode())
    assert body["choices"][0]["message"]["content"] == content
    assert body["choices"][0]["finish_reason"] == finish
    assert fact.constraints == HELD


@pytest.mark.parametrize("constrain, text", [(AMOUNT, "1.5x"), (NOTHING_OR, "yesx")])
def test_e11_what_leaves_such_a_language_is_still_blocked(constrain: Constrain, text: str) -> None:
    for pieces in ([text], list(text), ["", text]):
        client = play(policy(constrain), script(*said(*pieces)))
        assert (client.content, client.finish) == (text[:-1], {0: "content_filter"})
        assert client.scanned.constraints == LEFT


def test_the_upstream_is_stopped_at_once() -> None:
    answer, client = answer_for(policy()), Client()
    client.take(answer.feed(script(*said("Anna", " was", finish=None), done=False), 0.0))
    assert client.done and client.stopped
    assert client.content == "Anna " and client.finish == {0: "content_filter"}


@pytest.mark.parametrize("ending", ["close", "fail", "cancel", "error event", "done"])
def test_an_answer_that_breaks_off_is_unfinished(ending: str) -> None:
    answer, client = answer_for(policy()), Client()
    client.take(answer.feed(script(*said("Anna", finish=None), done=ending == "done"), 0.0))
    match ending:
        case "close":
            client.take(answer.close(1.0))
        case "fail":
            client.take(answer.fail(failure("x", "y"), 1.0))
        case "cancel":
            client.take(answer.cancel())
        case "error event":
            client.take(answer.feed(event({"error": {"message": "x"}}), 1.0))
    assert client.content == "Anna" and client.finish == {}
    assert client.scanned.constraints == UNFINISHED and client.scanned.blocked_by is None


def test_other_choices_go_on() -> None:
    client = stream(
        policy(),
        chunk({"content": "Anna "}, 0),
        chunk({"content": "no, "}, 1),
        chunk({"content": "Bert 1"}, 2),
        chunk({"content": "2000"}, 0),
        chunk({"content": "never"}, 1),
        chunk({"content": "999"}, 2),
        chunk({}, 1, "stop"),
        chunk({}, 0, "stop"),
        chunk({}, 2, "length"),
        expected=3,
    )
    assert client.finish == {0: "stop", 1: "content_filter", 2: "length"}
    assert [client.messages[index].get("content", "") for index in range(3)] == ["Anna 2000", "", "Bert 1999"]
    assert client.scanned.constraints == {"held": 2, "left": 1}


def test_several_choices_of_a_plain_answer() -> None:
    texts = ["Anna 2000", "Bert", None, "Carl 1999"]
    body, fact = plain(policy(), json.dumps(completion(*({"content": text} for text in texts))).encode(), expected=4)
    assert [choice["finish_reason"] for choice in body["choices"]] == ["stop", *["content_filter"] * 2, "stop"]
    assert [choice["message"]["content"] for choice in body["choices"]] == texts
    assert fact.constraints == {"held": 2, "left": 2}


# -- beside rules ------------------------------------------------------------------------------------------------------


def both(data: bytes, under: Policy) -> tuple[str, str]:
    """The content, streamed and plain, which must not differ, and the finish reason."""
    client = play(under, data)
    body, _ = plain(under, data)
    assert client.content == (body["choices"][0]["message"]["content"] or "")
    assert client.finish[0] == body["choices"][0]["finish_reason"]
    whole = completion({"role": "assistant", "content": "".join(_contents(data))})
    body, _ = plain(under, json.dumps(whole).encode())
    assert client.content == body["choices"][0]["message"]["content"]
    assert client.finish[0] == body["choices"][0]["finish_reason"]
    return client.content, client.finish[0]


def _contents(data: bytes) -> list[str]:
    events = [json.loads(line[6:]) for line in data.decode().split("\n\n") if line.startswith("data: {")]
    return [each["choices"][0]["delta"].get("content", "") for each in events]


def test_what_stood_before_is_censored_and_nothing_held_comes_out() -> None:
    rules = rule("Anna", replacement="[NAME]"), rule("200000", id="longer")
    assert both(script(*said("Anna 20001")), policy(YEAR, *rules)) == ("[NAME] ", "content_filter")
    assert both(script(*said("Anna 20", "0")), policy(YEAR, *rules)) == ("[NAME] ", "content_filter")
    assert both(script(*said("Anna 2000")), policy(YEAR, *rules)) == ("[NAME] 2000", "stop")


def test_the_censor_does_not_change_what_the_constraint_sees() -> None:
    """The replacement would not be in the language, and neither would the text be with it."""
    assert both(script(*said("Anna ", "1234")), policy(YEAR, rule("1234"))) == ("Anna [REDACTED]", "stop")


def test_a_rule_that_blocks_before_counts_and_says_its_message() -> None:
    blocking = rule("Anna", action=Action.BLOCK, message="Not shown.")
    client = stream(policy(YEAR, blocking), *said("Anna was"))
    assert (client.content, client.scanned.blocked_by) == ("Not shown.", "r")
    assert client.scanned.constraints == UNFINISHED
    assert both(script(*said("Anna was")), policy(YEAR, blocking)) == ("Not shown.", "content_filter")


def test_a_rule_that_would_block_behind_does_not() -> None:
    blocking = rule("was", action=Action.BLOCK, message="Not shown.")
    client = stream(policy(YEAR, blocking), *said("Anna was"))
    assert (client.content, client.scanned.blocked_by) == ("Anna ", "constrain")
    assert client.scanned.matches == ()


def test_texts_are_checked_before_values_come_back() -> None:
    """The placeholder is in the language, the value is not."""
    hiding = Rule(id="name", words=("Beatrix von Storch",), action=Action.PSEUDONYMIZE)
    under = policy(Constrain(language=Language.REGEX, texts=("<[A-Z]+_[0-9]+_[0-9a-z]+> [0-9]+",)), hiding)
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Beatrix von Storch"}]}
    prompt = guard_prompt(body, compile_policy(under))
    placeholder = body["messages"][0]["content"]
    assert placeholder != "Beatrix von Storch" and prompt.pseudonyms is not None
    client = stream(under, *said(placeholder, " 12"), pseudonyms=prompt.pseudonyms)
    assert (client.content, client.finish) == ("Beatrix von Storch 12", {0: "stop"})
    assert client.scanned.constraints == HELD
    client = stream(under, *said("Beatrix von Storch 12"), pseudonyms=prompt.pseudonyms)
    assert (client.content, client.finish) == ("", {0: "content_filter"})


# -- what is no content ------------------------------------------------------------------------------------------------


def test_other_texts_are_not_of_the_language() -> None:
    client = stream(policy(), chunk({"reasoning": "Let me think."}), *said("Anna 2000"))
    assert client.messages[0] == {"reasoning": "Let me think.", "content": "Anna 2000"}
    assert client.scanned.constraints == HELD
    client = stream(policy(), chunk({"refusal": "No."}), chunk(finish="stop"))
    assert client.messages[0] == {"refusal": "No."} and client.finish == {0: "content_filter"}
    assert client.scanned.constraints == LEFT


def test_a_call_of_a_tool_leaves_the_language() -> None:
    called = call(0, "say", '{"text": "anything"}', id="call_1", type="function")
    client = stream(policy(), chunk({"content": "Anna "}), calls(called), chunk(finish="tool_calls"))
    assert client.messages[0] == {"content": "Anna "} and client.finish == {0: "content_filter"}
    assert client.scanned.constraints == LEFT and "anything" not in client.text
    message = {"role": "assistant", "content": "Anna 2000", "tool_calls": [called]}
    for finish in ("tool_calls", "stop"):
        whole = completion(message)
        whole["choices"][0]["finish_reason"] = finish
        body, fact = plain(policy(), json.dumps(whole).encode())
        assert body["choices"][0]["message"] == {"role": "assistant", "content": "Anna 2000"}
        assert body["choices"][0]["finish_reason"] == "content_filter" and fact.constraints == LEFT
    older = {"function_call": {"name": "say", "arguments": "{}"}}
    client = stream(policy(), chunk(older), chunk(finish="function_call"))
    assert "say" not in client.text and client.finish == {0: "content_filter"}


def test_a_call_of_a_tool_where_it_is_only_reported() -> None:
    called = call(0, "say", '{"text": "anything"}', id="call_1", type="function")
    client = stream(policy(flagging()), calls(called), chunk(finish="tool_calls"))
    assert client.messages[0]["tool_calls"][0]["function"] == {"name": "say", "arguments": '{"text": "anything"}'}
    assert client.finish == {0: "tool_calls"} and client.scanned.constraints == LEFT


def test_no_calls_are_no_calls() -> None:
    """As some servers write it."""
    message: dict[str, Any] = {"content": "Anna 2000", "tool_calls": [], "function_call": None}
    body, fact = plain(policy(), json.dumps(completion(message)).encode())
    assert body["choices"][0]["message"]["content"] == "Anna 2000" and fact.constraints == HELD


def test_parts_of_the_content_are_one_text() -> None:
    def part(index: int, text: str) -> dict[str, Any]:
        return {"index": index, "type": "text", "text": text}

    client = stream(
        policy(), chunk({"content": [part(0, "Anna ")]}), chunk({"content": [part(1, "2000")]}, finish="stop")
    )
    assert client.scanned.constraints == HELD and client.finish == {0: "stop"}
    client = stream(policy(), chunk({"content": [part(0, "Anna ")]}), chunk({"content": [part(1, "was")]}))
    assert client.scanned.constraints == LEFT and "was" not in client.text
    whole = completion({"content": [{"type": "text", "text": "Anna "}, {"type": "text", "text": "200"}]})
    body, _ = plain(policy(), json.dumps(whole).encode())
    assert body["choices"][0]["finish_reason"] == "content_filter"


def test_a_number_is_read_as_it_is_written() -> None:
    digits = Constrain(language=Language.REGEX, texts=("[0-9]+",))
    body, fact = plain(policy(digits), json.dumps(completion({"content": 12})).encode())
    assert body["choices"][0]["finish_reason"] == "stop" and fact.constraints == HELD


def test_json_in_any_spelling() -> None:
    text = '{ "a" : "\\u00e9\\/" ,\n"b":[1, 2] }'
    assert stream(policy(JSON), *said(*text)).finish == {0: "stop"}
    client = stream(policy(JSON), *said('{"b": 1}'))
    assert client.finish == {0: "content_filter"} and client.scanned.constraints == LEFT


def test_an_error_of_the_upstream_is_no_answer() -> None:
    assert broken(policy(), json.dumps({"error": {"message": "x"}}).encode())["message"] == "x"
    assert play(policy(), event({"error": {"message": "x"}})).scanned.constraints == {}


def test_without_a_constraint_nothing_is_counted() -> None:
    assert stream(Policy(name="p"), *said("anything")).scanned.constraints == {}


# -- what is said about it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, offset", [("Anna was", 5), ("Anna 200", 8), ("René😀", 4), ("", 0)])
@pytest.mark.parametrize("constrain, action", [(YEAR, Action.BLOCK), (flagging(), Action.FLAG)])
def test_the_journal_is_told_where(text: str, offset: int, constrain: Constrain, action: Action) -> None:
    findings: list[Finding] = []
    guard = open_guard(CHAT, compile_policy(policy(constrain)), 1, (), findings.append)
    for each in said(*text):
        guard.chunk(each)
    assert [tuple(found) for found in findings] == [("constrain", action, "output", "content", 0, offset, 0, "")]


def finished(*scanned: TextScanned) -> RequestFinished:
    return RequestFinished("req", "/v1/chat/completions", "*", "p", "u", 200, "ok", True, 0.1, scanned=scanned)


def test_the_log_says_it() -> None:
    for outcome, word in ((HELD, "ok"), (UNFINISHED, "ok"), (LEFT, "flagged")):
        scanned = (TextScanned("p", "output", constraints=outcome),)
        assert outcome_of(scanned) == word
        assert request_fields(finished(*scanned))["constraints"] == outcome
    assert outcome_of((TextScanned("p", "output", constraints=LEFT, blocked_by="constrain"),)) == "blocked"
    assert "constraints" not in request_fields(finished())


# -- requests ----------------------------------------------------------------------------------------------------------

TOOLS = [{"type": "function", "function": {"name": "f"}}]
FORMATTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"response_format": {"type": "json_object"}}, {}),
    ({"response_format": {"type": "text", "schema": {}}}, {}),
    ({"structured_outputs": {"regex": "a"}}, {}),
    ({"Structured_Outputs": {"regex": "a"}}, {}),
    ({"guided_json": {}}, {}),
    ({"guided_of_another_version": True}, {}),
    ({"structural_tag": "{}"}, {}),
    ({"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}, {}),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}, {}),
    ({"functions": TOOLS, "function_call": {"name": "f"}}, {}),
    ({"guided_regex": "a", "guided_decoding_backend": "outlines", "response_format": {"type": "json_object"}}, {}),
]
UNFORMATTED: list[dict[str, Any]] = [
    {"response_format": {"type": "text"}},
    {"response_format": None, "structured_outputs": None},
    {"tools": TOOLS, "tool_choice": "auto"},
    {"tools": TOOLS, "tool_choice": "none"},
    {"tools": TOOLS},
    {"functions": TOOLS, "function_call": "auto"},
]
BODY = {"model": "m", "messages": [], "max_tokens": 5}


def settled(body: dict[str, Any], conflict: Conflict, **given: Any) -> dict[str, Any]:
    constrain = Constrain(language=Language.CHOICE, texts=("a",), on_conflict=conflict)
    left = {**BODY, **body}
    apply_request_table(left, compile_policy(policy(constrain, **given)))
    return left


@pytest.mark.parametrize(("given", "left"), FORMATTED, ids=lambda fields: " ".join(fields))
def test_the_clients_own_format_is_taken_out_or_refused(given: dict[str, Any], left: dict[str, Any]) -> None:
    assert settled(given, Conflict.POLICY) == BODY | left
    with pytest.raises(BadRequest, match="the policy says what form an answer has") as refused:
        settled(given, Conflict.REJECT)
    assert refused.value.param in given
    assert settled(given, Conflict.REJECT, mode=Mode.OBSERVE) == BODY | given
    free = {**BODY, **given}
    apply_request_table(free, compile_policy(Policy(name="p")))
    assert free == BODY | given


@pytest.mark.parametrize("given", UNFORMATTED, ids=lambda fields: " ".join(fields))
def test_what_is_no_format_stays(given: dict[str, Any]) -> None:
    for conflict in Conflict:
        assert settled(given, conflict) == BODY | given


def test_what_leads_past_a_policy_is_refused_without_rules_too() -> None:
    with pytest.raises(BadRequest, match="`vllm_xargs` is not accepted here"):
        settled({"vllm_xargs": {}}, Conflict.POLICY)
    assert settled({"return_token_ids": True}, Conflict.POLICY) == BODY


def test_the_table_of_formats_is_documented() -> None:
    assert dict(table(ROOT / "docs" / "semantics.md", "formats in requests")) == FORMATS
