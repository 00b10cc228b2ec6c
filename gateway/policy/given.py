"""What a program gives to the constructors of `gateway.policy.model`, checked as the loader checks a file."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any


class Given:
    """Checks fields of a frozen dataclass and puts them into the form that the rest relies on: names become members of
    their enumeration, several values a tuple or a frozenset.

    Everything raises ValueError, which names the owner and the field; a value is shown only if it should have been a
    name.
    """

    def __init__(self, owner: object, shown: str) -> None:
        self._owner = owner
        self._shown = shown

    def texts(self, *fields: str, optional: bool = False) -> None:
        for field in fields:
            value = getattr(self._owner, field)
            if not isinstance(value, str) and not (optional and value is None):
                raise self.wrong(field, f"expected a string, got {_kind(value)}")

    def booleans(self, *fields: str) -> None:
        for field in fields:
            value = getattr(self._owner, field)
            if not isinstance(value, bool):
                raise self.wrong(field, f"expected True or False, got {_kind(value)}")

    def number(self, field: str, least: int, *, optional: bool = False) -> None:
        value = getattr(self._owner, field)
        if optional and value is None:
            return
        if type(value) is not int or value < least:
            got = value if type(value) is int else _kind(value)
            raise self.wrong(field, f"expected a whole number of at least {least}, got {got}")

    def name(self, field: str, names: type[StrEnum], *, optional: bool = False) -> None:
        value = getattr(self._owner, field)
        if not (optional and value is None):
            self._put(field, self._named(field, value, names))

    def names(self, field: str, names: type[StrEnum], *, least: int = 1) -> None:
        named = frozenset(self._named(field, each, names) for each in self._several(field, "names"))
        if len(named) < least:
            raise self.wrong(field, f"expected at least {least} of {', '.join(names)}")
        self._put(field, named)

    def all_of(self, field: str, kind: type, what: str) -> None:
        values = tuple(self._several(field, what))
        for at, value in enumerate(values):
            if not isinstance(value, kind):
                raise self.wrong(f"{field}[{at}]", f"expected one of the {what}, got {_kind(value)}")
        self._put(field, values)

    def wrong(self, field: str, reason: str) -> ValueError:
        return ValueError(f"{self._shown}: {field}: {reason}")

    def _several(self, field: str, what: str) -> Iterable[Any]:
        values = getattr(self._owner, field)
        # A string is a sequence of strings, too, and never meant as one.
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise self.wrong(field, f"expected {what}, as in a tuple, got {_kind(values)}")
        return values

    def _named(self, field: str, value: Any, names: type[StrEnum]) -> StrEnum:
        try:
            return names(value)
        except ValueError:
            raise self.wrong(field, f"expected {', '.join(names)}, got {value!r}") from None

    def _put(self, field: str, value: object) -> None:
        object.__setattr__(self._owner, field, value)


def _kind(value: object) -> str:
    return type(value).__name__
