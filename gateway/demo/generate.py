"""Generates the demo model's tokens for a request: text, JSON or a tool call."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace

from gateway.demo import gandalf
from gateway.demo.facts import Facts
from gateway.demo.gandalf import Tokens, answer_to, script_for
from gateway.demo.requests import DemoChatRequest, Generation, OfferedTool
from gateway.demo.schemas import SchemaRefused, value_of
from gateway.demo.tokens import cut_at_stop, tokens_of
from gateway.wire.dialect import BadRequest

MAX_TOKENS = 16_384  # of all choices of a request together
MAX_QUOTED = 2000  # characters of tools' results that an answer repeats
UNASKED = OfferedTool("remember", "", {"type": "object", "properties": {"note": {}}}, custom=False)
_WORD = re.compile(r"[a-z]{3,}")


@dataclass(frozen=True, slots=True)
class GeneratedCall:
    """A call of a tool. `arguments` are JSON, for a custom tool its input."""

    id: str
    name: str
    arguments: Tokens
    custom: bool


@dataclass(frozen=True, slots=True)
class Generated:
    """One choice. `finish` is its finish reason."""

    content: Tokens = ()
    reasoning: Tokens = ()
    call: GeneratedCall | None = None
    finish: str = "stop"

    @property
    def tokens(self) -> int:
        return len(self.content) + len(self.reasoning) + (len(self.call.arguments) if self.call else 0)


def generate_chat(request: DemoChatRequest) -> list[Generated]:
    """One choice after the other. Raises `BadRequest` for a schema that no value was found for."""
    return [_limited(each, request.generation) for each in _choices(request)]


def generate_text(prompt: str | list[int], generation: Generation) -> list[Generated]:
    """The continuations of one prompt. Where there is no dialogue, there are no thoughts and calls; token ids are not
    understood."""
    contents = answer_to(prompt if isinstance(prompt, str) else "").contents
    numbers = range(generation.choices)
    return [_limited(Generated(contents[number % len(contents)]), generation) for number in numbers]


def _choices(request: DemoChatRequest) -> list[Generated]:
    question, numbers = request.question, range(request.generation.choices)
    script = script_for(question)
    reasoning = script.reasoning if script is not None else ()
    if request.thinks and not reasoning:
        reasoning = gandalf.THOUGHTS if script is not None else gandalf.IDLE_THOUGHTS
    leak = None if script is None else gandalf.LEAK
    tool = _tool_to_call(request)
    if tool is None and not request.results and script is not None and script.calls and request.schema is None:
        tool = UNASKED
    if tool is not None:
        call = _call(tool, Facts(question, leak))
        calls = [replace(call, id=_call_id(request, tool, number)) for number in numbers]
        return [Generated((), reasoning, each, "tool_calls") for each in calls]
    if request.schema is not None:
        contents: tuple[Tokens, ...] = (_json_content(request, leak),)
    elif request.results:
        contents = (tokens_of(f"The tool says: {' '.join(request.results)}"[:MAX_QUOTED]),)
    else:
        contents = answer_to(question).contents
    return [Generated(contents[number % len(contents)], reasoning) for number in numbers]


def _json_content(request: DemoChatRequest, leak: str | None) -> Tokens:
    facts = Facts(" ".join([request.question, *request.results]), leak)
    try:
        return tokens_of(json.dumps(value_of(request.schema, facts), ensure_ascii=False))
    except SchemaRefused as refused:
        param = "response_format.json_schema.schema"
        raise BadRequest(f"Invalid schema for response_format: {refused}.", param) from None


def _tool_to_call(request: DemoChatRequest) -> OfferedTool | None:
    """The tool with the most words in common with the question, those first that were not called for it yet. A result
    is answered with text, unless a tool must be called."""
    if not request.tools or (request.results and not request.must_call):
        return None
    words = set(_WORD.findall(request.question.lower()))

    def fits(tool: OfferedTool) -> tuple[bool, int]:
        properties = tool.schema.get("properties")
        names = " ".join(properties) if isinstance(properties, dict) else ""
        described = f"{tool.name} {tool.description} {names}".replace("_", " ").lower()
        return tool.name not in request.called, len(words & set(_WORD.findall(described)))

    return max(request.tools, key=fits)


def _call_id(request: DemoChatRequest, tool: OfferedTool, number: int) -> str:
    """Another one for each call of a conversation, and the same for the same conversation."""
    seen = json.dumps([request.messages, number, tool.name]).encode()
    return f"call_{hashlib.sha256(seen).hexdigest()[:24]}"


def _call(tool: OfferedTool, facts: Facts) -> GeneratedCall:
    if tool.custom:
        return GeneratedCall("", tool.name, tokens_of(facts.string()), custom=True)
    try:
        arguments = json.dumps(value_of(tool.schema, facts), ensure_ascii=False)
    except SchemaRefused as refused:
        raise BadRequest(f"Invalid schema for function {tool.name[:64]!r}: {refused}.", "tools") from None
    # A model may spell a character of JSON in more than one way.
    spelled = arguments.replace(gandalf.PASSWORD, gandalf.PASSWORD.replace("K", "\\u004b"))
    return GeneratedCall("", tool.name, tokens_of(spelled), custom=False)


def _limited(generated: Generated, generation: Generation) -> Generated:
    """Cut at the first stop string of its content, and after `max_tokens` tokens of everything."""
    generated = replace(generated, content=cut_at_stop(generated.content, generation.stops))
    left = MAX_TOKENS // generation.choices
    if generation.max_tokens is not None:
        left = min(left, generation.max_tokens)
    if left >= generated.tokens:
        return generated
    reasoning = generated.reasoning[:left]
    left -= len(reasoning)
    content = generated.content[:left]
    left -= len(content)
    call = generated.call and replace(generated.call, arguments=generated.call.arguments[:left])
    return Generated(content, reasoning, call if left else None, "length")
