"""Labels, the short texts around an answer's texts: ids, names of models and fields, reasons. Each is complete.

Most repeat from chunk to chunk, so clean ones are remembered. What the protocol itself defines is not scanned.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from gateway.censor.compile import CompiledRule
from gateway.censor.joins import LabelAutomaton, LabelState
from gateway.guard.channels import ChannelCounts, ChannelText, InvalidAnswer
from gateway.guard.logprobs import TokenTexts
from gateway.guard.media import shown_payload
from gateway.guard.names import leave_out_misspelled
from gateway.policy.model import Channel, Direction, Unknown
from gateway.surrogates import join_surrogates
from gateway.wire import chunks
from gateway.wire.json import Json
from gateway.wire.media import ONLY_KNOWN, classify, may_be_payload, payload_at
from gateway.wire.message import (
    CONSTANT_LABELS,
    DROPPED_IN_ANSWERS,
    FILTER_NAMES,
    KEPT_AROUND,
    KNOWN_NAMES,
    Path,
    decoded_numbers,
    has_text,
    is_figure,
    may_spell_text,
    unknown_fields,
)

MAX_CLEAN = 256
MAX_CHANGED = 64  # labels in which something was replaced; some kilobytes each
MAX_LENGTH = 256  # characters; longer labels are scanned each time
MAX_PLACES = 2048  # of one answer, at which labels other than constants stand; two kilobytes or so each
MAX_FIRST = 64  # characters of a first label at a place that is read only when another follows it

_NUMBERS, _HOLDERS = (int, float), (list, dict)
_OTHER, _SCAN = Channel.OTHER, Unknown.SCAN  # to look up a member of an enumeration takes as long as a call

_ENVELOPE_FIELDS = frozenset(
    {*chunks.HEAD_FIELDS, "usage", "choices", "index", "delta", "message", "finish_reason", "stop_reason", "logprobs"}
)
_KNOWN_AROUND = _ENVELOPE_FIELDS | KEPT_AROUND.keys()
# The names that errors and usage are read by.
FIXED_NAMES = (
    KNOWN_NAMES
    | FILTER_NAMES
    | KEPT_AROUND.keys()
    | {
        *("message", "param", "code"),
        *("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"),
        *("cached_tokens", "audio_tokens", "reasoning_tokens"),
        *("accepted_prediction_tokens", "rejected_prediction_tokens"),
    }
)


class Metadata:
    """The labels of one answer. `known` were written by the client or the operator and are not scanned.

    `blocked` is the rule that has blocked a label outside of any choice; the caller that handles it resets it.
    """

    def __init__(self, counts: ChannelCounts, known: tuple[str, ...]) -> None:
        self.counts = counts
        self.enforces = counts.compiled.enforces
        self.blocked: CompiledRule | None = None
        self.unknown = counts.compiled.policy.unknown
        self.tokens = TokenTexts(counts)
        self._clean: set[str] = set(known)
        self._changed: dict[str, tuple[str, ChannelText]] = {}
        # The labels at one place, as some clients join them. Most places have one label only.
        self._joins: LabelAutomaton | None = None
        self._firsts: dict[Path, str] = {}
        self._sequences: dict[Path, LabelState] = {}
        self._last: dict[Path, str] = {}  # the label of the protocol's at each place, which most events repeat
        self._emptied: set[str] = set()  # clean labels that make a match with others before them
        self._numbers: dict[Path, str] = {}  # the last one at a place where no label has been

    def is_clean(self, text: str) -> bool:
        return text in self._clean or text in CONSTANT_LABELS

    def passes_unopened(self, text: str) -> bool:
        """Is it shown as it is, and need not be opened for that? Then it has been counted, the first time."""
        return text in self._clean or text in CONSTANT_LABELS or self._pass((text,))

    def pass_unopened(self, texts: Iterable[str]) -> bool:
        """`passes_unopened` for all of them; for none behind the first that does not."""
        clean = self._clean
        left = [text for text in texts if text not in clean and text not in CONSTANT_LABELS]
        return not left or self._pass(left)

    def _pass(self, texts: Sequence[str]) -> bool:
        if self.counts.pseudonyms is not None:
            return False
        if len(set(texts)) < len(texts):  # one that comes again is clean then, and is not counted
            return all(map(self.passes_unopened, texts))
        passed = self.counts.passing_labels(texts)
        if not self._emptied and len(self._clean) + passed <= MAX_CLEAN:
            self._clean.update(texts[:passed])
        else:
            for text in texts[:passed]:
                self._remember(text)
        return passed == len(texts)

    def show(self, text: str) -> str:
        """A label, censored."""
        if self.passes_unopened(text):
            return text
        if (known := self._changed.get(text)) is not None:
            shown, label = known
            label.count_again()
            return shown
        label = self.counts.open(Channel.OTHER)
        shown = label.feed(text) + label.finish()
        if label.rule is not None:
            self.blocked = label.rule
        elif len(text) > MAX_LENGTH:
            pass
        elif shown == text:
            self._remember(text)
        elif len(self._changed) < MAX_CHANGED and self.counts.pseudonyms is None:
            self._changed[text] = shown, label
        return shown

    def _remember(self, clean: str) -> None:
        if self._emptied and (clean in self._emptied or len(self._emptied) >= MAX_CLEAN):
            return
        if len(self._clean) < MAX_CLEAN:
            self._clean.add(clean)

    def passes(self, text: str) -> bool:
        """May a text that can be left out be shown as it is? It blocks nothing."""
        if self.passes_unopened(text):
            return True
        blocked, blocked_by = self.blocked, self.counts.blocked_by
        shown = self.show(text)
        self.blocked, self.counts.blocked_by = blocked, blocked_by
        return shown == text

    def show_value(self, value: Any, channel: Channel) -> tuple[Any, CompiledRule | None]:
        """`show` for a string or number within a choice, where a block ends only that choice.

        A number that is redacted becomes a string.
        """
        text = value if isinstance(value, str) else repr(value)
        if text in CONSTANT_LABELS or (channel is Channel.OTHER and text in self._clean):
            return value, None
        label = self.counts.open(channel)
        shown = label.feed(text) + label.finish()
        return (value if shown == text else shown), label.rule

    def joined(self, place: Path, label: str) -> str:
        """A clean label that clients may append to the one before at this place; empty if together they match."""
        if not label or label in CONSTANT_LABELS or not self.enforces:
            return label
        before, first = self._sequences.get(place), self._firsts.pop(place, "")
        if before is None and not first:
            if len(self._sequences) + len(self._firsts) >= MAX_PLACES:
                raise InvalidAnswer(f"the answer has labels at more than {MAX_PLACES} places")
            first = self._numbers.pop(place, "")
            if not first and len(label) <= MAX_FIRST:
                self._firsts[place] = label
                return label
        self._joins = self._joins or LabelAutomaton(self.counts.compiled.program(Direction.OUTPUT, Channel.OTHER))
        if before is None:
            before = self._sequences[place] = self._joins.follow(self._joins.start, first) or self._joins.start
        reached = self._joins.follow(before, label)
        if reached is None:
            return ""
        self._sequences[place] = reached
        return label

    def repeated(self, place: Path, label: str) -> str:
        """`joined` for a label that events repeat: it is joined where it is another than before."""
        if self._last.get(place) == label:
            return label
        shown = self.joined(place, label)
        if shown:
            self._last[place] = label
        elif label:
            self._clean.discard(label)  # the fast path would show it
            if len(self._emptied) < MAX_CLEAN:
                self._emptied.add(label)
        return shown

    def joins_number(self, place: Path, number: str) -> bool:
        """May a clean number be shown at this place? A label may follow it, and some clients append that one; behind a
        label it is one of them, and a number behind a number takes its place."""
        if not self.enforces:
            return True
        if place in self._sequences or place in self._firsts:
            return self.joined(place, number) == number
        if len(self._numbers) >= MAX_PLACES and place not in self._numbers:
            raise InvalidAnswer(f"the answer has numbers at more than {MAX_PLACES} places")
        self._numbers[place] = number
        return True

    def scrub(self, value: Any, place: Path | None = None, *, is_usage: bool = False) -> Any:
        """Every string, number and name in a value of any shape. With a `place`, texts that follow each other there in
        one stream are held together. The figures of a usage are counts and not scanned."""
        if isinstance(value, str):
            if may_be_payload(value):
                return self._scrub_payload(value, ONLY_KNOWN, place)
            shown = self.show(value)
            return shown if place is None else self.joined(place, shown)
        if isinstance(value, dict):
            dropped = DROPPED_IN_ANSWERS if self.enforces and not is_usage else ()
            return {
                self._name(name): self._scrub_at(value, name, None if place is None else (*place, name), is_usage)
                for name in value
                if name not in dropped
            }
        if isinstance(value, list):
            items = self._shown_numbers(value, place, is_usage=is_usage)
            return [self.scrub(item, place, is_usage=is_usage) for item in items]
        if isinstance(value, _NUMBERS) and not isinstance(value, bool) and not (is_usage and is_figure(value)):
            shown = self.show(repr(value))
            if place is not None and not self.joins_number(place, shown):
                return ""
            return value if shown == repr(value) else shown
        return value

    def _scrub_at(self, holder: Json, name: str, place: Path | None, is_usage: bool) -> Any:
        """`scrub` of what an object holds: media are no text."""
        value = holder[name]
        if not isinstance(value, str) or (declared := payload_at(holder, name, "")) is None:
            return self.scrub(value, place, is_usage=is_usage)
        return self._scrub_payload(value, declared, place)

    def _scrub_payload(self, value: str, declared: str, place: Path | None) -> str:
        shown = shown_payload(value, declared, self.show, lambda: self.blocked is not None)
        return shown if place is None or classify(shown, declared) is True else self.joined(place, shown)

    def drop(self, holder: Json, fields: Iterable[str]) -> None:
        """Remove fields, where the policy enforces."""
        if self.enforces:
            for field in fields:
                holder.pop(field, None)

    def leave_out_misspelled(self, parts: Iterable[Json], known: Container[str]) -> None:
        """Take fields with the known names in other letters out of objects, where the policy enforces."""
        found = [leave_out_misspelled(part, known) for part in parts] if self.enforces else []
        if any(found):
            self.note_unknown("a field of the protocol in other letters")

    def scrub_envelope(self, message: Json, place: Path = ()) -> None:
        """The fields around the texts, in place: of a chunk, a completion or, at its `place`, a choice."""
        if self.enforces:
            for field in DROPPED_IN_ANSWERS.keys() & message.keys():
                if field == "logprobs":
                    message[field] = None
                else:
                    del message[field]
        for field, value in list(message.items()):
            known = field in _KNOWN_AROUND
            if type(value) is str and known:
                message[field] = self.repeated((*place, field), self.show(value))
            elif value is not None and not (field in ("created", "index") and is_figure(value)):
                message[field] = self._scrub_at(message, field, (*place, field), field == "usage")
            if not known and self.keeps(message, field):
                renamed = self.show(field)
                if renamed != field:
                    message[renamed] = message.pop(field)

    def scrub_unknown(self, message: Json) -> None:
        """Where the policy does not scan unknown fields of a delta or message: take them out, or refuse. In place."""
        if self.enforces and self.unknown is not _SCAN:
            for field in unknown_fields(message):
                self.keeps(message, field)

    def scrub_numbers(self, message: Json, place: Path) -> None:
        """Empty the lists of numbers anywhere in a delta or message that may not be shown, in place."""
        pending: list[tuple[Any, Path]] = [(message, place)]
        while pending:
            holder, way = pending.pop()
            for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
                if isinstance(value, _HOLDERS):
                    at = (*way, key) if isinstance(key, str) else way
                    if isinstance(value, list):
                        holder[key] = value = self._shown_numbers(value, at)
                    pending.append((value, at))

    def _shown_numbers(self, items: list[Any], place: Path | None = None, *, is_usage: bool = False) -> list[Any]:
        """A list, or an empty one in place of it: where its numbers may spell text or tokens and the policy does not
        scan what is unknown, and where a rule wants something of the text that they spell."""
        if not may_spell_text(items):
            return items
        if self.unknown is not _SCAN and self.enforces and not is_usage:
            self.note_unknown("a list of numbers that may be text or tokens")
            return []
        return items if self._spells_clean(items, place) or not self.enforces else []

    def _spells_clean(self, items: list[Any], place: Path | None) -> bool:
        """Does no rule want anything of the text that numbers spell?"""
        for spelling, text in decoded_numbers(items).items():
            text = join_surrogates(text)
            if self.show(text) != text or (place is not None and self.joined((*place, spelling), text) != text):
                return False
        return True

    def note_unknown(self, what: str) -> None:
        """Count something of a shape that no dialect knows. Raises `InvalidAnswer` where the policy says so."""
        self.counts.unknown_events += 1
        if self.unknown is Unknown.REFUSE and self.enforces:
            raise InvalidAnswer(f"the answer holds {what}, and the policy says `unknown: refuse`")

    def keeps(self, message: Json, field: str) -> bool:
        """May a field that no dialect knows stay? Else it has been taken out."""
        if self.unknown is _SCAN or not self.enforces or not has_text(message[field]):
            return True
        self.note_unknown("a field that this version does not know")
        del message[field]
        return False

    def stray(self, received: object) -> object | None:
        """The part that may be shown of an event that is not an object."""
        self.note_unknown("an event that is no JSON object")
        if self.unknown is Unknown.DROP and self.enforces:
            return None
        shown: object = self.scrub(received, ("stray",))
        return None if self.blocked else shown

    def error(self, received: Json) -> Json:
        """An upstream's error, its texts scanned; one that blocks is replaced whole."""
        error = received.get("error")
        error = error if isinstance(error, dict) else {"message": error}
        shape = {"message": "The upstream failed.", "type": "upstream_error", "param": None, "code": None}
        shown = {"error": self.scrub({**shape, **error})}
        if self.blocked is not None:
            return {"error": {**shape, "message": "The upstream failed; its message is blocked by policy."}}
        return shown

    def _name(self, field: str) -> str:
        return field if field in FIXED_NAMES else self.show(field)


def has_more(message: Json) -> bool:
    """Does a chunk or choice carry anything but its texts and what every chunk carries?"""
    return bool(message.get("usage")) or not message.keys() <= _ENVELOPE_FIELDS
