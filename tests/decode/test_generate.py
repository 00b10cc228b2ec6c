"""The loop over models that want to say what they must not, in every way there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from gateway.decode.generate import Finish, GeneratedAnswer, Rollback, generate
from gateway.decode.guide import Guide, choice, regex
from gateway.decode.masks import MaskCompiler, WordBan
from gateway.decode.rollback import Caps
from gateway.decode.vocabulary import Vocabulary
from gateway.policy.model import Exhausted, Fold, Rule
from tests.support import decode_routes as routes
from tests.support.examples import examples

Model = Callable[[Sequence[Sequence[int]]], np.ndarray]

BANNED = Rule(id="words", words=tuple(routes.BANNED))
UNLIMITED = Caps(per_position=10**4, per_answer=10**4)
# Compiled once: that takes longer than an answer.
ROLLBACK = Rollback((BANNED,))
UNLIMITED_ROLLBACK = Rollback((BANNED,), UNLIMITED)


def vocabulary_of(*pieces: str) -> Vocabulary:
    """▁ is a space; the last token ends a text."""
    return Vocabulary([*(piece.replace("▁", " ").encode() for piece in pieces), None], end=[len(pieces)])


def indifferent(vocabulary: Vocabulary) -> Model:
    return lambda prefixes: np.zeros((len(prefixes), len(vocabulary)))


def wanting(vocabulary: Vocabulary, *wanted: int) -> Model:
    """Wants to say some tokens and then to end; what else it says is drawn from all."""

    def model(prefixes: Sequence[Sequence[int]]) -> np.ndarray:
        rows = np.zeros((len(prefixes), len(vocabulary)))
        for row, prefix in zip(rows, prefixes, strict=True):
            row[-1] = 1.0
            if len(prefix) < len(wanted):
                row[wanted[len(prefix)]] = 9.0
        return rows

    return model


def says(text: str) -> bool:
    return any(word in text.casefold() for word in routes.BANNED)


# -- without anything --------------------------------------------------------------------------------------------------


def test_a_model_says_what_it_wants() -> None:
    vocabulary = vocabulary_of("▁t", "alk", "!")
    answer = generate(wanting(vocabulary, 0, 1, 2), [], vocabulary, temperature=0)
    assert answer == GeneratedAnswer(" talk!", (0, 1, 2), Finish.STOP, sampled=4, rollbacks=0)
    assert generate(wanting(vocabulary, 0, 1, 2), [], vocabulary, temperature=0, max_tokens=2).finish is Finish.LENGTH
    assert generate(wanting(vocabulary, 0), [], vocabulary, max_tokens=0).tokens == ()


def test_the_model_is_asked_for_the_prompt_and_what_was_said() -> None:
    vocabulary = vocabulary_of("a", "b")
    asked: list[tuple[int, ...]] = []

    def model(prefixes: Sequence[Sequence[int]]) -> np.ndarray:
        asked.extend(map(tuple, prefixes))
        return np.array([[0.0, -1.0, -2.0]])

    generate(model, [1, 1], vocabulary, temperature=0, max_tokens=2)
    assert asked == [(1, 1), (1, 1, 0)]


def test_equal_seeds_say_the_same() -> None:
    vocabulary = vocabulary_of(*"abcdefgh")
    said = [generate(indifferent(vocabulary), [], vocabulary, seed=seed, max_tokens=9).text for seed in (1, 1, 2)]
    assert said[0] == said[1] != said[2]


def test_temperature_makes_the_law_flatter() -> None:
    vocabulary = vocabulary_of("a")
    seen: list[float] = []

    def choose(probabilities: np.ndarray) -> int:
        seen.append(float(probabilities[0]))
        return 1

    for temperature in (0.5, 1.0, 2.0):
        generate(lambda _: np.log([[0.8, 0.2]]), [], vocabulary, temperature=temperature, choose=choose)
    assert seen == pytest.approx([16 / 17, 4 / 5, 2 / 3])


def test_what_cannot_be_run_is_refused() -> None:
    vocabulary = vocabulary_of("a")
    with pytest.raises(ValueError, match="temperature is -1"):
        generate(indifferent(vocabulary), [], vocabulary, temperature=-1)
    with pytest.raises(ValueError, match=r"shape \(1, 3\) for one prefix and a vocabulary of 2"):
        generate(lambda _: np.zeros((1, 3)), [], vocabulary)
    with pytest.raises(ValueError, match="a rule at least"):
        Rollback(())


# -- constraints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_a_constrained_answer_belongs_to_the_language(seed: int) -> None:
    vocabulary = vocabulary_of("h", "o", "t", "ho", "el", "e", "l", "x", "tel")
    constrain = Guide(choice("hot", "hotel", "cold"), vocabulary)
    answer = generate(indifferent(vocabulary), [], vocabulary, constrain=constrain, seed=seed)
    assert answer.finish is Finish.STOP
    assert answer.text in {"hot", "hotel"}


def test_a_first_space_does_not_count() -> None:
    vocabulary = Vocabulary([b" hot", b"!", None], end=[2], strips_first_space=True)
    constrain = Guide(choice("hot"), vocabulary, at_text_start=True)
    answer = generate(indifferent(vocabulary), [], vocabulary, constrain=constrain, at_text_start=True)
    assert answer.text == "hot"


# -- rollback ----------------------------------------------------------------------------------------------------------

PIECES = vocabulary_of(*routes.TOKENS)
PLACE = {piece: place for place, piece in enumerate(routes.TOKENS)}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_all_140_routes_are_blocked(temperature: float) -> None:
    assert len(routes.ROUTES) == 140
    for route in routes.ROUTES:
        wanted = [PLACE[piece] for piece in route]
        answer = generate(
            wanting(PIECES, *wanted),
            [],
            PIECES,
            rollback=UNLIMITED_ROLLBACK,
            temperature=temperature,
            max_tokens=len(wanted) + 4,
        )
        assert not says(answer.text), route
        assert answer.rollbacks >= 1 and answer.text == PIECES.text(answer.tokens)


@pytest.mark.parametrize("before", ["", "▁", "s", "▁t", "▁lis", "fuck"])
def test_all_140_routes_are_blocked_behind_and_before_other_tokens(before: str) -> None:
    """What stands before may begin a word itself; what the tokens are together is all that counts."""
    vocabulary = Vocabulary(
        [*PIECES.tokens[:-1], *(part.replace("▁", " ").encode() for part in (before, "ing")), None],
        end=[len(PIECES) + 1],
    )
    for route in routes.ROUTES:
        wanted = [len(PIECES) - 1, *(PLACE[piece] for piece in route), len(PIECES)]
        answer = generate(wanting(vocabulary, *wanted), [], vocabulary, rollback=ROLLBACK, temperature=0, max_tokens=12)
        assert not says(answer.text), route


def test_the_first_known_leak_a_rollback_does_not_forget_what_stands_before_it() -> None:
    """After `fuck` a match was taken back to `▁yo`, the machine began again, and `▁yo` `u` passed."""
    first = [PLACE[piece] for piece in ("fuck", "▁y", "ou")]
    again = [PLACE[piece] for piece in ("fuck", "▁yo", "u")]

    def model(prefixes: Sequence[Sequence[int]]) -> np.ndarray:
        row = np.full((1, len(PIECES)), -9.0)
        for rank, way in enumerate((first, again)):
            for length, token in enumerate(way):
                if tuple(prefixes[0]) == tuple(way[:length]):
                    row[0, token] = -rank
        row[0, -1] = -5
        return row

    answer = generate(model, [], PIECES, rollback=ROLLBACK, temperature=0, max_tokens=6)
    assert not says(answer.text)
    assert PLACE["fuck"] not in answer.tokens[:1]


def test_what_is_kept_may_be_the_beginning_of_another_word() -> None:
    """`ta` stays when `xk` is taken back, and `lk` after it would say a word."""
    vocabulary = vocabulary_of("ta", "xk", "lk", "!")
    row = np.array([[-9.0, 0.0, -1.0, -2.0, -3.0]])
    answer = generate(
        lambda prefixes: row if prefixes[0] else row[:, [1, 0, 2, 3, 4]],
        [],
        vocabulary,
        rollback=Rollback((Rule(id="words", words=("talk", "xk")),)),
        temperature=0,
        max_tokens=2,
    )
    assert answer == GeneratedAnswer("lklk", (2, 2), Finish.LENGTH, sampled=6, rollbacks=3)


def test_ways_in_which_the_published_machine_leaked() -> None:
    for route in routes.LEAKS:
        wanted = [PLACE[piece] for piece in route]
        answer = generate(wanting(PIECES, *wanted), [], PIECES, rollback=ROLLBACK, temperature=0)
        assert not says(answer.text) and answer.rollbacks >= 1


def test_the_second_known_leak_what_is_drawn_again_is_looked_at_too() -> None:
    """`▁listen` was taken back, `listen` drawn in its place and never checked."""
    ways = [PLACE[piece] for piece in ("▁listen", "listen", "▁talk", "talk")]

    def model(prefixes: Sequence[Sequence[int]]) -> np.ndarray:
        row = np.full((1, len(PIECES)), -9.0)
        row[0, ways] = [0, -1, -2, -3]
        row[0, -1] = -4
        return row

    answer = generate(model, [], PIECES, rollback=ROLLBACK, temperature=0)
    assert answer == GeneratedAnswer("", (), Finish.STOP, sampled=5, rollbacks=4)


@pytest.mark.parametrize(
    "pieces",
    [
        ("▁t", "▁talk", "▁stalk", "alking", "talk", "t", "alk"),
        ("ta", "lk", "l", "k", "▁tal"),
        ("lis", "ten", "li", "sten", "▁", "s"),
        ("LIS", "ten", "T", "alK", "ﬁ", "ＴＡ", "lk"),
    ],
)
def test_every_spelling_of_small_vocabularies_is_blocked(pieces: tuple[str, ...]) -> None:
    """All answers that the tokens can make, one after the other."""
    vocabulary = vocabulary_of(*pieces)
    blocked = 0
    for wanted in product(range(len(pieces)), repeat=3):
        answer = generate(wanting(vocabulary, *wanted), [], vocabulary, rollback=ROLLBACK, temperature=0, max_tokens=3)
        text = vocabulary.text(wanted).replace("Ｔ", "t").replace("Ａ", "a")
        assert not says(answer.text.replace("Ｔ", "t").replace("Ａ", "a"))
        assert (answer.rollbacks > 0) >= says(text)
        blocked += says(text)
    assert blocked > 0


def spellings(text: bytes, vocabulary: Vocabulary) -> list[tuple[int, ...]]:
    """Every way to write a text in tokens."""
    if not text:
        return [()]
    begun = ((token, piece) for token, piece in enumerate(vocabulary.tokens) if piece and text.startswith(piece))
    return [(token, *rest) for token, piece in begun for rest in spellings(text[len(piece) :], vocabulary)]


BYTE_LEVEL = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), b" t", b"al", b"lk", b"alk", b" talk", b"stalk", b"ki", b"king", None],
    end=[264],
)
SENTENCEPIECE = Vocabulary(  # letters are tokens, and bytes as well
    [*PIECES.tokens[:-1], *(bytes([byte]) for byte in b" lksg"), b"\n", b" s", b"alking", b"ing", None],
    end=[len(PIECES) + 8],
)


@pytest.mark.parametrize(
    "vocabulary, text, least",
    [
        (BYTE_LEVEL, b" talk", 8),
        (BYTE_LEVEL, b"stalking", 9),
        (SENTENCEPIECE, b" talk", 30),
        (SENTENCEPIECE, b"listen", 60),
        (SENTENCEPIECE, b" stalking talk", 40),
        (SENTENCEPIECE, b"fuck you", 40),
    ],
)
def test_every_spelling_that_brute_force_finds_is_blocked(vocabulary: Vocabulary, text: bytes, least: int) -> None:
    ways = spellings(text, vocabulary)
    assert len(ways) >= least
    for wanted in ways[:: 1 + len(ways) // examples(4000)]:
        answer = generate(wanting(vocabulary, *wanted), [], vocabulary, rollback=ROLLBACK, temperature=0, max_tokens=9)
        assert not says(answer.text) and answer.rollbacks >= 1, wanted


def test_byte_tokens_that_cut_characters() -> None:
    vocabulary = Vocabulary([*(bytes([byte]) for byte in range(256)), "né".encode()[:2], b"\xa9\xc3", None], end=[258])
    rule = Rule(id="word", words=("née",))
    for wanted in ([*"née".encode()], [256, 0xA9, ord("e")], [0xC3, 257, *b"\xa9", *"née".encode()]):
        answer = generate(
            wanting(vocabulary, *wanted), [], vocabulary, rollback=Rollback((rule,)), temperature=0, max_tokens=9
        )
        assert "née" not in answer.text and answer.rollbacks == 1
    # The first byte of the match lies in the token that also holds the character before it.
    pieces = Vocabulary([b"x\xc3", b"\xa9e", b"-", None], end=[3])
    answer = generate(
        wanting(pieces, 0, 1),
        [],
        pieces,
        rollback=Rollback((Rule(id="r", words=("ée",)),)),
        temperature=0,
        max_tokens=2,
    )
    assert answer.tokens == () and answer.rollbacks == 1


def test_a_word_that_the_last_token_completes_does_not_leave() -> None:
    vocabulary = vocabulary_of("▁t", "alk", "▁so")
    for longest in (2, 3):
        answer = generate(
            wanting(vocabulary, 2, 0, 1),
            [],
            vocabulary,
            rollback=ROLLBACK,
            temperature=0,
            max_tokens=longest,
        )
        assert not says(answer.text)
    assert answer.rollbacks == 1 and len(answer.tokens) < 3


def test_a_whole_word_counts_when_its_edge_is_seen() -> None:
    vocabulary = vocabulary_of("talk", "ing", "!", "er")
    rollback = Rollback((Rule(id="word", words=("talk",), whole_word=True),))
    for wanted, rollbacks in (([0, 1], 0), ([0, 2], 1), ([0], 1), ([3, 0], 0), ([0, 3, 2, 0], 1)):
        answer = generate(wanting(vocabulary, *wanted), [], vocabulary, rollback=rollback, temperature=0, max_tokens=8)
        assert answer.rollbacks == rollbacks, wanted
        assert answer.finish is Finish.STOP
    # The end that `max_tokens` makes is an edge, too.
    cut = generate(wanting(vocabulary, 0), [], vocabulary, rollback=rollback, temperature=0, max_tokens=1)
    assert cut.text != "talk" and cut.rollbacks == 1


def test_patterns_and_detectors_are_rolled_back() -> None:
    vocabulary = vocabulary_of("PROJ", "-", "12", "3", "▁ok", "▁at", "▁ada@", "example", ".org", "▁")
    rules = (Rule(id="ticket", pattern=r"PROJ-\d{2,6}\b"), Rule(id="mail", detector="email"))
    answer = generate(
        wanting(vocabulary, 4, 0, 1, 2, 4), [], vocabulary, rollback=Rollback(rules), temperature=0, max_tokens=9
    )
    assert answer.text == " ok" and answer.rollbacks == 1
    answer = generate(
        wanting(vocabulary, 4, 6, 7, 8, 9, 4), [], vocabulary, rollback=Rollback(rules), temperature=0, max_tokens=9
    )
    assert "@" not in answer.text and answer.rollbacks == 1


# -- when it does not help ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exhausted", Exhausted)
@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_proposes_every_spelling_ends_within_the_caps(exhausted: Exhausted, seed: int) -> None:
    """Whatever is banned, there is another way to begin a word, and what is begun is ended."""
    pieces = ["talk", "listen", "ta", "lis", "fuck", "lk", "ten", "▁you"]
    ends = {"ta": "lk", "lis": "ten", "fuck": "▁you"}
    vocabulary = vocabulary_of(*pieces)

    def model(prefixes: Sequence[Sequence[int]]) -> np.ndarray:
        last = pieces[prefixes[0][-1]] if prefixes[0] else ""
        wanted = [ends[last]] if last in ends else pieces[:5]
        return np.array([[*(0.0 if piece in wanted else -30.0 for piece in pieces), -99.0]])

    caps = Caps(per_position=3, per_answer=10)
    rule = Rule(id="words", words=tuple(routes.BANNED), replacement="[…]")
    answer = generate(model, [], vocabulary, rollback=Rollback((rule,), caps, exhausted), max_tokens=20, seed=seed)
    assert not says(answer.text)
    assert answer.rollbacks <= 10
    assert answer.sampled <= 20 * 11
    if exhausted is Exhausted.BLOCK:
        assert answer.finish is Finish.EXHAUSTED
        assert vocabulary.text(answer.tokens) == answer.text or answer.text.startswith(vocabulary.text(answer.tokens))
    else:
        assert answer.finish is Finish.LENGTH and len(answer.tokens) == 20
        assert "[…]" in answer.text


def test_text_before_a_match_within_its_token_is_kept_when_the_answer_ends_there() -> None:
    vocabulary = vocabulary_of("so", "▁let▁us▁talk")
    answer = generate(
        lambda _: np.array([[-9.0, 0.0, -99.0]]),
        [],
        vocabulary,
        rollback=Rollback((BANNED,), Caps(per_position=0), Exhausted.BLOCK),
        temperature=0,
    )
    assert answer == GeneratedAnswer(" let us ", (), Finish.EXHAUSTED, sampled=1, rollbacks=0)


def test_what_ends_the_text_does_not_go_on_when_rollback_is_exhausted() -> None:
    vocabulary = vocabulary_of("talk")
    rule = Rule(id="word", words=("talk",), whole_word=True)
    answer = generate(
        wanting(vocabulary, 0), [], vocabulary, rollback=Rollback((rule,), Caps(per_answer=0)), temperature=0
    )
    assert answer == GeneratedAnswer("[REDACTED]", (0,), Finish.STOP, sampled=2, rollbacks=0)


def test_a_constraint_that_leaves_only_the_word_backs_out_or_is_stuck() -> None:
    vocabulary = vocabulary_of(*"talkwen")
    for options, expected in (((("talk", "walk")), ("walk", Finish.STOP)), (("talk",), ("", Finish.STUCK))):
        answer = generate(
            indifferent(vocabulary),
            [],
            vocabulary,
            constrain=Guide(choice(*options), vocabulary),
            rollback=UNLIMITED_ROLLBACK,
            temperature=0,
        )
        assert (answer.text, answer.finish) == expected
    capped = generate(
        indifferent(vocabulary),
        [],
        vocabulary,
        constrain=Guide(choice("talk"), vocabulary),
        rollback=Rollback((BANNED,), Caps(per_answer=0), Exhausted.BLOCK),
        temperature=0,
    )
    assert (capped.text, capped.finish) == ("", Finish.EXHAUSTED)


# -- masks -------------------------------------------------------------------------------------------------------------


def mask_of(vocabulary: Vocabulary, *words: str, whole_word: bool = False) -> Any:
    banned = WordBan(words=words, fold=frozenset({Fold.CASE}), whole_word=whole_word)
    return MaskCompiler(vocabulary.tokens, vocabulary.end).compile([banned])


@pytest.mark.parametrize("seed", range(10))
def test_what_is_masked_is_not_said(seed: int) -> None:
    vocabulary = vocabulary_of("ta", "lk", "talk", "lis", "ten", "s")
    ban = mask_of(vocabulary, "talk", "listen")
    answer = generate(indifferent(vocabulary), [], vocabulary, ban=ban, rollback=ROLLBACK, seed=seed, max_tokens=12)
    assert answer.rollbacks == 0 and not says(answer.text)


def test_a_mask_knows_where_the_answer_is_cut() -> None:
    vocabulary = vocabulary_of("talk", "ing", "!")
    ban = mask_of(vocabulary, "talk", whole_word=True)
    said = [
        generate(wanting(vocabulary, 0, 1), [], vocabulary, ban=ban, temperature=0, max_tokens=longest).text
        for longest in (1, 2)
    ]
    assert said[0] != "talk" and said[1] == "talking"


def test_where_mask_and_constraint_leave_nothing_the_answer_backs_out() -> None:
    vocabulary = vocabulary_of("t", "w", "alk", "al", "k")
    arguments: dict[str, Any] = {
        "constrain": Guide(regex("[tw]alk"), vocabulary),
        "ban": mask_of(vocabulary, "talk"),
        "temperature": 0,
    }
    stuck = generate(indifferent(vocabulary), [], vocabulary, **arguments)
    assert stuck.finish is Finish.STUCK and stuck.text == "tal"
    answer = generate(indifferent(vocabulary), [], vocabulary, rollback=ROLLBACK, **arguments)
    assert answer.finish is Finish.STOP and answer.text == "walk"
    capped = generate(
        indifferent(vocabulary), [], vocabulary, rollback=Rollback((BANNED,), Caps(per_answer=0)), **arguments
    )
    assert capped.finish is Finish.STUCK and capped.text == "tal"
