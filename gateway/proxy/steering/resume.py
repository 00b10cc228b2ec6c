"""The requests of an answer that may be rolled back: which are refused, the first one, and those that resume it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.guard.prompt import BadRequest
from gateway.proxy.steering.rollback import Resume
from gateway.wire.json import Json

if TYPE_CHECKING:
    from gateway.decode.maskfile import MaskRequest

# Fields that are repeated when an answer is resumed: those about sampling, none about the answer's format.
_SAMPLING = (
    *("model", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("stop_token_ids", "ignore_eos", "bad_words", "skip_special_tokens", "spaces_between_special_tokens"),
    *("priority", "cache_salt", "user"),
)
_SEEDS = 1 << 63
_STRONGEST = -100  # the least that a bias may be

# Fields with which an answer cannot be resumed, and why.
_FORMATS = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
_REFUSED = {
    **dict.fromkeys(("tools", "functions"), "the tool parser does not run on a resumed answer"),
    **dict.fromkeys((*_FORMATS, "structural_tag"), "a format cannot be resumed in the middle of an answer"),
    "logit_bias": "it would not apply to resampled tokens",
    "allowed_token_ids": "it may allow nothing but the tokens that are rolled back",
    "use_beam_search": "a beam cannot be resumed",
    "echo": "the repeated prompt cannot be resampled",
    "suffix": "an answer before a suffix cannot be resumed",
}
_MANY = ("n", "best_of")
_PLAIN_PARTS = frozenset({"text", "refusal"})


def refuse_unresumable(body: Json) -> None:
    """Raises `BadRequest` for a request whose answer could not be rolled back."""

    def refuse(field: str, reason: str) -> BadRequest:
        return BadRequest(f"`{field}` is not accepted here, where answers are rolled back: {reason}.", field)

    for field in _MANY:
        if body.get(field) not in (None, 1):
            raise refuse(field, "only a single answer can be resumed")
    for field, reason in _REFUSED.items():
        if _is_set(field, body):
            raise refuse(field, reason)
    for position, message in enumerate(body.get("messages") or ()):
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type", "text") not in _PLAIN_PARTS:
                where = f"messages[{position}].content"
                raise refuse(where, "a prompt with images or audio cannot be repeated as tokens")
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) > 1:
        raise refuse("prompt", "only a single answer can be resumed")


def _is_set(field: str, body: Json) -> bool:
    value = body.get(field)
    if field in ("tools", "functions"):
        return bool(value) and body.get("tool_choice") != "none"
    if field == "response_format" and isinstance(value, dict):
        return value.get("type") != "text"
    return value not in (None, False, {}, [], "")


class AnswerLimits(NamedTuple):
    """The request's fields on its answer's length and end, named as in `RollbackParams`."""

    max_tokens: int | None
    stops: tuple[str, ...]
    include_stop: bool
    include_usage: bool
    deterministic: bool


def answer_limits(body: Json, stream: bool) -> AnswerLimits:
    """Of the client's request; invalid values are left for the server to refuse."""
    limits = [body.get(name) for name in ("max_completion_tokens", "max_tokens")]
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    options = body.get("stream_options")
    usage = not stream or (isinstance(options, dict) and bool(options.get("include_usage")))
    return AnswerLimits(
        max_tokens=next((limit for limit in limits if type(limit) is int), None),
        stops=tuple(stop for stop in stops if isinstance(stop, str) and stop),
        include_stop=body.get("include_stop_str_in_output") is True,
        include_usage=usage,
        deterministic=body.get("temperature") == 0,
    )


def first_request(body: Json, stream: bool) -> Json:
    """The first request: a stream, which can be closed at any token, with token ids."""
    request = {**body, "stream": True, "return_token_ids": True}
    if not stream:
        request["stream_options"] = {"include_usage": True}
    return request


def resumed_request(body: Json, resume: Resume, mask: MaskRequest | None) -> Json:
    """A further request: the prompt and what is kept of the answer, as tokens."""
    request: Json = {name: body[name] for name in _SAMPLING if body.get(name) is not None}
    request |= {
        "prompt": list(resume.tokens),
        "max_tokens": 1 if resume.one else resume.most,
        "stream": True,
        "return_token_ids": True,
        "add_special_tokens": False,
        "seed": _seed(body.get("seed"), resume.attempt),
    }
    least = body.get("min_tokens")
    if type(least) is int and least > resume.kept and not resume.one:
        request["min_tokens"] = least - resume.kept
    if mask is not None:
        request["vllm_xargs"] = mask.arguments()
    elif resume.banned:
        request["logit_bias"] = dict.fromkeys(map(str, resume.banned), _STRONGEST)
    return request


def _seed(given: Any, attempt: int) -> int:
    """Different each time, or the same tokens would be drawn; reproducible if the request had one."""
    return (given + attempt) % _SEEDS if type(given) is int else secrets.randbelow(_SEEDS)
