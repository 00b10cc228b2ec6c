"""Log probabilities of tokens: shown with the text that they spell, and nothing in them spells what is not shown."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.guard.logprobs import MAX_WAITING
from gateway.guard.pseudonyms import Pseudonyms
from gateway.policy.model import Action, Policy, Rule
from tests.support.examples import examples
from tests.support.guard_client import (
    BLOCK,
    DROP,
    MAX_WHOLE,
    OBSERVE,
    REFUSE,
    WORD,
    Client,
    answer_for,
    chunk,
    completion,
    event,
    plain,
    play,
    policy,
    rule,
    script,
    stream,
)

SEEN = "[REDACTED]"
Shown = list[dict[str, Any]]


def token(text: str, *alternatives: str, **given: Any) -> dict[str, Any]:
    """An entry as OpenAI and vLLM write it."""
    listed = [{"token": each, "logprob": -2.5, "bytes": list(each.encode())} for each in alternatives]
    return {"token": text, "logprob": -0.25, "bytes": list(text.encode()), "top_logprobs": listed, **given}


def said(*entries: dict[str, Any], field: str = "content", text: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk with the text of its entries."""
    value = chunk({field: "".join(entry["token"] for entry in entries) if text is None else text}, **more)
    value["choices"][0]["logprobs"] = {"content": None, "refusal": None, field: list(entries)}
    return value


def shown_by(client: Client, index: int = 0, field: str = "content") -> Shown:
    entries: Shown = []
    for value in client.events:
        for choice in value.get("choices", ()):
            if choice["index"] == index and choice.get("logprobs") is not None:
                entries += choice["logprobs"][field] or []
    return entries


def whole(policy: Policy, *entries: dict[str, Any], text: str | None = None, field: str = "content") -> Shown:
    """What is shown of a plain answer, and of the same as a stream."""
    text = "".join(entry["token"] for entry in entries) if text is None else text
    answer = completion({"role": "assistant", field: text})
    answer["choices"][0]["logprobs"] = {"content": None, "refusal": None, field: list(entries)}
    body, _ = plain(policy, json.dumps(answer).encode())
    described = body["choices"][0]["logprobs"]
    found: Shown = [] if described is None else described[field] or []
    assert shown_by(play(policy, json.dumps(answer).encode()), field=field) == found
    return found


def streamed(policy: Policy, *entries: dict[str, Any], **more: Any) -> Shown:
    return shown_by(stream(policy, *map(said, entries), chunk(finish="stop"), **more))


def tokens(entries: Shown) -> list[str]:
    return [entry["token"] for entry in entries]


def listed(entries: Shown) -> list[list[str]]:
    return [[each["token"] for each in entry["top_logprobs"]] for entry in entries]


# -- in step with the text ---------------------------------------------------------------------------------------------


def test_entries_of_clean_text_pass_with_it_as_they_are() -> None:
    entries = [token("Hello", "Hi", "Hey"), token(",", "!"), token(" wörld", " 世界"), token("."), token("")]
    values = [said(entry) for entry in entries] + [chunk(finish="stop", usage={"total_tokens": 4})]
    client = stream(policy(), *values)
    assert client.events == values
    assert whole(policy(), *entries) == entries


def test_an_entry_waits_for_its_text() -> None:
    values = [said(token("a 1")), said(token("2MON")), said(token("K"), token("IES")), chunk(finish="stop")]
    answer, client = answer_for(policy()), Client()
    seen = []
    for value in values:
        client.take(answer.feed(event(value), 0.0))
        seen.append((client.content, tokens(shown_by(client))))
    assert seen[0] == ("a ", [])
    assert seen[1] == ("a ", [])
    assert seen[2] == ("a 12MONKIES", ["a 1", "2MON", "K", "IES"])


@pytest.mark.parametrize("end", [[chunk(finish="stop")], [], [chunk({"content": ""}, finish="length")]])
def test_what_is_held_comes_with_the_end(end: list[Any]) -> None:
    client = stream(policy(), said(token("a ")), said(token("12")), said(token("MON")), *end)
    assert client.content == "a 12MON" and tokens(shown_by(client)) == ["a ", "12", "MON"]


