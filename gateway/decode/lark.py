"""Grammars in Lark's notation, made to mean the same to every engine that reads them.

A grammar's regular expressions are written out (`gateway.automata.unparse`): what `.`, `\\w` or `"..."i` stand for is
another set of characters in each engine. What steers a sampler, or speaks of tokens that write no text, is refused, and
so is `%ignore`: the engines do not agree on where ignored text may stand.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from gateway.automata.charset import CharSet
from gateway.automata.regex import Chars, Concat, Node, RegexError, parse
from gateway.automata.unparse import count_ranges, unparse

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


class WrittenOut(NamedTuple):
    """A grammar, and how many ranges of characters its regular expressions are made of."""

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
    """The expression that a token matches, None if it stays as it is."""
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
