"""One choice of an answer: its texts, its tool calls, and how it ends.

Deltas are censored in place. Every text ends once: with the choice, by a block, or abandoned.
"""

from __future__ import annotations

from typing import Any

from gateway.censor.compile import CompiledRule
from gateway.guard.channels import ChannelText, GuardedText, InvalidAnswer
from gateway.guard.constrained import ConstrainedText, ConstraintCheck
from gateway.guard.guardedjson import GuardedJson, ObservedText, string_text
from gateway.guard.media import PayloadText, payloads_in
from gateway.guard.metadata import Metadata
from gateway.guard.names import MISSPELLED, leave_out_misspelled_in
from gateway.guard.numbers import ListNumbering
from gateway.policy.model import Channel
from gateway.wire import chat
from gateway.wire.chat import Json, Path, SlotKind, TextSlot

MAX_NAME = 4096  # characters of a tool's name
MAX_TYPES = 64  # parts of one choice whose type comes with what was held of them
MAX_TYPE = 64  # characters of such a type

_HEAD_FIELDS = chat.LABEL_FIELDS | {"function", "custom"}
_CALLS = frozenset({"tool_calls", "function_call"})


class _OpenCall:
    """A tool call whose name is not complete: nothing of it is shown before it goes on.

    Clients read the first delta of a call as its whole head, and some replace a name instead of adding to it.
    """

    __slots__ = ("entry", "name", "path", "text")

    def __init__(self, path: Path, text: ChannelText) -> None:
        self.path = path
        self.text = text
        self.name = ""
        self.entry: Json = {}


