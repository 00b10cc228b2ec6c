"""JSON in and out: as strict as the grammar, as forgiving as the most forgiving real client.

msgspec does the work. It refuses two things that real upstreams send and real clients read: a lone surrogate (half of
an emoji in one delta, the other half in the next) and bytes that are not UTF-8. Those, and a byte order mark, take the
slow way through the standard library, which forgives nothing else.
"""

from __future__ import annotations

import json

import msgspec

_BOM = "\ufeff"

_fast_decode = msgspec.json.Decoder().decode
_fast_encode = msgspec.json.Encoder().encode
_slow_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class JSONError(ValueError):
    """Text that is no JSON, or a value that JSON cannot hold. The message never quotes either."""


def _refuse_constant(name: str) -> float:
    raise JSONError("NaN and Infinity are not JSON")


def _finite(literal: str) -> float:
    number = float(literal)
    if number in (float("inf"), float("-inf")):
        raise JSONError("a number is out of range")
    return number


_slow_decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).decode


def decode(data: bytes | str) -> object:
    """The value that `data` spells. Bytes that are not UTF-8 are read as U+FFFD; strings may hold lone surrogates.

    Raises `JSONError` for anything else that is not JSON, for NaN, Infinity and floats past the double's range, for
    integers past the interpreter's digit limit, and for nesting past its recursion limit.
    """
    try:
        return _fast_decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    return _decode_slowly(text.removeprefix(_BOM))


def _decode_slowly(text: str) -> object:
    # The error is raised outside the except blocks: as its context, json's own error would carry the whole text along.
    try:
        return _slow_decode(text)
    except json.JSONDecodeError as error:
        reason = f"not JSON at character {error.pos}"
    except JSONError as error:
        reason = f"not JSON: {error}"
    except RecursionError:
        reason = "JSON nested too deeply"
    except ValueError:
        reason = "JSON holds an integer with too many digits"
    raise JSONError(reason)


def encode(value: object) -> bytes:
    """Compact JSON. A string with a lone surrogate is written with escapes, which keeps it as it was.

    Raises `JSONError` for integers past the interpreter's digit limit and for nesting past its recursion limit,
    `TypeError` for what is no JSON value. A float that is not finite becomes `null` (`decode` returns none), or a
    `JSONError` where the value also holds a lone surrogate.
    """
    try:
        return _fast_encode(value)
    except (ValueError, OverflowError, RecursionError):
        return _encode_slowly(value)


def _encode_slowly(value: object) -> bytes:
    try:
        return _slow_encode(value).encode("ascii")
    except RecursionError:
        reason = "value nested too deeply for JSON"
    except ValueError:
        reason = "value holds a number that JSON cannot write"
    raise JSONError(reason)


def join_surrogates(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD; `text` itself if it has none."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")  # the test for a surrogate: on short text cheaper than a regular expression
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class SurrogateJoiner:
    """`join_surrogates` for a text that arrives in pieces: a pair may be cut between two of them."""

    __slots__ = ("_high",)

    def __init__(self) -> None:
        self._high = ""

    def feed(self, text: str) -> str:
        """What is certain of the text so far; at most one high surrogate waits for the next piece."""
        if self._high:
            text = self._high + text
            self._high = ""
        if "\ud800" <= text[-1:] <= "\udbff":
            self._high = text[-1]
            text = text[:-1]
        return join_surrogates(text)

    def finish(self) -> str:
        """The rest at the end of the text: U+FFFD for a high surrogate that stayed alone, or nothing."""
        high, self._high = self._high, ""
        return join_surrogates(high)
