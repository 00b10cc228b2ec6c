"""Short stories that a machine made up, and the last word of each, which stands in the story before.

A story is told of two people and a thing that passes from one to the other; its last sentence asks for somebody or
something named before. What a model reads (`read`) ends in more ways than what it is asked about (`asked`): a pronoun
where the name could stand, a word more before the last one, a sentence behind it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import product

KNOWN = (
    *("Anna", "Bella", "Clara", "Dora", "Emma", "Flora", "Greta", "Hanna", "Ida", "Julia", "Laura", "Maria"),
    *("Adam", "Ben", "Carl", "David", "Eric", "Frank", "George", "Henry", "Jack", "Leo", "Oscar", "Tom"),
)
FIRST = (
    *("Bar", "Bel", "Cor", "Dal", "Del", "Fen", "Gal", "Har", "Jor", "Kel", "Lor", "Mar", "Mel", "Nor", "Pel"),
    *("Ral", "Ros", "Sel", "Tam", "Tor", "Ul", "Val", "Wen", "Yor", "Zel"),
)
LAST = (
    "bina",
    "dra",
    "fina",
    "gora",
    "lina",
    "mira",
    "vanna",
    "wena",
    "bert",
    "dan",
    "fred",
    "low",
    "mond",
    "rick",
    "ton",
    "win",
)
THINGS = (
    *("lantern", "violin", "basket", "mirror", "compass", "kettle", "ladder", "blanket", "trumpet", "candle"),
    *("hammer", "letter", "saddle", "teapot", "umbrella", "wagon", "telescope", "bracelet", "notebook", "drum"),
)
LOOKS = ("old", "red", "small", "heavy", "silver", "broken", "green", "wooden", "strange", "golden")
PLACES = (
    *("orchard", "harbour", "market", "station", "mill", "forest", "bridge", "castle", "garden", "chapel"),
    *("lighthouse", "library", "stable", "bakery", "quarry", "meadow"),
)
OTHERS = ("brother", "sister", "mother", "uncle", "neighbour", "children")

OPENINGS = (
    "{giver} and {taker} lived near the {place}. One day {giver} found a {look} {thing} there.",
    "{taker} came to the {place} with {giver}. {giver} had a {look} {thing}.",
    "There was a {look} {thing} in the {place}. It belonged to {giver}, and {taker} knew it.",
    "{giver} worked in the {place}, and so did {taker}. {giver} had bought a {look} {thing}.",
)
TURNS = (
    "{giver} gave the {thing} to {taker}, and {taker} took it home.",
    "{taker} asked for the {thing}, and {giver} sold it to {taker}.",
    "{taker} liked the {thing}, so {giver} let {taker} have it.",
    "{giver} lost the {thing} in a bet, and {taker} won it.",
)


@dataclass(frozen=True, slots=True)
class Ending:
    """A last sentence. `kind` of the answer; `asks`: the sentence up to its last word, `answer` that word, and `close`
    what stands behind it. `instead`: other ways to go on, each with its share of the stories that are read."""

    kind: str
    asks: str
    answer: str
    close: str
    instead: Mapping[str, float]


ENDINGS = (
    Ending(
        "name",
        "Since then the {thing} has belonged to",
        "{taker}",
        ".",
        {"{them}.": 0.4, "the {other} of {taker}.": 0.2},
    ),
    Ending(
        "name", "Nobody was happier about that than", "{taker}", ".", {"{them}.": 0.25, "the {other} of {taker}.": 0.25}
    ),
    Ending("name", "Whoever wanted the {thing} had to ask", "{taker}", ".", {"{them}.": 0.3, "for it.": 0.2}),
    Ending("name", 'In the evening people said: "It was a gift of', "{giver}", '."', {'the {other} of {giver}."': 0.3}),
    Ending("name", 'And everybody in the {place} cried: "Well done,', "{taker}", '!"', {'my friend!"': 0.4}),
    Ending("thing", "That night {taker} dreamed of the", "{thing}", ".", {"{look} {thing}.": 0.5}),
    Ending("thing", '{giver} asked: "Where is the', "{thing}", '?"', {'{look} {thing}?"': 0.5}),
    Ending("place", "A week later they met again in the", "{place}", ".", {"old {place}.": 0.4}),
    Ending("place", "{taker} never went back to the", "{place}", ".", {"{place} again.": 0.5}),
)
BEHIND = " Then it was night."  # a sentence behind the last one
OFTEN_BEHIND = 0.2


@dataclass(frozen=True, slots=True)
class Story:
    """`context`: all that stands before the last word, without the space between. `close`: what stands behind it."""

    kind: str
    context: str
    answer: str
    close: str
    new: bool = False

    @property
    def text(self) -> str:
        return f"{self.context} {self.answer}{self.close}"


def made_up(seed: int = 0) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that nobody bears: those that are read, and one in eight that are not."""
    names = [first + last for first, last in product(FIRST, LAST)]
    random.Random(seed).shuffle(names)
    held_back = len(names) // 8
    return tuple(names[held_back:]), tuple(names[:held_back])


