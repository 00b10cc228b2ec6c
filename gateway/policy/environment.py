"""`${VAR}`, `${VAR:-default}` and `$${` in a parsed string: pure text, no file, no YAML.

Values are put in after parsing, so that one can never add a key or a list entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

# Left to right: an escaped opening, a well-formed reference, or an opening that is neither.
OPENING = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}|\$\{")


class BadReference(ValueError):
    """A `${...}` that cannot be resolved; the message never quotes what stands in the braces but a variable's name."""


class Substituted(NamedTuple):
    """A text with its references resolved: whether there was one, and whether one took the default in the file."""

    text: str
    substituted: bool
    defaulted: bool


def substitute(text: str, environ: Mapping[str, str]) -> Substituted:
    """Resolve the references in `text`.

    `${VAR:-default}` takes the default when the variable is unset or empty, as a shell does. Raises `BadReference`.
    """
    substituted = defaulted = False

    def resolve(found: re.Match[str]) -> str:
        nonlocal substituted, defaulted
        if found[0] == "$${":
            return "${"
        name, default = found["name"], found["default"]
        if name is None:
            raise BadReference(
                "a ${ must go on as ${NAME} or ${NAME:-default} with no braces inside; write $${ for a literal ${"
            )
        substituted = True
        value = environ.get(name)
        if default is not None:
            defaulted = defaulted or (not value and bool(default))
            return value or default
        if value is None:
            # Not a word of a default: it would be copied, and be a key that everybody knows.
            raise BadReference(f"environment variable {name} is not set; set it")
        return value

    resolved = OPENING.sub(resolve, text)
    return Substituted(resolved, substituted, defaulted)
