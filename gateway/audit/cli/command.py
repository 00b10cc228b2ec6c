"""Entry point of `portcullis audit`, and `--count`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from gateway import exits
from gateway.audit.cli.options import command_parser, parse_options
from gateway.audit.language.automaton import AutomatonTooLarge
from gateway.audit.language.count import cardinality
from gateway.audit.query.load import load_query
from gateway.audit.query.model import compile
from gateway.policy.errors import ConfigError
from gateway.version import missing_part

__all__ = ["command_parser", "count", "run"]

INFINITE = "infinite"


def run(arguments: Sequence[str]) -> int:
    """Run `portcullis audit` with what stands behind it; returns the exit status. Raises ConfigError for a query or a
    configuration that is refused, KeyboardInterrupt, and BrokenPipeError if the reader of the output has gone."""
    _open_what_is_closed()
    options = parse_options(arguments)
    if options.count:
        return _counted(options.queries)
    try:
        from gateway.audit.cli.perform import perform
    except ImportError as error:
        if error.name != "numpy":
            raise
        print(f"portcullis: audit {missing_part('audit')}", file=sys.stderr)
        return exits.USAGE
    return perform(options)


def _open_what_is_closed() -> None:
    """Replace closed standard streams by /dev/null, so that no other file gets their descriptors."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _counted(paths: Sequence[Path]) -> int:
    for path in paths:
        strings = count(path)
        try:
            print(strings, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            print(f"portcullis: standard output: cannot be written: {error.strerror}", file=sys.stderr)
            exits.discard_stdout()
            return exits.UNWRITTEN
    return 0


def count(path: Path | str, environ: Mapping[str, str] = os.environ) -> str:
    """The number of strings in the language of a query's file, after preprocessing, or `infinite`; no model is asked.
    Raises ConfigError, also for a language that is too large to be computed."""
    query = load_query(path, environ)
    try:
        strings = cardinality(compile(query).language)
    except AutomatonTooLarge as error:
        raise ConfigError(query.source, "query", str(error)) from None
    # Python refuses to write out an integer of many digits.
    return INFINITE if strings is None else f"{Decimal(strings):f}"
