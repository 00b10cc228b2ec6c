"""The tables of docs/detectors.md: what each detector finds, what near it it does not, and whose keys are known."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from gateway.censor.detectors import DETECTORS, Detector
from gateway.censor.detectors.issuers import KEPT, OF_EXAMPLES, Kept
from gateway.censor.detectors.keys import OWN
from tests.censor.near_misses import NEAR_MISSES

LONGEST = 60  # characters of a value that is shown
_PAGE = re.compile(r"https://[^ ,;)]+(?<![.])")
# Of these one value is enough: scanners of repositories take them for leaks.
_CREDENTIALS = {"api_key", "credential", "wallet_secret"}


def the_list() -> str:
    rows = [f"| [`{each.name}`](#{each.name}) | {each.title} | `{each.label}` |" for each in DETECTORS.values()]
    return "\n".join(["| Detector | Finds | In placeholders |", "|---|---|---|", *rows])


def of(detector: Detector) -> str:
    """What stands in a detector's section."""
    shown = 1 if detector.name in _CREDENTIALS else None
    after = f" after `{detector.introduction}`" * bool(detector.introduction)
    found = f"Found{after}: {_values(detector.examples[:shown])}."
    near = f"Not found: {_values(NEAR_MISSES[detector.name][: shown if detector.name == 'api_key' else None])}."
    source = f"Source: {_PAGE.sub(lambda page: f'<{page[0]}>', detector.source)}."
    return "\n\n".join(_flowing(text) for text in (found, near, detector.note, source) if text)


def _values(values: Iterable[str]) -> str:
    # What nobody sees is written as escapes; what has several lines is left out.
    escaped = [value if value.isprintable() or "\n" in value else ascii(value)[1:-1] for value in values]
    shown = [f"`{value}`" for value in escaped if len(value) <= LONGEST and value.isprintable() and "`" not in value]
    return ", ".join(shown) or "values that are longer than a line"


def _flowing(text: str) -> str:
    """The text in lines, none of which ends inside of a value."""
    whole = re.sub(r"`[^`]*`", lambda value: value[0].replace(" ", "\0"), text)
    return textwrap.fill(whole, 120, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def issuers(*, read: bool) -> str:
    """A row for each issuer: the forms whose pages were read, with these, or those from public examples."""
    of_kind = [issuer for issuer in OWN if bool(issuer.page) == read]
    rows = []
    for name in sorted({issuer.name for issuer in of_kind}, key=str.lower):
        named = [issuer for issuer in of_kind if issuer.name == name]
        forms = " or ".join(f"`{issuer.form}`" for issuer in named).replace(r"\|", "[|]").replace("|", r"\|")
        pages = ", ".join(dict.fromkeys(f"<{issuer.page}>" for issuer in named))
        rows.append(f"| {name} | {forms} |" + f" {pages} |" * read)
    head = "| Issuer | Forms, as regular expressions |" + " Source |" * read
    return "\n".join([head, "|---|---|" + "---|" * read, *rows])


def names(formats: Iterable[Kept]) -> str:
    return _flowing(", ".join(f"`{each.name}`" for each in formats) + ".")


def blocks() -> dict[str, str]:
    return {
        "the detectors": the_list(),
        **{f"detector {name}": of(detector) for name, detector in DETECTORS.items()},
        "issuers": issuers(read=True),
        "issuers of examples": issuers(read=False),
        "kept rules": names(kept for kept in KEPT if kept not in OF_EXAMPLES),
        "formats of examples": names(kept for kept in KEPT if kept in OF_EXAMPLES),
    }
