"""Requests that rollback can be performed for, and how such an answer is taken up again."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.guard.prompt import BadRequest
from gateway.proxy.steering.rollback import Resume
from gateway.wire.json import Json

if TYPE_CHECKING:
    from gateway.decode.maskfile import MaskRequest

# What is asked again as it was: how tokens are drawn, and nothing about how an answer is put into words.
_SAMPLING = (
    *("model", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("stop_token_ids", "ignore_eos", "bad_words", "skip_special_tokens", "spaces_between_special_tokens"),
    *("priority", "cache_salt", "user"),
)
_SEEDS = 1 << 63
_STRONGEST = -100  # the least that a bias may be

# Fields with which an answer cannot be taken up in the middle, and why.
_REFUSED = {
    "tools": "the tool parser does not run on an answer that is taken up again",
    "functions": "the tool parser does not run on an answer that is taken up again",
    "response_format": "a format cannot be taken up in the middle",
    "structured_outputs": "a format cannot be taken up in the middle",
    "guided_json": "a format cannot be taken up in the middle",
    "guided_regex": "a format cannot be taken up in the middle",
    "guided_choice": "a format cannot be taken up in the middle",
    "guided_grammar": "a format cannot be taken up in the middle",
    "structural_tag": "a format cannot be taken up in the middle",
    "logit_bias": "it would not hold for the tokens that are drawn again",
    "allowed_token_ids": "it may allow nothing else than what is taken back",
    "use_beam_search": "there is no beam to take up",
    "echo": "what is repeated is no answer that could go another way",
    "suffix": "an answer before a suffix cannot be taken up in the middle",
}
_MANY = ("n", "best_of")
_PLAIN_PARTS = frozenset({"text", "refusal"})


def refuse_unresumable(body: Json) -> None:
    """Raises `BadRequest` for a request whose answer could not be rolled back."""

    def refuse(field: str, reason: str) -> BadRequest:
        return BadRequest(f"`{field}` is not accepted here, where answers are rolled back: {reason}.", field)

    for field in _MANY:
        if body.get(field) not in (None, 1):
            raise refuse(field, "only one answer at a time can be taken up again")
    for field, reason in _REFUSED.items():
        if _asks(field, body):
            raise refuse(field, reason)
    for position, message in enumerate(body.get("messages") or ()):
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type", "text") not in _PLAIN_PARTS:
                where = f"messages[{position}].content"
                raise refuse(where, "a prompt with pictures or sound cannot be repeated as tokens")
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) > 1:
        raise refuse("prompt", "only one answer at a time can be taken up again")


def _asks(field: str, body: Json) -> bool:
    value = body.get(field)
    if field in ("tools", "functions"):
        return bool(value) and body.get("tool_choice") != "none"
    if field == "response_format" and isinstance(value, dict):
        return value.get("type") != "text"
    return value not in (None, False, {}, [], "")


class Wanted(NamedTuple):
    """What a request says of its answer's length and end."""

    max_tokens: int | None
    stops: tuple[str, ...]
    shows_stop: bool
    tells_usage: bool
    at_once: bool


def wanted(body: Json, stream: bool) -> Wanted:
    """What the client asked for; what it asked wrongly is the server's to refuse."""
    limits = [body.get(name) for name in ("max_completion_tokens", "max_tokens")]
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    options = body.get("stream_options")
    usage = not stream or (isinstance(options, dict) and bool(options.get("include_usage")))
    return Wanted(
        max_tokens=next((limit for limit in limits if type(limit) is int), None),
        stops=tuple(stop for stop in stops if isinstance(stop, str) and stop),
        shows_stop=body.get("include_stop_str_in_output") is True,
        tells_usage=usage,
        at_once=body.get("temperature") == 0,
    )


def steered(body: Json, stream: bool) -> Json:
    """The first request: as a stream, which can be let go at any token, with the ids of the tokens."""
    asked = {**body, "stream": True, "return_token_ids": True}
    if not stream:
        asked["stream_options"] = {"include_usage": True}
    return asked


def again(body: Json, resume: Resume, mask: MaskRequest | None) -> Json:
    """A further request: the prompt and what is kept of the answer, as tokens."""
    asked: Json = {name: body[name] for name in _SAMPLING if body.get(name) is not None}
    asked |= {
        "prompt": list(resume.tokens),
        "max_tokens": 1 if resume.one else resume.most,
        "stream": True,
        "return_token_ids": True,
        "add_special_tokens": False,
        "seed": _seed(body.get("seed"), resume.attempt),
    }
    least = body.get("min_tokens")
    if type(least) is int and least > resume.kept and not resume.one:
        asked["min_tokens"] = least - resume.kept
    if mask is not None:
        asked["vllm_xargs"] = mask.arguments()
    elif resume.banned:
        asked["logit_bias"] = dict.fromkeys(map(str, resume.banned), _STRONGEST)
    return asked


def _seed(given: Any, attempt: int) -> int:
    """Another one each time, or the same would be drawn; the same ones for the same request, if it brought one."""
    return (given + attempt) % _SEEDS if type(given) is int else secrets.randbelow(_SEEDS)
