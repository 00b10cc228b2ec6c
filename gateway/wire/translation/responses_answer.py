"""A guarded chat answer as an answer of OpenAI's `/responses`, and as the events of its stream.

Every item stays open until the answer has ended: the guard may hold the end of a text back until then, so nothing else
says that no more of it comes. Items are numbered as they begin: in a whole answer reasoning, message, calls.

Source of the shapes: the types of the official client, `openai.types.responses`.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from gateway.wire import json, sse
from gateway.wire.dialect import BLOCKED
from gateway.wire.event_template import ContentForm
from gateway.wire.json import Json
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
from gateway.wire.translation.request import flat_name

# Fields of the request that the answer repeats, with what stands for those that are not there.
_REPEATED: Json = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
_INCOMPLETE = {"length": "max_output_tokens", BLOCKED: "content_filter"}
_FAILURE = "server_error"  # of the codes that the API's schema knows, the one for everything


class _PartKind(NamedTuple):
    """How one kind of text is written: the type of its item, the list in it that has the text's part and the name of a
    position there, the part's type and field, and the first words of its events."""

    item: str
    holder: str
    position: str
    part: str
    field: str
    part_events: str
    text_events: str


_MESSAGE = ("message", "content", "content_index")
_KINDS = {
    "content": _PartKind(*_MESSAGE, "output_text", "text", "response.content_part", "response.output_text"),
    "refusal": _PartKind(*_MESSAGE, "refusal", "refusal", "response.content_part", "response.refusal"),
    "reasoning": _PartKind(
        *("reasoning", "content", "content_index", "reasoning_text", "text"),
        *("response.content_part", "response.reasoning_text"),
    ),
    "summary": _PartKind(
        *("reasoning", "summary", "summary_index", "summary_text", "text"),
        *("response.reasoning_summary_part", "response.reasoning_summary_text"),
    ),
}
_DELTA = "response.output_text.delta"
_DELTA_BEGINS = b'{"type":"%b","sequence_number":' % _DELTA.encode()
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


class _Part:
    """One text of an item, as far as it has come."""

    def __init__(self, kind: _PartKind, index: int) -> None:
        self.kind = kind
        self.index = index
        self.text = io.StringIO()
        self.logprobs: list[Json] = []
        self.annotations: list[Json] = []

    def shown(self) -> Json:
        rest = {"annotations": self.annotations, "logprobs": self.logprobs} if self.kind.part == "output_text" else {}
        return {"type": self.kind.part, self.kind.field: self.text.getvalue(), **rest}


class _Item:
    """A message or reasoning, with its parts by channel."""

    def __init__(self, kind: str, item_id: str, index: int) -> None:
        self.kind = kind
        self.id = item_id
        self.index = index
        self.parts: dict[str, _Part] = {}

    def shown(self, status: str) -> Json:
        if self.kind == "message":
            parts = [part.shown() for part in self.parts.values()]
            return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": parts}
        lists: Json = {"summary": [], "content": []}
        for part in self.parts.values():
            lists[part.kind.holder].append(part.shown())
        return {"id": self.id, "type": "reasoning", **lists}


class _Call:
    """A call of a function, or of a custom tool, whose `field` is text."""

    def __init__(self, begin: CallStart, tool: Json, item_id: str, index: int) -> None:
        self.kind = "custom_tool_call" if begin.custom else "function_call"
        self.field = "input" if begin.custom else "arguments"
        self.events = f"response.{self.kind}_{self.field}"
        self.id = item_id
        self.index = index
        self._call = {"call_id": begin.id, **tool}
        self.text = io.StringIO()

    def shown(self, status: str) -> Json:
        return {"id": self.id, "type": self.kind, "status": status, **self._call, self.field: self.text.getvalue()}


