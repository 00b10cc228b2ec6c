"""Checks what a program passes to the constructors of `gateway.policy.model`, as the loader checks a file."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

DEPENDS: Any = None  # the default of a field that the other fields decide; it is not checked


def check_fields(owner: Any, shown: str, least: Mapping[str, int]) -> None:
    """Check the fields of a frozen dataclass by their annotations and normalise them: names become members of their
    enumeration, several values a tuple or a frozenset.

    `least`: the smallest number of a field, or the smallest size of a frozenset. Raises ValueError, which names the
    owner, as `shown`, and the field; a value is quoted only if it should have been a name.
    """
    depending = {field.name for field in fields(owner) if field.default is DEPENDS}
    for field, hint in _hints(cast(Hashable, type(owner))).items():
        value = getattr(owner, field)
        if value is DEPENDS and field in depending:
            continue
        if get_origin(hint) is UnionType and NoneType in get_args(hint):
            if value is None:
                continue
            (hint, _) = get_args(hint)
        try:
            object.__setattr__(owner, field, _checked(field, hint, value, least.get(field, 0)))
        except _Wrong as error:
            at, reason = error.args
            raise ValueError(f"{shown}: {at}: {reason}") from None


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


class _Wrong(Exception):
    """The field, with an index if it has one, and the reason."""


def _checked(field: str, hint: Any, value: Any, least: int) -> Any:
    kind = type(value).__name__
    if get_origin(hint) in (tuple, frozenset):
        return _collection(field, hint, value, least)
    if issubclass(hint, StrEnum):
        try:
            return hint(value)
        except ValueError:
            raise _Wrong(field, f"expected {', '.join(hint)}, got {value!r}") from None
    if hint is int and (type(value) is not int or value < least):
        got = value if type(value) is int else kind
        raise _Wrong(field, f"expected a whole number of at least {least}, got {got}")
    if not isinstance(value, hint):
        wanted = {str: "a string", bool: "True or False"}.get(hint, hint.__name__)
        raise _Wrong(field, f"expected {wanted}, got {kind}")
    return value


def _collection(field: str, hint: Any, value: Any, least: int) -> Any:
    item = get_args(hint)[0]
    what = "names" if issubclass(item, StrEnum) else field
    # A string is a sequence of strings, too, and never meant as one.
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _Wrong(field, f"expected {what}, as in a tuple, got {type(value).__name__}")
    if what == "names":
        names = frozenset(_checked(field, item, each, 0) for each in value)
        if len(names) < least:
            raise _Wrong(field, f"expected at least {least} of {', '.join(item)}")
        return names
    values = tuple(value)
    for at, each in enumerate(values):
        if not isinstance(each, item):
            raise _Wrong(f"{field}[{at}]", f"expected one of the {what}, got {type(each).__name__}")
    return values
