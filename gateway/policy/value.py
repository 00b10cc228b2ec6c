"""Values of a configuration file with their key paths.

A file is first read into nodes that keep each scalar's text as written (`Scalar`), because only the key decides what
the text may mean: `007` is no word, `yes` is no policy name, and nothing is converted on the way. `Value` is a node
with its file and key path; its methods convert it to a type or raise `ConfigError`. `Section` is a mapping whose keys
were checked against the known ones.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias, TypeVar

from gateway.policy.errors import ConfigError, Errors

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

NOT_AVAILABLE = "not available in this version"
SHOWN_LENGTH = 60
LABEL = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
WHOLE_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
DECIMAL_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
MAX_SIZE = 1024**4
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
SIZE = re.compile(rf"([0-9]{{1,15}}) ?({'|'.join(UNITS)})")
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class ScalarKind(StrEnum):
    """The type that YAML resolves a scalar to; the value is its name in errors."""

    TEXT = "text"
    INTEGER = "a number"
    FLOAT = "a decimal number"
    BOOLEAN = "true or false"
    NULL = "nothing"
    DATE = "a date"
    SIGN = "a sign of YAML's own"


@dataclass(frozen=True, slots=True)
class Scalar:
    """`text` as written, after `${}`. `substituted`: a part of it came from the environment and is secret;
    `defaulted`: a part is a default in the file."""

    text: str = field(repr=False)
    kind: ScalarKind
    substituted: bool = False
    defaulted: bool = False


Node: TypeAlias = "Scalar | list[Node] | dict[str, Node]"


def join(path: str, key: str) -> str:
    """The key path of `key` below `path`; a key that would break the line of an error is escaped."""
    name = key if key.isprintable() else repr(key)
    return f"{path}.{name}" if path else name


def nearest(name: str, known: Collection[str]) -> str:
    """A suggestion to append to an error about `name`, with a leading separator."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def _slip(key: str, known: Collection[str]) -> str:
    """What to do about an unknown key, to append to the error."""
    if key.strip() in known:  # blanks that are plain YAML has left out
        return f"; write plain spaces around {key.strip()!r}"
    return "; put a space after the colon" if key.partition(":")[0] in known else nearest(key, known)


