"""What a family of evasion is, and the values that are hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

# A family may hide a value in a longer text: these stand around what carries it.
BEGIN, END = "\ue000", "\ue001"

# The value in disguise; None, or the value itself, where the family has no form of it.
Hide: TypeAlias = Callable[[str, Random], str | None]


@dataclass(frozen=True, slots=True)
class Family:
    """One way to write a value so that people, or a program they have, still read it. `group` is the part of the
    semantics that is about it; `listed` the normalization form in which the rule has the value."""

    name: str
    group: str
    example: str  # of `swordfish`, or of another word, for the documentation
    hide: Hide
    listed: Literal["NFC", "NFD"] = "NFC"


@dataclass(frozen=True, slots=True)
class Value:
    """A value to hide, and what only somebody who knows it can say of it."""

    text: str
    translation: str
    paraphrase: str


VALUES = (
    Value("swordfish", "Schwertfisch", "a long fish with a blade for a nose"),
    Value("12MONKEYS", "zwölf Affen", "a dozen of the animals that swing from trees"),
    Value("Zanzibar77", "Sansibar siebenundsiebzig", "that island of cloves, then seven twice"),
    Value("Project Heron", "Vorhaben Reiher", "the plan named for a grey wading bird"),
    Value("blue velvet curtain", "blauer Samtvorhang", "a heavy soft drape the colour of the sky"),
    Value("don't-tell", "nicht weitersagen", "what one says of a secret"),
    Value("4929 1820 7733", "vier neun zwei neun …", "three years in a row, the first of them far ahead"),
    Value("7305518", "sieben Millionen …", "a little more than seven million"),
    Value("Grünewaldstraße", "Green Wood Street", "the road by the trees that bear the painter's name"),
    Value("forêt brûlée", "burnt forest", "trees after a fire"),
    Value("Синица", "titmouse", "a small yellow bird"),
    Value("Ηλέκτρα", "Electra", "the sister of Orestes"),
    Value("ガラスの城", "castle of glass", "a fortress one can look through"),
    Value("한라산", "Mount Halla", "the highest mountain of Jeju"),
    Value("青花瓷瓶", "blue and white vase", "a vessel from Jingdezhen"),
)


def placed(before: str, carrying: str, after: str) -> str:
    """A text in which only a part carries the value."""
    return f"{before}{BEGIN}{carrying}{END}{after}"


def mapped(table: Mapping[str, str], least: float = 0.5) -> Hide:
    """Each letter that the table has as the table has it; there must be that share of them, and one at least."""

    def hide(value: str, chance: Random) -> str | None:
        found = [table.get(char, table.get(char.lower())) for char in value]
        letters = sum(1 for char in value if char.isalnum())
        count = sum(1 for each in found if each is not None)
        if not count or count < least * letters:
            return None
        return "".join(char if new is None else new for char, new in zip(value, found, strict=True))

    return hide


def zipped(letters: str, forms: Iterable[str]) -> dict[str, str]:
    return dict(zip(letters, forms, strict=True))


def shifted(first: int, letters: str) -> dict[str, str]:
    """Forms that Unicode has in the same order, from a code point on."""
    return {char: chr(first + at) for at, char in enumerate(letters)}


def between(*marks: str) -> Hide:
    """One of the marks, the same all through, between all characters."""

    def hide(value: str, chance: Random) -> str:
        return chance.choice(marks).join(value)

    return hide


def inserted(*marks: str) -> Hide:
    """One to three of the marks, each at a place of its own inside the value."""

    def hide(value: str, chance: Random) -> str:
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(1, len(value))
            value = value[:at] + chance.choice(marks) + value[at:]
        return value

    return hide


def blanks(*marks: str) -> Hide:
    """One of the marks in place of each blank of a phrase."""

    def hide(value: str, chance: Random) -> str:
        return value.replace(" ", chance.choice(marks))

    return hide


def each_as(spell: Callable[[str], str], joined: str = "") -> Hide:
    """Each character spelled by itself."""

    def hide(value: str, chance: Random) -> str:
        return joined.join(map(spell, value))

    return hide
