"""`portcullis audit`: files of queries in, what was found out."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.audit.automaton import TooLarge
from gateway.audit.count import cardinality
from gateway.audit.options import parsed
from gateway.audit.query import Query, compile
from gateway.audit.reading import parse_query
from gateway.policy.value import ConfigError
from gateway.policy.yaml_source import read_text

INFINITE = "infinite"
MISSING = "audit needs a part that is not here: pip install 'portcullis[audit]'"
EXIT_USAGE = 2

_DIGITS = 4000  # at a time; Python refuses to write out many more


def run(arguments: Sequence[str]) -> int:
    """Run `portcullis audit` with what stands behind it; returns the exit status. Raises ConfigError for a query or a
    configuration that is refused, KeyboardInterrupt, and BrokenPipeError where nobody reads the output any more."""
    options = parsed(arguments)
    if options.count:
        for path in options.queries:
            print(count(path))
        return 0
    try:
        from gateway.audit.performing import perform
    except ImportError as error:
        if error.name != "numpy":
            raise
        print(f"portcullis: {MISSING}", file=sys.stderr)
        return EXIT_USAGE
    return perform(options)


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
