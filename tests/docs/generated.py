"""The parts of the documentation that are made from the code. `python -m tests.docs.generated` writes them again.

They stand between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from gateway.policy import schema
from gateway.policy.auth import AUTH, CLIENT_KEY
from gateway.policy.constraints import CONSTRAIN
from gateway.policy.key_table import KeyTable
from gateway.policy.listen import LISTEN
from gateway.policy.model import PRESETS, Fold, Strength, Variant
from gateway.policy.presets import false_hits
from gateway.policy.routes import ROUTE
from gateway.policy.rules import POLICY, RULE
from gateway.policy.services import JOURNAL, LIMITS, TELEMETRY
from gateway.policy.upstreams import UPSTREAM
from gateway.wire.chat import CHAT
from gateway.wire.completions import COMPLETIONS
from gateway.wire.event_table import EventTable
from gateway.wire.message import SlotKind
from gateway.wire.message_events import DROPPED_IN_MESSAGES, MESSAGE_EVENTS
from gateway.wire.response_events import DROPPED_IN_RESPONSES, RESPONSE_EVENTS
from gateway.wire.responses import RESPONSES
from gateway.wire.translation import messages_request, responses_request
from tests.docs import coverage, detectors
from tests.evasion import report
from tests.support.pages import PAGES, ROOT

BOUNDS = Path(__file__).with_name("bounds.toml")
# Every numeric constant of these is a bound of the page, or listed with the reason why it is none.
BOUNDED_PACKAGES = ("censor", "guard", "journal", "limits", "observe", "proxy", "wire")

_GENERATED = re.compile(r"(<!-- generated: ([a-z0-9_' ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SIZES = (("MiB", 1 << 20), ("KiB", 1 << 10))

KEY_TABLES: dict[str, KeyTable[Any]] = {
    "listen": LISTEN,
    "auth": AUTH,
    "a client key": CLIENT_KEY,
    "an upstream": UPSTREAM,
    "a route": ROUTE,
    "a policy": POLICY,
    "constrain": CONSTRAIN,
    "a rule": RULE,
    "limits": LIMITS,
    "journal": JOURNAL,
    "telemetry": TELEMETRY,
}


class Bound(NamedTuple):
    """One row of the page. `where` is `package.module.NAME`, or `package.module.Class.field` for a default."""

    section: str
    what: str
    where: str
    unit: str
    key: str  # of the configuration that sets it; empty for a fixed bound
    past: str  # what happens past it
    test: str  # path::function

    @property
    def value(self) -> str:
        number = resolved(self.where)
        if number is None:
            return "none"
        if self.unit == "bytes":
            for name, size in _SIZES:
                if number % size == 0:
                    return f"{number // size:,} {name}"
        shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
        return f"{shown} {self.unit}".rstrip()


def resolved(where: str) -> Any:
    """The value that a row names. Raises `AttributeError` or `ImportError` for one that is not there."""
    parts = where.split(".")
    at = next(place for place, part in enumerate(parts) if part[0].isupper() or part.startswith("_"))
    module = importlib.import_module(".".join(["gateway", *parts[:at]]))
    value = getattr(module, parts[at])
    for name in parts[at + 1 :]:
        value = next(field.default for field in dataclasses.fields(value) if field.name == name)
    return value


@cache
def bounds() -> tuple[Bound, ...]:
    read = tomllib.loads(BOUNDS.read_text("utf-8"))
    return tuple(
        Bound(section, **{"unit": "", "key": "", **row})  # type: ignore[arg-type]
        for section, rows in read["bounds"].items()
        for row in rows
    )


def no_bounds() -> Mapping[str, str]:
    """Constants that bound nothing, and why."""
    read: dict[str, str] = tomllib.loads(BOUNDS.read_text("utf-8"))["no bounds"]
    return read


def constants() -> Iterator[str]:
    """Every public numeric constant of a module in `BOUNDED_PACKAGES`, as a row names it."""
    for package in BOUNDED_PACKAGES:
        for file in sorted((ROOT / "gateway" / package).rglob("*.py")):
            module = ".".join(file.relative_to(ROOT / "gateway").with_suffix("").parts)
            for node in ast.parse(file.read_text("utf-8")).body:
                target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_"):
                    value = getattr(importlib.import_module(f"gateway.{module}"), target.id)
                    if isinstance(value, int | float) and not isinstance(value, bool):
                        yield f"{module}.{target.id}"


def _bounds_table(section: str) -> str:
    lines = ["| what | bound | set by | past it | test |", "|---|---|---|---|---|"]
    for row in bounds():
        if row.section == section:
            by = f"`{row.key}`" if row.key else f"fixed: `{row.where}`"
            lines.append(f"| {row.what} | {row.value} | {by} | {row.past} | `{row.test}` |")
    return "\n".join(lines)


def _keys_table(table: KeyTable[Any]) -> str:
    rows = (f"| {' | '.join(row)} |" for row in schema.rows(table))
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


def _translation_table(request: ModuleType) -> str:
    """What becomes of each field of a request that is translated."""
    rows = [f"| `{field}` | translated | {what} |" for field, what in request.FIELDS.translated.items()]
    rows += [f"| `{field}` | without effect | {why} |" for field, why in request.FIELDS.without_effect.items()]
    rows += [f"| `{field}` | refused | {why} |" for field, why in request.FIELDS.refused.items()]
    return "\n".join(["| field | | what it becomes, or why not |", "|---|---|---|", *rows])


def _texts_table(events: EventTable) -> str:
    """Where text lives in answers of typed events."""
    rows = [
        f"| `{text.part}` | `{text.name}` | `{text.channel}` | {_READ_AS[text.kind]} | {_code(text.delta)} |"
        for text in events.fields
    ]
    return "\n".join(
        ["| in objects of type | field | channel | read as | streamed in |", "|---|---|---|---|---|", *rows]
    )


def _presets_table() -> str:
    """What each strength sets."""
    rows = []
    for name in Strength:
        preset = PRESETS[name]
        folds = ", ".join(f"`{fold}`" for fold in Fold if fold in preset.fold)
        variants = ", ".join(f"`{variant}`" for variant in Variant if variant in preset.variants)
        rows.append(f"| `{name}` | {folds} | {variants or 'none'} | {preset.edits} |")
    return "\n".join(["| `strength` | `fold` | `variants` | `edits` |", "|---|---|---|---|", *rows])


def _false_hits_table() -> str:
    """The figures of strength.toml."""
    figures = false_hits()
    corpora = figures[Strength.PLAIN]
    rows = [f"| {name} | {' | '.join(f'{figures[each][name]:g}' for each in Strength)} |" for name in corpora]
    return "\n".join([f"| text | {' | '.join(Strength)} |", "|---|---|---|---|", *rows])


_READ_AS = {
    SlotKind.TEXT: "text",
    SlotKind.JSON: "JSON",
    SlotKind.OPAQUE: "a payload: text only if it can be read as text",
    SlotKind.SIGNATURE: "a signature: left out if what it signs was changed",
}


def _code(name: str) -> str:
    return f"`{name}`" if name else "no event: it comes whole"


def _dropped_table(dropped: Mapping[str, str]) -> str:
    return "\n".join(["| field | why |", "|---|---|", *(f"| `{name}` | {why} |" for name, why in dropped.items())])


# Client of docs/clients.md → its package in the locks of tests/clients, and what it calls.
_CLIENTS = {
    "openai, Python": ("openai", "chat completions, responses"),
    "openai, Node": ("node:openai", "chat completions, responses"),
    "anthropic, Python": ("anthropic", "messages"),
    "@anthropic-ai/sdk, Node": ("node:@anthropic-ai/sdk", "messages"),
    "langchain-openai": ("langchain-openai", "chat completions; responses with `use_responses_api=True`"),
    "llama-index-llms-openai": ("llama-index-llms-openai", "chat completions; responses with `OpenAIResponses`"),
    "pydantic-ai": ("pydantic-ai-slim", "responses"),
    "openai-agents": ("openai-agents", "responses"),
    "instructor": ("instructor", "chat completions"),
    "litellm": ("litellm", "chat completions, responses, messages"),
    "Vercel AI SDK": ("node:ai", "responses; chat completions and messages by provider"),
    "Claude Code": ("node:@anthropic-ai/claude-code", "messages"),
    "Codex": ("node:@openai/codex", "responses"),
    "curl": ("", "all of them"),
}


def _clients_table() -> str:
    """The versions are those that the tests install."""
    here = ROOT / "tests" / "clients"
    versions: dict[str, set[str]] = {}
    for lock in here.glob("requirements-*.txt"):
        for name, version in re.findall(r"^([a-z0-9_.-]+)==(\S+)$", lock.read_text("utf-8"), re.MULTILINE):
            versions.setdefault(name, set()).add(version)
    for name, version in json.loads((here / "node" / "package.json").read_text("utf-8"))["dependencies"].items():
        versions[f"node:{name}"] = {version}
    rows = [
        f"| {client} | {' and '.join(sorted(versions[package])) if package else ''} | {calls} |"
        for client, (package, calls) in _CLIENTS.items()
    ]
    return "\n".join(["| client | tested with | what it calls |", "|---|---|---|", *rows])


def blocks() -> Mapping[str, Callable[[], str]]:
    sections = dict.fromkeys(row.section for row in bounds())
    return {
        **{f"bounds {section}": (lambda section=section: _bounds_table(section)) for section in sections},
        **{f"keys of {name}": (lambda table=table: _keys_table(table)) for name, table in KEY_TABLES.items()},
        "scanned in answers": lambda: coverage.short_list(coverage.answers(CHAT)),
        "scanned in prompts": lambda: coverage.short_list(coverage.requests(CHAT), coverage.requests(COMPLETIONS)),
        **coverage.tables(),
        **{
            f"evasion by {name}": (lambda families=families: report.table(families))
            for name, families in report.SECTIONS.items()
        },
        "presets": _presets_table,
        "false hits": _false_hits_table,
        "translated responses": lambda: _translation_table(responses_request),
        "translated messages": lambda: _translation_table(messages_request),
        "texts of responses": lambda: _texts_table(RESPONSE_EVENTS),
        "texts of messages": lambda: _texts_table(MESSAGE_EVENTS),
        "dropped in responses": lambda: _dropped_table(DROPPED_IN_RESPONSES),
        "dropped in messages": lambda: _dropped_table(DROPPED_IN_MESSAGES),
        **{name: (lambda made=made: made) for name, made in detectors.blocks().items()},
        "clients": _clients_table,
        "refused to responses": lambda: _dropped_table({**RESPONSES.refused, **RESPONSES.dropped}),
    }


def rendered(text: str) -> str:
    """A page with its generated parts made again. Raises `KeyError` for a part that nothing makes."""
    made = blocks()
    return _GENERATED.sub(lambda found: f"{found[1]}{made[found[2]]()}\n{found[3]}", text)


def main() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        if (new := rendered(text)) != text:
            page.write_text(new, "utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
