"""A request to each endpoint, and an upstream that answers all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.policy.servers import Endpoint
from tests.support import message_streams, response_streams
from tests.support.completions import completed, parts
from tests.support.embeddings import VECTOR, embedded
from tests.support.gateway import question
from tests.support.upstream import (
    MODEL,
    Call,
    Json,
    chunk,
    completion,
    event,
    events,
    plain,
    stream_head,
)

PROMPT = "Voldemort and 12MONKEYS?"
BODIES: dict[str, Json] = {
    "/v1/chat/completions": question(PROMPT),
    "/v1/completions": {"model": MODEL, "prompt": [PROMPT]},
    "/v1/responses": {"model": MODEL, "input": PROMPT},
    "/v1/messages": {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": PROMPT}]},
    "/v1/messages/count_tokens": {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}]},
    "/v1/embeddings": {"model": MODEL, "input": [PROMPT, "b"]},
    "/v1/moderations": {"input": [PROMPT, "b"]},
}
COUNT_TOKENS = "/v1/messages/count_tokens"
STREAMED = [path for path in BODIES if path not in ("/v1/embeddings", "/v1/moderations", COUNT_TOKENS)]
NATIVE: dict[str, Any] = {"upstream": {"endpoints": frozenset(Endpoint)}}
SPEAKS = pytest.mark.parametrize("settings", [{}, NATIVE], ids=["an upstream of chat", "an upstream of all"])


def answering(texts: tuple[str, ...], end: bytes = b"0\r\n\r\n") -> Callable[[Call], Any]:
    """An upstream that gives these texts in every dialect; `end` ends a stream."""

    async def play(call: Call) -> None:
        path, streams = call.request.target, call.body.get("stream")
        said = "".join(texts)
        if path.endswith("/embeddings"):
            await call.send(plain(embedded(VECTOR, VECTOR, note=said)))
        elif path == COUNT_TOKENS:
            await call.send(plain({"input_tokens": 3, "note": said}))
        elif path.endswith("/responses"):
            item = response_streams.message(*texts)
            sent = b"".join(map(event, response_streams.events(item)))
            await call.send(
                stream_head() + chunk(sent) + end if streams else plain(response_streams.response(item.done))
            )
        elif path.endswith("/messages"):
            sent = b"".join(map(event, message_streams.events(message_streams.text(*texts))))
            whole = plain(message_streams.message({"type": "text", "text": said}))
            await call.send(stream_head() + chunk(sent) + end if streams else whole)
        elif path.endswith("/chat/completions"):
            whole = plain(completion(said, reasoning_content=texts[0]))
            await call.send(stream_head() + chunk(events(*texts)) + end if streams else whole)
        else:
            await call.send(stream_head() + chunk(parts(*texts)) + end if streams else plain(completed(said)))

    return play
