"""What happens to text in each field, found by trying: a word stands at one place at a time, and the guard shows it.

`rows` tries the samples of `coverage_samples`; what comes out tells "scanned" (a rule replaced the word), "dropped"
(the word did not come out), "kept" (it came out as it was) or "refused" (nothing came out).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gateway.censor.compile import compile_policy
from gateway.guard.answer import BrokenAnswer, PlainAnswer, StreamAnswer
from gateway.guard.commands import SendBytes
from gateway.guard.moderation import moderating
from gateway.guard.open import open_guard
from gateway.guard.prompt import BadRequest, apply_request_table, guard_prompt, read_request
from gateway.policy.model import Direction, Policy, Rule
from gateway.wire import moderations
from gateway.wire.chat import CHAT
from gateway.wire.dialect import AnswerEncoder, Dialect
from tests.docs.coverage_samples import OPAQUE, WORD, Sample, Together

SCANNED, DROPPED, REFUSED, KEPT = "scanned", "dropped", "refused", "kept"
_REPLACEMENT = "REPLACED"
_COMPILED = compile_policy(
    Policy(
        name="p",
        rules=(Rule(id="r", words=(WORD,), replacement=_REPLACEMENT, apply_to=frozenset(Direction)),),
    )
)

Path = tuple[str | int, ...]
Try = Callable[[Sample], str]  # what comes out for a whole answer, event or request


# -- places ------------------------------------------------------------------------------------------------------------


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


def _alone(sample: Sample, path: Path) -> Sample:
    """The sample with the word at one place only."""
    made = copy.deepcopy(sample)
    for other in places(sample):
        if other != path:
            holder = _at(made, other[:-1])
            holder[other[-1]] = holder[other[-1]].replace(WORD, "word")
    return made


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def name_of(sample: Sample, path: Path) -> str:
    """The path, with the `type` of what stands in a list, and with what kind of payload it is."""
    shown = f"{sample['type']}: " if "type" in sample and "role" not in sample else ""
    for number, step in enumerate(path):
        item = _at(sample, path[: number + 1])
        if isinstance(step, str):
            shown += f".{step}" if number else step
        else:
            kind = item.get("type") if isinstance(item, dict) else None
            shown += f"[{kind}]" if kind and WORD not in kind else "[]"
    given = _at(sample, path)
    if "base64" in given or OPAQUE in given or WORD * 2 in given:
        return f"{shown} (base64)"
    return f"{shown} (a link)" if given.startswith("https:") else shown


def rows(samples: Sequence[Sample | Together], base: Sample, *tries: Try) -> dict[str, tuple[str, ...]]:
    """For each place what each of the tries does to text there. A place that several samples have is tried in all."""
    found: dict[str, tuple[str, ...]] = {}
    for given in samples:
        sample = given.sample if isinstance(given, Together) else given
        kept = given.kept if isinstance(given, Together) else ""
        for path in [()] if isinstance(given, Together) else places(sample):
            tried = {**base, **(_alone(sample, path) if path else sample)}
            outcomes = tuple(_outcome(each, copy.deepcopy(tried), kept) for each in tries)
            name = given.name if isinstance(given, Together) else name_of(sample, path)
            assert found.setdefault(name, outcomes) == outcomes, f"{name}: {found[name]}, {outcomes}"
    return found


def _outcome(work: Try, value: Sample, kept: str) -> str:
    try:
        shown = work(value)
    except (BadRequest, BrokenAnswer):
        return REFUSED
    if WORD in shown:
        return KEPT
    return SCANNED if _REPLACEMENT in shown and kept in shown else DROPPED


# -- tries -------------------------------------------------------------------------------------------------------------


def answered(dialect: Dialect, encoder: Callable[[], AnswerEncoder] | None = None) -> Try:
    """A whole answer. `encoder` writes it in the dialect of another client."""

    def work(answer: Sample) -> str:
        made = encoder() if encoder else None
        guard = open_guard(dialect, _COMPILED)
        plain = PlainAnswer(guard, max_event=1 << 20, max_whole=1 << 20, dialect=dialect, encoder=made)
        plain.feed(json.dumps(answer).encode(), 0.0)
        return plain.close(0.0).decode()

    return work


def streamed(dialect: Dialect, encoder: Callable[[], AnswerEncoder] | None = None) -> Try:
    """The same answer as a stream."""

    def work(answer: Sample) -> str:
        events = list(dialect.events.as_events(answer)) if dialect.events else [_chunk(answer)]
        return _streamed(dialect, events, encoder() if encoder else None)

    return work


def among_events(dialect: Dialect, base: Sample) -> Try:
    """An event in the stream of an answer."""

    def work(event: Sample) -> str:
        assert dialect.events is not None
        first, *others = dialect.events.as_events(copy.deepcopy(base))
        return _streamed(dialect, [first, event, *others], None)

    return work


def _chunk(answer: Sample) -> Sample:
    """A whole answer as the one chunk of a stream."""
    kinds = {"chat.completion": "chat.completion.chunk"}
    choices = [
        {"delta" if name == "message" else name: value for name, value in choice.items()}
        for choice in answer["choices"]
    ]
    return {**answer, "object": kinds.get(answer["object"], answer["object"]), "choices": choices}


def _streamed(dialect: Dialect, events: list[Sample], encoder: AnswerEncoder | None) -> str:
    guard = open_guard(dialect, _COMPILED)
    stream = StreamAnswer(guard, max_event=1 << 20, max_whole=1 << 20, dialect=dialect, encoder=encoder)
    sent = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    sent += "" if dialect.events else "data: [DONE]\n\n"
    commands = [*stream.feed(sent.encode(), 0.0), *stream.close(0.0)]
    if stream.fault == "protocol":
        return ""
    return b"".join(command.data for command in commands if isinstance(command, SendBytes)).decode()


def asked(dialect: Dialect, translated: bool = False) -> Try:
    """A request, to an upstream that speaks its dialect or, translated, only chat's."""

    def work(body: Sample) -> str:
        read_request(body, dialect)
        apply_request_table(body, _COMPILED, dialect)
        prompt = guard_prompt(body, _COMPILED, None, dialect)
        if prompt.refusal is not None:
            raise prompt.refusal
        if translated:
            assert dialect.translation is not None
            dialect.translation.encoder(body)
            body = dialect.translation.to_chat(body)
            apply_request_table(body, _COMPILED, CHAT)
        return json.dumps(body)

    return work


def moderated(body: Sample) -> str:
    """A request that our own rules answer."""
    inputs = moderations.read_input(body)
    steps = moderating([each.texts for each in inputs], _COMPILED, None)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return _REPLACEMENT if any(end.value.found) else ""