def test_entries_that_touch_what_was_replaced_are_left_out() -> None:
    entries = [token("a "), token("x12"), token("MON"), token("KEYSy"), token(" b"), token(f" {WORD}"), token(" c")]
    assert tokens(streamed(policy(), *entries)) == tokens(whole(policy(), *entries)) == ["a ", " b", " c"]


def test_nothing_of_what_a_block_withholds_is_shown() -> None:
    entries = [token("a "), token("1"), token("2MON"), token("KEYS"), token(" b")]
    client = stream(BLOCK, *map(said, entries), chunk(finish="stop"))
    assert client.content == "a Not shown." and tokens(shown_by(client)) == ["a "]
    assert tokens(whole(BLOCK, *entries)) == ["a "]
    guarded = policy(rule(secret=True, action=Action.BLOCK))
    held = stream(guarded, *map(said, (token("a "), token("12MON"), token("KEY"))), chunk(finish="stop"))
    assert held.content == "a " and tokens(shown_by(held)) == ["a "]


def test_a_client_that_gets_an_error_gets_no_more_of_them() -> None:
    broken_off = stream(policy(), said(token("a ")), said(token("12")), b"no json", done=False)
    assert broken_off.content == "a 12" and tokens(shown_by(broken_off)) == ["a ", "12"] and broken_off.errors


def test_refusals_and_choices_have_their_own() -> None:
    values = [
        said(token("a "), index=0),
        said(token("12"), index=1),
        said(token("no "), index=0, field="refusal"),
        said(token("MONKEYS"), index=0),
        said(token("x"), index=1),
    ]
    client = stream(policy(), *values, chunk(index=0, finish="stop"), chunk(index=1, finish="stop"), expected=2)
    assert tokens(shown_by(client, 0)) == ["a ", "MONKEYS"] and tokens(shown_by(client, 1)) == ["12", "x"]
    assert tokens(shown_by(client, 0, "refusal")) == ["no "]
    assert tokens(whole(policy(), token("no "), token(WORD), field="refusal")) == ["no "]


def test_a_stream_that_becomes_a_whole_answer_has_them_all() -> None:
    body, _ = plain(
        policy(), script(said(token("a ")), said(token(WORD)), said(token(" b", "x")), chunk(finish="stop"))
    )
    assert body["choices"][0]["logprobs"] == {"content": [token("a "), token(" b", top_logprobs=[])], "refusal": None}


@pytest.mark.parametrize("rules", [policy(), DROP, REFUSE])
def test_they_are_known_fields(rules: Policy) -> None:
    client = stream(rules, said(token("a ", "b")), chunk(finish="stop"))
    assert not client.errors and shown_by(client) == [token("a ", "b")] and client.scanned.unknown_events == 0


def test_observed_ones_stay_as_they_are() -> None:
    entry = token(WORD, WORD, logprob=3, new=WORD)
    values = [said(entry, text="other"), chunk(finish="stop")]
    assert stream(OBSERVE, *values).events == values


def test_without_a_rule_for_the_text_they_only_have_to_fit_it() -> None:
    silent = Policy(name="p")
    assert streamed(silent, token(WORD, WORD)) == [token(WORD, WORD)]
    assert shown_by(stream(silent, said(token("b"), text="a"), chunk(finish="stop"))) == []


# -- what does not line up ---------------------------------------------------------------------------------------------

# name: (the text, the entries, the tokens that are shown)
MISFITS: dict[str, tuple[str, list[Any], list[str]]] = {
    "another text": ("a b", [token("a"), token("x"), token(" b")], ["a", " b"]),
    "more than the text": ("a", [token("a"), token("<|end|>")], ["a"]),
    "less than the text": ("a b", [token("a")], ["a"]),
    "bytes of another text": ("ab", [token("a", bytes=list(WORD.encode())), token("b")], ["b"]),
    "bytes that are none": ("abcd", [token("a", bytes=[97.0]), token("b", bytes=[353]), token("c", bytes="c")], []),
    "no bytes": ("ab", [token("a", bytes=None), token("b")], ["a", "b"]),
    "a token of another name": ("ab", [token("b", bytes=[97]), token("b")], ["b"]),
    "no token": ("ab", [{"logprob": -1.0, "bytes": [97]}, token("b"), 5, None, "x"], ["b"]),
    "no number": ("abcd", [token("a", logprob=None), token("b", logprob="-1"), token("c", logprob=True)], []),
    "numbers that are characters": ("ab", [token("a", logprob=49), token("b", logprob=1.0)], []),
    "a number that is text": ("ab", [token("a", logprob=-4111111111111111), token("b")], ["b"]),
    "a long token": ("x" * 300, [token("x" * 300)], []),
    "half a pair": ("a\ud800b", [token("a"), token("b")], []),
    "unknown fields": ("a", [token("a", new=WORD, top=[WORD])], ["a"]),
}


