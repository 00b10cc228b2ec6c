"""The most frequent chunk of a chat's stream: one choice, and in its delta only content.

Typed, because a typed value is parsed, compared and written in half the time of a dictionary. Whatever is not exactly
of this shape is left to the general reader, so that no field can slip through.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

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

    def probed(self, probe: str) -> TypedChunk:
        """With this in the place of everything that may change."""
        choice, usage, figure = self.choices[0], self.usage, int(probe)
        if isinstance(usage, _TypedUsage):
            usage = replace(usage, **{name: figure for name in _FIGURES if type(getattr(usage, name, None)) is int})
        return replace(
            self,
            created=figure,
            choices=(replace(choice, delta=_TypedDelta(content=probe)),),
            usage=usage,
            obfuscation=UNSET if self.obfuscation is UNSET else probe,
        )


encode = msgspec.json.Encoder().encode

# What stands in a place: the content or the padding without their quotes, or a figure.
CONTENT, PADDING, FIGURE = b"cpf"
_FIGURES = ("created", "prompt_tokens", "completion_tokens", "total_tokens", "reasoning_tokens")
PLACES = {
    CONTENT: re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*'),
    PADDING: re.compile(rb"[0-9A-Za-z]*"),
    FIGURE: re.compile(rb"0|[1-9][0-9]{0,10}"),
}


_PROBE = b"7654321"  # may stand in every place


class ChunkTemplate:
    """Events that equal one seen before, byte for byte, but for the content, its padding and figures: most of a stream.

    JSON knows no context: what stands in the place of one string can only be another value, so the rest need not be
    parsed again, and the same holds for numbers. `of` makes sure that these are the places meant.

    An event has `around[0]`, a place of kind `kinds[0]`, `around[1]` and so on; what is shown of it has `shown[0]`,
    what stands in the place `order[0]` of the event, and so on. `bare` and `bare_order` are the same for an event whose
    content is held; empty where nothing is sent for it. `counted`: the places of the prompt's and the answer's tokens.
    """

    __slots__ = ("around", "bare", "bare_order", "counted", "index", "kinds", "order", "shown")

    def __init__(self, chunk: TypedChunk, around: list[bytes], names: list[str]) -> None:
        """`chunk` is used up."""
        self.index = chunk.choices[0].index
        self.around, self.kinds = tuple(around), bytes(map(_kind_of, names))
        counts = isinstance(chunk.usage, _TypedUsage)
        self.counted = (names.index("prompt_tokens"), names.index("completion_tokens")) if counts else None
        chunk.drop()
        self.shown, self.order = _ordered(encode(chunk), names)
        chunk.choices = ()  # type: ignore[assignment]
        self.bare, self.bare_order = _ordered(encode(chunk), names) if counts else ((), b"")

    @classmethod
    def of(cls, data: bytes, chunk: TypedChunk) -> ChunkTemplate | None:
        """The template of an event and of the chunk read from it; None if it makes none."""
        around, names = _places(data)
        if len(names) > len(set(names)) or _PROBE in data:
            return None
        if read_typed(_PROBE.join(around)) != chunk.probed(_PROBE.decode()):
            return None
        return cls(replace(chunk, choices=(replace(chunk.choices[0]),)), around, names)

    def read(self, data: bytes, at: int = 0) -> tuple[list[bytes], int] | None:
        """What stands in the places of an event's data that begins at `at`, and where it ends; None if it differs in
        anything else. The content may not be JSON's spelling of a string."""
        values = []
        for around, kind in zip(self.around, self.kinds, strict=False):
            found = PLACES[kind].match(data, at + len(around)) if data.startswith(around, at) else None
            if found is None:
                return None
            values.append(found[0])
            at = found.end()
        return (values, at + len(self.around[-1])) if data.startswith(self.around[-1], at) else None

    @property
    def size(self) -> int:
        """Bytes of an event that are always there."""
        return sum(map(len, self.around))


def _places(data: bytes) -> tuple[list[bytes], list[str]]:
    """The bytes around what may change in an event, and the names of that, in order."""
    around, names, at = [], [], 0
    for found in _PLACE.finditer(data):
        assert found.lastindex is not None
        around.append(data[at : found.start(found.lastindex)])
        names.append(found[found.lastindex - 1].decode())
        at = found.end(found.lastindex)
    return [*around, data[at:]], names


def _ordered(data: bytes, names: list[str]) -> tuple[tuple[bytes, ...], bytes]:
    """The bytes around the places of what is shown, and which of the event's each is."""
    around, shown = _places(data)
    return tuple(around), bytes(map(names.index, shown))


def _kind_of(name: str) -> int:
    return CONTENT if name == "content" else PADDING if name == "obfuscation" else FIGURE


_PLACE = re.compile(
    rb'"(content|obfuscation)":[ \t\r\n]*"(%b)(?=")|"(%b)":[ \t\r\n]*(%b)(?![0-9.eE])'
    % (PLACES[CONTENT].pattern, "|".join(_FIGURES).encode(), PLACES[FIGURE].pattern)
)
decode_string = msgspec.json.Decoder(str).decode
# The chunk in an event's data, None if it is any other.
read_typed: Callable[[bytes], TypedChunk | None] = reader(TypedChunk)
