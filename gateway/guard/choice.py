"""One choice of an answer: its texts, its tool calls, and how it ends.

Deltas are censored in place. Every text ends once: with the choice, by a block, or abandoned.
"""

from __future__ import annotations

from typing import Any

from gateway.censor.compile import CompiledRule
from gateway.guard.annotations import Annotations
from gateway.guard.channels import ChannelText, GuardedText, InvalidAnswer
from gateway.guard.constrained import ConstrainedText, ConstraintCheck
from gateway.guard.guardedjson import GuardedJson, ObservedText, content_text, string_text
from gateway.guard.logprobs import DescribedText, followed
from gateway.guard.media import PayloadText, payloads_in
from gateway.guard.metadata import Metadata
from gateway.guard.names import parts_of
from gateway.guard.numbers import ListNumbering
from gateway.guard.parts import JoinedParts, PartText, Run, is_part, runs_in
from gateway.guard.tool_calls import ToolCalls
from gateway.guard.usual_answer import passes_plain
from gateway.policy.model import Channel
from gateway.wire import chunks, logprobs
from gateway.wire import message as messages
from gateway.wire.fences import ContentReader
from gateway.wire.json import Json
from gateway.wire.logprobs import Entry
from gateway.wire.message import (
    CALLS,
    CONSTANT_LABELS,
    DELTA_PLACES,
    DROPPED_IN_ANSWERS,
    DROPPED_IN_AUDIO,
    KNOWN_NAMES,
    TEXT_FIELDS,
    Path,
    SlotKind,
    TextSlot,
    TooDeep,
)

_CONTENT: Path = ("content",)
_CONTENT_SLOT = TextSlot(None, "content", _CONTENT, "content", SlotKind.TEXT)
_CHANNELS, _JSON, _TEXT = {each.value: each for each in Channel}, SlotKind.JSON, SlotKind.TEXT
_DESCRIBED: tuple[Path, ...] = tuple((name,) for name in logprobs.TEXTS)
MAX_TYPES = 64  # parts of one choice whose type comes with what was held of them
MAX_TYPE = 64  # characters of such a type


