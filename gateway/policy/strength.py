"""What the presets of `strength` cost in false hits, as `python -m loadtest.word_hits --write` has measured it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources

from gateway.policy.model import Strength


@cache
def false_hits() -> Mapping[Strength, Mapping[str, float]]:
    """Hits of the shipped lists in 10,000 words of ordinary text, by corpus."""
    text = resources.files("gateway.policy").joinpath("strength.toml").read_text(encoding="utf-8")
    return {Strength(name): figures for name, figures in tomllib.loads(text).items()}


def explained(strength: Strength) -> str:
    """The figures in a few words."""
    most, corpus = max((rate, corpus) for corpus, rate in false_hits()[strength].items())
    return f"strength {strength}: at most {most:g} false hits in 10,000 words ({corpus}) with the shipped lists"
