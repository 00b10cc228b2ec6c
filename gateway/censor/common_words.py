"""Words that answers end with, whatever a rule guards (docs/semantics.md, end of the text)."""

from __future__ import annotations

from functools import cache
from importlib import resources

_FEW = 6  # letters of two words


@cache
def _words() -> frozenset[str]:
    text = resources.files("gateway.censor").joinpath("common_words.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def are_few_common(text: str) -> bool:
    """Is it two common words of a few letters together, such as `letme`?"""
    return len(text) <= _FEW and any(is_common(text[:at]) and is_common(text[at:]) for at in range(1, len(text)))


def is_common(text: str) -> bool:
    """Is it one common word of English, German or French, folded by case, and nothing but blanks around it?"""
    return text.strip(" ").casefold() in _words()
