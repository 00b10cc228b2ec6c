"""The most frequent events of answers that are typed events: those that add to a text.

Typed for the same reason, and as strictly, as the chunks of `wire.chunk_template`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from gateway.wire.json import reader
from gateway.wire.message import Path

_encode = msgspec.json.Encoder().encode


# -- /responses --------------------------------------------------------------------------------------------------------


class _ResponseDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False, tag_field="type", kw_only=True):
    sequence_number: int
    item_id: str
    output_index: int
    text: str = msgspec.field(name="delta")
    obfuscation: str | UnsetType = UNSET

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    def shown(self, text: str, number: int | None) -> bytes:
        """The event's data with this text and this `sequence_number`."""
        self.text, self.obfuscation = text, UNSET
        if number is not None:
            self.sequence_number = number
        return _encode(self)


class _Reasoning(_ResponseDelta, tag="response.reasoning_text.delta"):
    content_index: int

    @property
    def place(self) -> Path:
        return ("output", self.output_index, "content", self.content_index, "text")


class _OutputText(_Reasoning, tag="response.output_text.delta"):
    logprobs: tuple[()] | UnsetType = UNSET


class _Summary(_ResponseDelta, tag="response.reasoning_summary_text.delta"):
    summary_index: int

    @property
    def place(self) -> Path:
        return ("output", self.output_index, "summary", self.summary_index, "text")


class _Arguments(_ResponseDelta, tag="response.function_call_arguments.delta"):
    @property
    def place(self) -> Path:
        return ("output", self.output_index, "arguments")


read_response_delta: Callable[[bytes], TextDelta | None] = reader(_OutputText | _Reasoning | _Summary | _Arguments)


# -- /messages ---------------------------------------------------------------------------------------------------------


class _Text(msgspec.Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="text_delta"):
    text: str


class _Thinking(msgspec.Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="thinking_delta"):
    text: str = msgspec.field(name="thinking")


class _Input(msgspec.Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="input_json_delta"):
    text: str = msgspec.field(name="partial_json")


_FIELDS = {_Text: "text", _Thinking: "thinking", _Input: "input"}


class _BlockDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="content_block_delta"):
    index: int
    delta: _Text | _Thinking | _Input

    @property
    def kind(self) -> str:
        return "content_block_delta"

    @property
    def item_id(self) -> None:
        return None

    @property
    def text(self) -> str:
        return self.delta.text

    @property
    def place(self) -> Path:
        return ("content", self.index, _FIELDS[type(self.delta)])

    def shown(self, text: str, number: int | None) -> bytes:
        self.delta.text = text
        return _encode(self)


read_block_delta: Callable[[bytes], TextDelta | None] = reader(_BlockDelta)
# An event of type `kind` that adds `text` to the text at its place. `item_id` is None where events have none.
TextDelta: TypeAlias = _OutputText | _Reasoning | _Summary | _Arguments | _BlockDelta