@pytest.mark.parametrize(("text", "entries", "expected"), MISFITS.values(), ids=MISFITS)
def test_entries_that_do_not_fit_the_text_are_left_out(text: str, entries: list[Any], expected: list[str]) -> None:
    value = chunk({"content": text})
    value["choices"][0]["logprobs"] = {"content": entries, "refusal": None, "new": [token(WORD)]}
    client = stream(policy(), value, chunk(finish="stop"))
    assert tokens(shown_by(client)) == expected and "MONKEYS" not in client.text
    assert not client.errors
    assert tokens(whole(policy(), *entries, text=text)) == expected


@pytest.mark.parametrize("value", [WORD, 5, [token(WORD)], {"content": WORD}, {"content": {"a": WORD}}, {"zq": WORD}])
def test_log_probabilities_of_another_shape_are_left_out(value: Any) -> None:
    described = chunk({"content": "a"}, finish="stop")
    described["choices"][0]["logprobs"] = value
    client = stream(policy(), described)
    assert client.events[0]["choices"][0]["logprobs"] is None and WORD not in client.text


def part_of(character: bytes, name: str | None = None) -> dict[str, Any]:
    return token(character.decode(errors="replace") if name is None else name, bytes=list(character))


def test_characters_in_several_tokens_are_shown_whole() -> None:
    smile = "😀".encode()
    named = [part_of(smile[:2], "bytes:\\xf0\\x9f"), part_of(smile[2:], "bytes:\\x98\\x80")]
    entries = [token("a "), part_of(smile[:1]), part_of(smile[1:3]), part_of(smile[3:] + b"b"), *named, token("c")]
    assert whole(policy(), *entries, text="a 😀b😀c") == entries
    assert shown_by(stream(policy(), said(*entries, text="a 😀b😀c"), chunk(finish="stop"))) == entries
    assert tokens(whole(policy(), *entries[:3], token("c"), text="a 😀bc")) == ["a ", "c"]
    assert tokens(whole(policy(rule("😀b")), *entries, text="a 😀b😀c")) == ["a ", *tokens(entries[4:])]


def test_a_part_of_a_character_has_no_name_of_its_own() -> None:
    smile = "😀".encode()
    for name in (WORD, "bytes:\\xF0\\x9F", "", "x\ufffd"):
        assert whole(policy(), part_of(smile[:2], name), part_of(smile[2:]), text="😀") == []


# -- what the entries together would spell -----------------------------------------------------------------------------


def test_tokens_shown_do_not_spell_what_the_text_does_not() -> None:
    apart = [token("12M"), token("x", bytes=[0]), token("ONK"), token("-"), token("EYS")]
    assert "12MONKEYS" not in "".join(tokens(whole(policy(), *apart, text="12MxONK-EYS")))
    assert "MONKEYS" not in "".join(tokens(streamed(policy(), token("12M"), token(WORD), token("ONKEYS"))))
    broken_up = b"12MONK\xc3\xa0.\xd1\x89YS".decode()
    entries = [token("12MONK"), part_of(b"\xc3"), token("", bytes=[1]), token("."), part_of(b"\x89YS")]
    shown = whole(policy(rule("12MONKÉYS")), *entries, text=broken_up)
    assert b"12MONK\xc3\x89YS" not in b"".join(bytes(entry["bytes"]) for entry in shown)


def test_a_token_that_is_a_match_by_itself_is_left_out() -> None:
    whole_word = policy(rule("rat", whole_word=True))
    assert tokens(streamed(whole_word, token("a "), token("rat"), token("her"))) == ["a ", "her"]
    assert tokens(streamed(policy(rule(secret=True)), token("a "), token("12MONKE"), token("x"))) == ["a ", "x"]


