"""JSON schemas and grammars behind the interface of the guide."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from gateway.decode import grammar
from gateway.decode.generate import Finish, generate
from gateway.decode.grammar import GrammarError, GrammarGuide
from gateway.decode.guide import Guide, NotAllowed, regex
from gateway.decode.vocabulary import Vocabulary

END = 260
BYTES = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), b'{"', b"true", b"rue", "é".encode(), None, None], end=[END, END + 1]
)
SINGLE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 6},
        "hit": {"type": "boolean"},
        "year": {"type": "integer", "minimum": 1960, "maximum": 1999},
    },
    "required": ["title", "year"],
    "additionalProperties": False,
}


def allowed(constraint: GrammarGuide, text: bytes) -> set[bytes | None]:
    """What may come after a text, spelled byte by byte."""
    state = constraint.start()
    for byte in text:
        state = constraint.advance(state, byte)
    return {BYTES.tokens[token] for token in constraint.allowed(state).tolist()}


def test_a_grammar_allows_every_spelling_of_what_may_follow() -> None:
    nested = GrammarGuide('start: "(" start ")" | "true" | "é"', BYTES)
    assert allowed(nested, b"") == {b"(", b"t", b"true", b"\xc3", "é".encode()}
    assert allowed(nested, b"((t") == {b"r", b"rue"}
    assert allowed(nested, b"((true)") == {b")"}
    assert allowed(nested, b"(true)") == {None}
    assert nested.accepting(nested.advance(nested.start(), 257))


def test_nothing_follows_the_end_and_what_may_not_come_is_refused() -> None:
    constraint = GrammarGuide('start: "a"', BYTES)
    state = constraint.advance(constraint.start(), ord("a"))
    assert constraint.allowed(state).tolist() == [END, END + 1]
    for end in BYTES.end:
        ended = constraint.advance(state, end)
        assert constraint.allowed(ended).tolist() == [] and not constraint.accepting(ended)
        with pytest.raises(NotAllowed):
            constraint.advance(ended, ord("a"))
    with pytest.raises(NotAllowed, match="token 98 may not come here"):
        constraint.advance(constraint.start(), ord("b"))


def test_a_regular_grammar_allows_what_a_guide_does() -> None:
    by_parser = GrammarGuide("start: /[a-c]+(é|, [a-c]){1,2}/", BYTES)
    by_automaton = Guide(regex("[a-c]+(?:é|, [a-c]){1,2}"), BYTES)
    for seed in range(20):
        draw = random.Random(seed)
        parsed, state = by_parser.start(), by_automaton.start()
        for _ in range(10):
            tokens = by_automaton.allowed(state)
            assert np.array_equal(by_parser.allowed(parsed), tokens)
            assert by_parser.accepting(parsed) == by_automaton.accepting(state)
            if not len(tokens):
                break
            token = draw.choice(tokens.tolist())
            parsed, state = by_parser.advance(parsed, token), by_automaton.advance(state, token)


@pytest.mark.parametrize("seed", range(10))
def test_an_answer_satisfies_its_schema(seed: int) -> None:
    def model(prefixes: Any) -> np.ndarray:
        """Knows nothing, and prefers to be brief."""
        row = np.zeros(len(BYTES))
        row[[ord('"'), ord("}"), END]] = 5
        return row[np.newaxis]

    answer = generate(model, [], BYTES, constrain=GrammarGuide.json_schema(SINGLE, BYTES), seed=seed, max_tokens=200)
    assert answer.finish is Finish.STOP
    single = json.loads(answer.text)
    assert {"title", "year"} <= single.keys() <= {"title", "hit", "year"}
    assert len(single["title"]) <= 6 and 1960 <= single["year"] <= 1999
    assert isinstance(single.get("hit", True), bool)


def test_states_are_values_and_outlive_the_parsers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "MAX_PARSERS", 2)
    constraint = GrammarGuide.json_schema(SINGLE, BYTES)
    states = [constraint.start()]
    for byte in b'{"title":"a","year":1970}':
        states.append(constraint.advance(states[-1], byte))
    before = [constraint.allowed(state).tolist() for state in states]
    assert [constraint.allowed(state).tolist() for state in reversed(states)] == before[::-1]
    assert constraint.accepting(states[-1])


@pytest.mark.parametrize("refused", ["start: unknown", "start: /(/", "nothing"])
def test_grammars_that_are_none(refused: str) -> None:
    with pytest.raises(GrammarError):
        GrammarGuide(refused, BYTES)


def test_schemas_and_vocabularies_that_cannot_be() -> None:
    with pytest.raises(GrammarError, match="Invalid type"):
        GrammarGuide.json_schema({"type": "nope"}, BYTES)
    with pytest.raises(ValueError, match="every byte is a token"):
        GrammarGuide('start: "a"', Vocabulary([b"a", None], end=[1]))
    with pytest.raises(ValueError, match="no token that ends a text"):
        GrammarGuide('start: "a"', Vocabulary(BYTES.tokens))
