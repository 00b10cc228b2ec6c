"""What a client asks, before it is forwarded: bad fields refused, prompts censored by the rules that apply to input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.censor.compile import CompiledPolicy, CompiledRule
from gateway.guard.arguments import JsonArguments
from gateway.guard.pseudonyms import Concealer, Pseudonyms, TooManyValues, labels_of
from gateway.guard.texts import ChannelText, Ledger, OnFinding
from gateway.observe.facts import TextScanned
from gateway.policy.model import Channel, Direction, Mode
from gateway.wire import chat, json
from gateway.wire.chat import Json, Kind, Slot

# Parts of a message that are no text: pictures and sound, by reference or in base64.
_NO_TEXT = frozenset({"image_url", "input_audio", "file"})


_OWN_FIELDS = frozenset(
    {
        *chat.DROPPED_IN_REQUESTS,
        *chat.REFUSED_IN_REQUESTS,
        "model",
        "messages",
        "stream",
        "n",
        "prediction",
        "modalities",
    }
)


class BadRequest(ValueError):
    """A request that cannot be forwarded. `param` names the field; the message says what is wrong with it."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What the gateway needs to know of a chat request before it looks at the prompt."""

    model: str
    stream: bool
    choices: int


def read_chat_request(body: object) -> ChatRequest:
    """Raises `BadRequest` for what no upstream could take."""
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object.")
    for field in body:
        # Some servers take field names in any case; they would read a field that was not looked at here.
        if field not in _OWN_FIELDS and field.lower() in _OWN_FIELDS:
            raise BadRequest(f"A field's name must be spelled `{field.lower()}`.", field.lower())
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("`model` must be a non-empty string.", "model")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("`messages` must be a non-empty list.", "messages")
    for position, message in enumerate(messages):
        if not isinstance(message, dict):
            raise BadRequest(f"`messages[{position}]` must be an object.", f"messages[{position}]")
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise BadRequest("`stream` must be true or false.", "stream")
    choices = body.get("n")
    if choices is not None and (not isinstance(choices, int) or isinstance(choices, bool) or not 1 <= choices <= 128):
        raise BadRequest("`n` must be a whole number from 1 to 128.", "n")
    return ChatRequest(model, bool(stream), choices or 1)


def apply_request_table(body: Json, compiled: CompiledPolicy) -> None:
    """Take out or refuse the fields that would lead past the censor, in place. Raises `BadRequest`."""
    if compiled.policy.mode is not Mode.ENFORCE or not compiled.scans(Direction.OUTPUT):
        return
    for field in chat.DROPPED_IN_REQUESTS:
        body.pop(field, None)
    for field, reason in chat.REFUSED_IN_REQUESTS.items():
        if body.get(field) is not None:
            raise BadRequest(f"`{field}` is not accepted here: {reason}.", field)
    modalities = body.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities:
        raise BadRequest("Audio output is not accepted here: its sound cannot be scanned.", "modalities")


class GuardedPrompt(NamedTuple):
    """`rule` is the one that blocks the request, if one does; `scanned` what was counted, if anything was scanned;
    `pseudonyms` is what the placeholders in it stand for, None if there is none."""

    rule: CompiledRule | None = None
    scanned: TextScanned | None = None
    pseudonyms: Pseudonyms | None = None


def guard_prompt(body: Json, compiled: CompiledPolicy, on_finding: OnFinding | None = None) -> GuardedPrompt:
    """Censor every text of every message in place. Raises `BadRequest` for more values than can be replaced."""
    if not compiled.scans(Direction.INPUT):
        return GuardedPrompt()
    labels = labels_of(compiled)
    concealer = Concealer(labels, lambda text: _occurs(text, body)) if labels else None
    ledger = Ledger(compiled, Direction.INPUT, on_finding, concealer=concealer)
    prediction = body.get("prediction")
    parts = [*body["messages"], prediction] if isinstance(prediction, dict) else body["messages"]
    try:
        for message in parts:
            rule = _guard_message(message, ledger)
            if rule is not None:
                return GuardedPrompt(rule, ledger.fact())
    except TooManyValues as error:
        raise BadRequest(str(error), "messages") from None
    return GuardedPrompt(None, ledger.fact(), concealer.pseudonyms() if concealer is not None else None)


def _occurs(text: str, body: Json) -> bool:
    try:
        return text.encode("ascii") in json.encode(body)
    except json.JSONError as error:
        raise BadRequest(f"The body cannot be forwarded: {error}.") from None


def _guard_message(message: Json, ledger: Ledger) -> CompiledRule | None:
    hidden = _hide_media(message)
    try:
        for slot in list(chat.slots(message)):
            given: Any = slot.key if slot.kind is Kind.KEY else slot.holder[slot.key]
            given = given if isinstance(given, str) else repr(given)
            if slot.kind is Kind.LABEL and given in chat.CONSTANT_LABELS:
                continue
            text = _open(slot, ledger)
            shown = text.feed(given)
            if text.rule is None:
                shown += text.finish()
            if text.rule is not None:
                return text.rule
            if shown == given or ledger.compiled.policy.mode is not Mode.ENFORCE:
                continue
            if slot.kind is Kind.KEY:
                slot.holder[shown] = slot.holder.pop(slot.key)
            else:
                slot.holder[slot.key] = shown
        return None
    finally:
        for part, name, value in hidden:
            part[name] = value


def _open(slot: Slot, ledger: Ledger) -> ChannelText:
    if slot.kind is Kind.JSON:
        return JsonArguments(ledger)
    return ledger.open(Channel(slot.channel))


def _hide_media(message: Json) -> list[tuple[Json, str, Any]]:
    """Take the media out of a message's parts while its texts are read; returns how to put them back."""
    hidden: list[tuple[Json, str, Any]] = []
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            hidden += [(part, name, part.pop(name)) for name in _NO_TEXT & part.keys()]
    return hidden
