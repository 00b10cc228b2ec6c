"""One answer under a policy: chunks or a whole answer in, the same with every text censored out.

Each choice ends on its own. What a choice holds is flushed before the chunk that carries its `finish_reason`; a block
drops it, sends the rule's message and ends the choice with `content_filter`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple, TypeGuard

from gateway.censor.compile import CompiledRule
from gateway.guard.answer_guard import AnswerGuard
from gateway.guard.channels import ChannelCounts, InvalidAnswer
from gateway.guard.choice import Choice
from gateway.guard.metadata import has_more
from gateway.guard.usual_answer import usual_completion
from gateway.wire import chunks
from gateway.wire.chunks import pop_first
from gateway.wire.dialect import BLOCKED
from gateway.wire.json import Json
from gateway.wire.message import CALLS, DELTA_PLACES, MESSAGE_PLACES, position_of

MAX_CHOICES = 128  # that a request may ask for, and of one event
MAX_HEAD = 2048  # characters of an event's `id`, `model` and so on: every chunk that is made of it repeats them
_OF_ANSWERS = frozenset({"choices"})
_OF_CHOICES = frozenset({"index", "logprobs", "finish_reason", *DELTA_PLACES, *CALLS})
_MAX_TOKENS = 1 << 40
_REASONS = ("stop", "length", "tool_calls", "function_call", BLOCKED)


class _ChoiceParts(NamedTuple):
    """What an event becomes for one choice: elements of `choices`, one in the chunk that carries the event's own
    fields, and those of the chunks before and after it."""

    before: list[Json]
    here: Json | None
    after: list[Json]


class ChatGuard(AnswerGuard):
    """The answer to one request, in chat's form. `expected` is the number of choices requested."""

    def __init__(self, counts: ChannelCounts, expected: int, known: tuple[str, ...]) -> None:
        super().__init__(counts, known)
        self._expected = max(expected, 1)
        self.choices: dict[int, Choice] = {}
        self._in_deltas: set[int] = set()  # the choices that have come in deltas
        self._head: Json = {}
        self.content_only = False  # was the last chunk

    @property
    def finished(self) -> bool:
        """Has every choice ended, at least one of them by a block?"""
        if self.counts.blocked_by is None:
            return False
        ended = [choice for choice in self.choices.values() if choice.ended]
        complete = len(ended) == len(self.choices) >= self._expected
        return complete and any(choice.rule for choice in ended)

    # -- a stream ------------------------------------------------------------------------------------------------------

    def chunk(self, received: Json) -> list[Json]:
        self.metadata.leave_out_misspelled([received], _OF_ANSWERS)
        choices = received.pop("choices", None)
        self.usage = _usage_of(received) or self.usage
        self.content_only = False
        self.metadata.scrub_envelope(received)
        if self.metadata.blocked is not None:
            return _with_usage(self._block_all(self.metadata.blocked), received)
        head = chunks.head_of(received)
        if sum(len(label) for label in head.values() if isinstance(label, str)) > MAX_HEAD:
            raise InvalidAnswer(
                f"the labels of an event (`id`, `model` …) have more than {MAX_HEAD} characters altogether"
            )
        if "id" in received:
            self._head = head
        choices = _listed(choices)
        if not choices:
            return [{**received, "choices": []}]
        if len(choices) > MAX_CHOICES:
            raise InvalidAnswer(f"an event has more than {MAX_CHOICES} choices")
        parts = [self._part(number, part) for number, part in self._by_choice(choices).items()]
        here = [part.here for part in parts if part.here is not None]
        after = _with_usage(_rounds(head, [part.after for part in parts]), received)
        sent = _rounds(head, [part.before for part in parts])
        if here or has_more(received):
            sent.append({**received, "choices": here})
        return sent + after

    def _by_choice(self, choices: list[Any]) -> dict[int, Json]:
        """The parts of an event, by the number of their choice."""
        by_number: dict[int, Json] = {}
        for item in choices:
            if not isinstance(item, dict):
                self.metadata.note_unknown("an element of `choices` that is no object")
                continue
            self.metadata.leave_out_misspelled([item], _OF_CHOICES)
            number = _number(item.get("index"))
            if item.get("delta") is not None:
                self._in_deltas.add(number)
            # What comes whole beside or behind the deltas, and the same text in another dialect's place, is left out.
            places = DELTA_PLACES[:1] if number in self._in_deltas else DELTA_PLACES
            delta = pop_first(item, places)
            item["delta"] = delta if isinstance(delta, dict) else {} if delta is None else {"content": delta}
            self.metadata.drop(item, DELTA_PLACES[1:])
            self._merge_calls(item, item["delta"])
            if number in by_number:  # one entry a choice, with what clients would make of both
                chunks.merge(by_number[number], item)
            else:
                by_number[number] = item
        return by_number

    def _merge_calls(self, choice: Json, message: Json) -> None:
        """Calls that stand beside the message are read as those in it, or left out if it has some."""
        if self.metadata.enforces:
            for field in CALLS & choice.keys():
                message.setdefault(field, choice.pop(field))

    def _part(self, number: int, received: Json) -> _ChoiceParts:
        """The output for one choice's part of an event, which is consumed."""
        choice = self._choice(number)
        if choice.ended:
            return _ChoiceParts([], None, [])
        delta = received.pop("delta")
        reason = received.get("finish_reason")
        choice.describe(received.get("logprobs") if self.metadata.enforces else None)
        self.metadata.scrub_envelope(received, ("choices", number))
        if "index" in received:
            received["index"] = number  # clients file 1.0, "1" or -1 with the texts of another choice
        choice.rule, self.metadata.blocked = self.metadata.blocked, None
        here = {**received, "delta": delta}
        choice.numbering.renumber(delta)
        before: list[Json] = []
        if choice.calls and choice.rule is None:
            before = choice.close_names(delta)
        has_output = choice.censor(delta) if choice.rule is None else False
        before += choice.late
        choice.late = []
        if reason:
            choice.conclude(reason)
        self.content_only = delta.keys() == {"content"}
        if choice.rule is not None:
            here["finish_reason"] = None
            self._describe(choice, here)
            return _ChoiceParts(_parts(number, before), here if has_output else None, self._blocked(choice))
        if not reason:
            if not has_output and not has_more(received):
                return _ChoiceParts(_parts(number, before), None, [])
            self._describe(choice, here)
            return _ChoiceParts(_parts(number, before), here, [])
        self._note_reason(reason)
        tails = choice.release_held()
        if tails or choice.rule is not None:
            before += [delta, *tails] if delta else tails
            here["delta"] = {}
        if choice.rule is not None:
            return _ChoiceParts(self._described(choice, _parts(number, before)), None, self._blocked(choice))
        choice.ended = True
        self._describe(choice, here)
        return _ChoiceParts(_parts(number, before), here, [])

    def _describe(self, choice: Choice, part: Json) -> None:
        """Add the log probabilities of what has come out of a choice by now to a part of it."""
        if (described := choice.description()) is not None:
            part["logprobs"] = described

    def _described(self, choice: Choice, parts: list[Json]) -> list[Json]:
        if parts:
            self._describe(choice, parts[-1])
        return parts

    def _note_reason(self, reason: Any) -> None:
        self.reasons.append(reason if reason in _REASONS else "other")

    def _blocked(self, choice: Choice) -> list[Json]:
        self._note_reason(BLOCKED)
        return [*_parts(choice.index, choice.block()), chunks.part(choice.index, {}, BLOCKED)]

    def open_choice(self, index: int, head: Json) -> Choice | None:
        """The choice that a chunk with this head begins; None for one that has begun, or may not."""
        if index in self.choices or not 0 <= index < MAX_CHOICES or len(self.choices) >= self._expected:
            return None
        self._head = head
        self._in_deltas.add(index)
        return self._choice(index)

    def conclude(self, choice: Choice, reason: str, head: Json) -> tuple[str, list[Json]]:
        """The upstream has ended a choice that `is_content` by a chunk with this head and nothing else: the content
        that was held, and the chunks in its place, where the end blocks."""
        self.content_only, self._head = False, head
        self._note_reason(reason)
        tail = choice.finish_content()
        after = [] if choice.rule is None else self.block(choice)
        choice.ended = True
        return tail, after

    def block(self, choice: Choice) -> list[Json]:
        """The chunks that end a choice whose `rule` has blocked."""
        return _rounds(self._head, [self._blocked(choice)])

    def _block_all(self, rule: CompiledRule) -> list[Json]:
        for index in range(self._expected):
            self._choice(index)
        blocked: list[list[Json]] = []
        for choice in self.choices.values():
            if not choice.ended:
                choice.rule = rule
                blocked.append(self._blocked(choice))
        return _rounds(self._head, blocked)

    def end(self) -> list[Json]:
        sent: list[list[Json]] = []
        for choice in self.choices.values():
            if choice.ended:
                continue
            sent.append(self._described(choice, _parts(choice.index, choice.release_held())))
            if choice.rule is not None:
                sent[-1] += self._blocked(choice)
            choice.ended = True
        return _rounds(self._head, sent)

    def abandon(self) -> None:
        for choice in self.choices.values():
            choice.abandon()

    def _choice(self, index: Any) -> Choice:
        number = _number(index)
        choice = self.choices.get(number)
        if choice is None:
            if len(self.choices) >= self._expected:
                raise InvalidAnswer(f"the answer has more choices than the {self._expected} that were requested")
            choice = self.choices[number] = Choice(number, self.metadata)
        return choice

    # -- a whole answer ------------------------------------------------------------------------------------------------

    def completion(self, received: Json) -> Json:
        if (usual := usual_completion(received, self.metadata)) is not None:
            self.usage = _usage_of(received) or self.usage
            self._note_reason(usual["choices"][0]["finish_reason"])
            return usual
        self.metadata.leave_out_misspelled([received], _OF_ANSWERS)
        choices = received.pop("choices", None)
        self.usage = _usage_of(received) or self.usage
        self.metadata.scrub_envelope(received)
        everywhere = self.metadata.blocked
        kept: list[Json] = []
        for position, item in enumerate(_listed(choices)):
            if not isinstance(item, dict):
                self.metadata.note_unknown("an element of `choices` that is no object")
                continue
            self.metadata.leave_out_misspelled([item], _OF_CHOICES)
            choice = self._choice(position)  # each is whole: two that claim one index do not continue each other
            message = pop_first(item, MESSAGE_PLACES)
            self.metadata.drop(item, MESSAGE_PLACES)
            message = message if isinstance(message, dict) else {"role": "assistant", "content": message}
            self._merge_calls(item, message)
            choice.describe(item.get("logprobs") if self.metadata.enforces else None)
            self.metadata.scrub_envelope(item, ("choices", position))
            choice.rule, self.metadata.blocked = self.metadata.blocked, everywhere
            choice.numbering.renumber(message, whole=True)
            choice.censor(message, whole=True, reason=item.get("finish_reason"))
            choice.conclude(item.get("finish_reason"))
            self._describe(choice, item)
            if choice.rule is not None:
                item["finish_reason"] = BLOCKED
                if choice.rule.message:
                    field = self.counts.message_field
                    message[field] = _with_message(message.get(field), choice.rule.message)
            choice.ended = True
            self._note_reason(item.get("finish_reason"))
            kept.append({**item, "message": message})
        return {**received, "choices": kept}

    def as_stream(self, received: Json) -> Iterator[list[Json]]:
        return map(self.chunk, chunks.as_chunks(received))

    def assembler(self) -> chunks.ChunkAssembler:
        return chunks.ChunkAssembler()