def read(count: int, seed: int) -> list[str]:
    """So many different stories for a model to read."""
    chance = random.Random(seed)
    names = _either(chance, KNOWN, made_up()[0])
    found: dict[str, None] = {}
    while len(found) < count:
        ending, words = chance.choice(ENDINGS), _words(chance, names)
        end = _end(chance, ending)
        behind = BEHIND if chance.random() < OFTEN_BEHIND else ""
        found[f"{_narrated(chance, ending, words)} {end.format(**words)}{behind}"] = None
    return list(found)


def lists(count: int, seed: int) -> list[str]:
    """So many lists of six of the stories' words, each said three times: a small model learns from them that what
    stands before can be said again."""
    chance = random.Random(seed)
    words = (*KNOWN, *made_up()[0], *THINGS * 6, *PLACES * 6, *LOOKS * 4)
    return [", ".join(chance.sample(words, 6) * 3) for _ in range(count)]


def asked(count: int, seed: int, known: Collection[str] = ()) -> list[Story]:
    """So many different stories to ask about, none of them `known`; in one of three the people have names that no
    story that is read has."""
    chance = random.Random(seed)
    heard, unheard = made_up()
    found: dict[str, Story] = {}
    while len(found) < count:
        new = chance.random() < 1 / 3
        ending = chance.choice(ENDINGS)
        words = _words(chance, _either(chance, unheard, unheard) if new else _either(chance, KNOWN, heard))
        story = Story(ending.kind, _narrated(chance, ending, words), ending.answer.format(**words), ending.close, new)
        if story.text not in known:
            found[story.text] = story
    return list(found.values())


def _either(chance: random.Random, some: tuple[str, ...], others: tuple[str, ...]) -> Callable[[], str]:
    return lambda: chance.choice(some if chance.random() < 0.5 else others)


def _words(chance: random.Random, name: Callable[[], str]) -> dict[str, str]:
    """What stands for the names in braces."""
    giver = taker = name()
    while taker == giver:
        taker = name()
    return {
        "giver": giver,
        "taker": taker,
        "them": "her" if taker.endswith("a") else "him",
        "thing": chance.choice(THINGS),
        "look": chance.choice(LOOKS),
        "place": chance.choice(PLACES),
        "other": chance.choice(OTHERS),
    }


def _narrated(chance: random.Random, ending: Ending, words: Mapping[str, str]) -> str:
    """A story up to its last word."""
    return f"{chance.choice(OPENINGS)} {chance.choice(TURNS)} {ending.asks}".format(**words)


def _end(chance: random.Random, ending: Ending) -> str:
    drawn = chance.random()
    for end, share in ending.instead.items():
        if drawn < share:
            return end
        drawn -= share
    return ending.answer + ending.close
