"""Text of a configuration file → nodes (`value.Node`). YAML, and JSON as JSON defines it.

PyYAML composes its own nodes and goes no further: its constructors would turn `007` into 7 and drop the first of two
equal keys. Here duplicate keys, tags, merge keys, broken surrogates and aliases that contain themselves are refused,
and references to the environment are resolved, after parsing, so that a value can never add a key or a list entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from gateway.policy.errors import ConfigError, Errors
from gateway.policy.value import Node, Scalar, ScalarKind, Value, join

TAG = "tag:yaml.org,2002:"
KINDS = {
    f"{TAG}str": ScalarKind.TEXT,
    f"{TAG}int": ScalarKind.INTEGER,
    f"{TAG}float": ScalarKind.FLOAT,
    f"{TAG}bool": ScalarKind.BOOLEAN,
    f"{TAG}null": ScalarKind.NULL,
    f"{TAG}timestamp": ScalarKind.DATE,
    f"{TAG}value": ScalarKind.SIGN,
    f"{TAG}merge": ScalarKind.SIGN,
}
# Values of a file with every alias in place of what it repeats. Ten aliases a line grow by 10 a line.
MAX_NODES = 1_000_000
# In place of a value that is unreadable; later errors about it are dropped.
UNREAD = Scalar("", ScalarKind.TEXT, substituted=True)
# What to do about a mistake, by what the scanner says of it; the first that fits.
ADVICE = (
    (r"'\\t' that cannot start", "indent with spaces, which alone YAML takes"),
    ("unknown escape character", r"in double quotes a backslash begins an escape: write '\d' in single quotes"),
    ("alphabetic or numeric character|undefined alias", "put a value that begins with * or & in quotes, as in '*'"),
    ("cannot start any token", "put a value that begins with this character in quotes"),
    (
        "mapping values are not allowed",
        "put a value that holds `: ` in quotes, a space after the - of an entry, or mend the line above: its "
        "colon, or indentation",
    ),
    (
        r"<block end>, but found '(<scalar>|[\[{,\]}])'",
        "put the whole value in quotes: to YAML it ends before this place; or look at the indentation",
    ),
    ("expected <block end>|expected <block sequence", "look at the indentation of this line and of those above"),
    (
        r"expected ',' or '[\]}]'",
        "close the bracket, put a comma between entries, and quotes around values that hold , : # ' [ ] { }",
    ),
    ("found another document", "a file is one document: remove the line `---`"),
    ("could not find expected ':'", "write `key: value`, with a space after the colon, here or on the line above"),
    ("unexpected end of stream", "close the quotation mark that was opened last"),
    ("", "put values that hold characters such as : # { } [ ] , & * ! % @ in quotes"),
)
QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")

# Left to right: an escaped opening, a well-formed reference, or an opening that is neither.
OPENING = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}|\$\{")


def read_nodes(
    text: str,
    source: str,
    environ: Mapping[str, str],
    needs: str = "at least upstreams, routes and policies",
    *,
    keys_as_written: bool = False,
    errors: Errors | None = None,
) -> Value:
    """The whole text as one value with an empty key path. Raises `ConfigError`, for an empty file with what it `needs`.
    With `errors`, errors of single keys and values are collected there, and so are the lines of keys.
    `keys_as_written`: a key is text even if YAML reads it unquoted as something else, such as `on`."""
    try:
        root = _compose(text.removeprefix("\ufeff"), source)
        if root is None:
            raise ConfigError(source, "", f"the file is empty; it needs {needs}")
        node = _Conversion(source, environ, keys_as_written, errors).node(root, "", 0)
        return Value(source, "", node, errors=errors)
    except RecursionError:
        raise ConfigError(source, "", "lists and mappings are nested too deeply") from None


def _compose(text: str, source: str) -> yaml.Node | None:
    # PyYAML refuses some JSON (tabs as indentation), and what is valid JSON can mean only one thing.
    if text.lstrip().startswith("{"):
        try:
            return _json_node(_JSON.decode(text))
        except json.JSONDecodeError:
            pass
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        reason = f"line {line}: the character U+{error.character:04X} is not allowed in YAML; write it escaped"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = error.problem or "syntax error"
        advice = next(advice for said, advice in ADVICE if re.search(said, problem))
        reason = f"{at}not valid YAML: {_without_content(problem)}; {advice}"
    except (ValueError, OverflowError):
        reason = "not valid YAML: an escape such as \\U names no character"
    raise ConfigError(source, "", reason) from None


def _without_content(problem: str) -> str:
    """The scanner's message without names out of the file: for an unquoted `*word` it quotes the word."""

    def keep(quoted: re.Match[str]) -> str:
        inner = quoted[1] or quoted[2] or ""
        return quoted[0] if len(inner) == 1 or inner.startswith(("<", "\\")) else "(not shown)"

    return QUOTED.sub(keep, problem)


def _leaf(kind: str) -> Callable[[str], yaml.Node]:
    return lambda text: yaml.ScalarNode(TAG + kind, text)


# Objects come as tuples of pairs and arrays as lists, so that equal keys are still there to be refused.
_JSON = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=_leaf("int"), parse_float=_leaf("float"), parse_constant=_leaf("float")
)


