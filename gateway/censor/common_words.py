"""Words that answers end with, whatever a rule guards (docs/semantics.md, end of the text)."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def _words() -> frozenset[str]:
    text = resources.files("gateway.censor").joinpath("common_words.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def is_common(text: str) -> bool:
    """Is it one common word of English, German or French, folded by case, and nothing but blanks around it?"""
    return text.strip(" ").casefold() in _words()
