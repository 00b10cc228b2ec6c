"""The most frequent events of answers that are typed events: those that add to a text.

Typed for the same reason, and as strictly, as the chunks of `wire.chunk_template`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from gateway.wire import sse
from gateway.wire.event_template import PROBE, EventTemplate
from gateway.wire.json import reader
from gateway.wire.message import Path, is_figure

_encode = msgspec.json.Encoder().encode


class TextId(NamedTuple):
    """What all events that add to one text have in common: their type, the text's place, and the id of the item that it
    is in; None where events have none."""

    kind: str
    place: Path
    item_id: str | None


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

    @property
    def has_figures(self) -> bool:
        """Is there no number to be scanned?"""
        return is_figure(self.sequence_number)

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
    def has_figures(self) -> bool:
        return True

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


def text_id(delta: TextDelta) -> TextId:
    return TextId(delta.kind, delta.place, delta.item_id)


def template_of(data: bytes, read: Callable[[bytes], TextDelta | None]) -> EventTemplate | None:
    """The template of an event's data; None if it makes none, or has another form."""
    delta = read(data)
    if delta is None:
        return None
    probed, line = _probed(delta), b"event: %b\n" % delta.kind.encode()
    return EventTemplate.of(data, read, probed, shown=sse.encode(delta.shown("", 0), delta.kind), line=line)


def _probed(delta: TextDelta) -> TextDelta:
    """With the probe in the place of everything that may change."""
    if isinstance(delta, _BlockDelta):
        return replace(delta, delta=replace(delta.delta, text=PROBE))
    padding = UNSET if delta.obfuscation is UNSET else PROBE
    return replace(delta, text=PROBE, sequence_number=int(PROBE), obfuscation=padding)
