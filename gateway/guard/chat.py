"""One chat answer under a policy: chunks or a whole completion in, the same with every text censored out.

Each choice ends on its own. What a choice holds is flushed before the chunk that carries its `finish_reason`; a block
drops it, says the rule's message and ends the choice with `content_filter`.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from gateway.censor.compile import CompiledPolicy, CompiledRule
from gateway.censor.stream import Censor
from gateway.guard.texts import ChannelText, JsonArguments, Ledger, Text
from gateway.policy.model import Channel, Direction, Mode, Unknown
from gateway.wire import chat, usual
from gateway.wire.chat import Json, Kind, Path, Slot
from gateway.wire.usual import UsualChunk

MAX_CHOICES = 128
MAX_TEXTS = 512  # of one choice; as many tool names
MAX_LABELS = 4096  # of one choice, other than constants
MAX_NAME = 4096  # characters of one tool's name, which is kept back until it is whole
MAX_CLEAN_LABELS = 256
MAX_LABEL = 256  # characters; longer ones are scanned each time

BLOCKED = "content_filter"


class Refused(Exception):
    """The upstream's answer cannot be passed on: it breaks a bound or the protocol. The message quotes no text."""


class _Call:
    """A tool call whose name is not complete: nothing of it is shown before its arguments begin.

    Clients read the first delta of a call as its whole head, and some replace a name instead of adding to it.
    """

    __slots__ = ("entry", "name", "path", "text")

    def __init__(self, path: Path, text: Text) -> None:
        self.path = path
        self.text = text
        self.name = ""
        self.entry: Json = {}


class _Choice:
    __slots__ = ("calls", "closed_names", "ended", "index", "labels", "rule", "texts")

    def __init__(self, index: int) -> None:
        self.index = index
        self.texts: dict[Path, ChannelText] = {}
        self.calls: dict[Path, _Call] = {}
        self.closed_names: set[Path] = set()
        self.labels: dict[Path, str] = {}  # what a client has that appends every label to the one before
        self.rule: CompiledRule | None = None  # that blocked
        self.ended = False