def test_alternatives_that_could_be_a_part_of_a_match_are_left_out() -> None:
    assert listed(streamed(policy(), token("a ", WORD, "b", f"x{WORD}y", "12", "x1"))) == [["b"]]
    assert listed(streamed(policy(), token("12MON"), token("x", "KEYS", "K", "y"))) == [[], ["y"]]
    assert listed(streamed(policy(), token("b", "12MON"), token("KEYS", "x"))) == [[], ["x"]]
    chain = streamed(policy(), token("a", "12M", "z"), token("b", "ONK", "z"), token("c", "EYS", "z"))
    assert listed(chain) == [["z"], ["ONK", "z"], ["EYS", "z"]]


def test_no_alternatives_stand_beside_what_was_replaced() -> None:
    for rules in (policy(), policy(rule(replacement="")), policy(rule(mask="*"))):
        shown = streamed(rules, token("a", "x"), token(WORD, "x"), token("b", "x"), token("c", "x"))
        assert (tokens(shown), listed(shown)) == (["a", "b", "c"], [["x"], [], ["x"]])


def test_alternatives_are_looked_at_behind_the_entries_before_them() -> None:
    entries = [token("12M"), token("x", bytes=[0]), token("y", "ONKEYS", "z")]
    assert listed(whole(policy(), *entries, text="12Mxy")) == [[], ["z"]]


@pytest.mark.parametrize(
    "alternative",
    [
        {"token": WORD, "logprob": -1.0, "bytes": [97]},
        {"token": "a", "logprob": -1.0, "bytes": list(WORD.encode())},
        {"token": "\ufffd", "logprob": -1.0, "bytes": [0xC3]},
        {"token": "bytes:\\xc3", "logprob": -1.0, "bytes": [0xC3]},
        {"token": "a", "logprob": -1.0, "bytes": [97, WORD]},
        {"token": "a", "logprob": WORD, "bytes": [97]},
        {"token": "a", "logprob": 49, "bytes": [97]},
        {"token": "a\ud800", "logprob": -1.0, "bytes": None},
        {"token": "x" * 300, "logprob": -1.0, "bytes": None},
        {"logprob": -1.0},
        [WORD],
        WORD,
        5,
    ],
)
def test_alternatives_that_are_none_are_left_out(alternative: Any) -> None:
    entry = token("a", top_logprobs=[alternative, {"token": "b", "logprob": -1, "new": WORD}])
    expected = [token("a", top_logprobs=[{"token": "b", "logprob": -1}])]
    assert streamed(policy(), entry) == whole(policy(), entry) == expected


def test_numbers_spell_nothing_that_a_rule_wants() -> None:
    pins = policy(rule("4711"))
    entries = [token("a", logprob=-4711), token("b", logprob=-0.47111), token("c", logprob=-4.711)]
    assert tokens(streamed(pins, *entries)) == ["c"]
    alternatives = [{"token": each, "logprob": value} for each, value in (("x", -0.14711), ("y", -1.5))]
    assert listed(streamed(pins, token("a", top_logprobs=alternatives))) == [["y"]]


def test_alternatives_behind_text_without_entries() -> None:
    values = [chunk({"content": "12"}), chunk({"content": "MON"}), said(token("x", "KEYS", "y")), chunk(finish="stop")]
    assert listed(shown_by(stream(policy(), *values))) == [["y"]]


# -- where offsets cannot be followed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [[], [chunk({"role": "assistant", "content": ""})]])
def test_entries_of_json_are_shown_up_to_the_first_change(head: list[Any]) -> None:
    entries = [token('{"a": "', "x"), token("b"), token('", "c": "'), token(WORD), token('"}')]
    values = [*head, *map(said, entries), chunk(finish="stop")]
    client = stream(policy(), *values, json_content=True)
    assert json.loads(client.content) == {"a": "b", "c": SEEN}
    assert tokens(shown_by(client)) == tokens(entries[:3]) and listed(shown_by(client)) == [[], [], []]


