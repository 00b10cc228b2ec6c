"""The most frequent chunk of a chat's stream: one choice, and in its delta only content.

Typed, because a typed value is parsed, compared and written in half the time of a dictionary. Whatever is not exactly
of this shape is left to the general reader, so that no field can slip through.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET, UnsetType


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


_decode = msgspec.json.Decoder(TypedChunk).decode
encode = msgspec.json.Encoder().encode


class ChunkTemplate:
    """Events that equal one seen before, byte for byte, but for the content and its padding: most of a stream.

    JSON knows no context: what stands in the place of one string can only be another value, so the rest need not be
    parsed again. `of` makes sure that it is the content's place.
    """

    __slots__ = ("_after", "_before", "_between", "_shown_after", "_shown_before", "_size", "index")

    def __init__(self, chunk: TypedChunk, before: bytes, between: bytes, after: bytes) -> None:
        self.index = chunk.choices[0].index
        self._before, self._between, self._after = before, between, after  # `between` the content and its padding
        self._size = len(before) + len(between) + len(after)
        chunk.obfuscation = UNSET
        # A quote within a label would stand behind a backslash, so this is found once.
        self._shown_before, _, rest = chunk.show("").partition(_EMPTY_CONTENT)
        self._shown_after = b"}" + rest

    @classmethod
    def of(cls, data: bytes, chunk: TypedChunk) -> ChunkTemplate | None:
        """The template of an event and of the chunk read from it, which shows no padding; None if it makes none."""
        before, key, rest = data.partition(_CONTENT_KEY)
        value = _STRING.match(rest)
        if not key or value is None:
            return None
        before, between, after = before + key, b"", rest[value.end() :]
        padded = chunk.obfuscation is not UNSET
        if padded:
            between, key, rest = after.rpartition(_PADDING_KEY)
            value = _STRING.match(rest)
            if not key or value is None:
                return None
            begin = rest.index(b'"') + 1
            between, after = between + key + rest[:begin], rest[value.end() - 1 :]
        for probe in ("a", "b"):
            other = read_typed(before + encode(probe) + between + probe.encode() * padded + after)
            if other is None or other.choices[0].index != chunk.choices[0].index or not other.has_labels_of(chunk):
                return None
            if other.created != chunk.created or other.choices[0].delta.content != probe:
                return None
            if other.obfuscation != (probe if padded else UNSET):
                return None
        return cls(chunk, before, between, after)

    def read(self, data: bytes) -> str | None:
        """The content in an event's data, None if it differs in anything else."""
        if not (len(data) > self._size and data.startswith(self._before) and data.endswith(self._after)):
            return None
        end = len(data) - len(self._after)
        if self._between:
            # Nothing in the padding ends a string, so the last place is the one behind the content.
            at = data.rfind(self._between, len(self._before), end)
            padding = data[at + len(self._between) : end]
            if at < 0 or (padding and not padding.isalnum()):
                return None
            end = at
        try:
            return _decode_string(data[len(self._before) : end])
        except (msgspec.DecodeError, UnicodeError):
            return None

    def show(self, content: str) -> bytes:
        """The event's data with this content."""
        return self._shown_before + encode(content) + self._shown_after


_CONTENT_KEY = b'"content":'
_PADDING_KEY = b'"obfuscation":'
_EMPTY_CONTENT = b'""}'
_STRING = re.compile(rb'[ \t\r\n]*"(?:[^"\\]|\\.)*"')
_decode_string = msgspec.json.Decoder(str).decode


def read_typed(data: bytes) -> TypedChunk | None:
    """The chunk in an event's data, None if it is any other."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
