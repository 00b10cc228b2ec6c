"""Where a construct stands: in an event of the upstream, in its whole answer or error, in a client's request."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from loadtest.bounds.constructs import CONSTRUCTS, in_string

KIB = 1024
MAX_EVENT, MAX_BODY = 1024 * KIB, 4096 * KIB  # bytes; the defaults of `limits`
_MARGIN = 2 * KIB  # for what stands around a construct


class Shape(Enum):
    """What the construct travels in, and whether the client asked for a stream."""

    EVENT = "event, streamed"
    EVENT_PLAIN = "event, plain"
    ANSWER = "answer, streamed"
    ANSWER_PLAIN = "answer, plain"
    ERROR = "error"
    REQUEST = "request"


Place = Callable[[str], str]

# Templates are split at @, where the construct goes.
IN_EVENTS: Mapping[str, str] = {
    "a field of the chunk": '{"choices":[{"index":0,"delta":{"content":"a"}}],"x":@}',
    "the chunk's id": '{"id":@,"choices":[{"index":0,"delta":{"content":"a"}}]}',
    "usage": '{"choices":[],"usage":@}',
    "citations": '{"citations":@,"choices":[{"index":0,"delta":{"content":"a"}}]}',
    "choices": '{"id":"chatcmpl-1","choices":@}',
    "a field of a choice": '{"choices":[{"index":0,"delta":{"content":"a"},"x":@}]}',
    "the message beside a delta": '{"choices":[{"index":0,"delta":{"content":"a"},"message":@}]}',
    "content": '{"choices":[{"index":0,"delta":{"content":@}}]}',
    "reasoning": '{"choices":[{"index":0,"delta":{"reasoning_content":@}}]}',
    "a field of the delta": '{"choices":[{"index":0,"delta":{"x":@}}]}',
    "annotations": '{"choices":[{"index":0,"delta":{"annotations":@}}]}',
    "tool_calls": '{"choices":[{"index":0,"delta":{"tool_calls":@}}]}',
    "a tool's name": '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":@}}]}}]}',
    "arguments": '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":$}}]}}]}',
    "logprobs": '{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":@}]}',
    "the whole": "@",
}
IN_ERRORS: Mapping[str, str] = {
    "the message": '{"error":{"message":@}}',
    "a field of the error": '{"error":{"message":"no","x":@}}',
    "the whole": "@",
}
IN_REQUESTS: Mapping[str, str] = {
    "a field": '{"model":"m","messages":[{"role":"user","content":"a"}],"x":@}',
    "content": '{"model":"m","messages":[{"role":"user","content":@}]}',
    "a field of a message": '{"model":"m","messages":[{"role":"user","content":"a","x":@}]}',
    "messages": '{"model":"m","messages":@}',
    "parts": '{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":@}]}]}',
    "a picture": '{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":@}}]}]}',
    "arguments": '{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":$}}]}]}',
    "tools": '{"model":"m","messages":[{"role":"user","content":"a"}],"tools":@}',
    "a schema": '{"model":"m","messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema",'
    '"json_schema":{"name":"s","schema":@}}}',
    "logit_bias": '{"model":"m","messages":[{"role":"user","content":"a"}],"logit_bias":@}',
    "stop": '{"model":"m","messages":[{"role":"user","content":"a"}],"stop":@}',
    "the model": '{"model":@,"messages":[{"role":"user","content":"a"}]}',
    "the whole": "@",
}
# What stands once in a chunk or message can stand in it many times, with everything around it.
REPEATED: Mapping[str, str] = {
    "choices of one character": '{"index":#,"delta":{"content":"a"}}',
    "choices without an index": '{"delta":{"content":"a"}}',
    "choices that end": '{"index":#,"delta":{"content":"12MON"},"finish_reason":"stop"}',
    "choices with a field": '{"index":#,"delta":{"x#":"a"}}',
}

POLICIES = ("words", "patterns", "detectors", "paranoid", "edits-2")
SIZES = {Shape.EVENT: MAX_EVENT, Shape.EVENT_PLAIN: MAX_EVENT}
PIECES = (0, 16 * KIB, 1000)  # bytes of one write; 0 writes all at once


@dataclass(frozen=True, slots=True)
class Case:
    """One exchange. `body` is what the upstream answers with, or for `Shape.REQUEST` what the client sends."""

    shape: Shape
    place: str
    construct: str
    size: int
    piece: int
    policy: str
    repeats: int  # events of the same kind, one behind the other

    def __str__(self) -> str:
        times = f" × {self.repeats}" if self.repeats > 1 else ""
        cut = f", {self.piece} bytes a write" if self.piece else ""
        return f"{self.shape.value}: {self.construct} in {self.place}, {self.size} bytes{times}{cut}, {self.policy}"

    def json(self) -> bytes:
        """The hostile JSON text."""
        if self.construct in REPEATED:
            item = REPEATED[self.construct]
            count = max(1, self.size // (len(item) + 4))
            choices = ",".join([item.replace("#", str(number)) for number in range(count)])
            return f'{{"id":"{"i" * (self.size // 4)}","choices":[{choices}]}}'.encode()
        template = _places(self.shape)[self.place]
        text = CONSTRUCTS[self.construct](self.size - _MARGIN // 4)
        if "$" in template:  # a JSON text within a string
            return template.replace("$", in_string(text)).encode()
        return template.replace("@", text).encode()


def _places(shape: Shape) -> Mapping[str, str]:
    if shape is Shape.REQUEST:
        return IN_REQUESTS
    return IN_ERRORS if shape is Shape.ERROR else IN_EVENTS


def every() -> Iterator[Case]:
    """The whole product."""
    for shape in Shape:
        limit = SIZES.get(shape, MAX_BODY) - _MARGIN
        for size in (KIB, 15 * KIB, 30 * KIB, 120 * KIB, 500 * KIB, limit):
            for policy in POLICIES:
                for piece in PIECES if size <= MAX_EVENT else (0, 16 * KIB):
                    repeats = 1 if size > 32 * KIB or shape not in (Shape.EVENT, Shape.EVENT_PLAIN) else 8
                    for place in _places(shape):
                        for construct in CONSTRUCTS:
                            yield Case(shape, place, construct, size, piece, policy, repeats)
                    if shape in (Shape.EVENT, Shape.EVENT_PLAIN, Shape.ANSWER):
                        for construct in REPEATED:
                            yield Case(shape, "choices", construct, size, piece, policy, repeats)


def drawn(count: int, seed: int) -> list[Case]:
    """So many of them, the same ones for the same seed, those of one shape and place next to each other."""
    cases = list(every())
    return random.Random(seed).sample(cases, min(count, len(cases)))
