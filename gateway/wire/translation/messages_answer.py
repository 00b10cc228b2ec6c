"""A guarded chat answer as an answer of Anthropic's `/messages`, and as the events of its stream.

Every block stays open until the answer has ended: the guard may hold the end of a text back until then, so nothing else
says that no more of it comes. Blocks are numbered as they begin: in a whole answer thinking, text, calls.

Source of the shapes: the types of the official client, `anthropic.types`.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple

from gateway.wire import json, sse
from gateway.wire.dialect import BLOCKED, UntranslatableAnswer
from gateway.wire.event_template import ContentForm
from gateway.wire.json import Json
from gateway.wire.message_events import error_body
from gateway.wire.translation.chat_answer import (
    MAX_TEXT,
    Annotation,
    CallStart,
    CallText,
    Piece,
    Text,
    TranslatingEncoder,
    Usage,
)

_STOP_REASONS = {
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    BLOCKED: "refusal",
}
_CUT = ("max_tokens", "refusal")  # stop reasons of answers that may end within the input of a tool


class _BlockKind(NamedTuple):
    """How one kind of block is written: empty, and what a delta of it is."""

    empty: Json
    delta: str
    field: str  # in a delta; in the block too, but for a call's


_TEXT = _BlockKind({"type": "text", "text": ""}, "text_delta", "text")
_THINKING = _BlockKind({"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking")
_CALL = _BlockKind({"type": "tool_use", "input": {}}, "input_json_delta", "partial_json")


_CONTENT_DELTA = b'{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%b}}'


class _Block:
    def __init__(self, kind: _BlockKind, index: int, begin: Json) -> None:
        self.kind = kind
        self.index = index
        self.begin = begin
        self.text = io.StringIO()

    def complete(self, cut: bool) -> Json:
        """As it stands in a whole answer, which may have been `cut` within it. Raises `UntranslatableAnswer`."""
        text = self.text.getvalue()
        if self.kind is not _CALL:
            return {**self.begin, self.kind.field: text}
        try:
            given = json.decode(text or "{}")
        except json.JSONError:
            given = None
        if not isinstance(given, dict):
            if not cut:
                raise UntranslatableAnswer("the arguments of a tool call are not a JSON object")
            given = {}
        return {**self.begin, "input": given}


class MessagesEncoder(TranslatingEncoder):
    def __init__(self, body: Json, max_text: int = MAX_TEXT) -> None:
        super().__init__(body, max_text)
        thinking = body.get("thinking")
        thinking = thinking if isinstance(thinking, dict) else {"type": "disabled"}
        self._shows_thinking = thinking.get("type") != "disabled" and thinking.get("display") != "omitted"
        stops = body.get("stop_sequences")
        self._stops = stops if isinstance(stops, list) else []
        self._blocks: dict[str | int, _Block] = {}  # by channel, or by the number of a call
        self._refused = False

    def content(self, text: str) -> bytes | None:
        block = self._blocks.get("content")
        if block is None or self._closed:
            return None
        if not text:
            return b""
        self._answer.count(len(text))
        block.text.write(text)
        return self._text_delta(block, text)

    def content_form(self) -> ContentForm | None:
        block = None if self._closed else self._blocks.get("content")
        return None if block is None else ContentForm(self._text_delta(block, ""), self._answer.tally, block.text.write)

    @staticmethod
    def _text_delta(block: _Block, text: str) -> bytes:
        return sse.encode(_CONTENT_DELTA % (block.index, json.encode(text)), "content_block_delta")

    def error(self, error: Json) -> bytes:
        return sse.encode(json.encode(error_body(error, 500)), "error")

    def _complete(self) -> Json:
        stop = self._stop()
        content = [block.complete(stop["stop_reason"] in _CUT) for block in self._blocks.values()]
        return {**self._message(), "content": content, **stop, "usage": _usage(self._answer.usage)}

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _piece(self, piece: Piece) -> list[bytes]:
        match piece:
            case Text("reasoning", text, _):
                return self._delta("thinking", _THINKING, text) if self._shows_thinking else []
            case Text(channel, text, _):
                self._refused |= channel == "refusal"
                return self._delta(channel, _TEXT, text)
            case CallStart(number, call_id, name, _):
                return self._open(number, _CALL, {"id": call_id, "name": name})
            case CallText(number, text):
                return self._delta(number, _CALL, text)
            case Annotation():
                return []  # its places are those of a page, not those that citations have here

    def _open(self, key: str | int, kind: _BlockKind, fields: Json) -> list[bytes]:
        block = self._blocks[key] = _Block(kind, len(self._blocks), {**kind.empty, **fields})
        return [_event("content_block_start", index=block.index, content_block=block.begin)]

    def _delta(self, key: str | int, kind: _BlockKind, text: str) -> list[bytes]:
        out = [] if key in self._blocks else self._open(key, kind, {})
        block = self._blocks[key]
        block.text.write(text)
        return [*out, _event("content_block_delta", index=block.index, delta={"type": kind.delta, kind.field: text})]

    # -- the answer around them ----------------------------------------------------------------------------------------

    def _first_events(self) -> list[bytes]:
        """What the prompt has cost is known at the end."""
        message = {**self._message(), "stop_reason": None, "stop_sequence": None, "usage": _usage(None)}
        return [_event("message_start", message=message)]

    def _message(self) -> Json:
        labels = {"id": f"msg_{self._answer.id}", "type": "message", "role": "assistant", "model": self._answer.model}
        return {**labels, "content": []}

    def _ends(self) -> list[bytes]:
        return [_event("content_block_stop", index=block.index) for block in self._blocks.values()]

    def _last_events(self) -> list[bytes]:
        delta = _event("message_delta", delta=self._stop(), usage=_usage(self._answer.usage))
        return [delta, _event("message_stop")]

    def _stop(self) -> Json:
        reason = _STOP_REASONS.get(self._answer.reason or "", "end_turn")
        sequence = self._answer.stop if self._answer.stop in self._stops else None
        if reason == "end_turn":
            # Some servers say `stop` where a tool is called.
            if any(block.kind is _CALL for block in self._blocks.values()):
                reason = "tool_use"
            elif self._refused:
                reason = "refusal"
            elif sequence is not None:
                reason = "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": sequence if reason == "stop_sequence" else None}


def _event(kind: str, **fields: Any) -> bytes:
    return sse.encode(json.encode({"type": kind, **fields}), kind)


def _usage(usage: Usage | None) -> Json:
    """Here the tokens read from a cache are not among those of the input."""
    usage = usage or Usage(0, 0, 0, 0)
    return {
        "input_tokens": max(usage.prompt - usage.cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.answer,
    }
