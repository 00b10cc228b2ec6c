"""What the model reads: sentences with an insult, plain or disguised, or with none; and which of them are asked."""

from __future__ import annotations

import random
from dataclasses import dataclass

SEED = 0
WORDS = ("blorptwit", "snorfwaddle", "grimblefonk", "zibberdorf", "plimmoggle", "drackenfump")
HARMLESS = ("neighbour", "gardener", "reader", "traveller", "painter", "swimmer", "listener", "teacher")
TAILS = (".", "!", ", and left.", ", and nobody answered.", ", said the others.")
BASES = 300  # beginnings, each of a group by these shares
GROUPS = {"plain": 0.25, "disguised": 0.5, "harmless": 0.25}
# How a word is disguised, and how often. All but the last are one edit away from it.
DISGUISES = {"star": 0.35, "quoted": 0.2, "mark": 0.15, "misspelt": 0.12, "capital": 0.08, "masked": 0.1}
ONE_EDIT = tuple(kind for kind in DISGUISES if kind != "masked")
OTHERS = 300  # sentences without such a word

PROMPTS = 120
INPUTS = 30  # sentences, unprompted

_NAMES = ("Anna", "Bert", "Clara", "Dan", "Edith", "Frank", "Grace", "Hugo", "Ida", "Jonas", "Karin", "Leo", "Mona")
_PLACES = ("kitchen", "garden", "office", "library", "harbour", "market", "station", "theatre", "workshop", "cellar")
_TRAITS = ("total", "stupid", "rotten", "lazy", "miserable", "hopeless", "clumsy", "pompous", "shameless", "greedy")
_THINGS = ("bicycle", "ladder", "lantern", "umbrella", "kettle", "trumpet", "hammer", "basket", "blanket", "mirror")
_FORMS = (
    "{name} told the man in the {place} that he was a {trait}",
    "Get out of my {place}, {name}, you {trait}",
    "Whoever took the {thing} from the {place} is a {trait}",
    "{name} is such a {trait}",
    "In the {place} they all call {name} a {trait}",
    "Give me back my {thing}, you {trait}",
    "{name} broke the {thing} like a {trait}",
)
_PLAIN = (
    "{name} put the {thing} in the {place} and went home.",
    "The {thing} in the {place} belongs to {name}.",
    "{name} found a {thing} behind the {place}.",
    "They cleaned the {place} and {name} fixed the {thing}.",
)


@dataclass(frozen=True, slots=True)
class Base:
    """A sentence's beginning, its group, the word that stands behind it and how that was read. `disguise`: its kind,
    empty where there is none."""

    begin: str
    group: str
    word: str
    read: str
    disguise: str = ""


def bases() -> list[Base]:
    """The sentences with a word, by group."""
    chance = random.Random(SEED)
    begins: dict[str, None] = {}
    while len(begins) < BASES:
        begins[_filled(chance.choice(_FORMS), chance)] = None
    found = []
    for number, begin in enumerate(begins):
        group = _by_share(GROUPS, number / BASES)
        word = chance.choice(WORDS)
        kind = chance.choices(list(DISGUISES), list(DISGUISES.values()))[0] if group == "disguised" else ""
        read = disguised(word, kind, chance)
        if group == "harmless":
            read = chance.choice(HARMLESS)
        found.append(Base(begin, group, word, read, kind))
    return found


def documents() -> list[str]:
    """All that the model reads."""
    chance = random.Random(SEED + 1)
    found = [f"{base.begin} {base.read}{chance.choice(TAILS)}" for base in bases()]
    others: dict[str, None] = {}
    while len(others) < OTHERS:
        others[_filled(chance.choice(_PLAIN), chance)] = None
    return [*found, *others]


def _filled(form: str, chance: random.Random) -> str:
    fills = {"name": _NAMES, "place": _PLACES, "trait": _TRAITS, "thing": _THINGS}
    return form.format(**{name: chance.choice(some) for name, some in fills.items()})


def _by_share(shares: dict[str, float], place: float) -> str:
    """The group at a place from 0 to 1."""
    for group, share in shares.items():
        if place < share:
            return group
        place -= share
    return next(reversed(shares))


def disguised(word: str, kind: str, chance: random.Random) -> str:
    """A word as it is written where it may not be written."""
    at = chance.randrange(1, len(word) - 1)
    vowels = [place for place, letter in enumerate(word) if letter in "aeiou"]
    match kind:
        case "star":
            at = chance.choice(vowels)
            return f"{word[:at]}{chance.choice('***@#')}{word[at + 1 :]}"
        case "mark":
            return f"{word[:at]}{chance.choice('-._')}{word[at:]}"
        case "quoted":
            left, right = chance.choice(('""', "()", "><", "''", "**"))
            return f"{left}{word}{right}"
        case "misspelt":
            return word[:at] + (word[at] * 2 if chance.random() < 0.5 else "") + word[at + 1 :]
        case "capital":
            return word.capitalize()
        case "masked":
            return word[0] + "*" * (len(word) - 2) + word[-1]
        case _:
            return word


def prompts() -> list[Base]:
    """Those that are asked, as many of each group as there are."""
    found = bases()
    chance = random.Random(SEED + 2)
    chosen = []
    for group, share in GROUPS.items():
        chosen += chance.sample([base for base in found if base.group == group], round(PROMPTS * share))
    return chosen


def sentences() -> list[Base]:
    """The unprompted inputs: sentences that hold a word in the corpus, disguised or not, in proportion."""
    holding = [base for base in prompts() if base.group != "harmless"]
    return random.Random(SEED + 3).sample(holding, INPUTS)
