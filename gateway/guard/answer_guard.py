"""What guards one answer, whatever its form: chunks of choices (`guard.chat`) or typed events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gateway.guard.channels import ChannelCounts
from gateway.guard.metadata import Metadata
from gateway.wire.json import Json


class Assembler(Protocol):
    """Events that came out of a guard, added up to the whole answer."""

    def add(self, event: Json) -> None: ...
    def answer(self) -> Json: ...


class AnswerGuard(Protocol):
    """Events, or a whole answer, in; the same with every text censored out. What goes in is used up.

    `usage` is the tokens of prompt and answer, as the upstream counted them, `reasons` why each choice ended. Methods
    raise `InvalidAnswer` when the answer must not go on.
    """

    counts: ChannelCounts
    metadata: Metadata
    usage: tuple[int, int] | None
    reasons: list[str]

    @property
    def finished(self) -> bool:
        """Has the answer ended by a block? Then nothing more is wanted of the upstream."""

    def chunk(self, received: Json) -> list[Json]:
        """The events to send for one that was received."""

    def end(self) -> list[Json]:
        """The stream is over, well or badly: what is held and no match comes out (semantics rule 7)."""

    def abandon(self) -> None:
        """The answer ends here and nothing held comes out: the client left, or the guard itself failed."""

    def completion(self, received: Json) -> Json:
        """A whole answer, censored."""

    def as_stream(self, received: Json) -> Iterator[list[Json]]:
        """A whole answer as the events of a stream."""

    def assembler(self) -> Assembler:
        """For a stream of this guard's events that becomes a whole answer."""

    def stray(self, received: object) -> object | None:
        """An event that is no object: what may be shown of it."""

    def error(self, received: Json) -> Json:
        """An upstream's error in OpenAI's shape, its texts scanned; one that blocks is replaced whole."""
