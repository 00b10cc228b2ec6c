"""Pseudonyms: placeholders for a request's values while a model works on it, and their way back (semantics rule 16).

A placeholder reads `<LABEL_N_nonce>`. One value has one placeholder throughout a request, so that the model can still
distinguish them. The nonce is drawn for each request and occurs nowhere in it, so no document or tool's answer in the
request can spell a placeholder. Text that looks like one is itself replaced by one,
so that a model which repeats it gives back exactly what was written.

Nothing here writes anything anywhere. The table lives in memory, as long as the request does.
"""

from __future__ import annotations

import base64
import re
import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from gateway.censor.compile import CompiledPolicy, label
from gateway.censor.lens import is_mark
from gateway.censor.releaser import Cluster
from gateway.policy.model import Action, Mode

MAX_PLACEHOLDERS = 10_000  # of one request
NONCE_BYTES = 5  # eight characters of base32
ESCAPED = "TEXT"  # the label of what looked like a placeholder before there was one

# Possessive where it can be: what follows has no character in common, so no text makes it try again.
_SHAPE = re.compile(r"<[A-Z0-9_]+_[0-9]++_[0-9A-Za-z]++>")


class TooManyValues(ValueError):
    """The request holds more different values than there may be placeholders."""

    def __init__(self) -> None:
        super().__init__(
            f"The request holds more than {MAX_PLACEHOLDERS} different values that the policy puts placeholders for; "
            "send fewer of them in one request."
        )


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """The table of one request, complete: `values` by placeholder. `longest` is a placeholder's length at most, and a
    text with the values in it is at most `stretch` times as long as with the placeholders."""

    values: Mapping[str, str] = field(repr=False)
    placeholders: tuple[str, ...] = field(init=False, repr=False)
    longest: int = field(init=False)
    stretch: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "placeholders", tuple(sorted(self.values)))
        object.__setattr__(self, "longest", max(map(len, self.values), default=0))
        stretches = (ceil(len(value) / len(placeholder)) for placeholder, value in self.values.items())
        object.__setattr__(self, "stretch", max(stretches, default=1) or 1)

    def has_prefix(self, text: str) -> bool:
        """Is `text` the beginning of a placeholder?"""
        at = bisect_left(self.placeholders, text)
        return at < len(self.placeholders) and self.placeholders[at].startswith(text)


# -- the way in --------------------------------------------------------------------------------------------------------


class Concealer:
    """Puts placeholders into the texts of one request. `occurs`: does the request hold a string anywhere?"""

    __slots__ = ("_counts", "_labels", "_nonce", "_occurs", "_placeholders")

    def __init__(self, labels: Mapping[str, str], occurs: Callable[[str], bool]) -> None:
        self._labels = labels
        self._occurs = occurs
        self._nonce = ""
        self._counts: Counter[str] = Counter()
        self._placeholders: dict[tuple[str, str], str] = {}

    def conceal(self, given: str, shown: str, clusters: Iterable[Cluster]) -> str:
        """Replace values by placeholders: `given` was fed to a censor, `shown` came out of it, `clusters` it took out.

        Raises `TooManyValues`.
        """
        out: list[str] = []
        at = 0
        for cluster in clusters:
            out.append(self._escape(shown[at : cluster.at]))
            at = cluster.at
            value = given[cluster.start : _end_with_marks(cluster, given, shown)]
            out.append(self._placeholder(self._labels[cluster.rule.id], value))
        out.append(self._escape(shown[at:]))
        return "".join(out)

    def pseudonyms(self) -> Pseudonyms | None:
        """The table so far; None while it is empty, so that an answer without it costs nothing."""
        if not self._placeholders:
            return None
        return Pseudonyms({placeholder: value for (_, value), placeholder in self._placeholders.items()})

    def _escape(self, text: str) -> str:
        return _SHAPE.sub(lambda found: self._placeholder(ESCAPED, found[0]), text) if "<" in text else text

    def _placeholder(self, label: str, value: str) -> str:
        known = self._placeholders.get((label, value))
        if known is None:
            if len(self._placeholders) >= MAX_PLACEHOLDERS:
                raise TooManyValues
            self._nonce = self._nonce or self._unused_nonce()
            self._counts[label] += 1
            known = self._placeholders[label, value] = f"<{label}_{self._counts[label]}_{self._nonce}>"
        return known

    def _unused_nonce(self) -> str:
        while True:
            nonce = base64.b32encode(secrets.token_bytes(NONCE_BYTES)).decode("ascii").lower()
            if not self._occurs(nonce):
                return nonce


def labels_of(compiled: CompiledPolicy) -> dict[str, str]:
    """The label of each rule that takes values out of prompts, by the rule's id; empty where none does."""
    if compiled.policy.mode is not Mode.ENFORCE:
        return {}
    return {rule.id: label(rule) for rule in compiled.policy.rules if rule.action is Action.PSEUDONYMIZE}


def _end_with_marks(cluster: Cluster, given: str, shown: str) -> int:
    """Marks that went with the match (semantics rule 11) are not counted in its end, but belong to the value."""
    end = cluster.end
    if cluster.rule.drops_marks and not _marked(shown, cluster.at):
        while _marked(given, end):
            end += 1
    return end


def _marked(text: str, at: int) -> bool:
    return at < len(text) and is_mark(text[at])


# -- the way back ------------------------------------------------------------------------------------------------------


class RestoredPiece(NamedTuple):
    """A piece of an answer; `restored`: it is a value that stands where its placeholder was."""

    text: str
    restored: bool

    def __repr__(self) -> str:
        return f"RestoredPiece({len(self.text)} characters, restored={self.restored})"


class Restorer:
    """One text of an answer, with the values where their placeholders were, however it is cut.

    Only an end that begins a placeholder of this request waits: `held` characters, always fewer than the longest
    placeholder has. Time is linear in the text: a placeholder holds one `<`, its first character, so that every one of
    them is looked at once.
    """

    __slots__ = ("_held", "_pseudonyms")

    def __init__(self, pseudonyms: Pseudonyms) -> None:
        self._pseudonyms = pseudonyms
        self._held = ""

    @property
    def held(self) -> int:
        return len(self._held)

    def passes(self, text: str) -> bool:
        """Would `feed` give back `text` as it is?"""
        return not self._held and "<" not in text

    def feed(self, text: str) -> list[RestoredPiece]:
        """Take the next piece of the text; returns what is now certain, in order, none of it empty."""
        table = self._pseudonyms
        text, self._held = self._held + text, ""
        pieces: list[RestoredPiece] = []
        certain = 0
        at = text.find("<")
        while at >= 0:
            end = text.find(">", at, at + table.longest) + 1
            value = table.values.get(text[at:end]) if end else None
            if value is not None:
                if certain < at:
                    pieces.append(RestoredPiece(text[certain:at], False))
                pieces.append(RestoredPiece(value, True))
                certain = end
            elif not end and len(text) - at < table.longest and table.has_prefix(text[at:]):
                text, self._held = text[:at], text[at:]
                break
            at = text.find("<", end if value is not None else at + 1)
        if certain < len(text):
            pieces.append(RestoredPiece(text[certain:], False))
        return pieces

    def finish(self) -> str:
        """The end of the text: release what was held, which is not a placeholder."""
        held, self._held = self._held, ""
        return held
