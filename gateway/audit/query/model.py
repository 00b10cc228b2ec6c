"""A query as frozen data, and its compilation to automata.

    model: {hf: ./model}
    query: "My phone number is ([0-9]{3}) ([0-9]{3}) ([0-9]{4})"
    prefix: "My phone number is"
    decoding: {top_k: 40, end_of_text: false, max_tokens: 32}
    preprocess: [{edits: 1, alphabet: digits, on: query}]
    limit: 100

`gateway.audit.query.load` makes it from such a file, `compile` makes its automata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from gateway.audit.language.automaton import AutomatonTooLarge, Dfa, Regex, literal, materialized
from gateway.audit.language.plugins import PreprocessorError, load_preprocessor
from gateway.audit.language.prefix_language import (
    Change,
    changed_before,
    changed_behind,
    matching_prefixes,
    with_prefix,
)
from gateway.audit.language.preprocess import PRINTABLE_ASCII, edits, synonyms, without_matches, without_words
from gateway.automata.charset import CharSet
from gateway.automata.regex import RegexError
from gateway.policy.errors import ConfigError

MAX_WORKED_OUT = 200_000  # states, for `when: compile`

_FOR_RULES = re.compile(r"[,;:] (?:or )?divide it among several rules")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model for transformers: a folder, or a name on Hugging Face."""

    hf: str


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model behind a vLLM server's OpenAI-compatible address. `tokenizer`: a model's folder or a tokenizer.json."""

    vllm: str
    name: str
    api_key: str | None = field(default=None, repr=False)
    tokenizer: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class PrefixText:
    """A literal prefix."""

    text: str


@dataclass(frozen=True, slots=True)
class PrefixRegex:
    """A prefix that is a regular expression."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Decoding:
    """Sampling parameters for the tokens after the prefix, see `SamplingParams`. `end_of_text`: strings must be
    followed by an end-of-text token. `max_tokens`: after the prefix."""

    top_k: int | None = None
    top_p: float = 1.0
    temperature: float = 1.0
    end_of_text: bool = False
    max_tokens: int = 64


@dataclass(frozen=True, slots=True)
class ShortestPath:
    """The likeliest string first."""


@dataclass(frozen=True, slots=True)
class Random:
    """Strings drawn at random."""

    samples: int = 1000
    seed: int = 0


class Tokenizations(StrEnum):
    """Every tokenization of a string, or only the tokenizer's own."""

    ALL = "all"
    CANONICAL = "canonical"


class PreprocessTarget(StrEnum):
    """What a preprocessor changes: the text after the prefix, the prefix, or the whole string. Without a prefix `query`
    is the whole string."""

    QUERY = "query"
    PREFIX = "prefix"
    BOTH = "both"


class When(StrEnum):
    """When states are computed: all beforehand, or lazily during the search. The language is the same."""

    COMPILE = "compile"
    SEARCH = "search"


@dataclass(frozen=True, slots=True)
class Edits:
    most: int
    alphabet: CharSet = PRINTABLE_ASCII
    on: PreprocessTarget = PreprocessTarget.QUERY
    when: When = When.SEARCH


@dataclass(frozen=True, slots=True)
class Filter:
    """Removes strings that contain one of the words, as a whole word, or a match of the pattern, after the prefix."""

    words: tuple[str, ...] = field(default=(), repr=False)
    pattern: str | None = field(default=None, repr=False)
    when: When = When.SEARCH


@dataclass(frozen=True, slots=True)
class Synonyms:
    words: tuple[tuple[str, tuple[str, ...]], ...] = field(repr=False)
    on: PreprocessTarget = PreprocessTarget.QUERY
    when: When = When.SEARCH


@dataclass(frozen=True, slots=True)
class UserPreprocessor:
    """A preprocessor from an installed package."""

    name: str
    on: PreprocessTarget = PreprocessTarget.QUERY
    when: When = When.SEARCH


