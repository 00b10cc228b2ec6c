"""The dialect of `/embeddings`: texts go up, vectors come down.

No model writes these answers. Vectors are set aside before the guard reads an answer, as objects that it hands on as
they are; all that stands around them is scanned as in any other answer. What is no vector is not set aside.
"""

from __future__ import annotations

import binascii
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from gateway.wire import chat
from gateway.wire.completions import REFUSED_IN_REQUESTS
from gateway.wire.dialect import BadRequest, ContentPlace, Dialect, RequestTexts
from gateway.wire.json import Json
from gateway.wire.message import is_character, text_slots

ENCODINGS = ("float", "base64")
MAX_COMPONENT = 1e6  # of a vector in base64, which has normally a length of 1; text read as floats has greater ones
_FLOAT32 = 4  # bytes
_REST = "embedding_fields"  # what an answer's entries have besides, while the guard reads it


class VectorEntry(NamedTuple):
    """An entry of `data` without its unknown fields. `vector`: a list of numbers or base64, None for what is none."""

    number: int | None
    vector: Any


class Vectors:
    """The entries of an answer: no JSON, and so nothing that the guard looks into."""

    __slots__ = ("entries",)

    def __init__(self, entries: list[VectorEntry]) -> None:
        self.entries = entries


# -- requests ----------------------------------------------------------------------------------------------------------


def count_prompts(body: Json) -> int:
    """Always one answer. Raises `BadRequest` for what no upstream could take, and for what would not be vectors."""
    given: Any = body.get("input")
    types = set(map(type, given)) if isinstance(given, list) else set()
    of_token_ids = types == {int} or (types == {list} and set(map(type, itertools.chain.from_iterable(given))) == {int})
    if not (isinstance(given, str) or types == {str} or of_token_ids):
        raise BadRequest("`input` must be a string, a non-empty list of strings, or token ids.", "input")
    if body.get("encoding_format") not in (None, *ENCODINGS):
        raise BadRequest(f"`encoding_format` must be {' or '.join(ENCODINGS)}.", "encoding_format")
    if body.get("stream"):
        raise BadRequest("`stream` is not accepted here: vectors are not streamed.", "stream")
    return 1


def prompt_texts(body: Json) -> Iterator[RequestTexts]:
    yield RequestTexts("input", text_slots(body, "input"))


# -- answers -----------------------------------------------------------------------------------------------------------


def answer_to_chat(answer: Json) -> Json:
    """An answer as the guard reads it: without choices, its vectors set aside."""
    usage = answer.get("usage")
    if isinstance(usage, dict):
        usage.setdefault("completion_tokens", 0)
    data = answer.get("data")
    if isinstance(data, list) and all(isinstance(entry, dict) for entry in data):
        answer["data"] = Vectors([_set_aside(entry) for entry in data])
        if any(data):
            answer[_REST] = data
    return answer


def _set_aside(entry: Json) -> VectorEntry:
    """Remove the vector from an entry."""
    if entry.get("object") == "embedding":
        del entry["object"]
    number = entry.pop("index") if type(entry.get("index")) is int else None
    vector = entry.get("embedding")
    if _is_vector(vector) or _is_encoded_vector(vector):
        return VectorEntry(number, entry.pop("embedding"))
    return VectorEntry(number, None)


def _is_vector(value: Any) -> bool:
    """Is this a list of numbers most of which cannot be characters or tokens?"""
    if not isinstance(value, list) or not set(map(type, value)) <= {int, float}:
        return False
    characters = [number for number in value if number and is_character(number)]
    return 2 * len(characters) <= len(value)


def _is_encoded_vector(value: Any) -> bool:
    """Base64 of floats in 32 bits, little-endian."""
    try:
        data = binascii.a2b_base64(value, strict_mode=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return False
    if not data or len(data) % _FLOAT32:
        return False
    floats = memoryview(data).cast("f")
    # Neither minimum nor maximum need show that there is a NaN.
    return min(floats) >= -MAX_COMPONENT and max(floats) <= MAX_COMPONENT and math.isfinite(sum(floats))


def to_wire(answer: Json) -> Json:
    """A guarded answer as clients read it."""
    usage, vectors, rest = answer.get("usage"), answer.get("data"), answer.pop(_REST, None)
    if isinstance(usage, dict) and not usage.get("completion_tokens"):
        usage.pop("completion_tokens", None)
    if not answer["choices"]:
        del answer["choices"]
    if isinstance(vectors, Vectors):
        others = rest if isinstance(rest, list) else []
        pairs = itertools.zip_longest(vectors.entries, others)
        answer["data"] = [_entry(entry, other) for entry, other in pairs if entry is not None]
    return answer


def _entry(entry: VectorEntry, rest: Any) -> Json:
    index = {} if entry.number is None else {"index": entry.number}
    vector = {} if entry.vector is None else {"embedding": entry.vector}
    return {"object": "embedding", **index, **(rest if isinstance(rest, dict) else {}), **vector}


EMBEDDINGS = Dialect(
    path="/embeddings",
    prompt_fields=frozenset({"model", "input", "encoding_format"}),
    prompt_texts=prompt_texts,
    count_prompts=count_prompts,
    refused={**chat.REFUSED_IN_REQUESTS, **REFUSED_IN_REQUESTS},
    dropped=chat.DROPPED_IN_REQUESTS,
    text_only=("input",),
    content=ContentPlace("text"),
    answer_to_chat=answer_to_chat,
    to_wire=to_wire,
    is_end=lambda event: True,  # no answer is a stream
    generates=False,
    expansion=16,
)
