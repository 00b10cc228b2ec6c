"""The families of evasion are what they say, and what is claimed of the rules holds for them."""

from __future__ import annotations

import base64
import codecs
import html
import random
import unicodedata
from collections.abc import Callable, Mapping
from urllib.parse import unquote, unquote_plus

import pytest

from gateway.policy.model import Strength
from tests.evasion.coded import MORSE, NATO
from tests.evasion.family import Family
from tests.evasion.report import FAMILIES, attempts, caught, recorded, share
from tests.support.examples import examples

BY_NAME = {family.name: family for family in FAMILIES}
LEAST = 0.98
# The parts of the semantics that a preset sees through whole.
_PLAIN = frozenset({"canonical", "punctuation", "space", "width"})
_CAREFUL = _PLAIN | {"accents", "confusables", "invisible", "leet", "markup", "repeats", "spacing", "url"}
CLAIMED: Mapping[Strength, frozenset[str]] = {
    Strength.PLAIN: _PLAIN,
    Strength.CAREFUL: _CAREFUL,
    Strength.PARANOID: _CAREFUL | {"base32", "base64", "decimal", "edits", "hex", "morse", "nato", "reverse", "rot13"},
}


def test_there_are_many_and_no_name_stands_twice() -> None:
    assert len(BY_NAME) == len(FAMILIES) >= 100


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_hides_some_value_the_same_way_each_time(family: Family) -> None:
    found = list(attempts(family))
    assert len(found) >= 2
    assert found == list(attempts(family))
    listed = family.listed
    assert all(unicodedata.normalize(listed, attempt.value) not in attempt.text for attempt in found)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_is_caught_is_what_is_recorded(family: Family) -> None:
    """Of each family some attempts, other ones in each run."""
    everything = list(enumerate(attempts(family)))
    for number, attempt in random.sample(everything, min(len(everything), examples(2))):
        for strength in Strength:
            known = recorded()[family.name][strength]
            assert len(known) == len(everything), "run python -m tests.evasion.report"
            assert caught(attempt, strength) == (known[number] == "1"), (attempt.value, strength)


def test_what_is_claimed_is_caught() -> None:
    claims = [(family, strength) for strength in Strength for family in FAMILIES if family.group in CLAIMED[strength]]
    assert [(family.name, strength) for family, strength in claims if share(family, strength) < LEAST] == []


def test_more_strength_catches_no_less() -> None:
    shares = {family.name: [share(family, strength) for strength in Strength] for family in FAMILIES}
    assert {name: found for name, found in shares.items() if found != sorted(found)} == {}


def _bytes(text: str, size: int) -> str:
    return bytes(int(text[at : at + size], 16) for at in range(0, len(text), size)).decode()


def _codes(text: str, base: int) -> str:
    return bytes(int(code, base) for code in text.split()).decode()


def _spelled(table: Mapping[str, str]) -> Callable[[str], str]:
    letters = {spelled: char for char, spelled in table.items()}
    return lambda text: "".join(letters[word] for word in text.split(" "))


UNDO: Mapping[str, Callable[[str], str]] = {
    "decomposed (NFD)": lambda text: unicodedata.normalize("NFC", text),
    "half-width kana": lambda text: unicodedata.normalize("NFKC", text),
    "full width": lambda text: unicodedata.normalize("NFKC", text),
    "HTML entities, decimal": html.unescape,
    "HTML entities, hexadecimal": html.unescape,
    "HTML entities without semicolons": html.unescape,
    "HTML entities by name": html.unescape,
    "string escapes, \\x": lambda text: _bytes(text.replace("\\x", ""), 2),
    "string escapes, \\u": lambda text: text.encode().decode("unicode-escape"),
    "percent, all": unquote,
    "percent, where needed": unquote,
    "percent, twice": lambda text: unquote(unquote(text)),
    "plus for blank": unquote_plus,
    "reversed": lambda text: text[::-1],
    "ROT13": lambda text: codecs.decode(text, "rot13"),
    "Base64": lambda text: base64.b64decode(text).decode(),
    "Base64 in lines": lambda text: base64.b64decode(text).decode(),
    "Base64 of UTF-16": lambda text: base64.b64decode(text).decode("utf-16-le"),
    "Base64 twice": lambda text: base64.b64decode(base64.b64decode(text)).decode(),
    "hexadecimal, lower case": lambda text: bytes.fromhex(text).decode(),
    "hexadecimal, spaced": lambda text: bytes.fromhex(text).decode(),
    "binary codes": lambda text: _codes(text, 2),
    "octal codes": lambda text: _codes(text, 8),
    "NATO alphabet": _spelled(NATO),
    "Morse code": _spelled(MORSE),
}


@pytest.mark.parametrize("name", UNDO)
def test_what_carries_a_value_says_it(name: str) -> None:
    for attempt in attempts(BY_NAME[name]):
        said = UNDO[name](attempt.text[attempt.start : attempt.end])
        value = attempt.value
        if name in ("NATO alphabet", "Morse code"):
            value = "".join(char for char in value.lower() if char.isalnum())
        assert unicodedata.normalize("NFKC", said) == unicodedata.normalize("NFKC", value)


@pytest.mark.parametrize("name", [name for name in BY_NAME if name.startswith("Base64 within")])
def test_the_marked_part_of_longer_base64_is_what_says_the_value(name: str) -> None:
    for attempt in attempts(BY_NAME[name]):
        whole = attempt.text.partition(": ")[2].partition(". That")[0]
        decoded = base64.b64decode(whole)
        at = decoded.index(attempt.value.encode())
        begin = attempt.start - attempt.text.index(whole)
        end = begin + attempt.end - attempt.start
        bits = range(begin * 6, end * 6)
        assert at * 8 in range(bits.start, bits.start + 6)
        assert (at + len(attempt.value.encode())) * 8 - 1 in range(bits.stop - 6, bits.stop)
