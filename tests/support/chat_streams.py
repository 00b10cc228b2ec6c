"""Chat answers as streams of chunks, for what reads them."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st
from pydantic import TypeAdapter

from gateway.wire.chunks import ChunkAssembler
from gateway.wire.dialect import AnswerEncoder
from gateway.wire.sse import Decoder

Json = dict[str, Any]
HEAD = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "served"}
USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 7,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def chunk(delta: Json, reason: str | None = None, **rest: Any) -> Json:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": reason, **rest}]}


def usage_chunk() -> Json:
    return {**HEAD, "choices": [], "usage": USAGE}


def function(number: int, name: str | None = None, arguments: str = "") -> Json:
    """A delta for a call; with a `name` its first."""
    call: Json = {"index": number, "function": {"arguments": arguments}}
    if name is not None:
        call |= {"id": f"call_{number}", "type": "function"}
        call["function"]["name"] = name
    return {"tool_calls": [call]}


def assembled(chunks: list[Json]) -> Json:
    """The whole answer that a stream is."""
    assembler = ChunkAssembler()
    for each in chunks:
        assembler.add(copy.deepcopy(each))
    return assembler.answer()


_TEXT = st.text('ab é\n\u2028😀"\\', min_size=1, max_size=4)
_FIELDS = st.sampled_from(["content", "refusal", "reasoning_content"])
_ARGUMENTS = ['{"a": [1, "x"]}', "{}", '{"city": "Ulm \\u00e9"}']


@st.composite
def streams(draw: st.DrawFn, fields: st.SearchStrategy[str] = _FIELDS) -> list[Json]:
    """Texts of several channels and calls, in any order, each cut anywhere, several to a chunk; ended or not."""
    deltas = [{field: text} for field, text in draw(st.lists(st.tuples(fields, _TEXT), max_size=6))]
    calls: list[list[Json]] = []
    for number in range(draw(st.integers(0, 3))):
        arguments = draw(st.sampled_from(_ARGUMENTS))
        cut = draw(st.integers(0, len(arguments)))
        calls.append([function(number, "tool", arguments[:cut]), function(number, None, arguments[cut:])])
    for number in draw(st.permutations([number for number in range(len(calls)) for _ in range(2)])):
        deltas.insert(draw(st.integers(_after(deltas, number), len(deltas))), calls[number].pop(0))
    chunks = [chunk({"role": "assistant", "content": ""})] if draw(st.booleans()) else []
    chunks += [chunk(delta) for delta in deltas]
    if reason := draw(st.sampled_from(["stop", "length", "tool_calls", "content_filter", None])):
        chunks.append(chunk({}, reason))
    if draw(st.booleans()):
        chunks.append(usage_chunk())
    return chunks


def _after(deltas: list[Json], number: int) -> int:
    """Behind the last delta of the call."""
    places = [
        at + 1 for at, delta in enumerate(deltas) for call in delta.get("tool_calls", ()) if call["index"] == number
    ]
    return max(places, default=0)


def encoded(encoder: AnswerEncoder, chunks: list[Json]) -> bytes:
    return b"".join([*(encoder.events(copy.deepcopy(each)) for each in chunks), encoder.end()])


def typed_events(data: bytes, schema: TypeAdapter[Any]) -> list[Json]:
    """The events, each checked against the official schema and with the type of its `event:` line."""
    found = []
    for event in Decoder(1 << 20).feed(data):
        shown = json.loads(event.data)
        assert event.event == shown["type"]
        schema.validate_python(shown)
        found.append(shown)
    return found
