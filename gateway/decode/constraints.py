"""The constraint of a policy: the parameters for an engine, and the check of its answer.

The engines of a vLLM server and the check must mean the same language. So regular expressions are written out for
both, and the check of JSON takes every spelling of a text that an engine may choose: any white space, any
escape.

Only JSON schemas and grammars need more than the base install: llguidance reads them.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

from gateway.automata.charset import CharSet
from gateway.automata.positions import Positions, positions
from gateway.automata.regex import Chars, Concat, Node, RegexError, parse
from gateway.automata.unparse import count_ranges, unparse
from gateway.decode.acceptors import ChoiceLanguage, CompiledLanguage, GrammarLanguage, RegexLanguage, json_language
from gateway.policy.checks import BadPattern
from gateway.policy.model import Constrain, Language
from gateway.surrogates import join_surrogates

# vLLM gives xgrammar five seconds to compile. 147,000 took longer, 59,000 took 2.7 s with a vocabulary of 2,000 tokens,
# 37,000 took 3 s with one of 60,000.
MAX_RANGES = 30_000
KEPT = 256  # languages that stay compiled

_TOO_LARGE = (
    r"written out for the engines, it is made of {} ranges of characters, and {} are allowed: write classes such as "
    r"[A-Za-z] in place of \w or \p{{...}}, or count less"
)
# Advice that helps with a rule's pattern, and not here.
_FOR_RULES = re.compile(r"[,;] (?:or )?(?:divide it among several rules|use \\b, \^ or \$)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"

# Of a grammar in Lark's notation: what is written out, or refused.
_ATTRIBUTES = re.compile(r"^[ \t]*[?!]?[A-Za-z_]\w*(?:\.\d+)?[ \t]*\[[^\]\n]*\][ \t]*:", re.M)
_TOKEN = re.compile(
    r"""
      (?P<comment> (?: // | \# ) [^\n]* )
    | (?P<string> "(?: \\. | [^"\\\n] )*" (?P<folded>i)? )
    | / (?P<regex> (?: \\. | [^/\\\n] )+ ) / (?P<flags> [A-Za-z]* )
    | (?P<ignore> %ignore\b )
    | (?P<special> <[^<>\s]*> )
    """,
    re.X,
)
_FLAGS = frozenset("is")

_IGNORED = "%ignore is not supported, since engines do not agree on where ignored text may stand: write it where it may"
_SPECIAL = "special tokens write no text, so no check of an answer can see them: leave them out"
_STEERED = (
    "what stands in [...] behind a rule's name is for the sampler, and no check of an answer can know it: leave it out"
)
_FLAGGED = "of the flags behind a regular expression, i and s are supported"


# -- parameters for an engine ------------------------------------------------------------------------------------------


def structured_outputs(constrain: Constrain) -> dict[str, Any]:
    """The `structured_outputs` of a request to vLLM. Raises `BadPattern` as `compiled` does."""
    written = _written(constrain.language, constrain.texts)
    match constrain.language:
        case Language.REGEX:
            return {"regex": written[0]}
        case Language.CHOICE:
            # outlines never gets to the options behind an empty one.
            return {"choice": sorted(written, key=lambda option: not option)}
        case Language.JSON_SCHEMA:
            return {"json": written[0]}
        case Language.GRAMMAR:
            return {"grammar": written[0]}


@lru_cache(KEPT)
def _written(language: Language, texts: tuple[str, ...]) -> tuple[str, ...]:
    if language is Language.REGEX:
        return (unparse(_tree(texts[0])),)
    if language is Language.GRAMMAR:
        return (_grammar(texts[0]).text,)
    return texts


def _tree(pattern: str) -> Node:
    """Raises `BadPattern`."""
    try:
        tree = parse(pattern)
        unparse(tree)
    except RegexError as error:
        raise _bad(error) from None
    _refuse_large(count_ranges(tree))
    return tree


def _grammar(grammar: str) -> WrittenOut:
    """Raises `BadPattern`."""
    try:
        written = written_out(grammar)
    except RegexError as error:
        raise _bad(error) from None
    _refuse_large(written.ranges)
    return written


def _bad(error: RegexError) -> BadPattern:
    return BadPattern(_FOR_RULES.sub("", error.reason), error.position)


def _refuse_large(ranges: int) -> None:
    if ranges > MAX_RANGES:
        raise BadPattern(_TOO_LARGE.format(ranges, MAX_RANGES), None)


def describe(constrain: Constrain) -> str:
    """The constraint in one line. Raises as `compiled` does."""
    compiled(constrain)
    lengths = list(map(len, constrain.texts))
    if constrain.language is Language.CHOICE:
        size = f"{len(lengths)} texts of {min(lengths)} to {max(lengths)} characters"
    else:
        size = f"{lengths[0]} characters"
    if constrain.language is Language.REGEX:
        size += f", {len(_written(constrain.language, constrain.texts)[0])} when written out for an engine"
    return (
        f"constrain: {constrain.language} of {size}; on_conflict {constrain.on_conflict}, "
        f"on_violation {constrain.on_violation}, require {str(constrain.require).lower()}"
    )


# -- the check ---------------------------------------------------------------------------------------------------------


class ConstraintAcceptor:
    """One text, in pieces cut anywhere; half a surrogate pair waits for the other half, and alone it is U+FFFD.

    `characters` is how many have been read, those that left the language not counted.
    """

    __slots__ = ("_acceptor", "_high", "_left", "characters")

    def __init__(self, language: CompiledLanguage) -> None:
        self._acceptor = language.acceptor()
        self._high = ""
        self._left = False
        self.characters = 0

    def feed(self, text: str) -> int | None:
        """Read on. None while the text can still become one of the language; else how much of this piece stands before
        the character with which it cannot. Nothing may be fed after that."""
        if self._high or (not text.isascii() and _SURROGATE.search(text)):
            return self._feed_units(text)
        read = self._acceptor.read(text)
        self.characters += read
        self._left = read < len(text)
        return read if self._left else None

    def _feed_units(self, text: str) -> int | None:
        begin = 0
        for at, unit in enumerate(text):
            if self._high:
                pair = "\udc00" <= unit <= "\udfff"
                char = join_surrogates(self._high + unit)[0]  # the pair, or U+FFFD for the half before
                self._high = ""
                if not self._accept(char):
                    return begin
                if pair:
                    continue
            begin = at
            if "\ud800" <= unit <= "\udbff":
                self._high = unit
            elif not self._accept(_REPLACEMENT if "\udc00" <= unit <= "\udfff" else unit):
                return begin
        return None

    def _accept(self, char: str) -> bool:
        read = self._acceptor.read(char)
        self.characters += read
        self._left = not read
        return not self._left

    def accepting(self) -> bool:
        """At the end of the text: is it one of the language?"""
        if self._high and not self._left:
            self._high = ""
            self._accept(_REPLACEMENT)
        return not self._left and self._acceptor.accepting()


def compiled(constrain: Constrain) -> CompiledLanguage:
    """Its language, compiled once. Raises `BadPattern` for a language that no engine
    can hold a model to, or that has no text; for one of JSON or a grammar also where llguidance is not installed."""
    return _compiled(constrain.language, constrain.texts)


@lru_cache(KEPT)
def _compiled(language: Language, texts: tuple[str, ...]) -> CompiledLanguage:
    match language:
        case Language.REGEX:
            return RegexLanguage(_positions(_tree(texts[0])))
        case Language.CHOICE:
            return ChoiceLanguage(texts)
        case Language.JSON_SCHEMA:
            return json_language(texts[0])
        case Language.GRAMMAR:
            return GrammarLanguage(_grammar(texts[0]).text, texts[0])


def _positions(node: Node) -> Positions:
    try:
        return positions(node, may_be_empty=True)
    except RegexError as error:
        raise _bad(error) from None


# -- grammars ----------------------------------------------------------------------------------------------------------


# What `.`, `\w` or `"..."i` stand for is another set of characters in each engine. What steers a sampler, or speaks of
# tokens that write no text, is refused, and so is `%ignore`.


class WrittenOut(NamedTuple):
    """A grammar that every engine reads alike, and how many ranges of characters its expressions are made of."""

    text: str
    ranges: int


def written_out(grammar: str) -> WrittenOut:
    """Raises RegexError for what is refused, at its position in the grammar."""
    if found := _ATTRIBUTES.search(grammar):
        raise RegexError(_STEERED, found.start())
    out: list[str] = []
    ranges = end = 0
    for token in _TOKEN.finditer(grammar):
        out.append(grammar[end : token.start()])
        end = token.end()
        node = _expression(token)
        if node is None:
            out.append(token[0])
            continue
        ranges += count_ranges(node)
        text = _rendered(node, token.start())
        out.append(f"/{text}/" if text else '""')
    return WrittenOut("".join([*out, grammar[end:]]), ranges)


def _expression(token: re.Match[str]) -> Node | None:
    """What a token matches, None if it stays as it is."""
    if token["ignore"]:
        raise RegexError(_IGNORED, token.start())
    if token["special"]:
        raise RegexError(_SPECIAL, token.start())
    if token["folded"]:
        return _in_any_case(token)
    if token["regex"] is None:
        return None
    flags = token["flags"]
    if not _FLAGS.issuperset(flags):
        raise RegexError(_FLAGGED, token.start("flags"))
    head = "(?s)" if "s" in flags else ""
    try:
        return parse(head + token["regex"], ignore_case="i" in flags)
    except RegexError as error:
        position = None if error.position is None else token.start("regex") + error.position - len(head)
        raise RegexError(error.reason, position) from None


def _in_any_case(token: re.Match[str]) -> Node | None:
    try:
        text = json.loads(token["string"][:-1])
    except ValueError:
        return None  # the engine refuses it with a reason of its own
    return Concat(tuple(Chars(CharSet.of(char).ignoring_case()) for char in text))


def _rendered(node: Node, position: int) -> str:
    try:
        return unparse(node)
    except RegexError as error:
        raise RegexError(error.reason, position) from None
