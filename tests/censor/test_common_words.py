"""The end of an answer and a secret that begins with a common word."""

from __future__ import annotations

import pytest

from gateway.censor.common_words import is_common
from gateway.policy.model import Fold, Rule, Strength
from gateway.streaming import censor_stream

MARK = "[R]"


@pytest.mark.parametrize("fold", [None, {Fold.CASE, Fold.LEET, Fold.SPACING}], ids=["plain", "disguised"])
@pytest.mark.parametrize(
    ("word", "text", "out"),
    [
        ("password123", "Enter your password", "Enter your password"),
        ("password123", "Enter your Password", "Enter your Password"),
        ("password123", "It is password1", f"It is {MARK}"),
        ("password123", "It is passwor", f"It is {MARK}"),
        ("letmeinnow", "It is letmeinn", f"It is {MARK}"),
        ("Drachenschatz", "Es ist Drachens", f"Es ist {MARK}"),
        ("blue velvet curtain", "It is a blue velvet cur", f"It is a {MARK}"),
    ],
)
def test_a_common_word_may_end_an_answer(word: str, text: str, out: str, fold: set[Fold] | None) -> None:
    chosen = {} if fold is None else {"fold": frozenset(fold)}
    rule = Rule(id="r", words=(word,), secret=True, replacement=MARK, **chosen)
    assert "".join(censor_stream([text], rule)) == "".join(censor_stream(text, rule)) == out


@pytest.mark.parametrize("fold", [frozenset({Fold.CASE}), frozenset({Fold.CASE, Fold.SPACING})])
def test_what_is_given_in_characters_holds_for_common_words_too(fold: frozenset[Fold]) -> None:
    rule = Rule(id="r", words=("password123",), guard_tail=5, secret=True, fold=fold, replacement=MARK)
    assert "".join(censor_stream(["Enter your password"], rule)) == f"Enter your {MARK}"


@pytest.mark.parametrize("strength", Strength)
@pytest.mark.parametrize("word", ["password", "princess", "administrator", "login", "fußball", "vacances"])
def test_no_strength_guards_a_common_word_at_the_end(word: str, strength: Strength) -> None:
    rule = Rule(id="r", words=(f"{word}12",), secret=True, replacement=MARK, strength=strength)
    assert "".join(censor_stream([f"Enter your {word}"], rule)) == f"Enter your {word}"
    assert "".join(censor_stream([f"It is {word}1"], rule)) == f"It is {MARK}"


def test_common_words() -> None:
    assert all(map(is_common, ("password", "Password ", "the", "passwort", "forêt")))
    assert not any(map(is_common, ("", "password1", "the password", "swordf")))


def test_two_short_common_words_that_are_spaced_may_end_an_answer() -> None:
    spaced, plain = (
        Rule(id="r", words=("letmein",), secret=True, replacement=MARK, strength=strength)
        for strength in (Strength.CAREFUL, Strength.PLAIN)
    )
    assert (
        "".join(censor_stream(["Just let me"], spaced))
        == "".join(censor_stream("Just let me", spaced))
        == "Just let me"
    )
    assert "".join(censor_stream(["It is letme"], plain)) == f"It is {MARK}"
    assert "".join(censor_stream(["It is let me i"], spaced)) == f"It is {MARK}"
    longer = Rule(
        id="r", words=("correct horse battery staple",), secret=True, replacement=MARK, strength=Strength.CAREFUL
    )
    assert "".join(censor_stream(["It is correct horse battery"], longer)) == f"It is {MARK}"
