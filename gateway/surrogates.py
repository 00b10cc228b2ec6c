"""Surrogates in text. JSON may spell a character outside the basic plane as two escapes, and a stream may cut between
them: the halves are joined, and one that stays alone becomes U+FFFD."""

from __future__ import annotations


def join_surrogates(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD; `text` itself if it has none."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")  # the test for a surrogate: on short text cheaper than a regular expression
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def join_next(high: str, piece: str) -> tuple[str, str]:
    """The next piece of a text joined with the high surrogate that the last one ended in (or ""), and the high
    surrogate that this one ends in (or "")."""
    text = high + piece
    if "\ud800" <= text[-1:] <= "\udbff":
        return join_surrogates(text[:-1]), text[-1]
    return join_surrogates(text), ""


class SurrogateJoiner:
    """`join_surrogates` for a text that arrives in pieces: a pair may be cut between two of them."""

    __slots__ = ("_high",)

    def __init__(self) -> None:
        self._high = ""

    def feed(self, text: str) -> str:
        """What is certain of the text so far; at most one high surrogate waits for the next piece."""
        joined, self._high = join_next(self._high, text)
        return joined

    def finish(self) -> str:
        """The rest at the end of the text: U+FFFD for a high surrogate that stayed alone, or nothing."""
        high, self._high = self._high, ""
        return join_surrogates(high)
