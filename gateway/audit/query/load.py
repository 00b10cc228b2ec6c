"""Reads a query from its file: a `Query`, or a `ConfigError` that names file, key path and reason.

YAML or JSON, read as strictly as a configuration: unknown keys and values of another type than the key wants are
refused, and `${VAR}` stands for a variable of the environment.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TypeVar

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
from gateway.policy.files import read_text
from gateway.policy.urls import read_http_url
from gateway.policy.value import DECIMAL_NUMBER, ConfigError, Scalar, ScalarKind, Section, Value
from gateway.policy.yaml_source import read_nodes

KEYS = (
    *("model", "query", "prefix", "prompt", "decoding", "traversal", "tokenizations", "preprocess", "limit"),
    "search",
)
SERVED_KEYS = ("vllm", "name", "api_key", "tokenizer")
DECODING_KEYS = ("top_k", "top_p", "temperature", "end_of_text", "max_tokens")
PREPROCESSORS = ("edits", "filter", "synonyms", "user")
ALPHABETS = {
    "printable_ascii": PRINTABLE_ASCII,
    "lowercase": CharSet(((0x61, 0x7A),)),
    "letters": CharSet(((0x41, 0x5A), (0x61, 0x7A))),
    "digits": CharSet(((0x30, 0x39),)),
    "alphanumeric": CharSet(((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A))),
}

T = TypeVar("T", Query, Decoding, Random, Bounds)

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
    section = read_nodes(text, source, environ, "at least query", keys_as_written=True).section(KEYS)
    query = Query(query=section["query"].text(), source=source)
    query = _fields(section, query, prefix=_prefix)
    query = _fields(
        section,
        query,
        model=lambda model: _model(model, folder),
        prompt=_prompt,
        decoding=_decoding,
        traversal=_traversal,
        tokenizations=lambda name: name.choice(Tokenizations),
        preprocess=lambda steps: _preprocess(steps, query.prefix is not None),
        limit=_integer(1, MAX_NUMBER),
    )
    return replace(query, bounds=section.get("search", _bounds, query.bounds))


def _fields(section: Section, default: T, **readers: Callable[[Value], object]) -> T:
    """`default` with the fields that the section has, each by its reader."""
    given = {name: section.get(name, reader, getattr(default, name)) for name, reader in readers.items()}
    return replace(default, **given)


def _integer(low: int, high: int) -> Callable[[Value], int]:
    return lambda number: number.integer(low, high)


# -- the model ---------------------------------------------------------------------------------------------------------


def _model(value: Value, folder: PurePath) -> LocalModel | ServedModel:
    kind = _only_key(value, ("hf", "vllm"), "keys such as hf: ./model, or vllm: http://127.0.0.1:8000/v1 with name")
    if kind == "hf":
        return LocalModel(_path(value.section(("hf",))["hf"], folder))
    section = value.section(SERVED_KEYS)
    return ServedModel(
        vllm=read_http_url(section["vllm"], "http://127.0.0.1:8000/v1", "keys belong under api_key"),
        name=section["name"].nonempty(),
        api_key=section.get("api_key", Value.key, None),
        tokenizer=section.get("tokenizer", lambda path: _path(path, folder), None),
    )


def _path(value: Value, folder: PurePath) -> str:
    """A path that begins with a dot is relative to the query; any other text may be a name on a hub."""
    path = value.nonempty()
    return str(folder / path) if path.startswith((".", "/")) else path


def _only_key(value: Value, keys: tuple[str, ...], wanted: str) -> str:
    """Which one of the keys a mapping has."""
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


def _decoding(value: Value) -> Decoding:
    section = value.section(DECODING_KEYS)
    return _fields(
        section,
        Decoding(),
        top_k=_integer(1, MAX_NUMBER),
        top_p=_top_p,
        temperature=_temperature,
        end_of_text=Value.boolean,
        max_tokens=_integer(1, MAX_TOKENS),
    )


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
            section = value.section(("random",))["random"].section(("samples", "seed"))
            return _fields(section, Random(), samples=_integer(1, MAX_NUMBER), seed=_integer(0, MAX_SEED))
        case _:
            raise value.wrong("shortest_path, or {random: {samples: 1000, seed: 0}}")


def _bounds(value: Value) -> Bounds:
    section = value.section(("prefixes", "max_nodes", "batch"))
    number = _integer(1, MAX_NUMBER)
    return _fields(section, Bounds(), prefixes=number, max_nodes=number, batch=_integer(1, MAX_BATCH))


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
        raise value.fail("the query has no prefix; say on: query, or give it one")
    return part


def _alphabet(value: Value) -> CharSet:
    """A name, or what a pattern of a single character matches."""
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
    """A word may be secret, so errors name its place."""
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