@dataclass(frozen=True, slots=True)
class Value:
    """A node, its file and its key path. `secret` keeps the value out of every error: it is a word or a key. `errors`
    collects errors and lets reading continue; without it the first one is raised. It has a method for each type that a
    value can be read as."""

    source: str
    path: str
    node: Node = field(repr=False)
    secret: bool = False
    errors: Errors | None = field(default=None, repr=False, compare=False)

    def attempt(self, read: Callable[[Value], T], default: T) -> T:
        """The result of `read`, or `default` where it raises `ConfigError` and the file is read on."""
        try:
            return read(self)
        except ConfigError as error:
            self.note(error)
            return default

    def note(self, error: ConfigError) -> None:
        """Collect the error, or raise it where nothing collects errors."""
        if self.errors is None:
            raise error
        self.errors.note(error)

    def fail(self, reason: str) -> ConfigError:
        return ConfigError(self.source, self.path, reason)

    def wrong(self, wanted: str, advice: str = "") -> ConfigError:
        """An error with what is wanted and, unless it is secret, the value."""
        return self.fail(f"must be {wanted}{self._instead()}{advice and f'; {advice}'}")

    @property
    def shown(self) -> bool:
        """Whether an error may quote the value."""
        return not (self.secret or (isinstance(self.node, Scalar) and self.node.substituted))

    def _instead(self) -> str:
        node = self.node
        if isinstance(node, dict):
            return ", not a mapping"
        if isinstance(node, list):
            return ", not a list"
        if node.kind is ScalarKind.NULL:
            return ", not nothing"
        if not self.shown:
            return " (the value is not shown)"
        cut = node.text if len(node.text) <= SHOWN_LENGTH else node.text[:SHOWN_LENGTH] + "…"
        return f", not {cut!r}" if node.kind is ScalarKind.TEXT else f", not {cut}"

    def hidden(self) -> Value:
        return replace(self, secret=True)

    def child(self, key: str, node: Node) -> Value:
        return Value(self.source, join(self.path, key), node, self.secret, self.errors)

    # Scalars

    def text(self) -> str:
        match self.node:
            case Scalar(text=text, kind=ScalarKind.TEXT):
                return text
            case Scalar(kind=ScalarKind.NULL):
                raise self.wrong("text", "quote it if it begins with #, &, ! or is the word null")
            case Scalar(kind=kind):
                raise self.wrong("text", f"unquoted, YAML reads this as {kind}: quote it")
            case _:
                raise self.wrong("text")

    def nonempty(self) -> str:
        text = self.text()
        if not text.strip():
            raise self.fail("is empty")
        return text

    def label(self) -> str:
        """A name that can travel as a metric label and in a header."""
        text = self.text()
        if not LABEL.fullmatch(text):
            raise self.wrong("1 to 64 of the characters A-Z a-z 0-9 _ . : -")
        return text

    def boolean(self) -> bool:
        match self.node:
            case Scalar(text=text, kind=ScalarKind.BOOLEAN) if text.lower() in BOOLEANS:
                return BOOLEANS[text.lower()]
            case Scalar(text="true" | "false" as text, substituted=True):
                return text == "true"
            case _:
                raise self.wrong("true or false")

    def _number(self, form: re.Pattern[str], wanted: str) -> str:
        match self.node:
            case Scalar(kind=ScalarKind.INTEGER | ScalarKind.FLOAT, text=text) if form.fullmatch(text):
                return text
            case Scalar(substituted=True, text=text) if form.fullmatch(text):
                return text
            case Scalar(kind=ScalarKind.TEXT, text=text) if form.fullmatch(text):
                raise self.wrong(wanted, "remove the quotes")
            case _:
                raise self.wrong(wanted)

    def integer(self, low: int, high: int | None = None) -> int:
        """A whole number in plain decimal (YAML's octal, hexadecimal and base 60 are refused), both bounds included."""
        wanted = f"a whole number, at least {low}" if high is None else f"a whole number from {low} to {high}"
        number = int(self._number(WHOLE_NUMBER, wanted))
        if number < low or (high is not None and number > high):
            raise self.wrong(wanted)
        return number

    def seconds(self) -> float:
        """A positive, finite number."""
        return self._decimal("a positive number of seconds", lambda number: 0 < number < math.inf)

    def share(self) -> float:
        """A part of a whole, both bounds included."""
        return self._decimal("a number from 0 to 1", lambda number: 0 <= number <= 1)

    def _decimal(self, wanted: str, accepts: Callable[[float], bool]) -> float:
        number = float(self._number(DECIMAL_NUMBER, wanted))
        if not accepts(number):
            raise self.wrong(wanted)
        return number

    def size(self) -> int:
        """Bytes, written as a number or as text with a unit: `1048576`, `1MiB`, `1 MB`."""
        wanted = f"a size from 1 B to 1024 GiB: a whole number of bytes, or one with a unit out of {', '.join(UNITS)}"
        match self.node:
            case Scalar(text=text, kind=ScalarKind.TEXT) if found := SIZE.fullmatch(text):
                size = int(found[1]) * UNITS[found[2]]
            case Scalar(text=text, kind=kind, substituted=substituted) if (
                kind is ScalarKind.INTEGER or substituted
            ) and WHOLE_NUMBER.fullmatch(text):
                size = int(text)
            case _:
                raise self.wrong(wanted)
        if not 0 < size <= MAX_SIZE:
            raise self.wrong(wanted)
        return size

    def key(self) -> str:
        """A client's or an upstream's key, as it can travel in a header: visible ASCII characters without spaces."""
        key = self.hidden().text()
        if not key:
            raise self.fail("is empty; set it, or leave it out where no key is needed")
        if re.fullmatch(r"\$\w+", key) and isinstance(self.node, Scalar) and not self.node.substituted:
            raise self.fail("begins with $ and is only a name; a variable's value is written with braces: ${NAME}")
        if not all("!" <= character <= "~" for character in key):
            raise self.fail("holds a space or another character that cannot travel in a header")
        return key

    def no_default(self) -> Value:
        """The value itself, a secret. Raises `ConfigError` for a default in the file, since files are copied."""
        if isinstance(self.node, Scalar) and self.node.defaulted:
            raise self.fail("is a default in the file, and so no secret; write ${NAME} alone, and set the variable")
        return self

    def reference(self, what: str, names: Collection[str]) -> str:
        """One of `names`, which the file defines elsewhere as `what`; any where it defines none, which is refused
        there."""
        name = self.text()
        if names and name not in names:
            which = f" {name!r}{nearest(name, names)}" if self.shown else f"; known: {', '.join(names)}"
            raise self.fail(f"unknown {what}{which}")
        return name

    def choice(self, names: type[E]) -> E:
        """One member of `names`."""
        options = [str(member) for member in names]
        wanted = f"one of {', '.join(options)}"
        match self.node:
            case Scalar(text=text, kind=ScalarKind.TEXT) if text in options:
                return names(text)
            case _:
                raise self.wrong(wanted)

    # Collections

    def items(self) -> list[Value]:
        if not isinstance(self.node, list):
            begins = self.node.text if isinstance(self.node, Scalar) else next(iter(self.node), "")
            around = "write [...] around it" if isinstance(self.node, Scalar) else ""
            raise self.wrong("a list", "put a space after the -" if begins.startswith("-") else around)
        return [
            Value(self.source, f"{self.path}[{i}]", node, self.secret, self.errors) for i, node in enumerate(self.node)
        ]

    def nonempty_items(self) -> list[Value]:
        items = self.items()
        if not items:
            raise self.fail("is an empty list; it needs at least one entry")
        return items

    def named(self) -> dict[str, Value]:
        """A non-empty mapping whose keys are names that the operator chose."""
        if not isinstance(self.node, dict):
            raise self.wrong("a mapping of names")
        if not self.node:
            raise self.fail("is an empty mapping; it needs at least one entry")
        named = {name: self.child(name, node) for name, node in self.node.items()}
        for name in self.node:
            if not LABEL.fullmatch(name):
                hint = "; put a space after the colon" if ":{" in name else ""
                self.note(self.fail(f"the name {name!r} must be 1 to 64 of the characters A-Z a-z 0-9 _ . : -{hint}"))
                del named[name]
        return named

    def section(self, known: Collection[str], later: Mapping[str, str] | None = None) -> Section:
        """A mapping with no key but the `known`; `later` maps keys of later versions to a hint, or to ""."""
        if not isinstance(self.node, dict):
            begins = self.node.text.partition(":")[0] if isinstance(self.node, Scalar) else ""
            advice = "put a space after the colon" if begins in known else ""
            raise self.wrong(f"a mapping with keys such as {', '.join(list(known)[:3])}", advice)
        fields = {key: self.child(key, node) for key, node in self.node.items()}
        for key in self.node:
            if later is not None and key in later:
                self.note(fields.pop(key).fail(f"{NOT_AVAILABLE}{later[key] and f'; {later[key]}'}"))
            elif key not in known:
                self.note(fields.pop(key).fail(f"unknown key{_slip(key, known)}"))
        return Section(self, fields)


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping whose keys are known, and whose values are not read yet."""

    value: Value
    fields: Mapping[str, Value]

    def __contains__(self, key: str) -> bool:
        return key in self.fields

    def __getitem__(self, key: str) -> Value:
        """Raises `ConfigError` where the key is absent."""
        if key not in self.fields:
            raise ConfigError(self.value.source, join(self.value.path, key), "is required")
        return self.fields[key]

    def only_one(self, keys: tuple[str, ...]) -> str:
        """The one of `keys` that is there. Raises `ConfigError` unless exactly one is."""
        given = [key for key in keys if key in self]
        if len(given) == 1:
            return given[0]
        if len(keys) == 2:
            wanted, found = " and ".join(keys), "both" if given else "neither"
        else:
            wanted, found = ", ".join(keys), " and ".join(given) or "none of them"
        raise self.value.fail(f"needs exactly one of {wanted}; it has {found}")

    def get(self, key: str, read: Callable[[Value], T], default: T) -> T:
        return self.fields[key].attempt(read, default) if key in self.fields else default


def key_from(environ: Mapping[str, str], name: str) -> str | None:
    """The key in a variable of the environment, None where it is empty or not set. Raises `ConfigError`."""
    key = environ.get(name)
    return Value("environment", name, Scalar(key, ScalarKind.TEXT, substituted=True)).key() if key else None
