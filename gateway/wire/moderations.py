"""`/moderations`: requests to our own rules, and their results in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gateway.wire import media
from gateway.wire.dialect import BadRequest
from gateway.wire.json import Json

PATH = "/moderations"
MAX_CATEGORIES = 20_000  # of all results of an answer
_WRONG = "`input` must be a string, a non-empty list of strings, or a list of parts of type text or image_url."


class ModerationInput(NamedTuple):
    """What one result is about. `has_text`: a part of it is a text, and not only the URL of an image."""

    texts: tuple[str, ...]
    has_text: bool = True


def read_input(body: Json) -> list[ModerationInput]:
    """Raises `BadRequest`."""
    given = body.get("input")
    if isinstance(given, str):
        return [ModerationInput((given,))]
    if not isinstance(given, list) or not given:
        raise BadRequest(_WRONG, "input")
    if all(isinstance(item, str) for item in given):
        return [ModerationInput((item,)) for item in given]
    parts = [_read_part(part) for part in given]
    texts = tuple(text for part in parts for text in part.texts)
    return [ModerationInput(texts, any(part.has_text for part in parts))]


def _read_part(part: Any) -> ModerationInput:
    match part:
        case {"type": "text", "text": str(text)}:
            return ModerationInput((text,))
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            payload = media.classify(url)
            if isinstance(payload, media.Envelope):
                return ModerationInput((payload.text, payload.parameters), has_text=False)
            return ModerationInput(() if payload else (url,), has_text=False)
    raise BadRequest(_WRONG, "input")


def answer(
    answer_id: str,
    policy: str,
    rules: Sequence[str],
    inputs: Iterable[ModerationInput],
    found: Iterable[frozenset[str]],
) -> Json:
    """`found`: for each input, the ids of the rules that match."""
    results = [_result(rules, each, matched) for each, matched in zip(inputs, found, strict=True)]
    return {"id": answer_id, "model": policy, "results": results}


def _result(rules: Sequence[str], given: ModerationInput, matched: frozenset[str]) -> Json:
    types = ["text"] if given.has_text else []
    return {
        "flagged": bool(matched),
        "categories": {rule: rule in matched for rule in rules},
        "category_scores": {rule: float(rule in matched) for rule in rules},
        "category_applied_input_types": dict.fromkeys(rules, types),
    }
