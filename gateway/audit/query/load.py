"""Reads a query from its file: a `Query`, or a `ConfigError` that names file, key path and reason.

YAML or JSON, read as strictly as a configuration: unknown keys and values of another type than the key wants are
refused, and `${VAR}` stands for a variable of the environment.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePath

from gateway.audit.language.preprocess import MAX_WORD, PRINTABLE_ASCII
from gateway.audit.query.model import (
    Bounds,
    Decoding,
    Edits,
    Filter,
    LocalModel,
    Message,
    PrefixRegex,
    PrefixText,
    Preprocessor,
    PreprocessTarget,
    Query,
    Random,
    ServedModel,
    ShortestPath,
    Synonyms,
    Tokenizations,
    UserPreprocessor,
    When,
)
from gateway.automata.charset import CharSet
from gateway.automata.regex import Chars, RegexError, parse
from gateway.policy.errors import ConfigError
from gateway.policy.files import read_text
from gateway.policy.key_table import BOOLEAN, NONEMPTY, TEXT, Form, KeyTable, choice, integer, nested
from gateway.policy.urls import read_http_url
from gateway.policy.value import DECIMAL_NUMBER, Scalar, ScalarKind, Value
from gateway.policy.yaml_source import read_nodes

PREPROCESSORS = ("edits", "filter", "synonyms", "user")
ALPHABETS = {
    "printable_ascii": PRINTABLE_ASCII,
    "lowercase": CharSet(((0x61, 0x7A),)),
    "letters": CharSet(((0x41, 0x5A), (0x61, 0x7A))),
    "digits": CharSet(((0x30, 0x39),)),
    "alphanumeric": CharSet(((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A))),
}

MAX_EDITS = 5
MAX_NUMBER = 1_000_000_000
MAX_TOKENS = 1_000_000
MAX_SEED = 2**63 - 1
MAX_BATCH = 4096
MAX_PREFIX = 10_000  # characters, as of an expression
MAX_CHANGES = 20  # to the language; each is an automaton within the next
MIN_TEMPERATURE = 1e-6  # but for 0
MAX_TEMPERATURE = 1e6


def load_query(path: Path | str, environ: Mapping[str, str] = os.environ) -> Query:
    """The query in a file. Raises ConfigError."""
    path, source = Path(path), str(path)
    return parse_query(read_text(path, lambda reason: ConfigError(source, "", reason)), source, path.parent, environ)


def parse_query(text: str, source: str, folder: PurePath, environ: Mapping[str, str]) -> Query:
    """The query in a file's text. `source` names it in errors; paths in it are relative to `folder`. Raises
    `ConfigError`."""
    # Unquoted, `on` is a truth value to YAML.
    section = QUERY_KEYS.section(read_nodes(text, source, environ, "at least query", keys_as_written=True))
    values = QUERY_KEYS.values(
        section,
        model=lambda model: _model(model, folder),
        preprocess=lambda steps: _preprocess(steps, "prefix" in section),
    )
    return Query(**values, bounds=section.get("search", BOUNDS.read, Bounds()), source=source)


# -- the model ---------------------------------------------------------------------------------------------------------


def _model(value: Value, folder: PurePath) -> LocalModel | ServedModel:
    kind = _only_key(value, ("hf", "vllm"), "keys such as hf: ./model, or vllm: http://127.0.0.1:8000/v1 with name")
    if kind == "hf":
        return LocalModel(_path(value.section(("hf",))["hf"], folder))
    return SERVED.read(value, tokenizer=lambda path: _path(path, folder))


def _path(value: Value, folder: PurePath) -> str:
    """A path that begins with a dot is relative to the query; any other text may be a name on a hub."""
    path = value.nonempty()
    return str(folder / path) if path.startswith((".", "/")) else path


def _only_key(value: Value, keys: tuple[str, ...], wanted: str) -> str:
    """The one of these keys that the mapping has."""
    if not isinstance(value.node, dict):
        raise value.wrong(f"a mapping with {wanted}")
    given = [key for key in keys if key in value.node]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise value.fail(f"needs exactly one of {', '.join(keys)}; it has {found}")
    return given[0]


# -- prefix, prompt and search parameters ------------------------------------------------------------------------------


def _prefix(value: Value) -> str | PrefixText | PrefixRegex:
    if not isinstance(value.node, dict):
        return _prefix_text(value.hidden())
    kind = _only_key(value, ("text", "regex"), "text or regex")
    text = _prefix_text(value.hidden().section((kind,))[kind])
    return PrefixText(text) if kind == "text" else PrefixRegex(text)


def _prefix_text(value: Value) -> str:
    text = _some_text(value)
    if len(text) > MAX_PREFIX:
        raise value.fail(f"has {len(text)} characters, and {MAX_PREFIX} are allowed; what is longer can be a prompt")
    return text


def _some_text(value: Value) -> str:
    text = value.text()
    if not text:
        raise value.fail("is empty; leave the key out")
    return text


def _prompt(value: Value) -> str | tuple[Message, ...]:
    if not isinstance(value.node, list):
        return value.text()
    messages = (message.section(("role", "content")) for message in value.nonempty_items())
    return tuple(Message(message["role"].nonempty(), message["content"].text()) for message in messages)


def _top_p(value: Value) -> float:
    share = value.share()
    if not share:
        raise value.wrong("a number above 0, up to 1")
    return share


def _temperature(value: Value) -> float:
    match value.node:
        case Scalar(kind=ScalarKind.INTEGER | ScalarKind.FLOAT, text=text) if DECIMAL_NUMBER.fullmatch(text):
            number = float(text)
            if number and 0 <= number < math.inf and not MIN_TEMPERATURE <= number <= MAX_TEMPERATURE:
                raise value.wrong(f"0, or a number from {MIN_TEMPERATURE:f} to {MAX_TEMPERATURE:.0f}")
            if 0 <= number < math.inf:
                return number
    raise value.wrong("a number, at least 0")


def _traversal(value: Value) -> ShortestPath | Random:
    match value.node:
        case Scalar(text="shortest_path"):
            return ShortestPath()
        case dict():
            return RANDOM.read(value.section(("random",))["random"])
        case _:
            raise value.wrong("shortest_path, or {random: {samples: 1000, seed: 0}}")


def _read_with(read: Callable[[Value], object]) -> Form:
    return Form("", {}, read)


_read_url = partial(read_http_url, example="http://127.0.0.1:8000/v1", secrets="keys belong under api_key")
NUMBER = integer(1, MAX_NUMBER)
SERVED = KeyTable(
    "model",
    ServedModel,
    {"vllm": _read_with(_read_url), "name": NONEMPTY, "api_key": _read_with(Value.key), "tokenizer": NONEMPTY},
)
DECODING = KeyTable(
    "decoding",
    Decoding,
    {
        "top_k": NUMBER,
        "top_p": _read_with(_top_p),
        "temperature": _read_with(_temperature),
        "end_of_text": BOOLEAN,
        "max_tokens": integer(1, MAX_TOKENS),
    },
)
RANDOM = KeyTable("traversal.random", Random, {"samples": NUMBER, "seed": integer(0, MAX_SEED)})
BOUNDS = KeyTable("search", Bounds, {"prefixes": NUMBER, "max_nodes": NUMBER, "batch": integer(1, MAX_BATCH)})
QUERY_KEYS = KeyTable(
    "query",
    Query,
    {
        "model": Form("", {}),
        "query": TEXT,
        "prefix": _read_with(_prefix),
        "prompt": _read_with(_prompt),
        "decoding": nested(DECODING),
        "traversal": _read_with(_traversal),
        "tokenizations": choice(Tokenizations),
        "preprocess": Form("", {}),
        "limit": NUMBER,
        "search": Form("", {}),
    },
)


# -- preprocessors -----------------------------------------------------------------------------------------------------


def _preprocess(value: Value, has_prefix: bool) -> tuple[Preprocessor, ...]:
    items = value.items()
    if len(items) > MAX_CHANGES:
        raise value.fail(f"has {len(items)} changes, and {MAX_CHANGES} are allowed")
    return tuple(_preprocessor(item, has_prefix) for item in items)


def _preprocessor(value: Value, has_prefix: bool) -> Preprocessor:
    kind = _only_key(value, PREPROCESSORS, f"one of the keys {', '.join(PREPROCESSORS)}")
    more = {"edits": ("alphabet", "on"), "filter": ()}.get(kind, ("on",))
    section = value.section((kind, *more, "when"))
    when = section.get("when", lambda name: name.choice(When), When.SEARCH)
    on = section.get("on", lambda name: _part(name, has_prefix), PreprocessTarget.QUERY)
    match kind:
        case "edits":
            alphabet = section.get("alphabet", _alphabet, PRINTABLE_ASCII)
            return Edits(section["edits"].integer(0, MAX_EDITS), alphabet, on, when)
        case "filter":
            return _filter(section["filter"], when)
        case "synonyms":
            return Synonyms(_synonyms(section["synonyms"]), on, when)
        case _:
            return UserPreprocessor(section["user"].label(), on, when)


def _part(value: Value, has_prefix: bool) -> PreprocessTarget:
    part = value.choice(PreprocessTarget)
    if part is PreprocessTarget.PREFIX and not has_prefix:
        raise value.fail("the query has no prefix: set on: query, or add a prefix")
    return part


def _alphabet(value: Value) -> CharSet:
    """The characters of a named alphabet, or those that a one-character pattern matches."""
    text = value.text()
    if text in ALPHABETS:
        return ALPHABETS[text]
    try:
        tree = parse(text)
    except RegexError:
        tree = None
    if not isinstance(tree, Chars):
        raise value.wrong(f"a class of characters such as [a-z ], or one of {', '.join(ALPHABETS)}")
    return tree.set


def _filter(value: Value, when: When) -> Filter:
    kind = _only_key(value, ("words", "regex"), "words or regex")
    given = value.hidden().section((kind,))[kind]
    if kind == "regex":
        return Filter(pattern=_some_text(given), when=when)
    return Filter(words=tuple(dict.fromkeys(map(_word, given.nonempty_items()))), when=when)


def _synonyms(value: Value) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read the synonyms. A word may be secret, so errors name its place only."""
    if not isinstance(value.node, dict) or not value.node:
        raise value.wrong("a mapping of words, each with a list of others")
    found = []
    for number, (word, others) in enumerate(value.node.items()):
        entry = Value(value.source, f"{value.path}[{number}]", others, secret=True)
        _word(Value(value.source, entry.path, Scalar(word, ScalarKind.TEXT), secret=True))
        found.append((word, tuple(dict.fromkeys(map(_word, entry.nonempty_items())))))
    return tuple(found)


def _word(value: Value) -> str:
    word = _some_text(value)
    if len(word) > MAX_WORD:
        raise value.fail(f"has {len(word)} characters, and {MAX_WORD} are allowed")
    return word