class ResponsesEncoder(TranslatingEncoder):
    def __init__(self, body: Json, max_text: int = MAX_TEXT) -> None:
        super().__init__(body, max_text)
        given = {field: body[field] for field in _REPEATED if body.get(field) not in (None, "")}
        tools = body.get("tools")
        given["tools"] = list(map(_repeated_tool, tools)) if isinstance(tools, list) else []
        self._namespaced = dict(_namespaced(given["tools"]))
        self._repeated = _REPEATED | given
        reasoning = body.get("reasoning")
        asked = isinstance(reasoning, dict) and (reasoning.get("summary") or reasoning.get("generate_summary"))
        self._reasoning = "summary" if asked else "reasoning"  # the kind of text that reasoning becomes
        self._items: list[_Item | _Call] = []
        self._calls: dict[int, _Call] = {}
        self._keep: Callable[[Json], None] | None = None
        self._content: _Part | None = None  # that the content goes to, and what all events of it have in common
        self._delta_goes_on = b""

    def keep_with(self, keep: Callable[[Json], None]) -> None:
        """Have the response kept, once it is complete; ids of upstreams need not be new ones."""
        self._keep = keep
        self._answer.own_id = uuid.uuid4().hex

    def content(self, text: str) -> bytes | None:
        part = self._content
        if part is None or self._closed:
            return None
        if not text:
            return b""
        self._answer.count(len(text))
        part.text.write(text)
        return self._delta(self._next_number(), text)

    def content_form(self) -> ContentForm | None:
        part = None if self._closed else self._content
        return None if part is None else ContentForm(self._delta(0, ""), self._answer.tally, part.text.write)

    def _delta(self, number: int, text: str) -> bytes:
        return sse.encode(b"%b%d%b%b}" % (_DELTA_BEGINS, number, self._delta_goes_on, json.encode(text)), _DELTA)

    def error(self, error: Json) -> bytes:
        """The event `error` has it twice: clients raise an exception for the object, and the schema has the fields."""
        out = self._first({})
        shown = error["error"]
        fields = {field: shown.get(field) for field in ("code", "message", "param")}
        failed = {**self._response("failed"), "error": {"code": _FAILURE, "message": shown.get("message")}}
        out += [self._event("error", **fields, error=shown), self._event("response.failed", response=failed)]
        return b"".join(out)

    def _complete(self) -> Json:
        response = self._response(self._status())
        if self._keep is not None:
            self._keep(response)
        return response

    # -- items ---------------------------------------------------------------------------------------------------------

    def _piece(self, piece: Piece) -> list[bytes]:
        match piece:
            case Text("reasoning", text, logprobs):
                return self._text(self._reasoning, text, logprobs)
            case Text(channel, text, logprobs):
                return self._text(channel, text, logprobs)
            case CallStart():
                call = _Call(piece, self._namespaced.get(piece.name, {"name": piece.name}), "", len(self._items))
                call.id = self._item_id(call.kind)
                self._calls[piece.number] = call
                return [self._add(call)]
            case CallText(number, text):
                call = self._calls[number]
                call.text.write(text)
                return [self._event(f"{call.events}.delta", item_id=call.id, output_index=call.index, delta=text)]
            case Annotation(value):
                return self._annotation(value)

    def _text(self, channel: str, text: str, logprobs: list[Json]) -> list[bytes]:
        item, part, out = self._part(channel)
        part.text.write(text)
        where = self._where(item, part)
        if channel == "content":
            entries = [_logprob(entry) for entry in logprobs]
            part.logprobs += entries
            where["logprobs"] = entries
        out.append(self._event(f"{part.kind.text_events}.delta", **where, delta=text))
        return out

    def _annotation(self, value: Json) -> list[bytes]:
        item, part, out = self._part("content")
        value = _annotation(value)
        where = {**self._where(item, part), "annotation_index": len(part.annotations)}
        part.annotations.append(value)
        return [*out, self._event("response.output_text.annotation.added", **where, annotation=value)]

    def _part(self, channel: str) -> tuple[_Item, _Part, list[bytes]]:
        """The place of a kind of text, opened if it is the first."""
        kind = _KINDS[channel]
        out: list[bytes] = []
        item = next((item for item in self._items if isinstance(item, _Item) and item.kind == kind.item), None)
        if item is None:
            item = _Item(kind.item, self._item_id(kind.item), len(self._items))
            out.append(self._add(item))
        part = item.parts.get(channel)
        if part is None:
            part = item.parts[channel] = _Part(kind, len(item.parts))
            out.append(self._event(f"{kind.part_events}.added", **self._where(item, part), part=part.shown()))
            if channel == "content":
                where = json.encode({**self._where(item, part), "logprobs": []})
                self._content, self._delta_goes_on = part, b"," + where[1:-1] + b',"delta":'
        return item, part, out

    def _item_id(self, kind: str) -> str:
        return f"{_PREFIXES[kind]}_{self._answer.id}_{len(self._items)}"

    def _add(self, item: _Item | _Call) -> bytes:
        self._items.append(item)
        return self._event("response.output_item.added", output_index=item.index, item=item.shown("in_progress"))

    @staticmethod
    def _where(item: _Item, part: _Part) -> Json:
        return {"item_id": item.id, "output_index": item.index, part.kind.position: part.index}

    # -- the answer around them ----------------------------------------------------------------------------------------

    def _first_events(self) -> list[bytes]:
        response = self._response("in_progress")
        return [self._event(f"response.{kind}", response=response) for kind in ("created", "in_progress")]

    def _last_events(self) -> list[bytes]:
        return [self._event(f"response.{self._status()}", response=self._complete())]

    def _ends(self) -> list[bytes]:
        out: list[bytes] = []
        for item in self._items:
            if isinstance(item, _Call):
                text = {item.field: item.text.getvalue()}
                out.append(self._event(f"{item.events}.done", item_id=item.id, output_index=item.index, **text))
            else:
                for part in item.parts.values():
                    out += self._close_part(item, part)
            shown = item.shown(self._status())
            out.append(self._event("response.output_item.done", output_index=item.index, item=shown))
        return out

    def _close_part(self, item: _Item, part: _Part) -> list[bytes]:
        where, shown = self._where(item, part), part.shown()
        logprobs = {"logprobs": part.logprobs} if part.kind.part == "output_text" else {}
        text = {part.kind.field: shown[part.kind.field], **logprobs}
        return [
            self._event(f"{part.kind.text_events}.done", **where, **text),
            self._event(f"{part.kind.part_events}.done", **where, part=shown),
        ]

    def _status(self) -> Literal["completed", "incomplete"]:
        return "incomplete" if self._answer.reason in _INCOMPLETE else "completed"

    def _response(self, status: Literal["in_progress", "completed", "incomplete", "failed"]) -> Json:
        answer = self._answer
        cut = {"reason": _INCOMPLETE[answer.reason or ""]} if status == "incomplete" else None
        shown = "completed" if status == "completed" else "incomplete"
        return {
            "id": f"resp_{answer.id}",
            "object": "response",
            "created_at": answer.created,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "model": answer.model,
            **self._repeated,
            "store": self._keep is not None,
            "output": [item.shown(shown) for item in self._items],
            "usage": None if answer.usage is None or status == "in_progress" else _usage(answer.usage),
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._next_number(), **fields}
        return sse.encode(json.encode(event), kind)

    def _next_number(self) -> int:
        number = self._answer.tally.number
        self._answer.tally.number = number + 1
        return number


