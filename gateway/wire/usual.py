"""The usual chunk: one choice, nothing but content in its delta. Typed, because nearly all chunks are like this and a
typed value is parsed, compared and written in half the time of a dictionary.

Whatever is not exactly of this shape is not read here: the general reader takes it, and no field can slip through.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class Delta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str


class Choice(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    index: int
    delta: Delta
    logprobs: UnsetType | None = UNSET
    finish_reason: UnsetType | None = UNSET


class UsualChunk(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Mutable, so that the guard can put the censored content in its place."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[Choice]
    service_tier: str | UnsetType | None = UNSET
    system_fingerprint: str | UnsetType | None = UNSET
    usage: UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET

    def labels(self) -> tuple[str, ...]:
        """The texts around the content."""
        labels = (self.id, self.object, self.model, self.service_tier, self.system_fingerprint)
        return tuple(label for label in labels if isinstance(label, str))

    def has_labels_of(self, other: UsualChunk) -> bool:
        return (
            self.id == other.id
            and self.model == other.model
            and self.object == other.object
            and self.system_fingerprint == other.system_fingerprint
            and self.service_tier == other.service_tier
        )


_decode = msgspec.json.Decoder(UsualChunk).decode
encode = msgspec.json.Encoder().encode


def read(data: bytes) -> UsualChunk | None:
    """The chunk in an event's data, None if it is any other."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
