"""Configuration files: `load`, `parse` and `warnings` with every check of words, patterns, detectors and constraints.

`gateway.policy` reads the files and does not import the censor; what the censor and the decoder know of rules is passed
to it here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from gateway.automata.analysis import longest, reopens
from gateway.automata.charset import CharSet
from gateway.automata.regex import RegexError
from gateway.censor.compile import compile_rules, fold_word, pattern_positions
from gateway.censor.detectors import DETECTORS
from gateway.censor.explain import prose
from gateway.censor.lens import Lens
from gateway.censor.stream import Censor
from gateway.policy import lint
from gateway.policy import load as files
from gateway.policy.checks import BadPattern, Checks, Finds, PatternFacts
from gateway.policy.errors import ConfigError
from gateway.policy.model import Action, Config, Constrain, Fold, Policy, Rule

__all__ = ["CHECKS", "ConfigError", "load", "parse", "warnings"]


def _read_constraint(constrain: Constrain) -> None:
    from gateway.decode.constraints import compiled  # needs llguidance: only where there is a constraint

    compiled(constrain)


# The loader reads each pattern once, its lint once more.
@lru_cache(1024)
def read_pattern(pattern: str, folds: frozenset[Fold]) -> PatternFacts:
    """Raises `BadPattern`."""
    try:
        found = pattern_positions(pattern, folds)
    except RegexError as error:
        raise BadPattern(error.reason, error.position) from None
    lens = Lens(folds - {Fold.CASE})  # case is in the pattern itself, as its (?i)
    unseen = any(_is_unseen(charset, lens) for charset in set(found.sets))
    return PatternFacts(longest(found), reopens(found), unseen)


def _is_unseen(charset: CharSet, lens: Lens) -> bool:
    """Does the lens remove all of these characters from a text?"""
    chars = (chr(code) for low, high in charset.ranges for code in range(low, high + 1))
    return bool(charset) and all(lens.fold(char).text != char for char in chars)


def finder(rule: Rule) -> Finds:
    """Whether a text that stands alone holds a match of the rule."""
    program = compile_rules(Policy(name=rule.id), replace(rule, action=Action.FLAG))

    def finds(text: str) -> bool:
        censor = Censor(program)
        censor.feed(text)
        censor.finish()
        return bool(censor.matches)

    return finds


CHECKS = Checks(fold_word, read_pattern, tuple(DETECTORS), finder, _read_constraint, prose)


def load(path: Path | str, environ: Mapping[str, str] = os.environ) -> Config:
    """Read the file at `path`; its word lists are relative to its folder.

    Raises `ConfigError` for the first error by line, with the rest in `ConfigError.others`. The absolute paths of the
    files that were opened, the one at `path` first, are in `Config.files` and in `ConfigError.files`.
    """
    return files.load(path, environ, CHECKS)


def parse(text: str, source: str, base_dir: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Like `load`, from text; `source` names it in errors, word lists are relative to `base_dir`."""
    return files.parse(text, source, base_dir, environ, CHECKS)


def warnings(config: Config) -> tuple[str, ...]:
    """One `key.path: text` for each finding of `gateway.policy.lint`; no word and no key is in them."""
    return lint.warnings(config, CHECKS)
