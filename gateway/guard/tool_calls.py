"""Tool calls whose names are not complete: nothing of such a call is shown before it continues.

Clients read the first delta of a call as its whole head, and some replace a name instead of adding to it.
"""

from __future__ import annotations

from typing import Any

from gateway.censor.compile import CompiledRule
from gateway.guard.channels import ChannelText, InvalidAnswer
from gateway.guard.metadata import Metadata
from gateway.policy.model import Channel
from gateway.wire import chunks
from gateway.wire.json import Json
from gateway.wire.message import LABEL_FIELDS, Path, TextSlot, position_of

MAX_NAME = 4096  # characters of a tool's name

_PARTS = ("function", "custom")
_FUNCTION_CALL: Path = ("function_call",)


class _OpenCall:
    __slots__ = ("entry", "name", "path", "text")

    def __init__(self, path: Path, text: ChannelText) -> None:
        self.path = path
        self.text = text
        self.name = ""
        self.entry: Json = {}


class ToolCalls:
    """The calls of one choice; `open` are those that wait. Methods take and return the rule that blocked the choice, if
    one has."""

    __slots__ = ("_closed", "_index", "_metadata", "open")

    def __init__(self, metadata: Metadata, index: int) -> None:
        self.open: dict[Path, _OpenCall] = {}
        self._closed: set[Path] = set()
        self._metadata = metadata
        self._index = index

    def add_name(self, slot: TextSlot) -> CompiledRule | None:
        """Remove a piece of a name from its delta."""
        path = slot.path[:-1]
        given = slot.holder.pop(slot.key)
        if path in self._closed:
            return None  # a client would add it to, or put it in place of, a name that was checked without it
        call = self.open.get(path)
        if call is None:
            counts = self._metadata.counts
            counts.reserve("tool calls")
            call = self.open[path] = _OpenCall(path, counts.open(Channel.TOOL_NAMES, self._index))
        call.name += call.text.feed(given)
        if len(call.name) > MAX_NAME:
            raise InvalidAnswer(f"the answer has a tool's name of more than {MAX_NAME} characters")
        return call.text.rule

    def release(self, message: Json, reached: set[Any], whole: bool, rule: CompiledRule | None) -> CompiledRule | None:
        """Keep back the calls whose names are still open, show those that have gone on, drop unread ones. `reached`
        are the paths with texts that were read before a block."""
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            message["tool_calls"], rule = self._released(calls, reached, whole, rule)
            if not message["tool_calls"]:
                del message["tool_calls"]
        function = message.get("function_call")
        call = self.open.get(_FUNCTION_CALL)
        if call is not None and isinstance(function, dict):
            del message["function_call"]
            if function.get("arguments"):
                shown, blocked = self._close(call, {"function_call": function})
                message.update(shown or {})
                return blocked or rule
            chunks.merge(call.entry, {"function_call": function})
        elif rule is not None and not any(path[0] == "function_call" for path in reached):
            message.pop("function_call", None)
        return rule

    def _released(
        self, calls: list[Any], reached: set[Any], whole: bool, rule: CompiledRule | None
    ) -> tuple[list[Any], CompiledRule | None]:
        paths = [("tool_calls", position_of(entry, position)) for position, entry in enumerate(calls)]
        shown: list[Any] = []
        for position, (path, entry) in enumerate(zip(paths, calls, strict=True)):
            if rule is not None and path not in reached:
                continue
            call = next((self.open[part] for name in _PARTS if (part := (*path, name)) in self.open), None)
            # Of a delta without a number some would make a call of its own, others continue with the one at its place.
            if isinstance(entry, dict) and ("index" in entry or (self._metadata.enforces and not whole)):
                entry["index"] = path[1]
            if call is None:
                shown.append(entry)
            elif _is_head(entry) and paths.count(path) == len(paths) - position:
                chunks.merge(call.entry, entry)
            else:  # official clients take the order in which calls appear for their indices
                complete, blocked = self._close(call, entry)
                shown.append(complete)
                rule = blocked or rule
        return [entry for entry in shown if entry is not None], rule

    def close(self, going_on: Path | None, rule: CompiledRule | None = None) -> tuple[list[Json], CompiledRule | None]:
        """The names of all calls but one have ended: the deltas that show them, up to a block."""
        deltas: list[Json] = []
        for call in [call for path, call in self.open.items() if path != going_on]:
            if rule is not None:
                break
            entry, rule = self._close(call)
            if entry is not None:
                deltas.append({"tool_calls": [entry]} if call.path[0] == "tool_calls" else entry)
        return deltas, rule

    def _close(self, call: _OpenCall, entry: Json | None = None) -> tuple[Json | None, CompiledRule | None]:
        """The call's head with its complete name, and what `entry` adds to it; None if the name is blocked."""
        name = call.name + call.text.finish()
        if call.text.rule is not None:
            return None, call.text.rule  # the call stays open: nothing of it is ever shown
        del self.open[call.path]
        self._closed.add(call.path)
        chunks.merge(call.entry, entry or {})
        part = str(call.path[-1])
        rest = call.entry.get(part)
        call.entry[part] = {"name": name, **(rest if isinstance(rest, dict) else {})}
        return call.entry, None


def _is_head(entry: Json) -> bool:
    """Is there nothing in this part of a tool call but labels and pieces of its name?"""
    parts = [entry.get(name) for name in _PARTS]
    return entry.keys() <= LABEL_FIELDS.union(_PARTS) and all(
        part is None or (isinstance(part, dict) and not any(part.values())) for part in parts
    )
