"""JSON in and out: as strict as the grammar, as forgiving as the most forgiving real client.

msgspec does the work. It refuses two things that real upstreams send and real clients read: a lone surrogate (half of
an emoji in one delta, the other half in the next) and bytes that are not UTF-8. Those, and a byte order mark, take the
slow path through the standard library, which forgives nothing else.

A decoder written in C keeps the interpreter's lock, and with it the event loop, until it is done. What bounds its time
and memory is not the length of a text but what is in it: how many values, and how long its integers are, because
reading one takes quadratic time. Both are counted before a long text is decoded.
"""

from __future__ import annotations

import codecs
import gc
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Json = dict[str, Any]  # an object, as `decode` returns it

_BOM = "\ufeff"

# Values in one text: items of lists, members of objects twice, empty objects and lists likewise. So many are decoded in
# less than 20 ms, into at most some 20 MB.
MAX_VALUES = 100_000
# Where floats are among them (log probabilities, vectors) the decoder gives the lock away at each. Such values are
# bounded for the memory alone that they take, some 60 MB. One float in so many values is enough.
MAX_ALL_VALUES = 500_000
VALUES_A_FLOAT = 16
# Blocks of `LONG_RUN` digits within runs of digits in one text; 1,000 of them are read in less than 10 ms.
MAX_LONG_RUNS = 1_000
LONG_RUN = 300  # digits
UNCOUNTED = 32 * 1024  # bytes; a text that is no longer cannot do harm, whatever is in it
_SLICE = 64 * 1024  # bytes that are looked at, or made characters, before another thread may run

_ANY_DIGIT = bytes(ord("0") if ord("0") <= code <= ord("9") else code for code in range(256))
_LONG = b"0" * LONG_RUN
_fast_encode = msgspec.json.Encoder().encode
_slow_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class JSONError(ValueError):
    """Text that is no JSON, or a value that JSON cannot hold. The message never quotes either."""


def _refuse_constant(name: str) -> float:
    raise JSONError("NaN and Infinity are not JSON")


def _finite(literal: str) -> float:
    number = float(literal)
    if math.isfinite(number):
        return number
    raise JSONError("a number is out of range")


# Left to itself msgspec reads a float with a large exponent in 20 us, this way in 1; and a hook in Python is where a
# thread gives the interpreter's lock away.
_fast_decode = msgspec.json.Decoder(float_hook=_finite).decode
_slow_decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).decode


def decode(data: bytes | str) -> object:
    """The value that `data` spells. Bytes that are not UTF-8 are read as U+FFFD; strings may hold lone surrogates.

    Raises `JSONError` for anything else that is not JSON, for NaN, Infinity and floats past the double's range, for
    integers past the interpreter's digit limit, for nesting past its recursion limit, and for more than `MAX_VALUES`
    values or `MAX_LONG_RUNS` long runs of digits. The last two are looked for in texts of more than `UNCOUNTED` bytes.
    """
    try:
        return _fast_decode(data) if len(data) <= UNCOUNTED else _decode_long(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        text = data if isinstance(data, str) else _characters(data)
    return _decode_slowly(text.removeprefix(_BOM))


def _decode_long(data: bytes | str) -> object:
    _refuse_costly(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    # The collector would go through all that is being made, several times, and find nothing.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _fast_decode(data)
    finally:
        if collects:
            gc.enable()


def _refuse_costly(data: bytes) -> None:
    # What is within strings is counted too: for almost every text that is enough to see that it is harmless.
    if _values(data) + _names(data) <= MAX_VALUES and _digits(data).count(_LONG) <= MAX_LONG_RUNS:
        return
    values = all_values = long_runs = 0
    cut = b""  # the digits at the end of a part that are no block yet
    for part in _outside_strings(data):
        found = _values(part)
        all_values += found
        if part.count(b".") * VALUES_A_FLOAT < found:
            values += found + _names(part)
        if values > MAX_VALUES or all_values > MAX_ALL_VALUES:
            raise JSONError(f"JSON of more than {MAX_VALUES if values > MAX_VALUES else MAX_ALL_VALUES} values")
        digits = cut + _digits(part)
        long_runs += digits.count(_LONG)
        if long_runs > MAX_LONG_RUNS:
            raise JSONError("JSON with too many long numbers")
        cut = b"0" * ((len(digits) - len(digits.rstrip(b"0"))) % LONG_RUN)


def values_in(text: str) -> int:
    """How many values JSON text has at most, as `MAX_VALUES` counts them; what is within strings may count up to it."""
    data = text.encode("utf-8", "surrogatepass")
    most = _values(data)
    return most if most <= MAX_VALUES else sum(map(_values, _outside_strings(data)))


def _values(data: bytes) -> int:
    """How many values there can be at most: all but the first in an object or list follow a comma."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _names(data: bytes) -> int:
    """How many names members have. A new one costs as much again as its value, or more, and nothing says which are."""
    return data.count(b":")


def _digits(data: bytes) -> bytes:
    return data.translate(_ANY_DIGIT)


def _outside_strings(data: bytes) -> Iterator[bytes]:
    """A text without its strings, in parts. Between two of them another thread may run."""
    at = within = 0
    while at < len(data):
        part = data[at : at + _SLICE]
        if (len(part) - len(part.rstrip(b"\\"))) % 2:  # no escape is cut in two
            part = data[at : at + _SLICE + 1]
        at += len(part)
        pieces = part.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(pieces[within::2])
        within ^= len(pieces) & 1 ^ 1


def _characters(data: bytes) -> str:
    """The text, with U+FFFD for invalid UTF-8. It may take 10 ns a byte, so it goes in slices."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    slices = [decoder.decode(data[at : at + _SLICE]) for at in range(0, len(data), _SLICE)]
    return "".join([*slices, decoder.decode(b"", final=True)])


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


def reader(kind: Any) -> Callable[[bytes], Any]:
    """Reads JSON text that spells a value of this msgspec type; None for any other, and for what is no JSON."""
    decode = msgspec.json.Decoder(kind).decode

    def read(data: bytes) -> Any:
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None

    return read