class ChatGuard:
    """The answer to one request. `expected` is the number of choices that were asked for, `known` are labels that the
    client itself or the operator wrote (the model's names) and that are therefore not looked at.

    Methods raise `Refused` when the answer must not go on.
    """

    def __init__(self, compiled: CompiledPolicy, expected: int = 1, known: tuple[str, ...] = ()) -> None:
        self.ledger = Ledger(compiled, Direction.OUTPUT)
        self._enforces = compiled.policy.mode is Mode.ENFORCE
        self._unknown = compiled.policy.unknown
        self._expected = max(expected, 1)
        self._choices: dict[int, _Choice] = {}
        self._clean: set[str] = set(known)
        self._head: Json = {}
        self._content_only = False  # was the last chunk that came the general way
        self._known: UsualChunk | None = None  # a chunk with clean labels; others with the same need no second look
        self._blocked_everywhere: CompiledRule | None = None

    @property
    def finished(self) -> bool:
        """Has every choice ended, at least one of them by a block? Then nothing more is wanted of the upstream."""
        if self.ledger.blocked_by is None:
            return False
        ended = [choice for choice in self._choices.values() if choice.ended]
        complete = len(ended) == len(self._choices) >= self._expected
        return complete and any(choice.rule for choice in ended)

    # -- a stream ------------------------------------------------------------------------------------------------------

    def chunk(self, received: Json) -> list[Json]:
        """The chunks to send for one that was received; it is used up."""
        choices = received.pop("choices", None)
        self._content_only = False
        self._clean_labels(received)
        if self._blocked_everywhere is not None:
            return self._block_all(self._blocked_everywhere)
        if "id" in received:
            self._head = chat.head_of(received)
        if not isinstance(choices, list):
            if choices:
                self._refuse_unknown("`choices` that is no list")
            choices = []
        if not choices:
            return [{**received, "choices": []}]
        sent: list[Json] = []
        last = len(choices) - 1
        for position, choice in enumerate(choices):
            if not isinstance(choice, dict):
                self._refuse_unknown("an element of `choices` that is no object")
                continue
            # One choice a chunk: a choice that ends needs chunks of its own around it. Usage goes with the last.
            envelope = received if position == last else chat.head_of(received)
            sent += self._choice_chunk(envelope, choice)
        return sent

    def repeat(self, data: bytes) -> tuple[bytes, list[Json]] | None:
        """The quick way for an event that differs from one seen before in nothing but its content.

        Returns the event's data to send, possibly empty, and chunks to send after it; None where only the general way
        will do, and then nothing has happened.
        """
        if self._known is None or (chunk := usual.read(data)) is None or not chunk.has_labels_of(self._known):
            return None
        choice = self._choices.get(chunk.choices[0].index)
        text = None if choice is None or choice.ended or choice.calls else choice.texts.get(_CONTENT)
        if choice is None or text is None:
            return None
        delta = chunk.choices[0].delta
        given, delta.content = delta.content, text.feed(delta.content)
        if self._enforces:
            chunk.obfuscation = UNSET
        payload = usual.encode(chunk) if delta.content or not given else b""
        choice.rule = text.rule
        return payload, [] if choice.rule is None else self._block(choice)

    def learn(self, data: bytes) -> None:
        """An event was taken the general way; may others like it be taken the quick way?"""
        if not self._content_only:
            return
        chunk = usual.read(data)
        if chunk is not None and all(label in self._clean or label in chat.CONSTANT_LABELS for label in chunk.labels()):
            self._known = chunk

    def _choice_chunk(self, envelope: Json, received: Json) -> list[Json]:
        choice = self._choice(received.get("index"))
        if choice.ended:
            return [{**envelope, "choices": []}] if _has_more(envelope) else []
        delta = received.pop("delta", None)
        delta = delta if isinstance(delta, dict) else {} if delta is None else {"content": delta}
        reason = received.get("finish_reason")
        self._clean_labels(received)
        if "index" in received:
            received["index"] = choice.index  # clients file 1.0, "1" or -1 with the texts of another choice
        choice.rule, self._blocked_everywhere = self._blocked_everywhere, None
        message = {**envelope, "choices": [{**received, "delta": delta}]}
        before = self._close_names(choice, delta) if choice.calls and choice.rule is None else []
        spoke = self._take(choice, delta) if choice.rule is None else False
        self._content_only = delta.keys() == {"content"}
        if choice.rule is None and reason:
            return before + self._finish(choice, message, delta)
        if choice.rule is not None:
            message["choices"][0]["finish_reason"] = None
            message.pop("usage", None)
            return before + ([message] if spoke else []) + self._block(choice)
        return [*before, message] if spoke or _has_more(envelope) or _has_more(received) else before

    def _finish(self, choice: _Choice, message: Json, delta: Json) -> list[Json]:
        """The chunk that carries the finish reason, and before it all that was held."""
        tails = self._tails(choice)
        if choice.rule is None and not tails:
            choice.ended = True
            return [message]
        sent: list[Json] = []
        if delta:
            sent.append(chat.chunk(self._head, choice.index, delta))
        sent += [chat.chunk(self._head, choice.index, tail) for tail in tails]
        if choice.rule is not None:
            return sent + self._block(choice)
        choice.ended = True
        message["choices"][0]["delta"] = {}
        return [*sent, message]

    def _tails(self, choice: _Choice) -> list[Json]:
        """End the choice's texts; the deltas that show what they held. A block may happen here too."""
        tails: list[Json] = []
        for call in list(choice.calls.values()):
            if choice.rule is None and (entry := self._close_name(choice, call)) is not None:
                tails.append({"tool_calls": [entry]} if call.path[0] == "tool_calls" else entry)
        rests: list[Json] = []
        for path, text in choice.texts.items():
            if choice.rule is not None:
                break
            tail = text.finish()
            choice.rule = text.rule
            if tail and self._enforces:
                self._place(choice, rests, path, tail)
        return tails + rests

    def _place(self, choice: _Choice, deltas: list[Json], path: Path, text: str) -> None:
        """Add text of our own making to one of the deltas, under the names of fields that the client knows."""
        shown = tuple(
            step if isinstance(step, int) or step in chat.KNOWN_NAMES else self._label_value(step, choice)
            for step in path
        )
        # A field may have been a string in one chunk and a list in another: no delta has it twice.
        delta = next((delta for delta in deltas if shown[0] not in delta), None)
        if delta is None:
            delta = {}
            deltas.append(delta)
        chat.place(delta, shown, text)

    def _block(self, choice: _Choice) -> list[Json]:
        """End a choice whose `rule` has blocked: close what must stay well-formed, say the message, give the reason."""
        deltas: list[Json] = []
        rule, choice.ended = choice.rule, True
        for path, text in choice.texts.items():
            needed = text.abandon()
            if needed and path[:-1] not in choice.calls:
                self._place(choice, deltas, path, needed)
        for call in choice.calls.values():
            call.text.abandon()
        if rule is not None and rule.message:
            deltas.append({"content": rule.message})
        sent = [chat.chunk(self._head, choice.index, delta) for delta in deltas]
        return [*sent, chat.chunk(self._head, choice.index, {}, BLOCKED)]

    def _block_all(self, rule: CompiledRule) -> list[Json]:
        for index in range(self._expected):
            self._choice(index)
        sent: list[Json] = []
        for choice in self._choices.values():
            if not choice.ended:
                choice.rule = rule
                sent += self._block(choice)
        return sent

    def end(self) -> list[Json]:
        """The stream is over, well or badly: what is held and no match comes out (§4.7)."""
        sent: list[Json] = []
        for choice in self._choices.values():
            if choice.ended:
                continue
            sent += [chat.chunk(self._head, choice.index, tail) for tail in self._tails(choice)]
            if choice.rule is not None:
                sent += self._block(choice)
            choice.ended = True
        return sent

    def abandon(self) -> None:
        """The answer ends here and nothing held comes out: the client left, or the guard itself failed."""
        for choice in self._choices.values():
            choice.ended = True
            for text in [*choice.texts.values(), *(call.text for call in choice.calls.values())]:
                text.abandon()

    # -- a whole answer ------------------------------------------------------------------------------------------------

    def completion(self, received: Json) -> Json:
        """A whole answer, censored in place."""
        choices = received.pop("choices", None)
        self._clean_labels(received)
        everywhere = self._blocked_everywhere
        kept: list[Json] = []
        for position, item in enumerate(choices if isinstance(choices, list) else ()):
            if not isinstance(item, dict):
                self._refuse_unknown("an element of `choices` that is no object")
                continue
            choice = self._choice(position)  # each is whole: two that claim one index do not continue each other
            message = item.pop("message", None)
            message = message if isinstance(message, dict) else {"role": "assistant", "content": message}
            self._clean_labels(item)
            choice.rule, self._blocked_everywhere = self._blocked_everywhere, everywhere
            self._take(choice, message, whole=True)
            if choice.rule is not None:
                item["finish_reason"] = BLOCKED
                if choice.rule.message:
                    message["content"] = _with_message(message.get("content"), choice.rule.message)
            choice.ended = True
            kept.append({**item, "message": message})
        return {**received, "choices": kept}

    # -- what is no answer ---------------------------------------------------------------------------------------------

    def stray(self, received: object) -> object | None:
        """An event that is no object: what may be shown of it."""
        self._refuse_unknown("an event that is no JSON object")
        if self._unknown is Unknown.DROP and self._enforces:
            return None
        shown = self.scrub(received)
        return None if self._blocked_everywhere else shown

    def error(self, received: Json) -> Json:
        """An upstream's error, its texts scanned; one that blocks is replaced whole."""
        error = received.get("error")
        error = error if isinstance(error, dict) else {"message": error}
        shape = {"message": "The upstream failed.", "type": "upstream_error", "param": None, "code": None}
        shown = {"error": self.scrub({**shape, **error})}
        if self._blocked_everywhere is not None:
            return {"error": {**shape, "message": "The upstream failed; its message is blocked by policy."}}
        return shown

    # -- texts ---------------------------------------------------------------------------------------------------------

    def _take(self, choice: _Choice, message: Json, whole: bool = False) -> bool:
        """Censor every text of a delta or message in place, up to a block; is there anything left to show?"""
        self._apply_table(message)
        spoke = False
        swallowed = False
        reached: set[Any] = set()
        field: str | int | None = None  # that the last text came from
        for slot in list(chat.slots(message)):
            if choice.rule is not None:
                if slot.kind is Kind.KEY and slot.path[0] == field:
                    self._take_slot(choice, slot, whole)  # the name of what was shown before the block
                elif slot.kind is Kind.KEY:
                    del slot.holder[slot.key]
                elif slot.kind is not Kind.LABEL or slot.holder[slot.key] not in chat.CONSTANT_LABELS:
                    slot.holder[slot.key] = ""
                continue
            field = slot.path[0]
            if slot.kind is not Kind.LABEL:
                reached.add(slot.path[:2])
            if slot.kind is Kind.LABEL and not whole:
                self._take_label(choice, slot)
                continue
            given = slot.holder[slot.key]
            if slot.kind is Kind.NAME and not whole and self._enforces:
                self._take_name(choice, slot)
                continue
            out = self._take_slot(choice, slot, whole)
            spoke = spoke or bool(out)
            swallowed = swallowed or bool(given and not out)
        self._settle_calls(choice, message, reached)
        if not spoke and swallowed:
            return bool(message.keys() - chat.TEXT_FIELDS.keys() - {"tool_calls", "function_call"}) or any(
                isinstance(entry, dict) and "id" in entry for entry in message.get("tool_calls") or ()
            )
        return bool(message)

    def _take_slot(self, choice: _Choice, slot: Slot, whole: bool) -> Any:
        given = slot.holder[slot.key]
        if slot.kind in (Kind.LABEL, Kind.KEY):
            name = slot.kind is Kind.KEY
            out = self._label_value(slot.key if name else given, choice)
            if not name:
                slot.holder[slot.key] = out
            elif out != slot.key:
                slot.holder[out] = slot.holder.pop(slot.key)
            return out
        text = self._text(choice, slot)
        shown = text.feed(given if isinstance(given, str) else repr(given))
        if whole and text.rule is None:
            shown += text.finish()
        choice.rule = text.rule
        if not self._enforces:
            return given
        slot.holder[slot.key] = shown
        return shown

    def _take_label(self, choice: _Choice, slot: Slot) -> None:
        """A label within a delta: complete, but some clients append it to the one that came before at this place."""
        given = slot.holder[slot.key]
        shown = slot.holder[slot.key] = self._label_value(given, choice, Channel(slot.channel))
        replaced = slot.key == "type" or slot.path[0] in chat.COMPLETE_FIELDS
        if replaced or type(shown) is not str or shown in chat.CONSTANT_LABELS or not shown:
            return
        before = choice.labels.get(slot.path, "")
        if not before and len(choice.labels) >= MAX_LABELS:
            raise Refused(f"the answer has more than {MAX_LABELS} labels in one choice")
        reach = self.ledger.compiled.policy.max_hold
        if before == (shown * (reach // len(shown) + 1))[-reach:]:
            return  # the same label over and over, and all that it can make with itself has been seen
        if before and self._joins_badly(before, shown):
            slot.holder[slot.key] = ""
        else:
            choice.labels[slot.path] = (before + shown)[-reach:]

    def _joins_badly(self, before: str, label: str) -> bool:
        censor = Censor(self.ledger.compiled.program(Direction.OUTPUT, Channel.OTHER))
        censor.feed(before + label)
        censor.finish()
        return censor.changed or censor.blocked is not None

    def _text(self, choice: _Choice, slot: Slot) -> ChannelText:
        text = choice.texts.get(slot.path)
        if text is None:
            if len(choice.texts) + len(choice.calls) >= MAX_TEXTS:
                raise Refused(f"the answer has more than {MAX_TEXTS} text fields in one choice")
            channel = Channel(slot.channel)
            # Arguments that no rule looks at are not taken apart: even a number would wait for its end.
            if slot.kind is Kind.JSON and self.ledger.compiled.program(Direction.OUTPUT, channel) is not None:
                text = JsonArguments(self.ledger)
            else:
                text = self.ledger.open(channel)
            choice.texts[slot.path] = text
        return text

    def _choice(self, index: Any) -> _Choice:
        number = index if type(index) is int and index >= 0 else 0
        choice = self._choices.get(number)
        if choice is None:
            if len(self._choices) >= MAX_CHOICES:
                raise Refused(f"the answer has more than {MAX_CHOICES} choices")
            choice = self._choices[number] = _Choice(number)
        return choice

    # -- tool names ----------------------------------------------------------------------------------------------------

    def _take_name(self, choice: _Choice, slot: Slot) -> None:
        path = slot.path[:-1]
        given = slot.holder.pop(slot.key)
        if path in choice.closed_names:
            return  # a client would add it to, or put it in place of, a name that was checked without it
        call = choice.calls.get(path)
        if call is None:
            if len(choice.calls) + len(choice.closed_names) >= MAX_TEXTS:
                raise Refused(f"the answer has more than {MAX_TEXTS} tool calls in one choice")
            call = choice.calls[path] = _Call(path, self.ledger.open(Channel.TOOL_NAMES))
        call.name += call.text.feed(given)
        choice.rule = call.text.rule
        if len(call.name) > MAX_NAME:
            raise Refused(f"the answer has a tool's name of more than {MAX_NAME} characters")

    def _settle_calls(self, choice: _Choice, message: Json, reached: set[Any]) -> None:
        """Keep back the calls whose names are still open, show those that have gone on, drop unread ones."""
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            paths = [("tool_calls", chat.position_of(entry, position)) for position, entry in enumerate(calls)]
            shown: list[Any] = []
            for position, (path, entry) in enumerate(zip(paths, calls, strict=True)):
                if choice.rule is not None and path not in reached:
                    continue
                call = next((choice.calls[p] for p in _function_paths(path) if p in choice.calls), None)
                if isinstance(entry, dict) and "index" in entry:
                    entry["index"] = path[1]
                if call is None:
                    shown.append(entry)
                elif _is_head(entry) and paths.count(path) == len(paths) - position:
                    chat.merge(call.entry, entry)
                else:  # official clients take the order in which calls appear for their indices
                    shown.append(self._close_name(choice, call, entry))
            message["tool_calls"] = [entry for entry in shown if entry is not None]
            if not message["tool_calls"]:
                del message["tool_calls"]
        function = message.get("function_call")
        call = choice.calls.get(("function_call",))
        if call is not None and isinstance(function, dict):
            if function.get("arguments"):
                del message["function_call"]
                message.update(self._close_name(choice, call, {"function_call": function}) or {})
            else:
                chat.merge(call.entry, {"function_call": message.pop("function_call")})
        elif choice.rule is not None and not any(path[0] == "function_call" for path in reached):
            message.pop("function_call", None)

    def _close_names(self, choice: _Choice, delta: Json) -> list[Json]:
        """A chunk that does not first of all go on with an open name ends it."""
        names = (slot.path[:-1] for slot in chat.slots(delta) if slot.path[0] in ("tool_calls", "function_call"))
        going_on = next(names, None)
        sent: list[Json] = []
        for path, call in list(choice.calls.items()):
            if path != going_on and choice.rule is None and (entry := self._close_name(choice, call)) is not None:
                shown = {"tool_calls": [entry]} if path[0] == "tool_calls" else entry
                sent.append(chat.chunk(self._head, choice.index, shown))
        return sent

    def _close_name(self, choice: _Choice, call: _Call, entry: Json | None = None) -> Json | None:
        """The call's head with its whole name, and what `entry` adds to it; None if the name blocked."""
        name = call.name + call.text.finish()
        if call.text.rule is not None:
            choice.rule = call.text.rule
            return None  # the call stays open: nothing of it is ever shown
        del choice.calls[call.path]
        choice.closed_names.add(call.path)
        chat.merge(call.entry, entry or {})
        part = str(call.path[-1])
        rest = call.entry.get(part)
        call.entry[part] = {"name": name, **(rest if isinstance(rest, dict) else {})}
        return call.entry

    # -- labels --------------------------------------------------------------------------------------------------------

    def label(self, text: str) -> str:
        """A text that is complete where it stands. Most repeat from chunk to chunk and are remembered as clean."""
        if text in self._clean or text in chat.CONSTANT_LABELS:
            return text
        shown, rule = self._scan_label(text, Channel.OTHER)
        if rule is not None:
            self._blocked_everywhere = rule
        elif shown == text and len(text) <= MAX_LABEL and len(self._clean) < MAX_CLEAN_LABELS:
            self._clean.add(text)
        return shown

    def _scan_label(self, text: str, channel: Channel) -> tuple[str, CompiledRule | None]:
        label = self.ledger.open(channel)
        shown = label.feed(text)
        return shown + label.finish(), label.rule

    def _label_value(self, value: Any, choice: _Choice, channel: Channel = Channel.OTHER) -> Any:
        """A label within a choice, where a block ends only that choice; numbers become strings when redacted."""
        text = value if isinstance(value, str) else repr(value)
        if text in chat.CONSTANT_LABELS or (channel is Channel.OTHER and text in self._clean):
            return value
        shown, rule = self._scan_label(text, channel)
        choice.rule = choice.rule or rule
        return value if shown == text else shown

    def scrub(self, value: Any) -> Any:
        """Every string, number and name in a value of any shape, each complete where it stands."""
        if isinstance(value, str):
            return self.label(value)
        if isinstance(value, dict):
            dropped = chat.DROPPED_IN_ANSWERS if self._enforces else ()
            return {self._name(name): self.scrub(item) for name, item in value.items() if name not in dropped}
        if isinstance(value, list):
            return [self.scrub(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            shown = self.label(repr(value))
            return value if shown == repr(value) else shown
        return value

    def _name(self, field: str) -> str:
        return field if field in _FIXED_NAMES else self.label(field)

    def _clean_labels(self, message: Json) -> None:
        """The fields around the texts: of a chunk, a completion or a choice."""
        if self._enforces:
            for field in chat.DROPPED_IN_ANSWERS.keys() & message.keys():
                if field == "logprobs":
                    message[field] = None
                else:
                    del message[field]
        for field, value in list(message.items()):
            if type(value) is str:
                if value not in self._clean:
                    message[field] = self.label(value)
            elif type(value) is int and field in ("created", "index"):
                continue
            elif value is not None and field != "usage":
                message[field] = self.scrub(value)
            elif field == "usage" and value is not None:
                message[field] = self._scrub_usage(value)
            if field not in _ENVELOPE_FIELDS and self._keep_unknown(message, field):
                renamed = self.label(field)
                if renamed != field:
                    message[renamed] = message.pop(field)

    def _scrub_usage(self, value: Any) -> Any:
        """Counts are counts; anything else in there is text like any other."""
        if isinstance(value, dict):
            return {self._name(name): self._scrub_usage(item) for name, item in value.items()}
        return value if isinstance(value, int | float) else self.scrub(value)

    def _keep_unknown(self, message: Json, field: str) -> bool:
        if self._unknown is Unknown.SCAN or not self._enforces or not chat.has_text(message[field]):
            return True
        self._refuse_unknown("a field that this version does not know")
        del message[field]
        return False

    def _refuse_unknown(self, what: str) -> None:
        self.ledger.unknown_events += 1
        if self._unknown is Unknown.REFUSE and self._enforces:
            raise Refused(f"the answer holds {what}, and the policy says `unknown: refuse`")

    def _apply_table(self, message: Json) -> None:
        if not self._enforces:
            return
        for field in chat.DROPPED_IN_ANSWERS.keys() & message.keys():
            del message[field]
        audio = message.get("audio")
        if isinstance(audio, dict):
            for field in chat.DROPPED_IN_AUDIO & audio.keys():
                del audio[field]
        if self._unknown is not Unknown.SCAN:
            for field in chat.unknown_fields(message):
                self._keep_unknown(message, field)


_CONTENT: Path = ("content",)
_ENVELOPE_FIELDS = frozenset(
    {*chat.HEAD_FIELDS, "usage", "choices", "index", "delta", "message", "finish_reason", "stop_reason", "logprobs"}
)


# The names that errors and usage are read by.
_FIXED_NAMES = chat.KNOWN_NAMES | {
    *("message", "param", "code"),
    *("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"),
    *("cached_tokens", "audio_tokens", "reasoning_tokens"),
    *("accepted_prediction_tokens", "rejected_prediction_tokens"),
}


def _has_more(message: Json) -> bool:
    """Does a chunk or choice carry anything but its texts and what every chunk carries?"""
    return bool(message.get("usage")) or not message.keys() <= _ENVELOPE_FIELDS


def _with_message(content: Any, message: str) -> Any:
    """The content of a whole answer, and after it what a rule says about the rest."""
    if isinstance(content, list):
        return [*content, {"type": "text", "text": message}]
    return (content if isinstance(content, str) else "") + message


def _is_head(entry: Json) -> bool:
    """Is there nothing in this part of a tool call but labels and pieces of its name?"""
    parts = [entry.get("function"), entry.get("custom")]
    return entry.keys() <= _HEAD_FIELDS and all(
        part is None or (isinstance(part, dict) and not any(part.values())) for part in parts
    )


_HEAD_FIELDS = chat.LABEL_FIELDS | {"function", "custom"}


def _function_paths(path: Path) -> tuple[Path, Path]:
    return (*path, "function"), (*path, "custom")
