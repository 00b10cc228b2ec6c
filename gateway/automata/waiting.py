"""Words that were read to their end, and are whole words or not by what follows them."""

from __future__ import annotations

from typing import NamedTuple

from gateway.automata.edges import EMPHASIS, is_word_char

# Of a run of emphasis behind a whole word, so many characters are waited through; the next one is an edge.
MAX_EMPHASIS = 3


class LiteralKind(NamedTuple):
    """What is to be known of a word besides its text; the words of a list have one in common.

    `left`/`right`: a word character there undoes the match. `holds`: text is held back for it. `guard`: from this many
    characters on, a beginning of it that ends the text counts (0: never), but for one of a length in `spared`. `tag` is
    the caller's, and so is `seen`, the word that this is a spelling of, if it is not the word itself.
    """

    tag: int
    left: bool = False
    right: bool = False
    holds: bool = True
    guard: int = 0
    spared: frozenset[int] = frozenset()
    seen: str = ""


class Literal(NamedTuple):
    """A word to find; `text` is folded."""

    text: str
    kind: LiteralKind


class FoundLiteral(NamedTuple):
    """A word that is certain now; it ended `back` folded characters before the end of the folded text."""

    literal: Literal
    back: int


def reach_of(pending: FoundLiteral) -> int:
    """How far back a word that waits begins."""
    return len(pending.literal.text) + pending.back


def waited(
    pending: tuple[FoundLiteral, ...], unit: str, edge: bool
) -> tuple[list[FoundLiteral], tuple[FoundLiteral, ...]]:
    """Of the words that wait for their right edge, those that `unit` makes certain, and those that wait on."""
    if not pending:
        return [], ()
    if edge or not is_word_char(unit):
        return list(pending), ()
    if unit != EMPHASIS:
        return [], ()
    certain = [each for each in pending if each.back == MAX_EMPHASIS]
    return certain, tuple(FoundLiteral(word, back + 1) for word, back in pending if back < MAX_EMPHASIS)
