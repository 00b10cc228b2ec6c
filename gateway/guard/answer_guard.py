"""The guard of one answer, of any form: chunks of choices (`guard.chat`) or typed events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

from gateway.guard.channels import ChannelCounts
from gateway.guard.metadata import Metadata
from gateway.wire.json import Json


class Assembler(Protocol):
    """Events that came out of a guard, added up to the whole answer."""

    def add(self, event: Json) -> None: ...
    def answer(self) -> Json: ...


class AnswerGuard(ABC):
    """Events, or a whole answer, in; the same with every text censored out. What goes in is used up.

    `known` are labels that the client or the operator wrote (the model's names): they are not scanned. Methods raise
    `InvalidAnswer` when the answer must not continue.
    """

    def __init__(self, counts: ChannelCounts, known: tuple[str, ...]) -> None:
        self.counts = counts
        self.metadata = Metadata(counts, known)
        self.usage: tuple[int, int] | None = None  # tokens of the prompt and of the answer, as the upstream counted
        self.reasons: list[str] = []  # why each choice ended, in the API's words

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Has the answer ended by a block? Then nothing more is wanted of the upstream."""

    @abstractmethod
    def chunk(self, received: Json) -> list[Json]:
        """The events to send for one that was received."""

    @abstractmethod
    def end(self) -> list[Json]:
        """The end of the stream, with or without an error: release held text that is not a match (semantics rule 7)."""

    @abstractmethod
    def abandon(self) -> None:
        """The answer ends here and nothing held comes out: the client left, or the guard itself failed."""

    @abstractmethod
    def completion(self, received: Json) -> Json:
        """A whole answer, censored."""

    @abstractmethod
    def as_stream(self, received: Json) -> Iterator[list[Json]]:
        """A whole answer as the events of a stream."""

    @abstractmethod
    def assembler(self) -> Assembler:
        """For a stream of this guard's events that becomes a whole answer."""

    def stray(self, received: object) -> object | None:
        """The part that may be shown of an event that is not an object."""
        return self.metadata.stray(received)

    def error(self, received: Json) -> Json:
        """An upstream's error in OpenAI's shape, its texts scanned; one that blocks is replaced whole."""
        return self.metadata.error(received)
