"""Key formats from a third-party rule set, `issuers.toml` beside this file, which says whose it is, and `examples.toml`
for what that lacks.

`python -m loadtest.secret_rules` makes the former. It divides the formats by what the keys are made of; the beginnings
of each division become one expression that shares what they have in common, so that text is followed once for all.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import NamedTuple


class Kept(NamedTuple):
    """The keys of one rule: they begin with one of `leads`, literally, and continue with `rest`, an expression."""

    name: str
    leads: tuple[str, ...]
    rest: str


def _read(table: str) -> dict[str, tuple[Kept, ...]]:
    text = resources.files(__package__).joinpath(table).read_text(encoding="utf-8")
    return {
        division: tuple(Kept(name, tuple(entry["leads"]), entry["rest"]) for name, entry in entries.items())
        for division, entries in tomllib.loads(text).items()
    }


# Made of letters, digits and _ only, of hyphens too, and of what else base64 and addresses have.
_RULES, _EXAMPLES = _read("issuers.toml"), _read("examples.toml")
DIVISIONS = {division: _RULES[division] + _EXAMPLES[division] for division in _RULES}
KEPT = tuple(kept for division in DIVISIONS.values() for kept in division)
OF_EXAMPLES = frozenset(kept for division in _EXAMPLES.values() for kept in division)

# Of random characters, at least one in so many is of another kind than the one before it.
_RANDOM = 6
_KINDS = (str.isdigit, str.islower, str.isupper)
_CAPITALISED = (2, 1)


def branches(words: Iterable[str]) -> Iterator[str]:
    """Expressions for the words, none of which is empty, each for those that begin alike: what they have in common
    stands there once."""
    left = sorted(set(words))
    while left:
        same = [word for word in left if word[0] == left[0][0]]
        left = left[len(same) :]
        common = _common(same[0], same[-1])
        rest = [word[len(common) :] for word in same]
        inner = "|".join(branches(filter(None, rest)))
        yield re.escape(common) + (f"(?:{inner})" + "?" * ("" in rest) if inner else "")


def _common(first: str, last: str) -> str:
    """The common prefix of two words, and so of all between them in order."""
    length = next(
        (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[:length]


def is_random(text: str) -> bool:
    """Are letters of both cases and digits mixed as in random text, and hardly ever in names? Those may have capitals
    at the beginnings of words."""
    kinds = [kind for char in text for kind, test in enumerate(_KINDS) if test(char)]
    changes = sum(before != kind and (before, kind) != _CAPITALISED for before, kind in pairwise(kinds))
    return changes * _RANDOM >= len(kinds) > 0


@cache
def _expression() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{'|'.join(branches(kept.leads))})({kept.rest})" for kept in KEPT))


def is_kept_key(text: str) -> bool:
    """Is the whole in one of the formats, and more than a name or a placeholder that begins like a key?"""
    found = _expression().fullmatch(text)
    return found is not None and is_random(found[found.lastindex or 0])
