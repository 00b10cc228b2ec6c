"""The short texts around an answer's texts: ids, names of models and fields, reasons. Each is complete where it stands.

Most repeat from chunk to chunk, so clean ones are remembered. What the protocol itself defines is no text of anybody's.
"""

from __future__ import annotations

from typing import Any

from gateway.censor.compile import CompiledRule
from gateway.censor.joins import LabelAutomaton, LabelState
from gateway.guard.channels import Ledger, Refused, Text
from gateway.policy.model import Channel, Direction, Mode, Unknown
from gateway.wire import chat
from gateway.wire.chat import Json, Path
from gateway.wire.json import join_surrogates

MAX_CLEAN = 256
MAX_CHANGED = 64  # labels in which something was replaced; some kilobytes each
MAX_LENGTH = 256  # characters; longer labels are scanned each time
MAX_PLACES = 2048  # of one answer, at which labels other than constants stand; two kilobytes or so each

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


class Labels:
    """The labels of one answer. `known` were written by the client or the operator and are not looked at.

    `blocked` is the rule that a label outside of any choice has set off; whoever handles it takes it.
    """

    def __init__(self, ledger: Ledger, known: tuple[str, ...]) -> None:
        self.ledger = ledger
        self.enforces = ledger.compiled.policy.mode is Mode.ENFORCE
        self.blocked: CompiledRule | None = None
        self._unknown = ledger.compiled.policy.unknown
        self._clean: set[str] = set(known)
        self._changed: dict[str, tuple[str, Text]] = {}
        # The labels at one place, as some clients join them.
        self._joins = LabelAutomaton(ledger.compiled.program(Direction.OUTPUT, Channel.OTHER))
        self._sequences: dict[Path, LabelState] = {}

    def is_clean(self, text: str) -> bool:
        return text in self._clean or text in chat.CONSTANT_LABELS

    def show(self, text: str) -> str:
        """What may be shown of a label."""
        if self.is_clean(text):
            return text
        if (known := self._changed.get(text)) is not None:
            shown, label = known
            label.settle_again()
            return shown
        label = self.ledger.open(Channel.OTHER)
        shown = label.feed(text) + label.finish()
        if label.rule is not None:
            self.blocked = label.rule
        elif len(text) > MAX_LENGTH:
            pass
        elif shown == text:
            if len(self._clean) < MAX_CLEAN:
                self._clean.add(text)
        elif len(self._changed) < MAX_CHANGED and self.ledger.pseudonyms is None:
            self._changed[text] = shown, label
        return shown

    def passes(self, text: str) -> bool:
        """May a text that can be left out be shown as it is? Whatever a rule says of it, the answer goes on."""
        blocked, blocked_by = self.blocked, self.ledger.blocked_by
        shown = self.show(text)
        self.blocked, self.ledger.blocked_by = blocked, blocked_by
        return shown == text

    def show_value(self, value: Any, channel: Channel) -> tuple[Any, CompiledRule | None]:
        """The same for a string or number within a choice, where a block ends only that choice.

        A number that is redacted becomes a string.
        """
        text = value if isinstance(value, str) else repr(value)
        if text in chat.CONSTANT_LABELS or (channel is Channel.OTHER and text in self._clean):
            return value, None
        shown, rule = self._scan(text, channel)
        return (value if shown == text else shown), rule

    def joined(self, place: Path, label: str) -> str:
        """What may be shown of a clean label that a client may append to the one that came before at this place."""
        if not label or label in chat.CONSTANT_LABELS or not self.enforces:
            return label
        before = self._sequences.get(place)
        if before is None:
            if len(self._sequences) >= MAX_PLACES:
                raise Refused(f"the answer has labels at more than {MAX_PLACES} places")
            before = self._joins.start
        reached = self._joins.follow(before, label)
        if reached is None:
            return ""
        self._sequences[place] = reached
        return label

    def _scan(self, text: str, channel: Channel) -> tuple[str, CompiledRule | None]:
        label = self.ledger.open(channel)
        shown = label.feed(text)
        return shown + label.finish(), label.rule

    def scrub(self, value: Any, place: Path | None = None) -> Any:
        """Every string, number and name in a value of any shape. With a `place`, texts that follow each other there in
        one stream are held together."""
        if isinstance(value, str):
            shown = self.show(value)
            return shown if place is None else self.joined(place, shown)
        if isinstance(value, dict):
            dropped = chat.DROPPED_IN_ANSWERS if self.enforces else ()
            return {
                self._name(name): self.scrub(item, None if place is None else (*place, name))
                for name, item in value.items()
                if name not in dropped
            }
        if isinstance(value, list):
            return [self.scrub(item, place) for item in self._shown_numbers(value, place)]
        if isinstance(value, int | float) and not isinstance(value, bool):
            shown = self.show(repr(value))
            return value if shown == repr(value) else shown
        return value

    def scrub_envelope(self, message: Json, place: Path = ()) -> None:
        """The fields around the texts, in place: of a chunk, a completion or, at its `place`, a choice."""
        if self.enforces:
            for field in chat.DROPPED_IN_ANSWERS.keys() & message.keys():
                if field == "logprobs":
                    message[field] = None
                else:
                    del message[field]
        for field, value in list(message.items()):
            known = field in _ENVELOPE_FIELDS
            if type(value) is str and known:
                message[field] = self.show(value)
            elif value is not None and not (type(value) is int and field in ("created", "index")):
                message[field] = self._scrub_usage(value) if field == "usage" else self.scrub(value, (*place, field))
            if not known and self._keeps(message, field):
                renamed = self.show(field)
                if renamed != field:
                    message[renamed] = message.pop(field)

    def scrub_unknown(self, message: Json) -> None:
        """Where the policy does not scan unknown fields of a delta or message: take them out, or refuse. In place."""
        if self.enforces and self._unknown is not Unknown.SCAN:
            for field in chat.unknown_fields(message):
                self._keeps(message, field)

    def scrub_numbers(self, message: Json, place: Path) -> None:
        """Empty the lists of numbers anywhere in a delta or message that may not be shown, in place."""
        pending: list[tuple[Any, Path]] = [(message, place)]
        while pending:
            holder, way = pending.pop()
            for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
                if isinstance(value, list | dict):
                    at = (*way, key) if isinstance(key, str) else way
                    if isinstance(value, list):
                        holder[key] = value = self._shown_numbers(value, at)
                    pending.append((value, at))

    def _shown_numbers(self, items: list[Any], place: Path | None) -> list[Any]:
        """A list, or an empty one in place of it: where its numbers may spell text or tokens and the policy does not
        scan what is unknown, and where a rule wants something of the text that they spell."""
        if not chat.spells(items):
            return items
        if self._unknown is not Unknown.SCAN and self.enforces:
            self.note_unknown("a list of numbers that may be text or tokens")
            return []
        for spelling, text in chat.spelled_by(items).items():
            text = join_surrogates(text)
            clean = self.show(text) == text
            if clean and place is not None:
                clean = self.joined((*place, spelling), text) == text
            if not clean and self.enforces:
                return []
        return items

    def note_unknown(self, what: str) -> None:
        """Count something of a shape that no dialect knows. Raises `Refused` where the policy says so."""
        self.ledger.unknown_events += 1
        if self._unknown is Unknown.REFUSE and self.enforces:
            raise Refused(f"the answer holds {what}, and the policy says `unknown: refuse`")

    @property
    def drops_unknown(self) -> bool:
        return self._unknown is Unknown.DROP and self.enforces

    def _keeps(self, message: Json, field: str) -> bool:
        if self._unknown is Unknown.SCAN or not self.enforces or not chat.has_text(message[field]):
            return True
        self.note_unknown("a field that this version does not know")
        del message[field]
        return False

    def _scrub_usage(self, value: Any) -> Any:
        """Counts are counts; anything else in there is text like any other."""
        if isinstance(value, dict):
            return {self._name(name): self._scrub_usage(item) for name, item in value.items()}
        if isinstance(value, list):
            return list(map(self._scrub_usage, value))
        return value if isinstance(value, int | float) else self.scrub(value)

    def _name(self, field: str) -> str:
        return field if field in _FIXED_NAMES else self.show(field)


def has_more(message: Json) -> bool:
    """Does a chunk or choice carry anything but its texts and what every chunk carries?"""
    return bool(message.get("usage")) or not message.keys() <= _ENVELOPE_FIELDS
