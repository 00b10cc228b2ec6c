"""Requests under a policy: what is forwarded of them."""

from __future__ import annotations

from typing import Any

from gateway.guard.prompt import guard_prompt
from gateway.policy.model import Policy
from tests.support.compiled import compiled
from tests.support.guard_client import balanced


def request_with(text: str) -> dict[str, Any]:
    """A request's fields, with the text wherever somebody could write one."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": text,
        "properties": {
            text: {"type": ["string", "null"], "description": f"the {text}", "enum": [text, "object"]},
            "type": {"const": text, "minLength": 12, "pattern": f"^{text}$"},
        },
        "required": [text, "type"],
        "additionalProperties": False,
        "$defs": {text: {"examples": [{"name": text, text: [[text]]}], "default": text}},
    }
    return {
        "tools": [
            {"type": "function", "function": {"name": text, "description": text, "parameters": schema, "strict": True}},
            {"type": "custom", "custom": {"name": "f", "format": {"type": "grammar", "grammar": {"definition": text}}}},
            text,
        ],
        "tool_choice": {"type": "function", "function": {"name": text}},
        "functions": [{"name": text, "parameters": None}],
        "response_format": {"type": "json_schema", "json_schema": {"name": text, "schema": schema}},
        "documents": [{"title": "a", "text": f"so says {text}."}],
        "chat_template_kwargs": {"persona": text, text: {"deep": {text: text}}},
        "metadata": {text: text},
        "user": text,
        "system": [{"type": "text", "text": text}],
        "stop": ["###", text],
        "stream_options": {"include_usage": True},
        "structured_outputs": {"choice": [text]},
        text: [None, True, 12, {"x": text}],
    }


def guarded(policy: Policy, *messages: dict[str, Any], **more: Any) -> tuple[dict[str, Any], str | None]:
    body = {"messages": list(messages), **more}
    blocked, fact, _, refusal = guard_prompt(body, compiled(policy))
    assert refusal is None
    assert fact is not None and balanced(fact) and fact.direction == "input"
    assert fact.blocked_by == (blocked.id if blocked else None)
    return body, fact.blocked_by