def _usage_of(received: Json) -> tuple[int, int] | None:
    """Tokens of the prompt and of the answer, if the upstream has counted both."""
    usage = received.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return (prompt, completion) if is_count(prompt) and is_count(completion) else None


def _listed(choices: Any) -> list[Any]:
    """Raises `InvalidAnswer` for `choices` of another shape: nothing that stands there must be lost without a word."""
    if choices is None or isinstance(choices, list):
        return choices or []
    raise InvalidAnswer("the answer has `choices` that are not a list")


def _number(index: Any) -> int:
    """The choice that an index means."""
    return position_of({"index": index}, 0)


def _parts(index: int, deltas: list[Json]) -> list[Json]:
    return [chunks.part(index, delta) for delta in chunks.combined(deltas)]


def _rounds(head: Json, parts: list[list[Json]]) -> list[Json]:
    """Chunks that hold the parts of each choice in their order, and those of all choices side by side."""
    return [chunks.chunk(head, [part for part in side if part is not None]) for side in zip_longest(*parts)]


def _with_usage(last: list[Json], received: Json) -> list[Json]:
    """The chunks that end what an event began, with its usage in the last of them."""
    if last and received.get("usage"):
        last[-1]["usage"] = received.pop("usage")
    return last


def is_count(value: Any) -> TypeGuard[int]:
    """Can this be a number of tokens?"""
    return type(value) is int and 0 <= value < _MAX_TOKENS


def _with_message(content: Any, message: str) -> Any:
    """A text of a whole answer, and after it the message of the rule that blocked the rest."""
    if isinstance(content, list):
        return [*content, {"type": "text", "text": message}]
    return (content if isinstance(content, str) else "") + message