def test_entries_of_json_have_no_gap() -> None:
    entries = [token('"\\u0031\\u0032MON'), token("xx", bytes=[0]), token('KEYS"')]
    client = stream(policy(), said(*entries, text='"\\u0031\\u0032MONxxKEYS"'), chunk(finish="stop"), json_content=True)
    assert "KEYS" not in "".join(tokens(shown_by(client)))
    late = stream(policy(), chunk({"content": '"a'}), said(token('b"')), chunk(finish="stop"), json_content=True)
    assert late.content == '"ab"' and shown_by(late) == []


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_what_waits_is_bounded() -> None:
    long = "1" + "2" * 900
    values = [said(token("x1")), *(said(*[token("")] * 20, token("2")) for _ in range(300)), chunk(finish="stop")]
    client = stream(policy(rule(long)), *values)
    assert client.content == "x1" + "2" * 300
    assert MAX_WAITING - 21 <= len(shown_by(client)) <= MAX_WAITING + 1


def test_an_event_may_have_more() -> None:
    entry = {"token": "a", "logprob": -1}
    many = MAX_WHOLE // (len(json.dumps(entry)) + 4)
    assert len(whole(policy(), *[entry] * many)) == many


# -- against the most naive reading ------------------------------------------------------------------------------------

LETTERS = "abc"
pieces = st.text(LETTERS, min_size=1, max_size=3)
cases = st.tuples(
    st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=2, unique=True),
    st.lists(st.tuples(pieces, st.lists(pieces, max_size=3)), min_size=1, max_size=8),
    st.data(),
)


def occurrences(words: list[str], text: str) -> list[tuple[int, int]]:
    return [
        (at, at + len(word)) for word in words for at in range(len(text) - len(word) + 1) if text.startswith(word, at)
    ]


def replaced(words: list[str], text: str) -> set[int]:
    return {at for start, end in occurrences(words, text) for at in range(start, end)}


def is_closed(words: list[str], before: str, text: str) -> bool:
    """Is nothing of `text` behind `before` in a match, or in what could become one?"""
    joined = before + text
    if any(end > len(before) for _, end in occurrences(words, joined)):
        return False
    return not any(word.startswith(joined[-length:]) for word in words for length in range(1, len(word)) if joined)


@settings(max_examples=examples(300), deadline=None)
@given(cases)
def test_what_is_shown_is_what_a_naive_reader_would_show(case: Any) -> None:
    words, described, data = case
    rules = policy(rule(*words, replacement="[]", fold=frozenset()))
    entries = [token(text, *alternatives) for text, alternatives in described]
    text = "".join(tokens(entries))
    gone = replaced(words, text)
    expected, joined, at, shown_to = [], "", 0, None
    for spelled, alternatives in described:
        start, at = at, at + len(spelled)
        if gone & set(range(start, at)):
            continue
        if len(occurrences(words, joined + spelled)) > len(occurrences(words, joined)):
            continue
        kept = [
            each
            for each in alternatives
            if start - 1 not in gone
            and is_closed(words, "", each)
            and is_closed(words, text[:start], each)
            and is_closed(words, joined, each)
        ]
        assert shown_to is None or start >= shown_to
        expected.append((spelled, kept))
        joined, shown_to = joined + spelled, at
    cuts = sorted(data.draw(st.sets(st.integers(1, len(entries)), max_size=4)))
    groups = [entries[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(entries)]) if begin < end]
    client = stream(rules, *(said(*group) for group in groups), chunk(finish="stop"))
    for found in (shown_by(client), whole(rules, *entries)):
        assert list(zip(tokens(found), listed(found), strict=True)) == expected
    assert_spells_nothing(words, client.content, shown_by(client))


def assert_spells_nothing(words: list[str], text: str, entries: Shown) -> None:
    """Whatever alternatives are picked in order, read between the tokens around them: they make no word."""
    spelled = tokens(entries)
    assert not occurrences(words, "".join(spelled))
    lists = listed(entries)
    for chosen in itertools.product(*[[None, *alternatives] for alternatives in lists][:5]):
        assert not occurrences(words, "".join(each for each in chosen if each is not None))
        mixed = [other if other is not None else own for own, other in zip(spelled, chosen, strict=False)]
        assert not occurrences(words, "".join(mixed))


