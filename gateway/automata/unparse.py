r"""Trees of regular expressions → expressions that different engines read alike.

Literals, classes, groups, alternatives and counts mean the same everywhere. What `.`, `\d`, `\w` or `(?i)` stand for
does not: every class is written out, character by character and range by range. What is no letter or digit is written
as its number, so that no sign means anything.

The language is that of whole texts, in which nothing stands before the first character or behind the last one.
"""

from __future__ import annotations

from gateway.automata.charset import CharSet
from gateway.automata.contexts import LINE_END_EDGE, LINE_START_EDGE, TEXT_END, TEXT_START
from gateway.automata.regex import EMPTY, Alternation, Chars, Concat, Edge, Node, RegexError, Repeat

_SURROGATES = CharSet(((0xD800, 0xDFFF),))  # no text has them, and some engines refuse their numbers
_CARET = ord("^")
_QUANTIFIERS = {(0, None): "*", (1, None): "+", (0, 1): "?", (1, 1): ""}

_AT_WORDS = (
    r"\b and \B cannot be passed to a model: the expression describes the whole answer, so write out what may stand on "
    "either side of a word"
)
_INSIDE = (
    r"^, $, \A and \z can only stand at the beginning and at the end of the whole: the expression describes the whole "
    "answer, so leave them out"
)
_LINES = r"^ and $ under (?m) can only stand at the beginning and at the end of the whole: write the line breaks as \n"
_EDGES = {TEXT_START: _INSIDE, TEXT_END: _INSIDE, LINE_START_EDGE: _LINES, LINE_END_EDGE: _LINES}
_NO_CHARACTER = "a class in it has no character that can stand in a text: take it out"


def unparse(node: Node) -> str:
    r"""An expression for the whole texts of a tree, in ASCII but for letters and digits.

    `^` at the beginning and `$` at the end need nothing and are left out. Raises RegexError for those elsewhere, for
    `\b` and `\B`, and for a class without characters.
    """
    return _alternatives(_without(_without(node, TEXT_START), TEXT_END))


def count_ranges(node: Node) -> int:
    """How many ranges of characters a tree is made of, those of repeated parts as often as they are counted."""
    match node:
        case Chars(chars):
            return len((chars - _SURROGATES).ranges)
        case Edge():
            return 0
        case Concat(parts) | Alternation(parts):
            return sum(map(count_ranges, parts))
        case Repeat(part, low, high):
            return count_ranges(part) * max(low, 1 if high is None else high)


def _without(node: Node, edge: int) -> Node:
    """The tree without its edges at the edges of the text."""
    match node:
        case Edge(contexts) if contexts & edge == edge:
            return EMPTY
        case Alternation(options):
            return Alternation(tuple(_without(option, edge) for option in options))
        case Concat(parts):
            outside_in = list(parts) if edge == TEXT_START else list(reversed(parts))
            for at, part in enumerate(outside_in):
                outside_in[at] = _without(part, edge)
                if outside_in[at] != EMPTY:
                    break
            return Concat(tuple(outside_in if edge == TEXT_START else reversed(outside_in)))
        case _:
            return node


def _alternatives(node: Node) -> str:
    if not isinstance(node, Alternation):
        return _sequence(node)
    options = list(map(_alternatives, node.options))
    written = "|".join(filter(None, options))
    # outlines never gets to the alternatives behind an empty one.
    return f"(?:{written})?" if written and "" in options else written


def _sequence(node: Node) -> str:
    match node:
        case Concat(parts):
            return "".join(map(_sequence, parts))
        case Alternation():
            written = _alternatives(node)
            return f"(?:{written})" if written else ""
        case Repeat(part, low, high):
            return _repeated(part, low, high)
        case Chars(chars):
            return _class(chars - _SURROGATES)
        case Edge(contexts):
            raise RegexError(_EDGES.get(contexts, _AT_WORDS))


def _repeated(node: Node, low: int, high: int | None) -> str:
    part = _alternatives(node)
    if not part or high == 0:
        return ""
    if not isinstance(node, Chars):
        part = f"(?:{part})"
    if (low, high) in _QUANTIFIERS:
        return part + _QUANTIFIERS[low, high]
    most = "" if high is None else high
    return f"{part}{{{low}}}" if low == high else f"{part}{{{low},{most}}}"


def _class(chars: CharSet) -> str:
    if not chars:
        raise RegexError(_NO_CHARACTER)
    ranges = list(chars.ranges)
    if len(chars) == 1:
        return _char(ranges[0][0])
    low, high = ranges[0]
    if low == _CARET:
        # xgrammar takes a ^ in the first place for a negation, whichever way it is written.
        ranges[:1] = [(low + 1, high)] if high > low else []
        ranges.append((low, low))
    return f"[{''.join(_range(*bounds) for bounds in ranges)}]"


def _range(low: int, high: int) -> str:
    if low == high:
        return _char(low)
    return f"{_char(low)}{_char(high)}" if high == low + 1 else f"{_char(low)}-{_char(high)}"


def _char(code: int) -> str:
    char = chr(code)
    if char.isalnum():
        return char
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