class Choice:
    """`rule` is the one that blocked, `texts` are the texts so far by place, `calls` the tool calls with open names."""

    __slots__ = (
        *("_closed_names", "_constrained", "_metadata", "_counts", "_numbers", "_types"),
        *("calls", "ended", "index", "rule", "texts"),
    )

    def __init__(self, index: int, metadata: Metadata) -> None:
        self.index = index
        self.rule: CompiledRule | None = None
        self.ended = False
        self.texts: dict[Path, GuardedText] = {}
        self.calls: dict[Path, _OpenCall] = {}
        self._closed_names: set[Path] = set()
        self._types: dict[Path, Any] = {}  # of parts, which are shown with what was held of them
        self._metadata = metadata
        self._counts = metadata.counts
        self._constrained = ConstraintCheck.of(metadata.counts, index)
        self._numbers = ListNumbering(metadata)

    def number(self, message: Json, whole: bool = False) -> None:
        """Before anything else is done with a delta or a `whole` message: number what stands in its lists."""
        if self._metadata.enforces:
            self._numbers.renumber(message, whole)

    # -- texts ---------------------------------------------------------------------------------------------------------

    def take(self, message: Json, whole: bool = False, reason: Any = None) -> bool:
        """Censor every text of a delta, or of a `whole` message that ended for a reason, up to a block; is there
        anything left to show?"""
        self._apply_table(message)
        self._take_numbers(message)
        slots = _slots(message)
        payloads = payloads_in(message)
        if whole and self._constrained is not None:
            self._constrained.foresee(*_content_of(slots), reason)
        spoke = swallowed = False
        reached: set[Any] = set()
        field: str | int | None = None  # that the last text came from
        for slot in slots:
            if self._constrained is not None and self.rule is None and slot.path[0] in _CALLS:
                self.rule = self._constrained.leave()  # to call a tool is no text of any language
            if self.rule is not None:
                self._drop(slot, shown_field=field, whole=whole)
                continue
            field = slot.path[0]
            if slot.kind is not SlotKind.LABEL:
                reached.add(slot.path[:2])
            if slot.kind is SlotKind.LABEL and not whole:
                self._take_label(slot)
            elif slot.kind is SlotKind.NAME and not whole and self._metadata.enforces:
                self._take_name(slot)
            else:
                given = slot.holder[slot.key]
                out = self._take_slot(slot, whole, (id(slot.holder), slot.key) in payloads)
                spoke = spoke or bool(out)
                swallowed = swallowed or bool(given and not out)
        self._release_calls(message, reached, whole)
        if spoke or not swallowed:
            return bool(message)
        return bool(message.keys() - chat.TEXT_FIELDS.keys() - {"tool_calls", "function_call"}) or any(
            isinstance(entry, dict) and "id" in entry for entry in message.get("tool_calls") or ()
        )

    def _apply_table(self, message: Json) -> None:
        if not self._metadata.enforces:
            return
        if leave_out_misspelled_in(message):
            self._metadata.note_unknown(MISSPELLED)
        for field in chat.DROPPED_IN_ANSWERS.keys() & message.keys():
            del message[field]
        for field in chat.PARTS_OF_CHUNKS[:2]:  # a text completion's choice is its own delta
            message.pop(field, None)
        audio = message.get("audio")
        if isinstance(audio, dict):
            for field in chat.DROPPED_IN_AUDIO & audio.keys():
                del audio[field]
        self._metadata.scrub_unknown(message)

    def _take_numbers(self, message: Json) -> None:
        metadata = self._metadata
        outside, metadata.blocked = metadata.blocked, None
        metadata.scrub_numbers(message, ("choices", self.index))
        self.rule, metadata.blocked = self.rule or metadata.blocked, outside

    def _drop(self, slot: TextSlot, shown_field: str | int | None, whole: bool) -> None:
        """What comes after a block in the same message is not shown."""
        if slot.kind is SlotKind.KEY and slot.path[0] == shown_field:
            self._take_slot(slot, whole)  # the name of what was shown before the block
        elif slot.kind is SlotKind.KEY:
            del slot.holder[slot.key]
        elif slot.kind is not SlotKind.LABEL or slot.holder[slot.key] not in chat.CONSTANT_LABELS:
            slot.holder[slot.key] = ""

    def _take_slot(self, slot: TextSlot, whole: bool, payload: bool = False) -> Any:
        given = slot.holder[slot.key]
        if slot.kind is SlotKind.KEY:
            name = self._show(slot.key)
            if name != slot.key:
                value = slot.holder.pop(slot.key)
                # What is left of a name may be another field's, whose text was looked at as such: that one stays.
                if name not in slot.holder and name not in chat.KNOWN_NAMES:
                    slot.holder[name] = value
            return name
        if slot.kind is SlotKind.LABEL:
            slot.holder[slot.key] = self._show(given)
            return slot.holder[slot.key]
        is_item = isinstance(slot.holder, list)
        if whole and is_item:  # each item is whole, too
            text = self._text(slot._replace(path=(*slot.path[:-1], slot.key)), payload)
        else:
            text = self._text(slot, payload)
        shown = text.feed(given if isinstance(given, str) else repr(given))
        if whole and text.rule is None:
            shown += text.finish()
            if is_item and text.rule is None:
                shown = self._metadata.joined(("choices", self.index, *slot.path), shown)
        self.rule = text.rule
        if not self._metadata.enforces:
            return given
        slot.holder[slot.key] = shown
        return shown

    def _text(self, slot: TextSlot, payload: bool) -> GuardedText:
        text = self.texts.get(slot.path)
        if text is None:
            self._counts.reserve("text fields")
            channel = Channel(slot.channel)
            is_json = slot.kind is SlotKind.JSON or (self._counts.json_content and channel is Channel.CONTENT)
            # JSON that nothing looks at is not taken apart: even a number would wait for its end.
            if payload and self._counts.looks_at(channel):
                text = PayloadText(self._counts, channel, self.index)
            elif is_json and self._counts.looks_at(channel):
                text = GuardedJson(self._counts, channel, self.index)
                text = text if self._metadata.enforces else ObservedText(text)
            elif slot.kind is SlotKind.TEXT and slot.path[0] in _CALLS and self._counts.scans(channel):
                text = string_text(self._counts, channel, self.index)
            else:
                text = self._counts.open(channel, self.index)
            if self._constrained is not None and channel is Channel.CONTENT:
                text = ConstrainedText(text, self._constrained)
            self.texts[slot.path] = text
        return text

    # -- labels --------------------------------------------------------------------------------------------------------

    def _show(self, value: Any, channel: Channel = Channel.OTHER) -> Any:
        shown, rule = self._metadata.show_value(value, channel)
        self.rule = self.rule or rule
        return shown

    def _take_label(self, slot: TextSlot) -> None:
        """A label within a delta: complete, but some clients append it to the one that came before at this place."""
        shown = self._show(slot.holder[slot.key], Channel(slot.channel))
        if type(shown) is str and slot.key != "type":
            shown = self._metadata.joined(("choices", self.index, *slot.path), shown)
        elif slot.key == "type" and slot.path[0] not in _CALLS:
            self._note_type(slot.path[:-1], shown)
        slot.holder[slot.key] = shown

    def _note_type(self, part: Path, shown: Any) -> None:
        if len(self._types) < MAX_TYPES and len(str(shown)) <= MAX_TYPE:
            self._types[part] = shown

    # -- tool names ----------------------------------------------------------------------------------------------------

    def _take_name(self, slot: TextSlot) -> None:
        path = slot.path[:-1]
        given = slot.holder.pop(slot.key)
        if path in self._closed_names:
            return  # a client would add it to, or put it in place of, a name that was checked without it
        call = self.calls.get(path)
        if call is None:
            self._counts.reserve("tool calls")
            call = self.calls[path] = _OpenCall(path, self._counts.open(Channel.TOOL_NAMES, self.index))
        call.name += call.text.feed(given)
        self.rule = call.text.rule
        if len(call.name) > MAX_NAME:
            raise InvalidAnswer(f"the answer has a tool's name of more than {MAX_NAME} characters")

    def _release_calls(self, message: Json, reached: set[Any], whole: bool) -> None:
        """Keep back the calls whose names are still open, show those that have gone on, drop unread ones."""
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            message["tool_calls"] = self._released(calls, reached, whole)
            if not message["tool_calls"]:
                del message["tool_calls"]
        function = message.get("function_call")
        call = self.calls.get(("function_call",))
        if call is not None and isinstance(function, dict):
            if function.get("arguments"):
                del message["function_call"]
                message.update(self._close_name(call, {"function_call": function}) or {})
            else:
                chat.merge(call.entry, {"function_call": message.pop("function_call")})
        elif self.rule is not None and not any(path[0] == "function_call" for path in reached):
            message.pop("function_call", None)

    def _released(self, calls: list[Any], reached: set[Any], whole: bool) -> list[Any]:
        paths = [("tool_calls", chat.position_of(entry, position)) for position, entry in enumerate(calls)]
        shown: list[Any] = []
        for position, (path, entry) in enumerate(zip(paths, calls, strict=True)):
            if self.rule is not None and path not in reached:
                continue
            open_paths = [(*path, "function"), (*path, "custom")]
            call = next((self.calls[p] for p in open_paths if p in self.calls), None)
            # Of a delta without a number some would make a call of its own, others go on with the one at its place.
            if isinstance(entry, dict) and ("index" in entry or (self._metadata.enforces and not whole)):
                entry["index"] = path[1]
            if call is None:
                shown.append(entry)
            elif _is_head(entry) and paths.count(path) == len(paths) - position:
                chat.merge(call.entry, entry)
            else:  # official clients take the order in which calls appear for their indices
                shown.append(self._close_name(call, entry))
        return [entry for entry in shown if entry is not None]

    def close_names(self, delta: Json) -> list[Json]:
        """A delta that does not first of all go on with an open name ends it: the deltas that show the others."""
        names = (slot.path[:-1] for slot in _slots(delta) if slot.path[0] in ("tool_calls", "function_call"))
        going_on = next(names, None)
        closing = [call for path, call in self.calls.items() if path != going_on]
        return self._close(closing)

    def _close(self, calls: list[_OpenCall]) -> list[Json]:
        deltas: list[Json] = []
        for call in calls:
            if self.rule is None and (entry := self._close_name(call)) is not None:
                deltas.append({"tool_calls": [entry]} if call.path[0] == "tool_calls" else entry)
        return deltas

    def _close_name(self, call: _OpenCall, entry: Json | None = None) -> Json | None:
        """The call's head with its whole name, and what `entry` adds to it; None if the name blocked."""
        name = call.name + call.text.finish()
        if call.text.rule is not None:
            self.rule = call.text.rule
            return None  # the call stays open: nothing of it is ever shown
        del self.calls[call.path]
        self._closed_names.add(call.path)
        chat.merge(call.entry, entry or {})
        part = str(call.path[-1])
        rest = call.entry.get(part)
        call.entry[part] = {"name": name, **(rest if isinstance(rest, dict) else {})}
        return call.entry

    # -- the end -------------------------------------------------------------------------------------------------------

    def conclude(self, reason: Any = None) -> None:
        """The upstream has ended the choice for a reason, or for none; a constraint may block it now."""
        if self._constrained is not None:
            rule = self._constrained.conclude(reason if self.rule is None else None)
            self.rule = self.rule or rule

    def tails(self) -> list[Json]:
        """End the texts; the deltas that show what they held. A block may happen here too."""
        self.conclude()
        deltas = self._close(list(self.calls.values()))
        rests: list[Json] = []
        for path, text in self.texts.items():
            if self.rule is not None:
                break
            tail = text.finish()
            self.rule = text.rule
            if tail and self._metadata.enforces:
                self._place(rests, path, tail)
        return deltas + rests

    def block(self) -> list[Json]:
        """End the choice because `rule` has blocked: the deltas that close what must stay well-formed, and say why."""
        deltas: list[Json] = []
        self.conclude()
        rule, self.ended = self.rule, True
        for path, text in self.texts.items():
            needed = text.abandon()
            if needed and path[:-1] not in self.calls:
                self._place(deltas, path, needed)
        for call in self.calls.values():
            call.text.abandon()
        if rule is not None and rule.message:
            deltas.append({self._counts.message_field: rule.message})
        return deltas

    def abandon(self) -> None:
        """The choice ends here and nothing held comes out."""
        self.conclude()
        self.ended = True
        for text in [*self.texts.values(), *(call.text for call in self.calls.values())]:
            text.abandon()

    def _place(self, deltas: list[Json], path: Path, text: str) -> None:
        """Add text of our own making to one of the deltas, under the names of fields that the client knows."""
        shown = tuple(step if isinstance(step, int) or step in chat.KNOWN_NAMES else self._show(step) for step in path)
        if any(name in chat.KNOWN_NAMES and name != step for name, step in zip(shown, path, strict=True)):
            return  # as in `_take_slot`: it was looked at as another field's text
        # A field may have been a string in one chunk and a list in another: no delta has it twice.
        delta = next((delta for delta in deltas if shown[0] not in delta), None)
        if delta is None:
            delta = {}
            deltas.append(delta)
        chat.place(delta, shown, text)
        for length in range(2, len(path)):
            if path[:length] in self._types:
                chat.place(delta, (*shown[:length], "type"), self._types[path[:length]])


def _is_head(entry: Json) -> bool:
    """Is there nothing in this part of a tool call but metadata and pieces of its name?"""
    parts = [entry.get("function"), entry.get("custom")]
    return entry.keys() <= _HEAD_FIELDS and all(
        part is None or (isinstance(part, dict) and not any(part.values())) for part in parts
    )


def _content_of(slots: list[TextSlot]) -> tuple[list[str], bool]:
    """The content of a message, and whether it calls tools."""
    given = [slot.holder[slot.key] for slot in slots if slot.channel == "content" and slot.kind is SlotKind.TEXT]
    texts = [text if isinstance(text, str) else repr(text) for text in given]
    return texts, any(slot.path[0] in _CALLS for slot in slots)


def _slots(message: Json) -> list[TextSlot]:
    """Raises `InvalidAnswer`."""
    try:
        return list(chat.slots(message))
    except chat.TooDeep as error:
        raise InvalidAnswer(f"the answer's shape cannot be read: {error}") from None
