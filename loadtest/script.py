"""The text of every stream, token by token, and the text that must come out behind a guard.

Everything here is a function of its arguments: the upstream and the load generator run it on their own and agree.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path

import ahocorasick

from loadtest.scenario import Scenario

FORBIDDEN = "12MONKEYS"
REPLACEMENT = "[CENSORED]"
VARIANTS = 16  # different texts; streams take them in turn

# As a tokenizer of today's models cuts English: a word with the space before it, digits by up to three, marks alone.
_PIECE = re.compile(r" ?[^\W\d_]+|\d{1,3}|\s+|[^\w\s]+|_+")
_LONG_WORD = 8  # longer ones are two tokens
_CUTS = (("12", "MON", "KEYS"), ("1", "2MONK", "EYS"), ("12MONKEY", "S"), ("12MONKEYS",), ("12M", "ONKEYS"))
_NEAR_MISSES = ("12MONKEY", "12", "12MONKE", "1", "12M", "12MONK", "12MON", "12MO")
_CONSONANTS = "bcdfghjklmnprstvwz"
_RHYMES = ("a", "e", "i", "o", "u", "ar", "en", "il", "or", "us")


def tokens(scenario: Scenario, stream: int) -> tuple[str, ...]:
    """The deltas of one stream, `scenario.tokens` of them."""
    return _tokens(scenario.text, scenario.tokens, scenario.planted, stream % VARIANTS)


def expected_text(scenario: Scenario, stream: int, *, guarded: bool) -> str:
    """All that must arrive: the script itself, or the script with every forbidden word replaced."""
    text = "".join(tokens(scenario, stream))
    return text.replace(FORBIDDEN, REPLACEMENT) if guarded else text


def listed_words(scenario: Scenario, count: int) -> tuple[str, ...]:
    """`count` pronounceable words, the same ones every time, none of which occurs in the scenario's scripts.

    They keep a guard busy (a letter of the prose begins many of them) without changing what must come out.
    """
    source = random.Random(f"loadtest words {count}")
    syllables = [first + rhyme for first in _CONSONANTS for rhyme in _RHYMES]
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(source.choices(syllables, k=source.randint(3, 6)))] = None
    for word in _occurring(words, scenario):
        del words[word]
    # No script has digits inside a word, so these cannot occur either.
    return tuple(words) + tuple(f"kopal{number:04d}wen" for number in range(count - len(words)))


def _occurring(words: dict[str, None], scenario: Scenario) -> set[str]:
    automaton = ahocorasick.Automaton()
    for word in words:
        automaton.add_word(word, word)
    if not words:
        return set()
    automaton.make_automaton()
    scripts = "\n".join("".join(tokens(scenario, variant)) for variant in range(VARIANTS))
    return {word for _, word in automaton.iter(scripts.casefold())}


@cache
def _tokens(text: str, count: int, planted: int, variant: int) -> tuple[str, ...]:
    plain = _prose_tokens(variant) if text == "prose" else cycle(_NEAR_MISSES)
    cuts = cycle(_CUTS[variant % len(_CUTS) :] + _CUTS[: variant % len(_CUTS)])
    script: list[str] = []
    for number in range(planted):
        place = (2 * number + 1) * count // (2 * planted)
        script.extend(islice(plain, place - len(script)))
        script.extend(next(cuts))
    script.extend(islice(plain, count - len(script)))
    return tuple(script)


def _prose_tokens(variant: int) -> Iterator[str]:
    """Tokens of the bundled prose without end, each variant beginning at another place."""
    prose = Path(__file__).with_name("prose.txt").read_text(encoding="utf-8")
    pieces = [part for piece in _PIECE.findall(prose) for part in _parts(piece)]
    return islice(cycle(pieces), variant * len(pieces) // VARIANTS, None)


def _parts(piece: str) -> tuple[str, ...]:
    return (piece,) if len(piece) <= _LONG_WORD else (piece[: len(piece) // 2], piece[len(piece) // 2 :])
