"""Configuration files: `load`, `parse` and `warnings` with every check of words, patterns, detectors and constraints.

`gateway.policy` reads the files and does not import the censor; what the censor and the decoder know of rules is passed
to it here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gateway.censor.checks import finder, read_pattern
from gateway.censor.compile import fold_word
from gateway.censor.detectors import DETECTORS
from gateway.censor.explain import prose
from gateway.policy import lint
from gateway.policy import load as files
from gateway.policy.checks import Checks
from gateway.policy.errors import ConfigError
from gateway.policy.model import Config, Constrain

__all__ = ["CHECKS", "ConfigError", "load", "parse", "warnings"]


def _read_constraint(constrain: Constrain) -> None:
    from gateway.decode.constraints import read_constraint  # needs llguidance: only where there is a constraint

    read_constraint(constrain)


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
