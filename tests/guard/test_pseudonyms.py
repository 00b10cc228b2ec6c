"""Pseudonyms: placeholders go in, values come back, however the answer is cut and wherever it carries them."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.censor.detectors import DETECTORS
from gateway.guard import channels as texts
from gateway.guard import pseudonyms as module
from gateway.guard.prompt import GuardedPrompt, guard_prompt
from gateway.guard.pseudonyms import Concealer, Pseudonyms, RestoredPiece, Restorer
from gateway.policy.model import Action, Channel, Direction, Fold, Mode, Policy, Rule
from tests.support.compiled import compiled
from tests.support.examples import examples
from tests.support.guard_client import call, calls, chunk, completion, plain, policy, rule, stream

PERSON = rule("Ann", "Bob", "Ann Lee", id="person", action=Action.PSEUDONYMIZE)
HIDDEN = rule("Ann", "Bob", "Zed", id="hidden", replacement="[X]")
BOTH = policy(PERSON, HIDDEN)
SHAPE = re.compile(r"<([A-Z0-9_]+)_([0-9]+)_([a-z2-7]{8})>")


def ask(policy: Policy, *messages: Any) -> tuple[list[dict[str, Any]], GuardedPrompt]:
    """The messages as they are forwarded; a string is what a user says."""
    body = {"messages": [{"content": each} if isinstance(each, str) else each for each in messages]}
    guarded = guard_prompt(body, compiled(policy))
    assert guarded.scanned is not None and all(count.missing == 0 for count in guarded.scanned.channels)
    return body["messages"], guarded


def forwarded(policy: Policy, *said: str) -> tuple[list[str], Pseudonyms]:
    messages, guarded = ask(policy, *said)
    assert guarded.pseudonyms is not None
    return [message["content"] for message in messages], guarded.pseudonyms


def without_nonce(text: str) -> str:
    return SHAPE.sub(r"<\1_\2>", text)


# -- the way back: any table, any text, any cut ------------------------------------------------------------------------

TABLE = Pseudonyms({"<A_1_n>": "one", "<A_2_n>": "><", "<A_12_n>": "", "<AB_1_n>": "A_1_n", "<B_1_nn>": "<B_1_n"})
FRAGMENTS = [*TABLE.values, *(f"<{text}" for text in ("", "A", "A_1", "A_1_", "A_1_nn>", "A_3_n>")), *"A1_n>x"]
SAID = st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join)


def bracketed(value: str) -> str:
    """A value, so that it shows, and cannot be taken for a placeholder itself."""
    return f"({value.translate({ord('<'): '{', ord('>'): '}'})})"


def replaced(text: str) -> str:
    for placeholder, value in TABLE.values.items():
        text = text.replace(placeholder, bracketed(value))
    return text


def shown(pieces: Iterable[RestoredPiece]) -> str:
    return "".join(bracketed(piece.text) if piece.restored else piece.text for piece in pieces)


@settings(max_examples=examples(400), deadline=None)
@given(SAID, st.lists(st.integers(0, 60), max_size=6))
def test_values_come_back_at_every_cut(text: str, cuts: list[int]) -> None:
    restorer = Restorer(TABLE)
    edges = [0, *sorted(min(at, len(text)) for at in cuts), len(text)]
    pieces = [piece for a, b in pairwise(edges) for piece in restorer.feed(text[a:b])]
    assert shown(pieces) + restorer.finish() == replaced(text)
    assert all(piece.text or piece.restored for piece in pieces)


@settings(max_examples=examples(200), deadline=None)
@given(SAID)
def test_only_the_beginning_of_a_placeholder_waits(text: str) -> None:
    restorer, out = Restorer(TABLE), ""
    for at, char in enumerate(text, start=1):
        out += shown(restorer.feed(char))
        so_far = replaced(text[:at])
        waiting = [
            length
            for length in range(1, TABLE.longest)
            if any(placeholder.startswith(so_far[-length:]) for placeholder in TABLE.values) and length <= len(so_far)
        ]
        assert restorer.held == max(waiting, default=0)
        assert out == so_far[: len(so_far) - restorer.held]


def test_a_table_without_placeholders_leaves_everything_alone() -> None:
    restorer = Restorer(Pseudonyms({}))
    assert restorer.feed("a <A_1_n> <") == [RestoredPiece("a <A_1_n> <", False)]
    assert restorer.finish() == ""


def test_how_much_longer_values_can_make_a_text() -> None:
    assert TABLE.stretch == Pseudonyms({}).stretch == Pseudonyms({"<A_1_n>": ""}).stretch == 1
    assert Pseudonyms({"<A_1_n>": "x" * 14, "<AB_1_n>": "x" * 17}).stretch == 3


def test_no_repr_shows_a_value() -> None:
    (text,), table = forwarded(BOTH, "Ann <EMAIL_1_abc>")
    pieces = Restorer(table).feed(text)
    assert [piece.text for piece in pieces] == ["Ann", " ", "<EMAIL_1_abc>"]
    for each in (table, Restorer(table), pieces, Concealer({}, lambda text: False), GuardedPrompt(None, None, table)):
        assert "Ann" not in repr(each) and "abc" not in repr(each)


# -- the way in --------------------------------------------------------------------------------------------------------


def test_a_value_has_one_placeholder_in_the_whole_request() -> None:
    (first, second), table = forwarded(BOTH, "Ann, Bob and Ann!", "BOB? Bob. ann lee")
    assert without_nonce(first) == "<PERSON_1>, <PERSON_2> and <PERSON_1>!"
    assert without_nonce(second) == "<PERSON_3>? <PERSON_2>. <PERSON_4>"
    assert [*table.values.values()] == ["Ann", "Bob", "BOB", "ann lee"]
    (nonce,) = {match[3] for match in SHAPE.finditer(first + second)}
    assert all(placeholder.endswith(f"_{nonce}>") for placeholder in table.values)


def test_requests_have_nonces_of_their_own() -> None:
    assert forwarded(BOTH, "Ann")[0] != forwarded(BOTH, "Ann")[0]


def test_the_label_is_the_rules_id_or_the_detectors_label() -> None:
    rules = [
        Rule(id="r-1é", words=("Zoe",), action=Action.PSEUDONYMIZE),
        Rule(id="mail", detector="email", action=Action.PSEUDONYMIZE),
        Rule(id="order", pattern="PO-[0-9]+", action=Action.PSEUDONYMIZE),
    ]
    (text,), _ = forwarded(policy(*rules), "Zoe ordered PO-17 as ann@example.org")
    assert without_nonce(text) == "<R_1__1> ordered <ORDER_1> as <EMAIL_1>"


def test_what_a_redacting_rule_took_stays_away() -> None:
    rules = policy(PERSON, rule("Bobby", "Bob Zed", id="gone", apply_to=frozenset({Direction.INPUT})))
    (text,), table = forwarded(rules, "Ann, Bobby, Bob Zed and Bob")
    # In a cluster the match that begins first and is certain first counts (semantics rule 2).
    assert without_nonce(text) == "<PERSON_1>, <PERSON_2>, <PERSON_3> and <PERSON_4>"
    assert [*table.values.values()] == ["Ann", "Bobby", "Bob Zed", "Bob"]
    rules = policy(PERSON, rule("or Bob", id="gone", apply_to=frozenset({Direction.INPUT})))
    (text,), _ = forwarded(rules, "Ann or Bob")
    assert without_nonce(text) == "<PERSON_1> [REDACTED]"


def test_marks_that_go_with_a_match_come_back_with_it() -> None:
    fold = frozenset({Fold.CASE, Fold.ACCENTS})
    given = "Rene\u0301\u0302, Rene"
    (text,), table = forwarded(policy(rule("rene", id="name", fold=fold, action=Action.PSEUDONYMIZE)), given)
    assert without_nonce(text) == "<NAME_1>, <NAME_2>"
    assert "".join(piece.text for piece in Restorer(table).feed(text)) == given


def test_halves_of_characters_do_not_shift_what_is_taken() -> None:
    messages, guarded = ask(BOTH, "\ud83d Ann \ude00\ud83d\ude00 Bob \ud83d")
    assert without_nonce(messages[0]["content"]) == "\ufffd <PERSON_1> \ufffd\U0001f600 <PERSON_2> \ufffd"
    assert guarded.pseudonyms is not None and [*guarded.pseudonyms.values.values()] == ["Ann", "Bob"]


def test_what_looks_like_a_placeholder_is_escaped() -> None:
    given = "<PERSON_1_zzz> <person_1_zzz> <A_B_12_Q7> <A_1> <PERSON_1_Ann>"
    (text,), table = forwarded(BOTH, given)
    assert without_nonce(text) == "<TEXT_1> <person_1_zzz> <TEXT_2> <A_1> <PERSON_1_<PERSON_1>>"
    assert "".join(piece.text for piece in Restorer(table).feed(text)) == given
    messages, guarded = ask(policy(HIDDEN, rule("x", apply_to=frozenset(Direction))), given)
    assert messages == [{"content": given}] and guarded.pseudonyms is None


def test_the_nonce_is_none_that_the_request_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([b"\0" * 5, b"\0" * 5, b"\1" * 5])
    monkeypatch.setattr(secrets, "token_bytes", lambda size: next(drawn))
    body = {"messages": [{"content": "Ann"}], "tools": [{"about": "aaaaaaaa"}]}
    guard_prompt(body, compiled(BOTH))
    assert body["messages"][0]["content"] == "<PERSON_1_aeaqcaib>"


def test_every_text_of_a_message_is_taken() -> None:
    message = {
        "role": "user",
        "name": "Ann",
        "content": [{"type": "text", "text": "for Ann"}, {"type": "image_url", "image_url": {"url": "Ann"}}],
        "tool_calls": [{"function": {"name": "Ann", "arguments": '{"to \\u0041nn": ["\\u0041nn", 17, "Ann'}}],
        "new": {"Bob": 12},
    }
    rules = policy(rule("Ann", "Bob", "12", "17", id="v", action=Action.PSEUDONYMIZE))
    (seen,), guarded = ask(rules, message)
    assert json.loads(without_nonce(json.dumps(seen))) == {
        "role": "user",
        "name": "<V_1>",
        "content": [{"type": "text", "text": "for <V_1>"}, {"type": "image_url", "image_url": {"url": "<V_1>"}}],
        "tool_calls": [{"function": {"name": "<V_1>", "arguments": '{"to <V_1>": ["<V_1>", "<V_2>", "<V_1>'}}],
        "new": {"<V_4>": "<V_3>"},
    }
    assert guarded.scanned is not None
    assert sum(match.count for match in guarded.scanned.matches if match.action == "pseudonymize") == 10


def test_an_observed_prompt_is_not_changed() -> None:
    messages, guarded = ask(policy(PERSON, mode=Mode.OBSERVE), "Ann <PERSON_1_abc>")
    assert messages == [{"content": "Ann <PERSON_1_abc>"}]
    assert guarded.pseudonyms is None and guarded.scanned is not None
    assert [match.action for match in guarded.scanned.matches] == ["flag"]


def test_a_blocked_prompt_has_no_table() -> None:
    block = rule("stop", id="stop", action=Action.BLOCK, apply_to=frozenset({Direction.INPUT}))
    _, guarded = ask(policy(PERSON, block), "Ann", "Bob stop")
    assert guarded.rule is not None and guarded.rule.id == "stop" and guarded.pseudonyms is None


def test_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PLACEHOLDERS", 3)
    number = policy(Rule(id="n", pattern="[0-9]", action=Action.PSEUDONYMIZE))
    assert len(forwarded(number, "1 2 3 1 2 3")[1].values) == 3
    _, guarded = ask(number, "1 2 3 4")
    assert guarded.refusal is not None and guarded.pseudonyms is None
    assert guarded.refusal.param == "messages" and "more than 3 different values" in str(guarded.refusal)
    assert guarded.scanned is not None and [match.count for match in guarded.scanned.matches] == [4]


# -- answers -----------------------------------------------------------------------------------------------------------

ASKED, KNOWN = forwarded(BOTH, 'Ann, Bob, ann lee <PERSON_1_old> and "')
ANN, BOB, LEE, OLD = KNOWN.values


def said(*messages: Any) -> tuple[dict[int, Any], Any]:
    client = stream(BOTH, *messages, expected=2, pseudonyms=KNOWN)
    assert client.done and not client.errors
    return client.messages, client.scanned


@pytest.mark.parametrize("field", ["content", "refusal", "reasoning", "reasoning_content", "new"])
def test_values_of_the_request_come_back_and_others_do_not(field: str) -> None:
    text = f"{ANN} and Ann, {BOB}{BOB}, Zed, {OLD}, <PERSON_9_{ANN[-9:]}, Zed{ANN} {ANN[:-1]}"
    expected = f"Ann and [X], BobBob, [X], <PERSON_1_old>, <PERSON_9_{ANN[-9:]}, [X]Ann {ANN[:-1]}"
    messages, scanned = said(*(chunk({field: char}) for char in text), chunk({field: ""}, finish="stop"))
    assert messages[0][field] == expected
    assert sum(scanned.restored.values()) == 5
    whole, books = plain(BOTH, json.dumps(completion({field: text})).encode(), pseudonyms=KNOWN)
    assert whole["choices"][0]["message"][field] == expected
    assert books.restored == scanned.restored and books.matches == scanned.matches


def test_a_match_that_is_more_than_a_value_counts() -> None:
    longer = policy(PERSON, rule("Ann Smith", "Mann", id="hidden", replacement="[X]"))
    client = stream(
        longer, chunk({"content": f"{ANN} Smith, M{ANN[:4]}"}), chunk({"content": ANN[4:]}), pseudonyms=KNOWN
    )
    assert client.content == "Ann[X], [X]"


def test_every_choice_and_list_of_parts() -> None:
    parts = [{"type": "text", "text": f"for {ANN}"}]
    messages, _ = said(
        chunk({"content": ANN[:3]}),
        chunk({"content": BOB}, index=1),
        chunk({"content": ANN[3:]}),
        chunk({"annotations": [{"title": ANN}]}, index=1),
        chunk({"annotations": [{"title": f"more of {ANN}"}]}, index=1),
    )
    assert (messages[0]["content"], messages[1]["content"]) == ("Ann", "Bob")
    assert messages[1]["annotations"] == [{"title": "Annmore of Ann"}]
    body, _ = plain(
        BOTH, json.dumps(completion({"content": parts}, {"content": LEE})).encode(), expected=2, pseudonyms=KNOWN
    )
    assert [choice["message"]["content"] for choice in body["choices"]] == [
        [{"type": "text", "text": "for Ann"}],
        "ann lee",
    ]


@pytest.mark.parametrize("rules", [BOTH, policy(PERSON)], ids=["with output rules", "without"])
def test_tool_arguments_stay_json(rules: Policy) -> None:
    quoting = policy(Rule(id="q", pattern='"[^"]*"', action=Action.PSEUDONYMIZE), *rules.rules)
    (asked,), table = forwarded(quoting, 'Ann says "a\\b" \n')
    ann, quoted = asked.split(" says ")[0], asked.split(" says ")[1].strip()
    arguments = json.dumps({"to": ann, quoted: [quoted, 12, None], "Zed": f"x{quoted[:9]}"})
    client = stream(
        quoting,
        calls(call(0, "f", "", id="a")),
        *(calls(call(0, arguments=char)) for char in arguments),
        chunk(finish="tool_calls"),
        pseudonyms=table,
    )
    shown = client.messages[0]["tool_calls"][0]["function"]["arguments"]
    zed = "[X]" if rules is BOTH else "Zed"
    assert json.loads(shown) == {"to": "Ann", '"a\\b"': ['"a\\b"', 12, None], zed: f"x{quoted[:9]}"}


def test_tool_names_and_labels() -> None:
    messages, _ = said(
        calls(call(0, ANN[:5], id=f"call of {BOB}")),
        calls(call(0, ANN[5:])),
        calls(call(0, arguments=f"not JSON {LEE}")),
        chunk({LEE: "x"}),
        chunk(finish="tool_calls"),
    )
    (shown,) = messages[0]["tool_calls"]
    assert shown == {"index": 0, "id": "call of Bob", "function": {"name": "Ann", "arguments": "not JSON ann lee"}}
    assert messages[0]["ann lee"] == "x"


def test_an_upstreams_error_is_about_what_the_client_wrote() -> None:
    client = stream(BOTH, {"error": {"message": f"no mail for {ANN} and Zed"}}, done=False, pseudonyms=KNOWN)
    assert client.errors[0]["message"] == "no mail for Ann and [X]"


@pytest.mark.parametrize("done", [True, False])
def test_what_waits_at_the_end_comes_out(done: bool) -> None:
    client = stream(BOTH, chunk({"content": f"a {ANN[:6]}"}), done=done, pseudonyms=KNOWN)
    assert client.content == f"a {ANN[:6]}"


def test_a_block_ends_the_choice_where_values_end() -> None:
    block = policy(PERSON, rule("stop", id="stop", action=Action.BLOCK))
    client = stream(block, chunk({"content": f"{ANN} stop {BOB}"}), pseudonyms=KNOWN)
    assert client.content == "Ann " and client.finish == {0: "content_filter"}


def test_channels_without_rules_get_their_values_too() -> None:
    content = policy(rule("Zed", channels=frozenset({Channel.CONTENT})), PERSON)
    client = stream(content, chunk({"reasoning": f"Zed {ANN[:7]}"}), chunk({"reasoning": ANN[7:]}), pseudonyms=KNOWN)
    assert client.messages[0]["reasoning"] == "Zed Ann"


def test_values_that_would_go_on_for_ever_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_RESTORED", 10)
    client = stream(BOTH, chunk({"content": f"a {ANN}"}), chunk({"content": ANN * 3}), done=False, pseudonyms=KNOWN)
    assert client.content == "a Ann"
    assert client.errors[0]["code"] == "upstream_protocol_error" and "10 characters" in client.errors[0]["message"]


@pytest.mark.parametrize("name", DETECTORS)
def test_what_a_detector_takes_comes_back_past_the_same_detector(name: str) -> None:
    detector = DETECTORS[name]
    taken = Rule(id="taken", detector=name, action=Action.PSEUDONYMIZE)
    both = policy(taken, Rule(id="leaked", detector=name, replacement="[X]"))
    for value in detector.examples:
        named = detector.introduction + value
        (asked,), table = forwarded(both, f"Is {named} right, or ({named})?")
        assert value not in asked and f"<{detector.label}_1_" in asked
        text, size = f"{asked} Once more: {named} ", 1 + len(value) // 40
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        client = stream(both, *(chunk({"content": piece}) for piece in pieces), pseudonyms=table)
        assert client.content == f"Is {named} right, or ({named})? Once more: {detector.introduction}[X] "


NAMES = st.sampled_from(["Ann", "Bob", "ann", "Zed", " ", "x", "<", "PERSON_1_", ">", "\U0001f600"])


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=10), st.lists(st.integers(0, 400), max_size=5))
@example(["Zed", "<", "PERSON_1_", "Zed", ">"], [])
def test_a_model_that_repeats_the_request_gives_it_back(words: list[str], cuts: list[int]) -> None:
    given = "".join(words)
    messages, guarded = ask(BOTH, given)
    asked = messages[0]["content"]
    assert not any(name in without_nonce(asked) for name in ("Ann", "Bob", "ann"))
    edges = [0, *sorted(min(at, len(asked)) for at in cuts), len(asked)]
    deltas = [chunk({"content": asked[a:b]}) for a, b in pairwise(edges)]
    client = stream(BOTH, *deltas, chunk(finish="stop"), pseudonyms=guarded.pseudonyms)
    # What looks like a placeholder comes back as it was written, whatever the rules.
    others = re.split("(<[A-Z0-9_]+_[0-9]+_[0-9A-Za-z]+>)", given)
    others[::2] = [other.replace("Zed", "[X]") for other in others[::2]]
    assert client.content == "".join(others)
