"""Request bodies, checked as OpenAI's server checks them.

Any model's name is taken, so that a program runs with the one that it has. Parameters without a meaning here, such as
`temperature`, are not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.demo.tokens import MAX_TOP_LOGPROBS
from gateway.wire.dialect import BadRequest
from gateway.wire.json import Json

MAX_CHOICES = 128
MAX_PROMPTS = 128
MAX_STOPS = 4
MAX_TOOLS = 128
MAX_TEXT_LOGPROBS = 5
MAX_INPUTS = 2048
MAX_DIMENSIONS = 3072
DEFAULT_DIMENSIONS = 1536
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_UNTHINKING = (None, "none", "minimal")  # values of reasoning_effort


@dataclass(frozen=True, slots=True)
class Generation:
    """The common fields of requests for text. `logprobs`: how many alternatives a token gets; None: no logprobs."""

    choices: int
    stops: tuple[str, ...]
    max_tokens: int | None
    logprobs: int | None
    stream: bool
    include_usage: bool


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that a request offers. `schema` is that of a function's arguments; a custom tool takes text."""

    name: str
    description: str
    schema: Json
    custom: bool


@dataclass(frozen=True, slots=True)
class DemoChatRequest:
    """`question`: the user's last message. `results`: what tools have answered since. `called`: the tools that were
    called since. `tools`: those that may be called now; with `must_call`, one of them is. `schema`: what JSON content
    must satisfy; None: content is text."""

    generation: Generation
    messages: tuple[Json, ...]
    question: str
    results: tuple[str, ...]
    called: frozenset[str]
    tools: tuple[OfferedTool, ...]
    must_call: bool
    schema: Any
    thinks: bool


@dataclass(frozen=True, slots=True)
class TextRequest:
    """`prompts` are texts, or lists of token ids."""

    generation: Generation
    prompts: tuple[str | list[int], ...]


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """`inputs` are texts, or lists of token ids. `encoded`: vectors as base64."""

    inputs: tuple[str | list[int], ...]
    dimensions: int
    encoded: bool


def read_chat(body: Json) -> DemoChatRequest:
    """Raises `BadRequest`."""
    messages = _messages(body)
    last = max((place for place, each in enumerate(messages) if each["role"] == "user"), default=-1)
    since = messages[last + 1 :]
    tools, must_call = _offered(body)
    return DemoChatRequest(
        generation=_generation(body, _chat_logprobs(body), ("max_completion_tokens", "max_tokens")),
        messages=tuple(messages),
        question="" if last < 0 else text_of(messages[last].get("content")),
        results=() if not since or since[-1]["role"] == "assistant" else tuple(_results(since)),
        called=frozenset(_name_of(call) for each in since for call in _calls(each)),
        tools=tools,
        must_call=must_call,
        schema=_schema(body),
        thinks=body.get("reasoning_effort") not in _UNTHINKING,
    )


def read_text(body: Json) -> TextRequest:
    """Raises `BadRequest`."""
    if body.get("echo"):
        raise BadRequest("The demo model does not repeat prompts.", "echo")
    generation = _generation(body, _integer(body, "logprobs", 0, MAX_TEXT_LOGPROBS), ("max_tokens",))
    prompts = _texts(body, "prompt", MAX_PROMPTS)
    if len(prompts) * generation.choices > MAX_CHOICES:
        raise BadRequest(f"There can be {MAX_CHOICES} answers at most to all prompts.", "n")
    return TextRequest(generation, prompts)


