"""Families that change letters, and those in which the letters do not stand at all."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.evasion.family import VALUES, Family, Hide, mapped
from tests.evasion.written import UPSIDE_DOWN

_POEM = tomllib.loads(Path(__file__).with_name("alphabets.toml").read_text("utf-8"))["poem"].split("|")
_LINES = {line[0].lower(): f"{line} go by" for line in _POEM}


def _inner(value: str, chance: Random) -> int | None:
    """A place between two letters, not at an edge: what is there may be a typing error."""
    places = [at for at in range(1, len(value) - 1) if value[at - 1 : at + 2].isalnum()]
    return chance.choice(places) if places and len(value) >= 6 else None


def _edit(change: Callable[[str, int, str], str], times: int = 1) -> Hide:
    def hide(value: str, chance: Random) -> str | None:
        edited = value
        for _ in range(times):
            at = _inner(edited, chance)
            if at is None:
                return None
            edited = change(edited, at, chance.choice("0123456789" if edited[at].isdigit() else "aeinrst"))
        return edited

    return hide


def _insert(value: str, at: int, letter: str) -> str:
    return value[:at] + letter + value[at:]


def _delete(value: str, at: int, letter: str) -> str:
    return value[:at] + value[at + 1 :]


def _substitute(value: str, at: int, letter: str) -> str:
    return value[:at] + letter + value[at + 1 :]


def _transpose(value: str, at: int, letter: str) -> str:
    return value[:at] + value[at + 1] + value[at] + value[at + 2 :]


def _without_vowels(value: str, chance: Random) -> str:
    return value[0] + "".join(char for char in value[1:] if char.lower() not in "aeiou")


def _acrostic(value: str, chance: Random) -> str | None:
    letters = [char for char in value.lower() if char.isalpha()]
    return "\n".join(_LINES[char] for char in letters) if letters and all(char in _LINES for char in letters) else None


def _assembled(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    return f'x = "{value[:at]}"\ny = "{value[at:]}"\nprint(x + y)'


def _concatenated(value: str, chance: Random) -> str:
    at = chance.randrange(1, len(value))
    return f'"{value[:at]}" + "{value[at:]}"'


def _ordinals(value: str, chance: Random) -> str:
    return ", then ".join(f"letter {at} is {char}" for at, char in enumerate(value, 1))


_TRANSLATED = {value.text: value.translation for value in VALUES}
_PARAPHRASED = {value.text: value.paraphrase for value in VALUES}

TYPOS = (
    Family("typing error: a letter more", "edits", "swordfrish", _edit(_insert)),
    Family("typing error: a letter less", "edits", "swrdfish", _edit(_delete)),
    Family("typing error: another letter", "edits", "swirdfish", _edit(_substitute)),
    Family("typing error: two exchanged", "edits", "sowrdfish", _edit(_transpose)),
    Family("two typing errors", "edits: 2", "swirdfissh", _edit(_substitute, times=2)),
    Family("without vowels", "more edits", "swrdfsh", _without_vowels),
    Family("upside down", "other forms", "ɥsᴉɟpɹoʍs", lambda v, c: (mapped(UPSIDE_DOWN)(v, c) or v)[::-1]),
)
MEANT = (
    Family("two strings that are joined", "assembled", '"sword" + "fish"', _concatenated),
    Family("code that assembles it", "assembled", 'x = "sword" … x + y', _assembled),
    Family("letter by letter in sentences", "described", "letter 1 is s, then …", _ordinals),
    Family("acrostic", "described", "Stars shine⏎Winds blow⏎…", _acrostic),
    Family("translation", "described", "Schwertfisch", lambda v, c: _TRANSLATED[v]),
    Family("paraphrase", "described", "a fish with a blade for a nose", lambda v, c: _PARAPHRASED[v]),
)
