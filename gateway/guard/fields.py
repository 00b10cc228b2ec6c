"""The texts of a request beside its messages or prompts: descriptions of tools, schemas, documents, labels, unknown
fields.

What the protocol itself defines is not scanned: the names of its fields, the keywords of JSON schemas, and the few
words that stand where only these words may. A rule for the word `object` must not make a schema invalid.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from gateway.wire.dialects import SERVED
from gateway.wire.json import Json
from gateway.wire.message import KNOWN_NAMES, ROLES, SlotKind, TextSlot, may_spell_text

_JSON_SCHEMA = frozenset(
    {
        *("$schema", "$id", "$ref", "$defs", "$anchor", "$dynamicRef", "$dynamicAnchor", "$vocabulary", "$comment"),
        *("definitions", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"),
        *("dependentRequired", "dependencies", "prefixItems", "items", "contains", "additionalItems"),
        *("additionalProperties", "unevaluatedItems", "unevaluatedProperties", "properties", "patternProperties"),
        *("propertyNames", "type", "enum", "const", "multipleOf", "maximum", "minimum", "exclusiveMaximum"),
        *("exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems"),
        *("maxContains", "minContains", "maxProperties", "minProperties", "required", "title", "description"),
        *("default", "deprecated", "readOnly", "writeOnly", "examples", "format", "contentEncoding"),
        *("contentMediaType", "contentSchema", "nullable", "discriminator"),
    }
)
_OF_OPENAI = frozenset(
    {
        *("model", "messages", "prediction", "stream", "n", "audio", "frequency_penalty", "function_call", "functions"),
        *("logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "metadata", "modalities"),
        *("parallel_tool_calls", "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort"),
        *("response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream_options"),
        *("temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options"),
        *("function", "name", "parameters", "strict", "json_schema", "schema", "custom", "grammar", "definition"),
        *("syntax", "allowed_tools", "mode", "include_usage", "include_obfuscation", "voice"),
        *("search_context_size", "user_location", "approximate", "city", "country", "region", "timezone"),
        *("prompt", "suffix", "dimensions"),
        *("input", "instructions", "include", "background", "truncation", "previous_response_id", "conversation"),
        *("max_output_tokens", "max_tool_calls", "summary", "vector_store_ids", "max_num_results", "filters"),
        *("container", "server_label", "server_url", "server_description", "require_approval", "headers"),
        *("authorization", "connector_id", "ranking_options", "file_ids", "prompt_cache_options", "defer_loading"),
    }
)
_OF_ANTHROPIC = frozenset(
    {
        *("system", "stop_sequences", "thinking", "budget_tokens", "input_schema", "cache_control", "ttl", "user_id"),
        *("disable_parallel_tool_use", "mcp_servers", "authorization_token", "tool_configuration", "betas"),
        *("output_config", "output_format", "max_uses", "allowed_domains", "blocked_domains", "inference_geo"),
        *("display_width_px", "display_height_px", "context_management"),
    }
)
_OF_SERVERS = frozenset(
    {
        *(name for dialect in SERVED for name in (*dialect.prompt_fields, *dialect.dropped, *dialect.refused)),
        *("best_of", "top_k", "min_p", "repetition_penalty", "length_penalty", "stop_token_ids", "ignore_eos"),
        *("include_stop_str_in_output", "min_tokens", "skip_special_tokens", "spaces_between_special_tokens"),
        *("truncate_prompt_tokens", "allowed_token_ids", "bad_words", "echo", "add_generation_prompt"),
        *("continue_final_message", "add_special_tokens", "documents", "chat_template_kwargs", "mm_processor_kwargs"),
        *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "structural_tag"),
        *("priority", "request_id", "logits_processors", "cache_salt", "thinking", "enable_thinking", "reasoning"),
        *("include_reasoning", "system", "use_beam_search"),
    }
)
FIXED_NAMES = _JSON_SCHEMA | _OF_OPENAI | _OF_ANTHROPIC | _OF_SERVERS | KNOWN_NAMES

_CONSTANT_FIELDS = frozenset(
    {
        *("type", "role", "tool_choice", "function_call", "mode", "reasoning_effort", "effort", "service_tier"),
        *("verbosity", "modalities", "search_context_size", "syntax", "prompt_cache_retention", "format"),
    }
)
_CONSTANTS = frozenset(
    {
        *("string", "number", "integer", "boolean", "array", "object", "null"),
        *("function", "custom", "text", "json_object", "json_schema", "grammar", "structural_tag", "allowed_tools"),
        *("approximate", "lark", "regex", "auto", "none", "required", "minimal", "low", "medium", "high", "xhigh"),
        *("default", "flex", "scale", "priority", "in-memory", "in_memory", "24h", "audio"),
        *("wav", "mp3", "flac", "opus", "aac", "pcm16"),
        *("any", "tool", "enabled", "disabled", "adaptive", "ephemeral", "concise", "detailed", "mcp", "local_shell"),
        *("web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation", "shell"),
        *("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"),
        *ROLES,
    }
)
NAMES_TOOLS = frozenset({"tools", "functions", "tool_choice", "function_call"})
_TOKEN_ID = re.compile("[0-9]{1,7}")


class _FieldPlace(NamedTuple):
    """`field` is the name nearest above the value; `names_tools`: a `name` here is that of a tool."""

    holder: Any
    key: Any
    field: str
    names_tools: bool


def slots(body: Json, apart: Container[str]) -> Iterator[TextSlot]:
    """Every text of a request but those in fields `apart`: strings at any depth, and after them the names of fields.

    Numbers are none. All are texts of the channel `other`, but names of tools are of their own. The request may be
    changed while this runs, but only at the slot just yielded, and not by renaming. It is walked without recursion;
    how deep it is, the JSON decoder has bounded.
    """
    names: list[TextSlot] = []
    waiting = [_FieldPlace(body, field, field, field in NAMES_TOOLS) for field in reversed(body) if field not in apart]
    while waiting:
        holder, key, field, names_tools = waiting.pop()
        value = holder[key]
        if isinstance(key, str) and key not in FIXED_NAMES:
            names.append(TextSlot(holder, key, (), "other", SlotKind.KEY))
        if isinstance(value, str):
            if not (field in _CONSTANT_FIELDS and value in _CONSTANTS):
                channel = "tool_names" if names_tools and isinstance(key, str) and key.casefold() == "name" else "other"
                yield TextSlot(holder, key, (), channel, SlotKind.TEXT)
        elif isinstance(value, list):
            waiting += [_FieldPlace(value, at, field, names_tools) for at in reversed(range(len(value)))]
        elif isinstance(value, dict) and not (field == "logit_bias" and _are_token_ids(value)):
            within = names_tools and not (isinstance(key, str) and key.casefold() == "parameters")
            waiting += [_FieldPlace(value, name, name, within) for name in reversed(value)]
    yield from names


def number_lists(body: Json) -> Iterator[tuple[Any, Any, bool]]:
    """Every list of a request whose numbers may spell text, as (holder, key), and whether the protocol has its name.
    A list may be changed as it is yielded."""
    waiting: list[tuple[Any, Any, str]] = [(body, field, field) for field in reversed(body)]
    while waiting:
        holder, key, field = waiting.pop()
        value = holder[key]
        if isinstance(value, list):
            if may_spell_text(value):
                yield holder, key, field.casefold() in FIXED_NAMES
            value = holder[key]
            waiting += [(value, at, field) for at in reversed(range(len(value))) if isinstance(value[at], list | dict)]
        elif isinstance(value, dict):
            waiting += [(value, name, name) for name in reversed(value) if isinstance(value[name], list | dict)]


def _are_token_ids(value: Json) -> bool:
    """Are these biases by token id? The digits of an id are not text."""
    return all(_TOKEN_ID.fullmatch(name) and isinstance(bias, int | float) for name, bias in value.items())


# -- names in other letters --------------------------------------------------------------------------------------------
