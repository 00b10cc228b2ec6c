"""Requests before they are forwarded: bad fields refused, prompts censored by the rules that apply to input."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from gateway.censor.compile import CompiledPolicy, CompiledRule
from gateway.guard import fields
from gateway.guard.channels import ChannelCounts, GuardedText
from gateway.guard.chat import MAX_CHOICES
from gateway.guard.constrained import FORMATS, remove_formats
from gateway.guard.findings import OnFinding
from gateway.guard.guardedjson import GuardedJson, string_text
from gateway.guard.names import misspelled, misspelled_in
from gateway.guard.parts import JoinedParts, PartText
from gateway.guard.pseudonyms import Concealer, Pseudonyms, TooManyValues, labels_of
from gateway.observe.facts import TextScanned
from gateway.policy.model import Channel, Direction, Unknown
from gateway.surrogates import join_surrogates
from gateway.wire import json, media
from gateway.wire.chat import CHAT
from gateway.wire.dialect import BadRequest as BadRequest  # what reading a request raises, wherever it is read
from gateway.wire.dialect import Dialect, RequestTexts
from gateway.wire.json import Json
from gateway.wire.message import CONSTANT_LABELS, SlotKind, TextSlot, TooDeep, decoded_numbers, text_runs

# Read by name in every request; each dialect adds its own.
_OWN_FIELDS = frozenset({*FORMATS, *fields.NAMES_TOOLS, "stream", "n", "modalities"})


MAX_STEP = 4096  # characters of a text that are scanned in one step
STEP_OF_A_TEXT = 64  # characters; to begin and end a text takes as long as so many of it
STEP_OF_A_PASSING_TEXT = 8  # characters; the same where it need not be opened

_CHANNELS = {channel.value: channel for channel in Channel}
Result = TypeVar("Result")
Guarding = Generator[int, None, Result]


class ChatRequest(Struct, frozen=True):
    """The parts of a request that are read before its prompt. `choices` is how many answers it
    asks for, `dialect` that of its endpoint."""

    model: str
    stream: bool
    choices: int
    dialect: Dialect = CHAT


def read_request(body: object, dialect: Dialect) -> ChatRequest:
    """Raises `BadRequest` for what no upstream could take, and for more answers than one request may have."""
    body = _with_own_fields(body, dialect)
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("`model` must be a non-empty string.", "model")
    if join_surrogates(model) != model:  # it may stand in the address of an upstream
        raise BadRequest("`model` must not have lone surrogates.", "model")
    prompts = dialect.count_prompts(body)
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise BadRequest("`stream` must be true or false.", "stream")
    choices = prompts * _choices(body)
    if choices > MAX_CHOICES:
        raise BadRequest(f"`prompt` and `n` ask for {choices} answers; {MAX_CHOICES} is the most.", "prompt")
    return ChatRequest(model, bool(stream), choices, dialect)


def _with_own_fields(body: object, dialect: Dialect) -> Json:
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object.")
    name = misspelled(body, _own_fields(dialect))
    if name is not None:
        raise BadRequest(f"A field's name must be spelled `{name}`.", name)
    return body


@lru_cache(32)
def _own_fields(dialect: Dialect) -> frozenset[str]:
    return _OWN_FIELDS | dialect.prompt_fields | dialect.refused.keys() | dialect.dropped.keys()


def _choices(body: Json) -> int:
    choices = body.get("n")
    if choices is None:
        return 1
    if not isinstance(choices, int) or isinstance(choices, bool) or not 1 <= choices <= MAX_CHOICES:
        raise BadRequest(f"`n` must be a whole number from 1 to {MAX_CHOICES}.", "n")
    return choices


def apply_request_table(body: Json, compiled: CompiledPolicy, dialect: Dialect = CHAT) -> None:
    """Take out or refuse the fields that would lead past the censor, in place. Raises `BadRequest`."""
    if (refused := remove_formats(body, compiled.policy)) is not None:
        raise BadRequest(*refused)
    if not compiled.enforces or not (compiled.programs or compiled.policy.constrain):
        return
    for field in () if dialect.refused.keys().isdisjoint(body) else dialect.refused:
        if body.get(field) is not None:
            raise BadRequest(f"`{field}` is not accepted here: {dialect.refused[field]}.", field)
    for field in dialect.text_only if dialect.generates or compiled.scans(Direction.INPUT) else ():
        if isinstance(given := body.get(field), list) and not all(isinstance(item, str) for item in given):
            raise BadRequest(f"`{field}` must be text here: token ids cannot be scanned. Send the text itself.", field)
    for field in () if dialect.dropped.keys().isdisjoint(body) else dialect.dropped:
        body.pop(field, None)
    modalities = body.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities and compiled.scans(Direction.OUTPUT):
        raise BadRequest("Audio output is not accepted here: it cannot be scanned.", "modalities")


class GuardedPrompt(NamedTuple):
    """`rule` is the one that blocks the request, if one does; `scanned` what was counted, if anything was scanned;
    `pseudonyms` is what the placeholders in it stand for, None if there is none. With `refusal` the request cannot be
    forwarded, and only a part of it was scanned."""

    rule: CompiledRule | None = None
    scanned: TextScanned | None = None
    pseudonyms: Pseudonyms | None = None
    refusal: BadRequest | None = None


def guard_prompt(
    body: Json, compiled: CompiledPolicy, on_finding: OnFinding | None = None, dialect: Dialect = CHAT
) -> GuardedPrompt:
    """Censor every text of a request in place: of its messages and `prediction`, or of its prompts, then of the fields
    beside them."""
    steps = guarding_prompt(body, compiled, on_finding, dialect)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            guarded: GuardedPrompt = end.value
            return guarded


def guarding_prompt(
    body: Json, compiled: CompiledPolicy, on_finding: OnFinding | None = None, dialect: Dialect = CHAT
) -> Guarding[GuardedPrompt]:
    """`guard_prompt` in steps of at most `MAX_STEP`; each yields its size in characters."""
    if not compiled.scans(Direction.INPUT):
        return GuardedPrompt()
    labels = labels_of(compiled)
    concealer = Concealer(labels, lambda text: _occurs(text, body)) if labels else None
    counts = ChannelCounts(compiled, Direction.INPUT, on_finding, concealer=concealer)
    rule: CompiledRule | None = None
    field: str | None = None
    try:
        for texts in dialect.prompt_texts(body):
            field = texts.field
            rule = yield from _guard_texts(texts, counts)
            if rule is not None:
                break
        else:
            field = None
            beside = {name: value for name, value in body.items() if name not in dialect.prompt_fields}
            unknown = {name: value for name, value in beside.items() if name not in fields.FIXED_NAMES}
            rule = yield from _guard_around(beside, fields.slots(body, dialect.prompt_fields), counts, unknown, body)
            rule = rule or (yield from _guard_numbers(body, counts))
    except (TooManyValues, TooDeep) as error:
        return GuardedPrompt(None, counts.fact(), refusal=BadRequest(str(error), field))
    except BadRequest as error:
        return GuardedPrompt(None, counts.fact(), refusal=error)
    if rule is not None:
        return GuardedPrompt(rule, counts.fact())
    return GuardedPrompt(None, counts.fact(), concealer.pseudonyms() if concealer is not None else None)


def _occurs(text: str, body: Json) -> bool:
    try:
        return text.encode("ascii") in json.encode(body)
    except json.JSONError as error:
        raise BadRequest(f"The body cannot be forwarded: {error}.") from None


def _guard_texts(texts: RequestTexts, counts: ChannelCounts) -> Guarding[CompiledRule | None]:
    if texts.message is None:
        return (yield from _guard_slots(texts.slots, counts))
    if counts.compiled.enforces and (name := misspelled_in(texts.message)) is not None:
        raise BadRequest(f"The name of a message's field must be spelled `{name}`.", "messages")
    return (yield from _guard_around(texts.message, texts.slots, counts, texts.message, texts.message))


def _guard_around(
    holder: Json, slots: Iterable[TextSlot], counts: ChannelCounts, joined: Json, body: Json
) -> Guarding[CompiledRule | None]:
    """Censor texts, and those in envelopes among them, but no media that an object holds. In `joined` texts that follow
    each other in a list are one. `holder` is `body`, or has some of its fields."""
    hidden, envelopes = _hide_payloads(holder, body)
    try:
        runs = list(text_runs(joined))
        rule = yield from _guard_runs(list(slots), runs, counts) if runs else _guard_slots(slots, counts)
        for each in envelopes:
            rule = rule or (yield from _guard_slots(each.slots(), counts))
            hidden.append((each.holder, each.key, each.encoded()))
        return rule
    finally:
        for holder, key, value in hidden:
            holder[key] = value


def _guard_slots(slots: Iterable[TextSlot], counts: ChannelCounts) -> Guarding[CompiledRule | None]:
    """Censor the texts in place; the rule that blocks one of them. Raises `BadRequest` and `TooManyValues`."""
    renamed: dict[int, tuple[Json, dict[str, str]]] = {}  # by the identity of the object that has the names
    for slot in slots:
        given: Any = slot.key if slot.kind is SlotKind.KEY else slot.holder[slot.key]
        given = given if isinstance(given, str) else repr(given)
        if slot.kind is SlotKind.LABEL and given in CONSTANT_LABELS:
            continue
        if slot.kind is SlotKind.JSON or _may_hold_json(slot, given):
            counts.values_in_json += json.values_in(given)
            if counts.values_in_json > json.MAX_VALUES:
                raise BadRequest(
                    f"The arguments of all tool calls have more than {json.MAX_VALUES} values.", "messages"
                )
        elif counts.passes(_CHANNELS[slot.channel], given):
            yield len(given) + STEP_OF_A_PASSING_TEXT
            continue
        text = _open(slot, counts)
        shown = yield from fed(text, given)
        shown += text.finish() if text.rule is None else ""
        if text.rule is not None:
            return text.rule
        if shown == given or not counts.compiled.enforces:
            continue
        if slot.kind is SlotKind.KEY:
            renamed.setdefault(id(slot.holder), (slot.holder, {}))[1][slot.key] = shown
        else:
            slot.holder[slot.key] = shown
    for holder, names in renamed.values():
        _rename(holder, names)
    return None


def fed(text: GuardedText, given: str) -> Guarding[str]:
    """Feed a text in steps, up to a block: what has come out of it."""
    shown: list[str] = []
    for at in range(0, max(len(given), 1), MAX_STEP):
        shown.append(text.feed(given[at : at + MAX_STEP]))
        yield min(len(given) - at, MAX_STEP) + STEP_OF_A_TEXT
        if text.rule is not None:
            break
    return "".join(shown)


def _guard_runs(
    slots: list[TextSlot], runs: list[list[tuple[Any, Any]]], counts: ChannelCounts
) -> Guarding[CompiledRule | None]:
    """`_guard_slots` where there are texts that follow each other: those of one channel are one text."""
    channels = {(id(slot.holder), slot.key): slot.channel for slot in slots if slot.kind is SlotKind.TEXT}
    joined: set[tuple[int, Any]] = set()
    for run in runs:
        by_channel: dict[str, list[tuple[Any, Any]]] = {}
        for holder, key in run:
            channel = channels.get((id(holder), key))
            if channel not in (None, Channel.TOOL_ARGUMENTS.value) and isinstance(holder[key], str):
                by_channel.setdefault(channel, []).append((holder, key))
        for channel, places in by_channel.items():
            if len(places) > 1:
                joined.update((id(holder), key) for holder, key in places)
                rule = yield from _guard_joined(places, _CHANNELS[channel], counts)
                if rule is not None:
                    return rule
    rest = [slot for slot in slots if slot.kind is not SlotKind.TEXT or (id(slot.holder), slot.key) not in joined]
    return (yield from _guard_slots(rest, counts))


def _guard_joined(
    places: list[tuple[Any, Any]], channel: Channel, counts: ChannelCounts
) -> Guarding[CompiledRule | None]:
    joined = JoinedParts(lambda reader: counts.open(channel, None, reader))
    parts: dict[int, PartText] = {}
    shown: list[str] = []
    for at, (holder, key) in enumerate(places):
        given = join_surrogates(holder[key])
        if not joined.waits and counts.passes(channel, given, closed=True):
            joined.skip()
            shown.append(given)
            yield len(given) + STEP_OF_A_PASSING_TEXT
            continue
        parts[at] = part = joined.part(at)
        shown.append((yield from fed(part, given)))
        if part.rule is not None:
            return part.rule
    for at, late in joined.late:
        shown[at] += late
    for at, part in parts.items():
        shown[at] += part.finish()
        if part.rule is not None:
            return part.rule
    if counts.compiled.enforces:
        for (holder, key), text in zip(places, shown, strict=True):
            holder[key] = text
    return None


def _guard_numbers(body: Json, counts: ChannelCounts) -> Guarding[CompiledRule | None]:
    """Empty the lists of numbers that spell what a rule takes out; those under names of nobody's are `unknown`. Raises
    `BadRequest`."""
    policy = counts.compiled.policy
    for holder, key, is_known in fields.number_lists(body):
        if counts.compiled.enforces and not is_known and policy.unknown is not Unknown.SCAN:
            if policy.unknown is Unknown.REFUSE:
                raise BadRequest("A list of numbers that may be text or tokens is not accepted here.")
            holder[key] = []
            continue
        for spelled in map(join_surrogates, decoded_numbers(holder[key]).values()):
            slot = TextSlot([spelled], 0, (), Channel.OTHER.value, SlotKind.TEXT)
            if (rule := (yield from _guard_slots([slot], counts))) is not None:
                return rule
            if slot.holder[0] != spelled:
                holder[key] = []
                break
    return None


def _rename(holder: Json, names: dict[str, str]) -> None:
    """Give fields other names, each in its place. Raises `BadRequest` where one would become a field of the protocol,
    which nobody has read as such."""
    if any(name.casefold() in fields.FIXED_NAMES for name in names.values()):
        raise BadRequest("A field's name holds text that the policy removes; what is left names another field.")
    members = [(names.get(name, name), value) for name, value in holder.items()]
    holder.clear()
    holder.update(members)


def _may_hold_json(slot: TextSlot, text: str) -> bool:
    """Arguments that came as an object may have JSON in their strings, as those that came as text."""
    return slot.kind is SlotKind.TEXT and slot.channel == "tool_arguments" and text.lstrip()[:1] in ("{", "[", '"')


def _open(slot: TextSlot, counts: ChannelCounts) -> GuardedText:
    channel = _CHANNELS[slot.channel]
    if slot.kind is SlotKind.JSON:
        return GuardedJson(counts, channel)
    if slot.kind is SlotKind.TEXT and slot.channel == "tool_arguments" and counts.scans(channel):
        return string_text(counts, channel)
    return counts.open(channel)


class _EnvelopeText:
    """A text that a payload encodes, while it is scanned."""

    def __init__(self, holder: Any, key: Any, envelope: media.Envelope) -> None:
        self.holder = holder
        self.key = key
        self._as_it_stands: list[str] = [holder[key]]
        self._envelope = envelope
        self._texts = {"text": envelope.text, "parameters": envelope.parameters}

    def slots(self) -> Iterator[TextSlot]:
        for name in self._texts:
            yield TextSlot(self._texts, name, (name,), Channel.CONTENT.value, SlotKind.TEXT)
        if not self._changed and self._envelope.doubtful:
            yield TextSlot(self._as_it_stands, 0, (0,), Channel.CONTENT.value, SlotKind.TEXT)

    @property
    def _changed(self) -> bool:
        return self._texts != {"text": self._envelope.text, "parameters": self._envelope.parameters}

    def encoded(self) -> str:
        """The payload with its censored text; unchanged if the text is."""
        return self._envelope.encoded(**self._texts) if self._changed else self._as_it_stands[0]


def _hide_payloads(message: Json, body: Json) -> tuple[list[tuple[Any, Any, str]], list[_EnvelopeText]]:
    """Take the media and the texts in envelopes out of a message, the fields of which are those of `body`, while its
    other texts are read.

    Returns how to put all of them back, and the envelopes.
    """
    hidden: list[tuple[Any, Any, str]] = []
    envelopes: list[_EnvelopeText] = []
    for place, key, declared in media.payload_places(message):
        holder = body if place is message else place
        found = media.classify(holder[key], declared)
        if isinstance(found, media.Envelope):
            envelopes.append(_EnvelopeText(holder, key, found))
        if found:
            hidden.append((holder, key, holder[key]))
            holder[key] = None
    return hidden, envelopes