Preprocessor: TypeAlias = Edits | Filter | Synonyms | UserPreprocessor


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the search: encodings of the prefix, pending nodes, and rows in one call of the model."""

    prefixes: int = 1000
    max_nodes: int = 200_000
    batch: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """`query` is a regular expression of whole strings, prefix included; `prefix` is the part of them to which the
    sampling parameters do not apply. A prefix that is a plain string is text; where no string of the query begins
    with that text, it is a regular expression. `prompt` stands before the strings and is no part of them. `source`
    names the query in errors."""

    query: str
    prefix: str | PrefixText | PrefixRegex | None = None
    model: LocalModel | ServedModel | None = None
    prompt: str | tuple[Message, ...] = ""
    decoding: Decoding = Decoding()
    traversal: ShortestPath | Random = ShortestPath()
    tokenizations: Tokenizations = Tokenizations.ALL
    preprocess: tuple[Preprocessor, ...] = ()
    limit: int = 100
    bounds: Bounds = Bounds()
    source: str = "query"


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """`language`: the strings of the query, after preprocessing. `prefix`: the prefixes they begin with, None if the
    query has none."""

    language: Dfa
    prefix: Dfa | None = None


def compile(query: Query) -> CompiledQuery:
    """The automata of a query. Raises ConfigError for expressions that are none, for a prefix with which no string of
    the query begins, for preprocessors that leave no string, and for what is too large. States are computed later;
    what is too large may only show then, as AutomatonTooLarge."""
    with _naming(query, "query"):
        language: Dfa = Regex(query.query)
        if not language.start:
            raise ConfigError(query.source, "query", "has no string")
    prefix: Dfa | None = None
    if query.prefix is not None:
        with _naming(query, "prefix"):
            prefix = _read_prefix(query, language, query.prefix)
            language, prefix = with_prefix(language, prefix), matching_prefixes(language, prefix)
    for number, step in enumerate(query.preprocess):
        with _naming(query, f"preprocess[{number}]"):
            language, prefix = _preprocessed(step, language, prefix)
            prefix = None if prefix is None else matching_prefixes(language, prefix)
            if step.when is When.COMPILE:
                language, prefix = _materialized(language), None if prefix is None else _materialized(prefix)
            if not language.start:
                raise ConfigError(query.source, f"preprocess[{number}]", "no string of the query is left")
    return CompiledQuery(language, prefix)


@contextmanager
def _naming(query: Query, key_path: str) -> Iterator[None]:
    """Turn errors within the block into ConfigErrors about the key, none of which quotes a value."""
    try:
        yield
    except RegexError as error:
        where = "" if error.position is None else f" (at position {error.position})"
        raise ConfigError(query.source, key_path, _FOR_RULES.sub("", error.reason) + where) from None
    except UnicodeEncodeError:
        raise ConfigError(query.source, key_path, "holds half of a surrogate pair, which is no character") from None
    except PreprocessorError as error:
        raise ConfigError(query.source, key_path, str(error)) from error.__cause__
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(query.source, key_path, str(error)) from None


def _read_prefix(query: Query, language: Dfa, prefix: str | PrefixText | PrefixRegex) -> Dfa:
    if not isinstance(prefix, PrefixRegex):
        automaton = literal(prefix.text if isinstance(prefix, PrefixText) else prefix)
        if matching_prefixes(language, automaton).start:
            return automaton
        if isinstance(prefix, PrefixText):
            raise ConfigError(query.source, "prefix", "no string of the query begins with this text")
    try:
        automaton = Regex(prefix.pattern if isinstance(prefix, PrefixRegex) else prefix)
    except RegexError:
        if isinstance(prefix, PrefixRegex):
            raise
        raise ConfigError(query.source, "prefix", "no string of the query begins with this text") from None
    if matching_prefixes(language, automaton).start:
        return automaton
    reading = "a match of this expression" if isinstance(prefix, PrefixRegex) else "it, be it text or an expression"
    raise ConfigError(query.source, "prefix", f"no string of the query begins with {reading}")


def _preprocessed(step: Preprocessor, language: Dfa, prefix: Dfa | None) -> tuple[Dfa, Dfa | None]:
    if isinstance(step, Filter):
        if step.pattern is not None:
            return without_matches(language, step.pattern, prefix), prefix
        return without_words(language, step.words, prefix), prefix
    change = _change(step)
    if prefix is None:
        return change(language), None
    match step.on:
        case PreprocessTarget.QUERY:
            return changed_behind(language, prefix, change), prefix
        case PreprocessTarget.PREFIX:
            return changed_before(language, prefix, change), change(prefix)
        case PreprocessTarget.BOTH:
            prefix = change(prefix)
            return with_prefix(change(language), prefix), prefix


def _change(step: Edits | Synonyms | UserPreprocessor) -> Change:
    match step:
        case Edits():
            return lambda automaton: edits(automaton, step.most, step.alphabet)
        case Synonyms():
            return lambda automaton: synonyms(automaton, dict(step.words))
        case UserPreprocessor():
            return load_preprocessor(step.name)


def _materialized(automaton: Dfa) -> Dfa:
    try:
        return materialized(automaton, MAX_WORKED_OUT)
    except AutomatonTooLarge as error:
        raise AutomatonTooLarge(f"{error}; or set when: search, to compute only what the search reaches") from None
