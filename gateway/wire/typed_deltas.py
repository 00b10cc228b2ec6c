"""The most frequent event of a stream of typed events: a piece of its content, and nothing else that could vary.

Typed, as `wire.chunk_template` types chat's: whatever is not exactly of this shape is left to the general reader.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from gateway.wire.message import Path


class TypedDelta(Protocol):
    """`item_id` is that of the item it is about, if events of the dialect have one."""

    @property
    def place(self) -> Path: ...
    @property
    def text(self) -> str: ...
    @property
    def item_id(self) -> str | None: ...
    def show(self, text: str, number: int) -> bytes:
        """The event's data with this text and number."""


class _ResponseDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["response.output_text.delta"]
    item_id: str
    output_index: int
    content_index: int
    delta: str
    sequence_number: int
    logprobs: tuple[()] | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET

    @property
    def place(self) -> Path:
        return ("output", self.output_index, "content", self.content_index, "text")

    @property
    def text(self) -> str:
        return self.delta

    def show(self, text: str, number: int) -> bytes:
        self.delta, self.sequence_number, self.obfuscation = text, number, UNSET
        return _encode(self)


class _TextDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["text_delta"]
    text: str


class _MessageDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["content_block_delta"]
    index: int
    delta: _TextDelta

    @property
    def item_id(self) -> None:
        return None

    @property
    def place(self) -> Path:
        return ("content", self.index, "text")

    @property
    def text(self) -> str:
        return self.delta.text

    def show(self, text: str, number: int) -> bytes:
        self.delta.text = text
        return _encode(self)


_encode = msgspec.json.Encoder().encode
_decode_response = msgspec.json.Decoder(_ResponseDelta).decode
_decode_message = msgspec.json.Decoder(_MessageDelta).decode


def read_response_delta(data: bytes) -> TypedDelta | None:
    """The piece of output text in an event's data, None if it is any other event."""
    try:
        return _decode_response(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def read_message_delta(data: bytes) -> TypedDelta | None:
    """The same for a piece of a message's text."""
    try:
        return _decode_message(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
