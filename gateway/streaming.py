"""The censor for Python programs: wrap any stream of strings."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, overload

from gateway.censor.compile import compile_policy
from gateway.censor.stream import Censor
from gateway.config import parse
from gateway.policy.model import Channel, Direction, Policy, Rule

Rules = str | Rule | Policy | Mapping[str, Any] | Iterable[str | Rule | Mapping[str, Any]]


@overload
def censor_stream(chunks: Iterable[str], rules: Rules) -> Iterator[str]: ...
@overload
def censor_stream(chunks: AsyncIterable[str], rules: Rules) -> AsyncIterator[str]: ...
def censor_stream(chunks: Iterable[str] | AsyncIterable[str], rules: Rules) -> Iterator[str] | AsyncIterator[str]:
    """Yield the text of `chunks` with every match censored, each character as soon as no rule could want it.

    `rules`: a word, a `Rule`, a whole `Policy`, or several words and rules; a mapping is a rule, or a policy with
    `rules`, as the configuration file spells it. Words given as plain strings are replaced by `[CENSORED]`. An async
    iterable gives an async iterator. A `block` rule ends the stream before its match; a generator that is the source is
    closed when the stream ends. Raises ValueError (`ConfigError` for a mapping) for a rule that cannot be, TypeError
    for anything that is no rule or no stream; the stream raises TypeError for a chunk that is no string.
    """
    program = compile_policy(_policy(rules)).program(Direction.OUTPUT, Channel.CONTENT)
    censor = Censor(program)
    if isinstance(chunks, AsyncIterable):
        return _censor_async(chunks, censor)
    if isinstance(chunks, bytes | bytearray) or not isinstance(chunks, Iterable):
        raise TypeError(f"chunks: expected an iterable of strings, got {type(chunks).__name__}")
    return _censor(chunks, censor)


def _censor(chunks: Iterable[str], censor: Censor) -> Iterator[str]:
    try:
        for chunk in chunks:
            if released := _fed(censor, chunk):
                yield released
            if censor.ended:
                return
        if rest := censor.finish():
            yield rest
    finally:
        # After a block the source is read no further: it stops now, not when its garbage is collected.
        if isinstance(chunks, Generator):
            chunks.close()


async def _censor_async(chunks: AsyncIterable[str], censor: Censor) -> AsyncIterator[str]:
    try:
        async for chunk in chunks:
            if released := _fed(censor, chunk):
                yield released
            if censor.ended:
                return
        if rest := censor.finish():
            yield rest
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def _fed(censor: Censor, chunk: object) -> str:
    if isinstance(chunk, str):
        return censor.feed(chunk)
    raise TypeError(
        f'chunks: expected strings, got {type(chunk).__name__}: leave out what has no text, as in `content or ""`'
    )


def _policy(rules: Rules) -> Policy:
    if isinstance(rules, Policy):
        return rules
    if isinstance(rules, Mapping) and "rules" in rules:
        return _loaded(rules)
    if isinstance(rules, str | Rule | Mapping):
        rules = [rules]
    if isinstance(rules, bytes | bytearray) or not isinstance(rules, Iterable):
        raise TypeError(f"rules: expected a word, a Rule, a Policy, a mapping or several, got {type(rules).__name__}")
    return Policy(name="rules", rules=tuple(_rule(rule, number) for number, rule in enumerate(rules)))


def _rule(rule: str | Rule | Mapping[str, Any], number: int) -> Rule:
    if isinstance(rule, Rule):
        return rule
    if isinstance(rule, str):
        return Rule(id=f"word-{number}", words=(rule,), replacement="[CENSORED]")
    if isinstance(rule, Mapping):
        return _loaded({"rules": [{"id": f"rule-{number}", **rule}]}).rules[0]
    raise TypeError(f"rules[{number}]: expected a word, a Rule or a mapping, got {type(rule).__name__}")


def _loaded(policy: Mapping[str, Any]) -> Policy:
    """The loader reads whole configurations, so the policy is put into the smallest one."""
    whole = {
        "upstreams": {"none": {"type": "demo"}},
        "routes": [{"model": "*", "upstream": "none", "policy": "rules"}],
        "policies": {"rules": policy},
    }
    try:
        text = json.dumps(whole)
    except TypeError as error:
        raise ValueError(f"rules: a mapping holds what a configuration file can hold: {error}") from None
    config = parse(text, "<rules>", Path.cwd(), environ={})
    return config.policies["rules"]