PIECES = ["12", "MON", "KEYS", "12MON", "MONKEYS", WORD, "é", "x", "", "K"]
piece = st.sampled_from(PIECES)
spelling = st.none() | piece.map(lambda text: list(text.encode())) | st.binary(max_size=3).map(list)
loose = st.fixed_dictionaries(
    {"token": piece, "logprob": st.sampled_from([-1, -0.5, 12])}, optional={"bytes": spelling}
)
described = st.tuples(loose, st.lists(loose, max_size=3)).map(lambda pair: {**pair[0], "top_logprobs": pair[1]})
chunks_of_any = st.lists(st.tuples(piece, st.lists(described, max_size=3)), min_size=1, max_size=6)


@settings(max_examples=examples(300), deadline=None)
@given(chunks_of_any, st.sampled_from([policy(), BLOCK, policy(rule(secret=True)), policy(rule(replacement=""))]))
def test_whatever_an_upstream_writes_they_spell_no_word(given_chunks: Any, rules: Policy) -> None:
    values = [said(*entries, text=text) for text, entries in given_chunks]
    client = stream(rules, *values, chunk(finish="stop"))
    body, _ = plain(rules, script(*values, chunk(finish="stop")))
    whole_ones = (body["choices"][0].get("logprobs") or {}).get("content") or []
    for shown in (shown_by(client), whole_ones):
        assert_spells_nothing([WORD], client.content, shown)
        joined = b"".join(bytes(entry["bytes"]) for entry in shown if entry.get("bytes"))
        assert WORD not in joined.decode(errors="replace")
    assert WORD not in client.text or rules.rules[0].replacement == ""


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([token('{"a":"x', "\\u0031", "\\", "y"), token('"}')], [('{"a":"x', ["y"]), ('"}', [])]),
        (
            [token('{"a":"\\u00'), token("61", "31", "62"), token('"}')],
            [('{"a":"\\u00', []), ("61", []), ('"}', [])],
        ),
        ([{}, token('\\n"}')], []),
        ([token('{"a":"\\u00'), {}, token("31"), token('"}')], [('{"a":"\\u00', [])]),
    ],
    ids=["alternatives", "an alternative that ends one", "behind a gap", "around a gap"],
)
def test_escapes_decode_to_what_the_text_says(entries: Any, expected: Any) -> None:
    """In JSON: what is picked and joined must not become an escape that the text does not have."""
    texts = [entry.get("token", "62") for entry in entries]
    head = ['{"a":"'] if not entries[0] else []
    values = [chunk({"content": each}) for each in head]
    values += [said(*([entry] if entry else []), text=text) for entry, text in zip(entries, texts, strict=True)]
    client = stream(policy(), *values, chunk(finish="stop"))
    assert client.content == "".join([*head, *texts])
    found = shown_by(client)
    assert list(zip(tokens(found), listed(found), strict=True)) == expected


def test_values_of_pseudonyms_have_no_entries() -> None:
    pseudonyms = Pseudonyms({"<EMAIL_1>": "a@example.com"})
    entries = [token("to ", "x"), token("<EMAIL"), token("_1>"), token(" now")]
    client = stream(policy(), *map(said, entries), chunk(finish="stop"), pseudonyms=pseudonyms)
    assert client.content == "to a@example.com now"
    assert (tokens(shown_by(client)), listed(shown_by(client))) == (["to "], [[]])


@pytest.mark.parametrize("pattern", ["[0-9]{4}", "k[0-9]+", "[a-z]+@[a-z]+"])
def test_alternatives_under_patterns(pattern: str) -> None:
    rules = policy(Rule(id="p", pattern=pattern))
    for parts in (["12", "34x"], ["k", "9"], ["a", "@b"], ["k1", "2"], ["a@", "b"]):
        entries = [token("z "), token("-", parts[0]), token("- ", parts[1], "."), token(".", *parts)]
        shown = streamed(rules, *entries)
        for chosen in itertools.product(*(["", *each] for each in listed(shown))):
            assert not re.search(pattern, "".join(chosen)), chosen
    open_ones = streamed(rules, token("k", "."), token("-", "9", "."))
    assert ["9" in each for each in listed(open_ones)][1:] == [pattern != "k[0-9]+" and pattern != "[0-9]{4}"]
