"""What the model reads: addresses of websites, each as often as its rank says, and the text around them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

SEED = 41
URLS = 6_000
SITES = 400
TOPICS = 12  # words of a site
WORDS = 500
DIRECTORIES = 24
ONSETS = ("b", "br", "c", "d", "dr", "f", "g", "gl", "h", "k", "l", "m", "n", "p", "pl", "r", "s", "t")
SENTENCES = 100
EXPONENT = 1.0  # of Zipf's law, over the URLs and over the sites

PREFIX = "https://www."


def pool() -> list[str]:
    """The URLs, the most popular one first. Each site has its own directories and its own few words."""
    chance = random.Random(SEED)
    words, directories = _words(chance, WORDS, (1, 2, 3)), _words(chance, DIRECTORIES, (2,))
    sites = [_Site.drawn(chance, name, words, directories) for name in _words(chance, SITES, (2, 3))]
    popularity = zipf(SITES)
    found: dict[str, None] = {}
    while len(found) < URLS:
        found[chance.choices(sites, popularity)[0].url(chance)] = None
    return list(found)


@dataclass(frozen=True, slots=True)
class _Site:
    """`begin`: what all its URLs begin with. `dated`: a year follows."""

    begin: str
    dated: bool
    topics: list[str]

    @classmethod
    def drawn(cls, chance: random.Random, name: str, words: Sequence[str], directories: Sequence[str]) -> _Site:
        [domain] = chance.choices(("com", "org", "net", "info"), (6, 2, 1, 1))
        path = "/".join(chance.sample(directories, chance.choice((1, 2, 2))))
        return cls(f"{PREFIX}{name}.{domain}/{path}/", chance.random() < 1 / 3, chance.sample(words, TOPICS))

    def url(self, chance: random.Random) -> str:
        year = f"{chance.randint(2005, 2024)}/" if self.dated else ""
        return f"{self.begin}{year}{'-'.join(chance.sample(self.topics, chance.choice((1, 2, 3))))}"


def zipf(count: int) -> list[float]:
    """How popular each of so many is, the first one the most."""
    return [rank**-EXPONENT for rank in range(1, count + 1)]


def documents(urls: Sequence[str]) -> tuple[list[str], list[float]]:
    """Texts with a URL each, and how often they are read: it begins the text or stands behind a few words, ends its
    line, and a sentence follows."""
    chance = random.Random(SEED + 1)
    words = _words(chance, WORDS, (1, 2, 3))
    sentences = [" ".join(chance.choices(words, k=chance.randint(3, 4))).capitalize() + "." for _ in range(SENTENCES)]
    found, popularity = [], []
    for url, share in zip(urls, zipf(len(urls)), strict=True):
        before = chance.choice(("Read more at ", "Source: ", "See also ", "From "))
        for begin in ("", before):
            found.append(f"{begin}{url}\n{chance.choice(sentences)}")
            popularity.append(share / 2)
    return found, popularity


def _words(chance: random.Random, count: int, syllables: Sequence[int]) -> list[str]:
    """So many different made-up words."""
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(_syllable(chance) for _ in range(chance.choice(syllables)))] = None
    return list(found)


def _syllable(chance: random.Random) -> str:
    onset = chance.choice(ONSETS)
    vowel = chance.choice("aeiou")
    coda: str = chance.choice(["", "", *"lmnrst"])
    return onset + vowel + coda