def _json_node(parsed: Any) -> yaml.Node:
    match parsed:
        case yaml.Node():
            return parsed
        case tuple():
            pairs = [(yaml.ScalarNode(f"{TAG}str", key), _json_node(value)) for key, value in parsed]
            return yaml.MappingNode(f"{TAG}map", pairs)
        case list():
            return yaml.SequenceNode(f"{TAG}seq", [_json_node(item) for item in parsed])
        case bool():
            return yaml.ScalarNode(f"{TAG}bool", str(parsed).lower())
        case None:
            return yaml.ScalarNode(f"{TAG}null", "null")
        case _:
            return yaml.ScalarNode(f"{TAG}str", parsed)


def _children(node: yaml.Node) -> Sequence[yaml.Node]:
    match node:
        case yaml.MappingNode():
            return [value for _, value in node.value]
        case yaml.SequenceNode(value=items):
            return list(items)
        case _:
            return []


class _Conversion:
    """PyYAML's nodes → ours. Each node is converted once, however many aliases lead to it."""

    def __init__(self, source: str, environ: Mapping[str, str], keys_as_written: bool, errors: Errors | None) -> None:
        self.source = source
        self.environ = environ
        self.keys_as_written = keys_as_written
        self.errors = errors
        self.done: dict[int, Node] = {}
        self.sizes: dict[int, int] = {}  # of what is done, in nodes
        self.open: set[int] = set()

    def node(self, node: yaml.Node, path: str, line: int) -> Node:
        """`line` is that of the key."""
        known = self.done.get(id(node))
        if known is not None:
            return known
        if id(node) in self.open:
            raise ConfigError(self.source, path, "an alias stands inside the value that it repeats")
        self.open.add(id(node))
        converted = self._convert(node, path, line)
        self.open.remove(id(node))
        self.done[id(node)] = converted
        self.sizes[id(node)] = size = 1 + sum(self.sizes.get(id(child), 0) for child in _children(node))
        if size > MAX_NODES:
            reason = f"holds more than {MAX_NODES} values, those counted each time that an alias repeats; shorten it"
            raise ConfigError(self.source, path, reason)
        return converted

    def _refuse(self, path: str, reason: str, *, unread: bool = False) -> None:
        error = ConfigError(self.source, path, reason)
        if self.errors is None:
            raise error
        self.errors.note(error, unread=unread)

    def _line(self, path: str, node: yaml.Node, around: int) -> int:
        """The line of a key or an entry, from 1; `around` is that of what it stands in, and 0 in JSON."""
        line = node.start_mark.line + 1 if node.start_mark else 0
        if self.errors is not None and line != around:
            self.errors.lines[path] = line
        return line

    def _convert(self, node: yaml.Node, path: str, line: int) -> Node:
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                return self._mapping(node, path, line)
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [
                    self.node(item, f"{path}[{i}]", self._line(f"{path}[{i}]", item, line))
                    for i, item in enumerate(node.value)
                ]
            case yaml.ScalarNode(tag=tag) if tag in KINDS:
                return self._scalar(node, path)
            case _:
                reason = "YAML tags are not supported; quote the value if it begins with a literal !"
                self._refuse(path, reason, unread=True)
                return UNREAD

    def _mapping(self, node: yaml.MappingNode, path: str, line: int) -> dict[str, Node]:
        mapping: dict[str, Node] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None:
                continue
            inner = join(path, key)
            if key in mapping:
                mark = key_node.start_mark
                again = f", again on line {mark.line + 1}" if mark else ""
                self._refuse(inner, f"the key {key!r} is written twice{again}")
                continue
            mapping[key] = self.node(value_node, inner, self._line(inner, key_node, line))
        return mapping

    def _key(self, node: yaml.Node, path: str) -> str | None:
        """The name of a key; None for what is not one."""
        if not isinstance(node, yaml.ScalarNode):
            self._refuse(path, "a key must be text, not a list or a mapping")
            return None
        if node.tag == f"{TAG}merge":
            self._refuse(path, "merge keys (<<) are not supported; write the keys out")
            return None
        kind = KINDS.get(node.tag)
        if kind is not ScalarKind.TEXT and not (kind and self.keys_as_written):
            what = f"unquoted, YAML reads the key {node.value} as {kind}: quote it" if kind else "a key must be text"
            self._refuse(join(path, node.value), what)
            return None
        return self._joined(node.value, path)

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Scalar:
        kind = KINDS[node.tag]
        if kind is not ScalarKind.TEXT:
            return Scalar(node.value, kind)
        try:
            text, substituted, defaulted = substitute(node.value, self.environ)
        except BadReference as error:
            reason = str(error)
        else:
            return Scalar(self._joined(text, path), kind, substituted, defaulted)
        self._refuse(path, reason, unread=True)
        return UNREAD

    def _joined(self, text: str, path: str) -> str:
        """JSON's `\\ud83d\\ude00` comes as two surrogates out of YAML; two make one character, one alone is no text."""
        if text.isascii():
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise ConfigError(self.source, path, "holds half of a surrogate pair, which is no character") from None


# -- references to the environment -------------------------------------------------------------------------------------


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
                "a ${ must continue as ${NAME} or ${NAME:-default} with no braces inside; write $${ for a literal ${"
            )
        substituted = True
        value = environ.get(name)
        if default is not None:
            defaulted = defaulted or (not value and bool(default))
            return value or default
        if value is None:
            # The message suggests no default: it would be copied, and become a well-known key.
            raise BadReference(f"environment variable {name} is not set; set it")
        return value

    resolved = OPENING.sub(resolve, text)
    return Substituted(resolved, substituted, defaulted)