def read_embeddings(body: Json) -> EmbeddingsRequest:
    """Raises `BadRequest`."""
    encoding = body.get("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise BadRequest("'encoding_format' must be 'float' or 'base64'.", "encoding_format")
    inputs = _texts(body, "input", MAX_INPUTS)
    if "" in inputs or [] in inputs:
        raise BadRequest("'input' must not be empty.", "input")
    dimensions = _integer(body, "dimensions", 1, MAX_DIMENSIONS)
    return EmbeddingsRequest(inputs, dimensions or DEFAULT_DIMENSIONS, encoding == "base64")


def text_of(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


# -- parameters --------------------------------------------------------------------------------------------------------


def _generation(body: Json, logprobs: int | None, limits: tuple[str, ...]) -> Generation:
    options = body.get("stream_options")
    if options is not None and not body.get("stream"):
        raise BadRequest("'stream_options' is only allowed when 'stream' is true.", "stream_options")
    allowed = [number for key in limits if (number := _integer(body, key, 1)) is not None]
    return Generation(
        choices=_integer(body, "n", 1, MAX_CHOICES) or 1,
        stops=_stops(body.get("stop")),
        max_tokens=allowed[0] if allowed else None,
        logprobs=logprobs,
        stream=bool(body.get("stream")),
        include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
    )


def _integer(body: Json, key: str, low: int, high: int | None = None) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if type(value) is not int or value < low or (high is not None and value > high):
        most = "" if high is None else f" and at most {high}"
        raise BadRequest(f"{key!r} must be an integer of at least {low}{most}.", key)
    return value


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if not isinstance(stops, list) or len(stops) > MAX_STOPS or not all(isinstance(each, str) for each in stops):
        raise BadRequest(f"'stop' must be a string or a list of at most {MAX_STOPS} strings.", "stop")
    return tuple(filter(None, stops))


def _chat_logprobs(body: Json) -> int | None:
    top = _integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if body.get("logprobs"):
        return top or 0
    if top is not None:
        raise BadRequest("'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs")
    return None


def _texts(body: Json, key: str, most: int) -> tuple[str | list[int], ...]:
    """One text, several, one list of token ids, or several."""
    value = body.get(key)
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value:
        if _are_tokens(value):
            return (value,)
        if len(value) > most:
            raise BadRequest(f"{key!r} has more than {most} items.", key)
        if all(isinstance(each, str) for each in value) or all(map(_are_tokens, value)):
            return tuple(value)
    raise BadRequest(f"{key!r} must be a string, a list of strings, or token ids.", key)


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)


def _schema(body: Json) -> Any:
    wanted = body.get("response_format") or {"type": "text"}
    match wanted:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object", "properties": {"answer": {}}, "required": ["answer"]}
        case {"type": "json_schema", "json_schema": {"name": str(), **described}}:
            schema = described.get("schema") or {"type": "object"}
            if isinstance(schema, dict):
                return schema
            raise BadRequest("The schema must be an object.", "response_format.json_schema.schema")
        case {"type": "json_schema"}:
            raise BadRequest("'json_schema' must be an object with a name and a schema.", "response_format.json_schema")
    raise BadRequest("'response_format.type' must be text, json_object or json_schema.", "response_format.type")


# -- messages ----------------------------------------------------------------------------------------------------------


def _messages(body: Json) -> list[Json]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("'messages' must be a list with at least one message.", "messages")
    waiting: set[str] = set()
    for place, message in enumerate(messages):
        at = f"messages[{place}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise BadRequest(f"A message must be an object with a role out of {', '.join(_ROLES)}.", f"{at}.role")
        if not isinstance(message.get("content"), str | list | None):
            raise BadRequest("'content' must be a string or a list of parts.", f"{at}.content")
        if message["role"] == "tool":
            call = message.get("tool_call_id")
            if call not in waiting:
                raise BadRequest("A message of role 'tool' must answer one of the 'tool_calls' before it.", at)
            waiting.remove(call)
        elif waiting:
            break
        waiting |= {str(call.get("id")) for call in _calls(message)}
    if waiting:
        raise BadRequest("Every id of 'tool_calls' must be answered by a message of role 'tool'.", "messages")
    return messages


def _calls(message: Json) -> list[Json]:
    calls = message.get("tool_calls") or []
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _name_of(call: Json) -> str:
    part = call.get(str(call.get("type", "function")))
    return str(part.get("name")) if isinstance(part, dict) else ""


def _results(messages: list[Json]) -> list[str]:
    """The results of the last tool calls."""
    found: list[str] = []
    for message in messages:
        if message["role"] == "assistant":
            found = []
        elif message["role"] in ("tool", "function"):
            found.append(text_of(message.get("content")))
    return found


# -- tools -------------------------------------------------------------------------------------------------------------


def _offered(body: Json) -> tuple[tuple[OfferedTool, ...], bool]:
    """The tools that may be called, and whether one must be."""
    listed = body.get("tools") or []
    if not isinstance(listed, list) or len(listed) > MAX_TOOLS:
        raise BadRequest(f"'tools' must be a list of at most {MAX_TOOLS} tools.", "tools")
    tools = {tool.name: tool for tool in (_tool(each, f"tools[{place}]") for place, each in enumerate(listed))}
    choice = body.get("tool_choice")
    if choice is None:
        return tuple(tools.values()), False
    if not tools:
        if choice == "none":
            return (), False
        raise BadRequest("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice")
    match choice:
        case "none":
            return (), False
        case "auto" | "required":
            return tuple(tools.values()), choice == "required"
        case {"type": "function", "function": {"name": str(name)}} | {"type": "custom", "custom": {"name": str(name)}}:
            return (_named(tools, name),), True
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)}}:
            names = [_name_of(each) if isinstance(each, dict) else "" for each in allowed]
            return tuple(_named(tools, name) for name in names), mode == "required"
    raise BadRequest("'tool_choice' must be none, auto, required or name one of the tools.", "tool_choice")


def _named(tools: dict[str, OfferedTool], name: str) -> OfferedTool:
    if name not in tools:
        raise BadRequest("'tool_choice' names a tool that is not among the 'tools'.", "tool_choice")
    return tools[name]


def _tool(listed: Any, at: str) -> OfferedTool:
    match listed:
        case {"type": "function", "function": {"name": str(name), **rest}} if name:
            schema = rest.get("parameters") or {"type": "object"}
            if not isinstance(schema, dict):
                raise BadRequest("'parameters' must be a JSON schema.", f"{at}.function.parameters")
            return OfferedTool(name, str(rest.get("description") or ""), schema, custom=False)
        case {"type": "custom", "custom": {"name": str(name), **rest}} if name:
            form = rest.get("format")
            if isinstance(form, dict) and form.get("type") != "text":
                raise BadRequest("The demo model follows no grammar.", f"{at}.custom.format")
            return OfferedTool(name, str(rest.get("description") or ""), {}, custom=True)
    raise BadRequest("A tool must have the type 'function' or 'custom', and a name.", at)