def _namespaced(tools: list[Any]) -> Iterator[tuple[str, Json]]:
    """The names that tools of namespaces have for chat, and those that they have here."""
    for namespace in tools:
        inner = namespace.get("tools") if isinstance(namespace, dict) else None
        for tool in inner if isinstance(inner, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                names = {"name": tool["name"], "namespace": namespace.get("name")}
                yield flat_name(str(namespace.get("name")), tool["name"]), names


def _repeated_tool(tool: Any) -> Any:
    """A tool as an answer has it, where the schema wants what a request may leave out."""
    if isinstance(tool, dict) and tool.get("type") == "function":
        return {"description": None, "parameters": None, "strict": None, **tool}
    return tool


def _logprob(entry: Json) -> Json:
    alternatives = entry.get("top_logprobs")
    given = alternatives if isinstance(alternatives, list) else []
    return {**_token(entry), "top_logprobs": [_token(each) for each in given if isinstance(each, dict)]}


def _token(entry: Json) -> Json:
    return {"token": entry.get("token", ""), "logprob": entry.get("logprob", 0.0), "bytes": entry.get("bytes") or []}


def _annotation(value: Json) -> Json:
    """Chat puts the fields of an annotation into an object of its type's name."""
    kind = value.get("type")
    inner = value.get(kind) if isinstance(kind, str) else None
    return {"type": kind, **inner} if isinstance(inner, dict) else value


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.answer,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.answer,
    }
