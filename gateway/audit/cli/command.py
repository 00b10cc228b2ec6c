"""`portcullis audit`: files of queries in, what was found out."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.audit.cli.options import parsed
from gateway.audit.language.automaton import TooLarge
from gateway.audit.language.count import cardinality
from gateway.audit.query.load import parse_query
from gateway.audit.query.model import Query, compile
from gateway.policy.files import read_text
from gateway.policy.value import ConfigError
from gateway.version import missing_part

INFINITE = "infinite"
EXIT_USAGE = 2
EXIT_UNWRITTEN = 74

_DIGITS = 4000  # at a time; Python refuses to write out many more


def run(arguments: Sequence[str]) -> int:
    """Run `portcullis audit` with what stands behind it; returns the exit status. Raises ConfigError for a query or a
    configuration that is refused, KeyboardInterrupt, and BrokenPipeError where nobody reads the output any more."""
    _open_what_is_closed()
    options = parsed(arguments)
    if options.count:
        return _counted(options.queries)
    try:
        from gateway.audit.cli.perform import perform
    except ImportError as error:
        if error.name != "numpy":
            raise
        print(f"portcullis: audit {missing_part('audit')}", file=sys.stderr)
        return EXIT_USAGE
    return perform(options)


def _open_what_is_closed() -> None:
    """A stream that whoever started us has closed takes everything, so that files and lines go where they belong."""
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
            let_go_of_output()
            return EXIT_UNWRITTEN
    return 0


def let_go_of_output() -> None:
    """So that closing it, with what it did not take, is quiet."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def load_query(path: Path | str, environ: Mapping[str, str] = os.environ) -> Query:
    """The query in a file. Raises ConfigError."""
    path, source = Path(path), str(path)
    return parse_query(read_text(path, lambda reason: ConfigError(source, "", reason)), source, path.parent, environ)


def count(path: Path | str, environ: Mapping[str, str] = os.environ) -> str:
    """The number of strings in the language of a query's file, after preprocessing, or `infinite`; no model is asked.
    Raises ConfigError, also for a language that is too large to be worked out."""
    query = load_query(path, environ)
    try:
        strings = cardinality(compile(query).language)
    except TooLarge as error:
        raise ConfigError(query.source, "query", str(error)) from None
    return INFINITE if strings is None else _written(strings)


def _written(number: int) -> str:
    """In decimal, however long."""
    parts = []
    while number >= 10**_DIGITS:
        number, part = divmod(number, 10**_DIGITS)
        parts.append(f"{part:0{_DIGITS}}")
    return "".join([str(number), *reversed(parts)])
