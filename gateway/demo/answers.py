"""Generated text as the objects of OpenAI's API: complete answers, and the choices of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, chain, zip_longest
from typing import Any

from gateway.demo.generate import Generated, GeneratedCall
from gateway.demo.tokens import TokenLogprob, bytes_of, logprobs_of
from gateway.wire.json import Json

Logprobs = int | None  # how many alternatives a token gets; None: no logprobs at all


# -- chat completions --------------------------------------------------------------------------------------------------


def chat_choice(index: int, generated: Generated, logprobs: Logprobs) -> Json:
    """One choice of a whole chat completion."""
    message: Json = {"role": "assistant", "content": "".join(generated.content), "refusal": None}
    if generated.reasoning:
        message["reasoning_content"] = "".join(generated.reasoning)
    if (call := generated.call) is not None:
        message["content"] = message["content"] or None
        message["tool_calls"] = [{"id": call.id, **_call_part(call, "".join(call.arguments), named=True)}]
    shown = _chat_logprobs(generated.content, logprobs)
    return {"index": index, "message": message, "logprobs": shown, "finish_reason": generated.finish}


def chat_deltas(index: int, generated: Generated, logprobs: Logprobs) -> Iterator[Json]:
    """The same choice in a stream, token by token."""

    def choice(delta: Json, shown: Json | None = None, finish: str | None = None) -> Json:
        return {"index": index, "delta": delta, "logprobs": shown, "finish_reason": finish}

    call = generated.call
    yield choice({"role": "assistant", "content": None if call else ""})
    for token in generated.reasoning:
        yield choice({"reasoning_content": token})
    for place, token in enumerate(generated.content):
        yield choice({"content": token}, _chat_logprobs((token,), logprobs, place))
    if call is not None:
        yield choice({"tool_calls": [{"index": 0, "id": call.id, **_call_part(call, "", named=True)}]})
        for token in call.arguments:
            yield choice({"tool_calls": [{"index": 0, **_call_part(call, token)}]})
    yield choice({}, finish=generated.finish)


def _call_part(call: GeneratedCall, text: str, *, named: bool = False) -> Json:
    kind, field = ("custom", "input") if call.custom else ("function", "arguments")
    return {"type": kind, kind: {"name": call.name, field: text}} if named else {kind: {field: text}}


def _chat_logprobs(tokens: tuple[str, ...], logprobs: Logprobs, first: int = 0) -> Json | None:
    if logprobs is None:
        return None
    return {"content": [_chat_logprob(each) for each in logprobs_of(tokens, logprobs, first)] or None, "refusal": None}


def _chat_logprob(given: TokenLogprob) -> Json:
    def shown(token: str, logprob: float) -> Json:
        return {"token": token, "logprob": logprob, "bytes": bytes_of(token)}

    return {**shown(given.token, given.logprob), "top_logprobs": [shown(*each) for each in given.top]}


# -- completions -------------------------------------------------------------------------------------------------------


def text_choice(index: int, generated: Generated, logprobs: Logprobs) -> Json:
    """One choice of a whole text completion."""
    return {**_text(index, generated.content, logprobs), "finish_reason": generated.finish}


def text_deltas(index: int, generated: Generated, logprobs: Logprobs) -> Iterator[Json]:
    """The same choice in a stream, token by token."""
    offset = 0
    for place, token in enumerate(generated.content):
        yield _text(index, (token,), logprobs, place, offset)
        offset += len(token)
    yield {"text": "", "index": index, "logprobs": None, "finish_reason": generated.finish}


def _text(index: int, tokens: tuple[str, ...], logprobs: Logprobs, first: int = 0, offset: int = 0) -> Json:
    shown = None
    if logprobs is not None:
        listed = logprobs_of(tokens, logprobs, first)
        shown = {
            "tokens": list(tokens),
            "token_logprobs": [each.logprob for each in listed],
            "top_logprobs": [dict(each.top) for each in listed] if logprobs else None,
            "text_offset": list(accumulate(map(len, tokens[:-1]), initial=offset)) if tokens else [],
        }
    return {"text": "".join(tokens), "index": index, "logprobs": shown, "finish_reason": None}


# -- both --------------------------------------------------------------------------------------------------------------


def interleaved(streams: list[Iterator[Json]]) -> Iterator[Json]:
    """The choices of several streams as they come when all are generated at once: a token of each in turn."""
    return filter(None, chain.from_iterable(zip_longest(*streams)))


def usage_of(prompt_tokens: int, generated: list[Generated]) -> Json:
    """The usage of a request. Tokens of thoughts are counted among those of the answer."""
    completion_tokens = sum(each.tokens for each in generated)
    details: dict[str, Any] = {"reasoning_tokens": sum(len(each.reasoning) for each in generated)}
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": details,
    }
