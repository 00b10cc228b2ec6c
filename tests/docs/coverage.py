"""The tables of docs/coverage.md: for each dialect what becomes of text in each field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from gateway.wire.chat import CHAT
from gateway.wire.completions import COMPLETIONS
from gateway.wire.dialect import Dialect
from gateway.wire.dialects import SERVED
from gateway.wire.embeddings import EMBEDDINGS
from gateway.wire.message import DROPPED_IN_ANSWERS
from gateway.wire.messages import COUNT_TOKENS, MESSAGES
from gateway.wire.responses import RESPONSES
from tests.docs import coverage_samples as samples
from tests.docs.scanned import (
    DROPPED,
    KEPT,
    REFUSED,
    SCANNED,
    Try,
    among_events,
    answered,
    asked,
    moderated,
    rows,
    streamed,
)

Rows = dict[str, tuple[str, ...]]

_ANSWERS = {
    CHAT: (samples.CHAT_ANSWERS, samples.CHAT_BASE),
    COMPLETIONS: (samples.TEXT_ANSWERS, samples.TEXT_BASE),
    RESPONSES: (samples.RESPONSE_ANSWERS, samples.RESPONSE_BASE),
    MESSAGES: (samples.MESSAGE_ANSWERS, samples.MESSAGE_BASE),
    EMBEDDINGS: (samples.EMBEDDING_ANSWERS, samples.EMBEDDING_BASE),
    COUNT_TOKENS: (samples.COUNT_ANSWERS, samples.COUNT_BASE),
}
_EVENTS = {RESPONSES: samples.RESPONSE_EVENTS, MESSAGES: samples.MESSAGE_EVENTS}
_REQUESTS = {
    CHAT: (samples.CHAT_ASKED, samples.CHAT_ASKED_BASE),
    COMPLETIONS: (samples.TEXT_ASKED, samples.TEXT_ASKED_BASE),
    RESPONSES: (samples.RESPONSE_ASKED, samples.RESPONSE_ASKED_BASE),
    MESSAGES: (samples.MESSAGE_ASKED, samples.MESSAGE_ASKED_BASE),
    EMBEDDINGS: (samples.EMBEDDING_ASKED, samples.EMBEDDING_ASKED_BASE),
    COUNT_TOKENS: (samples.MESSAGE_ASKED, samples.MESSAGE_ASKED_BASE),
}
# Requests whose answers show all that a translated answer can have.
_CURIOUS = {
    RESPONSES: {
        **samples.RESPONSE_ASKED_BASE,
        "reasoning": {"summary": "auto"},
        "include": ["message.output_text.logprobs"],
    },
    MESSAGES: {**samples.MESSAGE_ASKED_BASE, "thinking": {"type": "enabled", "budget_tokens": 1024}},
}


@cache
def answers(dialect: Dialect) -> Rows:
    """For each place of an answer: whole, and streamed where there are streams."""
    given, base = _ANSWERS[dialect]
    tries = (answered(dialect), streamed(dialect)) if dialect.generates else (answered(dialect),)
    return rows(given, base, *tries)


def events(dialect: Dialect) -> Rows:
    return rows(_EVENTS[dialect], {}, among_events(dialect, _ANSWERS[dialect][1]))


def _translated(dialect: Dialect) -> Rows:
    """The answers of a chat upstream, written for a client of another dialect."""
    translation = dialect.translation
    assert translation is not None
    tries: list[Try] = [
        make(CHAT, lambda: translation.encoder(dict(_CURIOUS[dialect]))) for make in (answered, streamed)
    ]
    return rows(*_ANSWERS[CHAT], *tries)


@cache
def requests(dialect: Dialect) -> Rows:
    """For each place of a request: as it is forwarded, and translated where that is possible."""
    given, base = _REQUESTS[dialect]
    tries = (asked(dialect), *([asked(dialect, translated=True)] if dialect.translation else []))
    return rows(given, base, *tries)


# -- tables ------------------------------------------------------------------------------------------------------------


def _table(found: Rows, *columns: str) -> str:
    lines = [f"| text in | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    return "\n".join([*lines, *(f"| `{name}` | {' | '.join(outcomes)} |" for name, outcomes in found.items())])


def _answers_table(dialect: Dialect) -> str:
    if not dialect.generates:
        return _table(answers(dialect), "is")
    lines = [_table(answers(dialect), "whole", "streamed")]
    if dialect in _EVENTS:
        lines += [f"| `{name}` | | {outcome} |" for name, (outcome,) in events(dialect).items()]
    return "\n".join(lines)


def _translated_table() -> str:
    responses, messages = _translated(RESPONSES), _translated(MESSAGES)
    both = {name: (*outcomes, *messages[name]) for name, outcomes in responses.items()}
    return _table(both, "Responses, whole", "streamed", "Messages, whole", "streamed")


def _requests_table(dialect: Dialect) -> str:
    return _table(requests(dialect), *(("as it is", "translated to chat") if dialect.translation else ("is",)))


def tables() -> Mapping[str, Callable[[], str]]:
    """By the name of the generated part."""
    made: dict[str, Callable[[], str]] = {}
    for dialect in SERVED:
        name = dialect.path.strip("/").replace("/", " ").replace("_", " ")
        made[f"answers of {name}"] = lambda dialect=dialect: _answers_table(dialect)  # type: ignore[misc]
        made[f"requests to {name}"] = lambda dialect=dialect: _requests_table(dialect)  # type: ignore[misc]
    made["reasons of requests"], made["reasons of answers"] = _reasons_of_requests, _reasons_of_answers
    made["translated answers"] = _translated_table
    made["requests to moderations"] = lambda: _table(rows(samples.MODERATED, {}, moderated), "is")
    return made


def _reasons_of_requests() -> str:
    """The code's own tables of fields that are refused or taken out."""
    found = [
        (name, what, why, dialect.path)
        for what, table in (
            (REFUSED, lambda dialect: {**dialect.refused, **dict.fromkeys(dialect.text_only, _TOKEN_IDS)}),
            (DROPPED, lambda dialect: dialect.dropped),
        )
        for dialect in SERVED
        for name, why in table(dialect).items()
    ]
    return _reasons(found)


def _reasons_of_answers() -> str:
    found = [
        (name, DROPPED, why, dialect.path)
        for dialect in SERVED
        for name, why in (dialect.events.dropped if dialect.events else DROPPED_IN_ANSWERS).items()
    ]
    return _reasons(found)


_TOKEN_IDS = "as token ids, which cannot be scanned"


def _reasons(found: list[tuple[str, str, str, str]]) -> str:
    """Rows of field, what becomes of it, why, and the endpoint; endpoints of the same row together."""
    together: dict[tuple[str, str, str], list[str]] = {}
    for name, what, why, path in found:
        together.setdefault((name, what, why), []).append(f"`{path}`")
    lines = ["| field | is | why | in |", "|---|---|---|---|"]
    for (name, what, why), paths in together.items():
        lines.append(f"| `{name}` | {what} | {why} | {'all' if len(paths) == len(SERVED) else ', '.join(paths)} |")
    return "\n".join(lines)


def short_list(*found: Rows) -> str:
    """One row for each outcome, with all its places."""
    together = {name: outcomes[0] for each in found for name, outcomes in each.items()}
    lines = ["| text in | is |", "|---|---|"]
    for outcome in (SCANNED, DROPPED, REFUSED, KEPT):
        names = [f"`{name}`" for name, what in together.items() if what == outcome]
        if names:
            lines.append(f"| {', '.join(names)} | {outcome} |")
    return "\n".join(lines)
