"""The most frequent chunk of a chat's stream: one choice, and in its delta only content.

Typed, because a typed value is parsed, compared and written in half the time of a dictionary. Whatever is not exactly
of this shape is left to the general reader, so that no field can slip through.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from msgspec import UNSET, UnsetType

from gateway.wire.json import reader


class _TypedDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str


class _TypedChoice(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    index: int
    delta: _TypedDelta
    logprobs: UnsetType | None = UNSET
    finish_reason: UnsetType | None = UNSET


class TypedChunk(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Mutable, so that the guard can put the censored content in its place."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[_TypedChoice]
    service_tier: str | UnsetType | None = UNSET
    system_fingerprint: str | UnsetType | None = UNSET
    usage: UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET

    def labels(self) -> tuple[str, ...]:
        """The texts around the content."""
        labels = (self.id, self.object, self.model, self.service_tier, self.system_fingerprint)
        return tuple(label for label in labels if isinstance(label, str))

    def has_labels_of(self, other: TypedChunk) -> bool:
        return (
            self.id == other.id
            and self.model == other.model
            and self.object == other.object
            and self.system_fingerprint == other.system_fingerprint
            and self.service_tier == other.service_tier
        )

    def show(self, content: str) -> bytes:
        """The event's data with this content."""
        self.choices[0].delta.content = content
        return encode(self)


encode = msgspec.json.Encoder().encode


class ChunkTemplate:
    """Events that equal one seen before, byte for byte, but for the content and its padding: most of a stream.

    JSON knows no context: what stands in the place of one string can only be another value, so the rest need not be
    parsed again. `of` makes sure that it is the content's place.
    """

    __slots__ = ("after", "before", "between", "index", "shown_after", "shown_before")

    def __init__(self, chunk: TypedChunk, before: bytes, between: bytes, after: bytes) -> None:
        """`before` ends with the quote that opens the content; what follows the content begins with the one that closes
        it: that is `between`, up to the padding, if there is one, and `after` if there is none."""
        self.index = chunk.choices[0].index
        self.before, self.between, self.after = before, between, after
        chunk.obfuscation = UNSET
        # A quote within a label would stand behind a backslash, so this is found once.
        self.shown_before, _, rest = chunk.show("").partition(_EMPTY_CONTENT)
        self.shown_after = b"}" + rest

    @classmethod
    def of(cls, data: bytes, chunk: TypedChunk) -> ChunkTemplate | None:
        """The template of an event and of the chunk read from it, which shows no padding; None if it makes none."""
        content = _CONTENT.search(data)
        if content is None:
            return None
        before, between, after = data[: content.end(1)], b"", data[content.end() - 1 :]
        padded = chunk.obfuscation is not UNSET
        if padded:
            head, key, rest = after.rpartition(_PADDING_KEY)
            value = _STRING.match(rest)
            if not key or value is None:
                return None
            between, after = head + key + rest[: value.end(1)], rest[value.end() - 1 :]
        for probe in ("a", "b"):
            other = read_typed(before + probe.encode() + between + probe.encode() * padded + after)
            if other is None or other.choices[0].index != chunk.choices[0].index or not other.has_labels_of(chunk):
                return None
            if other.created != chunk.created or other.choices[0].delta.content != probe:
                return None
            if other.obfuscation != (probe if padded else UNSET):
                return None
        return cls(chunk, before, between, after)

    def read(self, data: bytes) -> str | None:
        """The content in an event's data, None if it differs in anything else."""
        begin, end = len(self.before), len(data) - len(self.after)
        if not (begin <= end and data.startswith(self.before) and data.endswith(self.after)):
            return None
        if self.between:
            # Nothing in the padding ends a string, so the last place is the one behind the content.
            at = data.rfind(self.between, begin, end)
            padding = data[at + len(self.between) : end]
            if at < 0 or (padding and not padding.isalnum()):
                return None
            end = at
        try:
            return decode_string(data[begin - 1 : end + 1])
        except (msgspec.DecodeError, UnicodeError):
            return None

    def show(self, content: str) -> bytes:
        """The event's data with this content."""
        return self.shown_before + encode(content) + self.shown_after


_PADDING_KEY = b'"obfuscation":'
_EMPTY_CONTENT = b'""}'
_STRING = re.compile(rb'([ \t\r\n]*")(?:[^"\\]|\\.)*"')
_CONTENT = re.compile(rb'("content":[ \t\r\n]*")(?:[^"\\]|\\.)*"')
decode_string = msgspec.json.Decoder(str).decode
# The chunk in an event's data, None if it is any other.
read_typed: Callable[[bytes], TypedChunk | None] = reader(TypedChunk)