class Choice:
    """`rule` is the one that blocked, `texts` are the texts so far by place, `calls` the tool calls with open names."""

    __slots__ = (
        *("_annotations", "_as_lists", "_constrained", "_counts", "_entries", "_metadata", "_tool_calls", "_types"),
        *("_here", "_joined", "_renamed", "calls", "ended", "index", "late", "numbering", "rule", "texts"),
    )

    def __init__(self, index: int, metadata: Metadata) -> None:
        self.index = index
        self.rule: CompiledRule | None = None
        self.ended = False
        self.texts: dict[Path, GuardedText] = {}
        self.late: list[Json] = []  # deltas that show, before the one at hand, what was held of parts before its own
        self._joined: dict[Path, JoinedParts] = {}  # the text parts of each list
        self._here: dict[Path, TextSlot] = {}  # where the delta at hand has them
        self._types: dict[Path, Any] = {}  # of parts, which are shown with what was held of them
        self._renamed: dict[Path, Path] = {}  # whose held text was shown under names of our own making
        self._entries: dict[str, list[Entry | None]] = {}  # log probabilities of the delta's tokens, by its fields
        self._as_lists = False
        self._annotations = Annotations()
        self._metadata = metadata
        self._counts = metadata.counts
        self._constrained = ConstraintCheck.of(metadata.counts, index)
        self.numbering = ListNumbering(metadata)
        self._tool_calls = ToolCalls(metadata, index)
        self.calls = self._tool_calls.open

    # -- texts ---------------------------------------------------------------------------------------------------------

    def censor(self, message: Json, whole: bool = False, reason: Any = None) -> bool:
        """Censor every text of a delta, or of a `whole` message that ended for a reason, up to a block; is there
        anything left to show?"""
        if not message:
            return False
        if whole and self._passes(message):
            return True
        self._drop_fields(message)
        outside, self._metadata.blocked = self._metadata.blocked, None
        self._metadata.scrub_numbers(message, ("choices", self.index))
        self.rule, self._metadata.blocked = self.rule or self._metadata.blocked, outside
        slots = _slots(message)
        payloads = payloads_in(message)
        if whole and self._constrained is not None:
            self._constrained.foresee(*_content_of(slots), reason)
        self._here.clear()
        runs = runs_in(slots) if whole and not self._reads_json_content else {}
        has_output = held_back = False
        reached: set[Any] = set()
        field: str | int | None = None  # that the last text came from
        for slot in slots:
            if self._constrained is not None and self.rule is None and slot.path[0] in CALLS:
                self.rule = self._constrained.leave()  # to call a tool is no text of any language
            if self.rule is not None:
                self._drop(slot, shown_field=field, whole=whole)
                continue
            field = slot.path[0]
            if slot.kind is not SlotKind.LABEL:
                reached.add(slot.path[:2])
            if slot.kind is SlotKind.LABEL and not whole:
                self._censor_label(slot)
            elif slot.kind is SlotKind.NAME and not whole and self._metadata.enforces:
                self.rule = self._tool_calls.add_name(slot)
            elif (run := runs.get(slot.path)) is not None:
                has_output = self._show_run(run, slot) or has_output
            else:
                given = slot.holder[slot.key]
                out = self._censor_slot(slot, whole, payloads.get((id(slot.holder), slot.key)))
                has_output = has_output or bool(out)
                held_back = held_back or bool(given and not out)
        self.rule = self._tool_calls.release(message, reached, whole, self.rule)
        if self._metadata.enforces and _CONTENT in self.texts:
            self._annotations.collect(message, followed(self.texts[_CONTENT]))
        if has_output or not held_back:
            return bool(message)
        return bool(message.keys() - TEXT_FIELDS.keys() - {"tool_calls", "function_call"}) or any(
            isinstance(entry, dict) and "id" in entry for entry in message.get("tool_calls") or ()
        )

    def open_content(self, given: str) -> str:
        """`censor` for the first text of a choice, where nothing but a role may stand beside it: what is shown of this
        content."""
        if not given:
            return given  # the text begins with its first character
        text = self._text(_CONTENT_SLOT, None)
        shown = text.feed(given)
        self.rule = text.rule
        return shown if self._metadata.enforces else given

    def _passes(self, message: Json) -> bool:
        """Is this a whole message of nothing but content in which there is nothing to do? It has been counted then."""
        if self._entries or self.rule is not None or self._constrained is not None:
            return False
        return passes_plain(message, self._counts)

    def _drop_fields(self, message: Json) -> None:
        """Remove what could not be scanned, or repeats the text of this message."""
        if not self._metadata.enforces:
            return
        self._metadata.leave_out_misspelled(parts_of(message), KNOWN_NAMES)
        self._metadata.drop(message, DROPPED_IN_ANSWERS)
        self._metadata.drop(message, DELTA_PLACES[:2])  # a text completion's choice is its own delta
        if isinstance(audio := message.get("audio"), dict):
            self._metadata.drop(audio, DROPPED_IN_AUDIO)
        self._metadata.scrub_unknown(message)

    def _drop(self, slot: TextSlot, shown_field: str | int | None, whole: bool) -> None:
        """Hide a text that comes after a block in the same message."""
        if slot.kind is SlotKind.KEY and slot.path[0] == shown_field:
            self._censor_slot(slot, whole)  # the name of what was shown before the block
        elif slot.kind is SlotKind.KEY:
            del slot.holder[slot.key]
        elif slot.kind is not SlotKind.LABEL or slot.holder[slot.key] not in CONSTANT_LABELS:
            slot.holder[slot.key] = ""

    def _censor_slot(self, slot: TextSlot, whole: bool, payload: str | None = None) -> Any:
        """`payload`: where media may stand, the media type that is declared for them."""
        given = slot.holder[slot.key]
        if slot.kind is SlotKind.KEY:
            name = self._show(slot.key)
            if name != slot.key:
                value = slot.holder.pop(slot.key)
                # What is left of a name may be another field's, whose text was looked at as such: that one stays.
                if name not in slot.holder and name not in KNOWN_NAMES:
                    slot.holder[name] = value
            return name
        if slot.kind is SlotKind.LABEL:
            slot.holder[slot.key] = self._show(given)
            return slot.holder[slot.key]
        if given == "" and not whole and slot.path in _DESCRIBED and slot.path not in self.texts and not self._entries:
            return given  # the text begins with its first character; what describes it may come with that
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
        if isinstance(text, PartText):
            shown += self._release_late(slot)
        return shown

    # -- parts that are one text ---------------------------------------------------------------------------------------

    @property
    def _reads_json_content(self) -> bool:
        return self._counts.json_content or self._constrained is not None

    def _parts_of(self, slot: TextSlot) -> JoinedParts:
        """The parts of the list that a slot's is in."""
        place, channel = slot.path[:-2], Channel(slot.channel)
        joined = self._joined.get((*place, slot.channel))
        if joined is None:
            make = ContentReader if channel is Channel.CONTENT else None
            joined = JoinedParts(lambda reader: self._counts.open(channel, self.index, reader), make)
            self._joined[*place, slot.channel] = joined
        return joined

    def _release_late(self, slot: TextSlot) -> str:
        """Show text released late from earlier parts: in the current delta, where it has those parts."""
        late = self._parts_of(slot).late
        for path, text in late:
            if (there := self._here.get(path)) is not None:
                there.holder[there.key] += text
            else:
                self._place(self.late, path, text)
        shown = "".join(text for _, text in late)
        late.clear()
        self._here[slot.path] = slot
        return shown

    def _show_run(self, run: Run, slot: TextSlot) -> bool:
        """Show the next part of a run in a whole message, whose texts are all read with the first."""
        if not run.shown:
            run.read(self._parts_of(slot), self._counts)
        shown, self.rule = run.shown.pop(slot.path), run.rule if run.blocked == slot.path else None
        if self._metadata.enforces:
            slot.holder[slot.key] = shown
        return bool(shown)

    def _text(self, slot: TextSlot, payload: str | None) -> GuardedText:
        is_new = (text := self.texts.get(slot.path)) is None
        if text is None:
            self._counts.reserve("text fields")
            channel, is_content = _CHANNELS[slot.channel], slot.channel == "content"
            is_json = slot.kind is _JSON or (self._counts.json_content and is_content)
            # JSON that nothing looks at is not taken apart: even a number would wait for its end.
            if payload is not None and self._counts.looks_at(channel):
                text = PayloadText(self._counts, channel, self.index, payload)
            elif is_json and self._counts.looks_at(channel):
                text = GuardedJson(self._counts, channel, self.index)
                text = text if self._metadata.enforces else ObservedText(text)
            elif slot.kind is _TEXT and slot.path[0] in CALLS:
                text = string_text(self._counts, channel, self.index)
            elif is_part(slot) and not self._reads_json_content:
                text = self._parts_of(slot).part(slot.path)
            elif slot.kind is _TEXT and is_content:
                text = content_text(self._counts, channel, self.index)
            else:
                text = self._counts.open(channel, self.index)
            if self._constrained is not None and is_content:
                text = ConstrainedText(text, self._constrained)
            self.texts[slot.path] = text
        if self._entries and slot.path in _DESCRIBED and (entries := self._entries.get(str(slot.path[0]))):
            if not isinstance(text, DescribedText):
                text = DescribedText(text, Channel(slot.channel), self._metadata.tokens, is_new=is_new)
                self.texts[slot.path] = text
            text.expect(entries)
        return text

    # -- log probabilities ---------------------------------------------------------------------------------------------

    def describe(self, given: Any) -> None:
        """The log probabilities of the tokens in the delta or message that is censored next."""
        self._entries = {} if given is None else logprobs.read(given)
        self._as_lists = self._as_lists or logprobs.are_lists(given)

    def description(self) -> Json | None:
        """The log probabilities that may be shown by now, and were not."""
        described = {name: text for (name,) in _DESCRIBED if isinstance(text := self.texts.get((name,)), DescribedText)}
        shown = {str(name): text.shown for name, text in described.items()}
        for text in described.values():
            text.shown = []
        return logprobs.write(shown, as_lists=self._as_lists)

    # -- labels and names of tools -------------------------------------------------------------------------------------

    def _show(self, value: Any, channel: Channel = Channel.OTHER) -> Any:
        shown, rule = self._metadata.show_value(value, channel)
        self.rule = self.rule or rule
        return shown

    def _censor_label(self, slot: TextSlot) -> None:
        """A label within a delta: complete, but some clients append it to the one that came before at this place."""
        shown = self._show(slot.holder[slot.key], Channel(slot.channel))
        if type(shown) is str and slot.key != "type":
            shown = self._metadata.joined(("choices", self.index, *slot.path), shown)
        elif type(shown) in (int, float):
            shown = shown if self._metadata.joins_number(("choices", self.index, *slot.path), repr(shown)) else ""
        elif slot.key == "type" and slot.path[0] not in CALLS:
            self._keep_type(slot.path[:-1], shown)
        slot.holder[slot.key] = shown

    def _keep_type(self, part: Path, shown: Any) -> None:
        if len(self._types) < MAX_TYPES and len(str(shown)) <= MAX_TYPE:
            self._types[part] = shown

    def close_names(self, delta: Json) -> list[Json]:
        """A delta that does not first of all continue with an open name ends it: the deltas that show the others."""
        names = (slot.path[:-1] for slot in _slots(delta) if slot.path[0] in CALLS)
        deltas, self.rule = self._tool_calls.close(next(names, None), self.rule)
        return deltas

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def is_content(self) -> bool:
        """Is it open, and has nothing but content come?"""
        is_plain = type(self.texts.get(_CONTENT)) is ChannelText and len(self.texts) == 1
        return is_plain and not (self.ended or self.calls or self.late or self._annotations.waiting)

    def finish_content(self) -> str:
        """`release_held` for a choice that `is_content`: what its content held. A block may happen here too."""
        text = self.texts[_CONTENT]
        tail = text.finish()
        self.rule = text.rule
        return tail if self._metadata.enforces else ""

    def conclude(self, reason: Any = None) -> None:
        """The upstream has ended the choice for a reason, or for none; a constraint may block it now."""
        if self._constrained is not None:
            rule = self._constrained.conclude(reason if self.rule is None else None)
            self.rule = self.rule or rule

    def release_held(self) -> list[Json]:
        """End the texts; the deltas that show what they held. A block may happen here too."""
        self.conclude()
        deltas, self.rule = self._tool_calls.close(None, self.rule)
        rests: list[Json] = []
        for path, text in self.texts.items():
            if self.rule is not None:
                break
            tail = text.finish()
            self.rule = text.rule
            if tail and self._metadata.enforces:
                self._place(rests, path, tail)
        if self.rule is None and (annotations := self._annotations.release(followed(self.texts.get(_CONTENT)))):
            rests.append({"annotations": annotations})
        return deltas + rests

    def block(self) -> list[Json]:
        """End the choice because `rule` has blocked: the deltas that keep JSON well-formed, then the rule's message."""
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
        shown = tuple(step if isinstance(step, int) or step in KNOWN_NAMES else self._show(step) for step in path)
        if any(name in KNOWN_NAMES and name != step for name, step in zip(shown, path, strict=True)):
            return  # as in `_censor_slot`: it was looked at as another field's text
        if shown != path and (shown in self.texts or self._renamed.setdefault(shown, path) != path):
            return  # two texts that held a word's beginning each would be one text there
        # A field may have been a string in one chunk and a list in another: no delta has it twice.
        delta = next((delta for delta in deltas if shown[0] not in delta), None)
        if delta is None:
            delta = {}
            deltas.append(delta)
        chunks.place(delta, shown, text)
        for length in range(2, len(path)):
            if path[:length] in self._types:
                chunks.place(delta, (*shown[:length], "type"), self._types[path[:length]])


def _content_of(slots: list[TextSlot]) -> tuple[list[str], bool]:
    """The content of a message, and whether it calls tools."""
    given = [slot.holder[slot.key] for slot in slots if slot.channel == "content" and slot.kind is SlotKind.TEXT]
    texts = [text if isinstance(text, str) else repr(text) for text in given]
    return texts, any(slot.path[0] in CALLS for slot in slots)


def _slots(message: Json) -> list[TextSlot]:
    """Raises `InvalidAnswer`."""
    try:
        return list(messages.slots(message))
    except TooDeep as error:
        raise InvalidAnswer(f"the answer's shape cannot be read: {error}") from None
