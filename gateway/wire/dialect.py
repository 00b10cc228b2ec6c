"""The endpoints' dialects, as data. The guard speaks chat; what is said in another dialect is translated where it comes
in and where it goes out, and nowhere between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.wire import chat, completions
from gateway.wire.chat import Json


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """`path` is the endpoint's, below an upstream's base URL. Of a request's fields, `apart` are those that are not
    read as all others are, and `refused` those that lead past the censor, each with the reason. `as_chunk` and
    `as_completion` put an event and a whole answer into chat's words and use it up; `spelled` puts either back."""

    path: str
    apart: frozenset[str]
    refused: Mapping[str, str]
    as_chunk: Callable[[Json], Json]
    as_completion: Callable[[Json], Json]
    spelled: Callable[[Json], Json]


def _as_it_is(said: Json) -> Json:
    return said


CHAT = Dialect(
    path="/chat/completions",
    apart=frozenset({"model", "messages", "prediction"}),
    refused=chat.REFUSED_IN_REQUESTS,
    as_chunk=_as_it_is,
    as_completion=_as_it_is,
    spelled=_as_it_is,
)
COMPLETIONS = Dialect(
    path="/completions",
    apart=frozenset({"model", "prompt"}),
    refused={**chat.REFUSED_IN_REQUESTS, **completions.REFUSED_IN_REQUESTS},
    as_chunk=completions.as_chunk,
    as_completion=completions.as_completion,
    spelled=completions.spelled,
)
