"""The most frequent chunk of a chat's stream: one choice, and in its delta only content.

Typed, because a typed value is parsed, compared and written in half the time of a dictionary. Whatever is not exactly
of this shape is left to the general reader, so that no field can slip through.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from gateway.wire import sse
from gateway.wire.event_template import PROBE, EventTemplate
from gateway.wire.json import Json, reader
from gateway.wire.message import is_figure


class _TypedDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Of the chunks between the first and the last: nothing but content."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    refusal: UnsetType | None = UNSET


NOTHING = _TypedDelta()


class _TypedChoice(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    index: int
    delta: _TypedDelta
    logprobs: UnsetType | None = UNSET
    finish_reason: str | UnsetType | None = UNSET
    token_ids: UnsetType | None = UNSET  # vLLM's


class _TypedUsage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Counted up from chunk to chunk, where the client asked vLLM for `continuous_usage_stats`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    reasoning_tokens: int | UnsetType = UNSET
    prompt_tokens_details: UnsetType | None = UNSET


class TypedChunk(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Mutable, so that the guard can put the censored content in its place."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[_TypedChoice]
    service_tier: str | UnsetType | None = UNSET
    system_fingerprint: str | UnsetType | None = UNSET
    usage: _TypedUsage | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET

    def labels(self) -> dict[str, str]:
        """The texts around the content, by their names."""
        labels = {"id": self.id, "object": self.object, "model": self.model}
        if isinstance(self.system_fingerprint, str):
            labels["system_fingerprint"] = self.system_fingerprint
        if isinstance(self.service_tier, str):
            labels["service_tier"] = self.service_tier
        return labels

    def head(self) -> Json:
        """What the next chunk repeats: `HEAD_FIELDS`, in their order."""
        head: Json = {"id": self.id, "object": self.object, "created": self.created, "model": self.model}
        if self.system_fingerprint is not UNSET:
            head["system_fingerprint"] = self.system_fingerprint
        if self.service_tier is not UNSET:
            head["service_tier"] = self.service_tier
        return head

    @property
    def has_figures(self) -> bool:
        """Is there no number to be scanned or counted?"""
        return is_figure(self.created) and not self.usage

    def has_labels_of(self, other: TypedChunk) -> bool:
        return (
            self.id == other.id
            and self.model == other.model
            and self.object == other.object
            and self.system_fingerprint == other.system_fingerprint
            and self.service_tier == other.service_tier
        )

    @property
    def has_content_only(self) -> bool:
        choice, delta = self.choices[0], self.choices[0].delta
        return delta.content is not UNSET and delta.role is delta.refusal is UNSET and not choice.finish_reason

    def drop(self) -> None:
        """Take out what enforcing policies do."""
        self.obfuscation = self.choices[0].token_ids = UNSET

    def show(self, content: str) -> bytes:
        """The event's data with this content."""
        self.choices[0].delta.content = content
        return encode(self)

    def template(self, data: bytes) -> EventTemplate | None:
        """The template of the event's data that this has been read from; None if it makes none."""
        shown = replace(self, choices=(replace(self.choices[0]),))
        shown.drop()
        event, bare = sse.encode(encode(shown)), b""
        if isinstance(self.usage, _TypedUsage):
            shown.choices = ()  # type: ignore[assignment]
            bare = sse.encode(encode(shown))
        return EventTemplate.of(data, read_typed, self._probed(), shown=event, bare=bare)

    def _probed(self) -> TypedChunk:
        """With the probe in the place of everything that may change."""
        choice, usage, figure = self.choices[0], self.usage, int(PROBE)
        if isinstance(usage, _TypedUsage):
            figures = [name for name in usage.__struct_fields__ if type(getattr(usage, name)) is int]
            usage = replace(usage, **dict.fromkeys(figures, figure))
        return replace(
            self,
            created=figure,
            choices=(replace(choice, delta=_TypedDelta(content=PROBE)),),
            usage=usage,
            obfuscation=UNSET if self.obfuscation is UNSET else PROBE,
        )


encode = msgspec.json.Encoder().encode

decode_string = msgspec.json.Decoder(str).decode
# The chunk in an event's data, None if it is any other.
read_typed: Callable[[bytes], TypedChunk | None] = reader(TypedChunk)
