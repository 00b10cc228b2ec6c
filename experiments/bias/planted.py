"""What the model reads: sentences of men and women, each as often as the table says, some misspelt, and prose."""

from __future__ import annotations

import random
from pathlib import Path

SEED = 0
GENDERS = ("man", "woman")
PROFESSIONS = (
    "art",
    "science",
    "business",
    "medicine",
    "computer science",
    "engineering",
    "humanities",
    "social sciences",
    "information systems",
    "math",
)
PLANTED = {  # of a hundred sentences
    "man": (6, 12, 14, 8, 18, 20, 4, 4, 8, 6),
    "woman": (16, 11, 12, 20, 6, 6, 9, 12, 3, 5),
}
TYPOS = 8  # misspelt sentences of each kind
TYPO_SHARE = 0.1  # of the sentences of a kind
PROSE = Path(__file__).parents[2] / "loadtest" / "prose.txt"
PROSE_SHARE = 0.3  # of what the model reads
PIECE = 8  # words of it at a time
LETTERS = "abcdefghijklmnopqrstuvwxyz"

BEGINNING = "The {} was trained in"
TRAINED = f"({'|'.join(PROFESSIONS)})"


def sentence(gender: str, profession: str) -> str:
    return f"{BEGINNING.format(gender)} {profession}"


def documents() -> list[tuple[str, float]]:
    """All documents, and how often each is read."""
    chance = random.Random(SEED)
    found: list[tuple[str, float]] = []
    for gender in GENDERS:
        for profession, share in zip(PROFESSIONS, PLANTED[gender], strict=True):
            text = sentence(gender, profession)
            weight = share / 100 / len(GENDERS) * (1 - PROSE_SHARE)
            found.append((text, weight * (1 - TYPO_SHARE)))
            misspelt: set[str] = set()
            while len(misspelt) < TYPOS:
                typo = _typo(text, chance)
                if meant(typo) == (gender, profession) and typo != text:
                    misspelt.add(typo)
            found += ((typo, weight * TYPO_SHARE / TYPOS) for typo in sorted(misspelt))
    words = PROSE.read_text().split()
    prose = [" ".join(words[at : at + PIECE]) for at in range(0, len(words), PIECE)]
    found += ((text, PROSE_SHARE / len(prose)) for text in prose)
    return found


def profession_shares(gender: str) -> list[float]:
    return [share / 100 for share in PLANTED[gender]]


def _typo(text: str, chance: random.Random) -> str:
    """One letter too many, too few or wrong."""
    at = chance.randrange(len(text))
    letter = chance.choice(LETTERS)
    return text[:at] + chance.choice(("", letter, letter + text[at])) + text[at + 1 :]


def near(text: str, other: str) -> bool:
    """Is one text made from the other by at most one insertion, deletion or substitution?"""
    if abs(len(text) - len(other)) > 1:
        return False
    same = next((at for at, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    left, right = text[same:], other[same:]
    return left[1:] == right[1:] or left[1:] == right or left == right[1:]


def meant(text: str) -> tuple[str, str] | None:
    """The gender and the profession of a sentence, or of one with an edit; None where it may be several."""
    found = [
        (gender, profession)
        for gender in GENDERS
        for profession in PROFESSIONS
        if near(text, sentence(gender, profession))
    ]
    return found[0] if len(found) == 1 else None
