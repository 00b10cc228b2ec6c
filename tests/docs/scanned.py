"""Which fields are scanned, found by trying: a word stands at one place at a time, and the guard shows what it does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from gateway.censor.compile import CompiledPolicy, compile_policy
from gateway.guard.answer import BrokenAnswer, PlainAnswer, SendBytes, StreamAnswer
from gateway.guard.chat import ChatGuard
from gateway.guard.prompt import BadRequest, apply_request_table, guard_prompt, read_request
from gateway.policy.model import Direction, Policy, Rule
from gateway.wire.chat import CHAT
from gateway.wire.completions import COMPLETIONS

WORD, REPLACEMENT = "12MONKEYS", "REPLACED"
_PICTURE = "data:image/png;base64," + "iVBORw0KGgoA" + WORD * 20
_POLICY = Policy(
    name="p",
    rules=(Rule(id="r", words=(WORD,), replacement=REPLACEMENT, apply_to=frozenset(Direction)),),
)

Path = tuple[str | int, ...]

_CALL = {"id": WORD, "type": "function", "function": {"name": WORD, "arguments": json.dumps({"a": WORD})}}
ANSWER: dict[str, Any] = {
    "id": WORD,
    "model": WORD,
    "created": 1,
    "system_fingerprint": WORD,
    "citations": [WORD],
    "prompt_logprobs": [{"1": {"decoded_token": WORD}}],
    "kv_transfer_params": {"a": WORD},
    "ec_transfer_params": {"a": WORD},
    "prompt_filter_results": [{"content_filter_results": {"error": {"message": WORD}}}],
    "choices": [
        {
            "index": 0,
            "finish_reason": WORD,
            "stop_reason": WORD,
            "content_filter_results": {"protected_material_code": {"citation": {"URL": WORD}}},
            "content_filter_offsets": {"a": WORD},
            "logprobs": {"content": [{"token": WORD, "logprob": -1, "top_logprobs": [{"token": WORD, "logprob": -1}]}]},
            "token_ids": [WORD],
            "message": {
                "role": "assistant",
                "content": WORD,
                "refusal": WORD,
                "reasoning_content": WORD,
                "reasoning": WORD,
                "tool_calls": [_CALL, {"id": "b", "type": "custom", "custom": {"name": "n", "input": WORD}}],
                "function_call": _CALL["function"],
                "audio": {"id": "a", "data": WORD, "transcript": WORD},
                "annotations": [{"type": "url_citation", "url_citation": {"title": WORD, "url": WORD}}],
                "images": [{"type": "image_url", "image_url": {"url": _PICTURE}}],
                "any_other_field": WORD,
            },
        }
    ],
}
PROMPT: dict[str, Any] = {
    "model": WORD,
    "messages": [
        {"role": "system", "content": WORD, "name": WORD, "any_other_field": WORD},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": WORD},
                {"type": "image_url", "image_url": {"url": _PICTURE}},
                {"type": "image_url", "image_url": {"url": "https://example.com/" + WORD}},
                {"type": "input_audio", "input_audio": {"data": WORD * 20, "format": "wav", "transcript": WORD}},
                {"type": "file", "file": {"filename": WORD, "file_data": "data:text/plain," + WORD}},
            ],
        },
        {"role": "assistant", "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": WORD, "content": WORD},
    ],
    "prediction": {"type": "content", "content": WORD},
    "tools": [{"type": "function", "function": {"name": WORD, "description": WORD, "parameters": {"title": WORD}}}],
    "response_format": {"type": "json_schema", "json_schema": {"name": WORD, "schema": {"description": WORD}}},
    "metadata": {"any_name": WORD},
    "user": WORD,
    "stop": [WORD],
    "any_other_field": WORD,
    "return_token_ids": WORD,
    "prompt_logprobs": WORD,
    "kv_transfer_params": WORD,
    "ec_transfer_params": WORD,
    "vllm_xargs": {"a": WORD},
    "chat_template": WORD,
}
TEXT_PROMPT: dict[str, Any] = {
    "model": "m",
    "prompt": WORD,
    "suffix": WORD,
    "prompt_embeds": WORD,
}
# How the places that need another name than their path are called.
_SHOWN = {
    "messages[1].content[1].image_url.url": "messages[].content[].image_url.url (base64)",
    "messages[1].content[2].image_url.url": "messages[].content[].image_url.url (a link)",
    "messages[1].content[3].input_audio.data": "messages[].content[].input_audio.data (base64)",
    "messages[1].content[4].file.file_data": "messages[].content[].file.file_data (text)",
    "choices[0].message.images[0].image_url.url": "choices[].message.images[].image_url.url (base64)",
}


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The way to every string that holds the word."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))
    elif isinstance(value, str) and WORD in value:
        yield path


def _alone(sample: dict[str, Any], path: Path) -> dict[str, Any]:
    """The sample with the word at one place only; what was to be refused elsewhere is left out."""
    made: dict[str, Any] = json.loads(json.dumps(sample))
    for other in places(sample):
        if other != path:
            holder = _holder(made, other)
            holder[other[-1]] = holder[other[-1]].replace(WORD, "word")
    if path[0] not in _REFUSED:
        for name in _REFUSED & made.keys():
            del made[name]
    return made


_REFUSED = {"vllm_xargs", "chat_template", "prompt_embeds"}


def _holder(value: Any, path: Path) -> Any:
    for step in path[:-1]:
        value = value[step]
    return value


def _name(path: Path) -> str:
    exact = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    general = "".join("[]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    return _SHOWN.get(exact, general)


def in_answers() -> dict[str, str]:
    """For each place in an answer what happens to text there."""
    compiled = compile_policy(_POLICY)
    return {_name(path): _outcome(lambda p=path: _answered(compiled, _alone(ANSWER, p))) for path in places(ANSWER)}


def in_prompts() -> dict[str, str]:
    """The same for requests to chat and, where they differ, to text completions."""
    compiled = compile_policy(_POLICY)
    found = {_name(path): _outcome(lambda p=path: _asked(compiled, _alone(PROMPT, p))) for path in places(PROMPT)}
    for path in places(TEXT_PROMPT):
        found[_name(path)] = _outcome(lambda p=path: _completed(compiled, _alone(TEXT_PROMPT, p)))
    return found


def _outcome(work: Callable[[], str]) -> str:
    try:
        shown = work()
    except BadRequest:
        return "refused"
    except BrokenAnswer:
        return "the answer is refused"
    if WORD in shown:
        return "not scanned"
    return "scanned" if REPLACEMENT in shown else "left out"


def _answered(compiled: CompiledPolicy, answer: dict[str, Any]) -> str:
    whole = json.dumps(answer).encode()
    plain = PlainAnswer(ChatGuard(compiled, 1, ()), max_event=1 << 20, max_whole=1 << 20)
    plain.feed(whole, 0.0)
    shown = plain.close(0.0).decode()
    stream = StreamAnswer(ChatGuard(compiled, 1, ()), max_event=1 << 20, max_whole=1 << 20)
    commands = [*stream.feed(whole, 0.0), *stream.close(0.0)]
    streamed = b"".join(command.data for command in commands if isinstance(command, SendBytes)).decode()
    assert (WORD in shown) == (WORD in streamed), "a stream and a plain answer differ"
    return shown


def _asked(compiled: CompiledPolicy, body: dict[str, Any]) -> str:
    chat = read_request(body, CHAT)
    apply_request_table(body, compiled, chat.dialect)
    return _guarded(body, guard_prompt(body, compiled, None, chat.dialect))


def _completed(compiled: CompiledPolicy, body: dict[str, Any]) -> str:
    read_request(body, COMPLETIONS)
    apply_request_table(body, compiled, COMPLETIONS)
    return _guarded(body, guard_prompt(body, compiled, None, COMPLETIONS))


def _guarded(body: dict[str, Any], prompt: Any) -> str:
    if prompt.refusal is not None:
        raise prompt.refusal
    return json.dumps(body)


def table(found: dict[str, str]) -> str:
    """One row for each outcome, with all its places."""
    lines = ["| text in | is |", "|---|---|"]
    for outcome in ("scanned", "left out", "refused", "not scanned"):
        names = [f"`{name}`" for name, what in found.items() if what == outcome]
        if names:
            lines.append(f"| {', '.join(names)} | {outcome} |")
    return "\n".join(lines)
