"""Targets: rules over texts, through lenses and disguises and within JSON."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from gateway.policy.model import Action, Fold, Policy
from gateway.policy.presets import Strength, Variant
from tests.fuzz.target import Target, headed, seeds
from tests.support.guard_client import WORD, call, calls, chunk, play, policy, rule, script
from tests.support.oracle import Oracle
from tests.support.random_policies import ALPHABETS, FOLDS, report, run

_CHARS = sorted(set("".join(ALPHABETS)))
_LONGEST_FOR_ORACLE = 24
_LENSES = (
    policy(rule("ab", "aé", "fi", "ss", fold=frozenset(FOLDS))),
    policy(rule("a b", "中文", "가", fold=frozenset({Fold.CASE, Fold.SPACE}), action=Action.REDACT)),
    policy(rule("am", "ガ", "a'b", whole_word=True, fold=frozenset(FOLDS)), rule("ba", id="s", action=Action.BLOCK)),
    policy(rule("ab", fold=frozenset({Fold.INVISIBLE, Fold.ACCENTS}), guard_tail=1)),
)
_DISGUISES = (
    policy(rule("monkey", "zebra cross", strength=Strength.PARANOID)),
    policy(rule("monkey", "zebra", strength=Strength.CAREFUL, action=Action.REDACT)),
    policy(rule("monkey", variants=frozenset(Variant))),
    policy(rule("monkeys", edits=1), rule("stop", id="s", action=Action.BLOCK, strength=Strength.PARANOID)),
)


def _censored(policies: tuple[Policy, ...], oracle: bool) -> Callable[[bytes], None]:
    """The same text and report under every cut; what the naive oracle makes of it, where it can."""

    def target(data: bytes) -> None:
        choice, size, body = headed(data)
        chosen = policies[choice % len(policies)]
        text = _text(body, choice)
        step = 1 + size % 16
        out, censor = run(chosen, [text] if text else [])
        slowly, other = run(chosen, [text[at : at + step] for at in range(0, len(text), step)])
        assert slowly == out
        assert report(other) == report(censor)
        if oracle and len(text) <= _LONGEST_FOR_ORACLE:
            assert Oracle(chosen).whole(text)[0] == out

    return target


def _text(body: bytes, choice: int) -> str:
    """As UTF-8, or each byte one of the characters that lenses are about."""
    return "".join(_CHARS[byte % len(_CHARS)] for byte in body) if choice & 128 else body.decode("utf-8", "replace")


# A word is looked for in strings as they are read: "\\u0012MONKEYS" does not have one that its spelling has.
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}")


def rewrite_json(data: bytes) -> None:
    """JSON as a content that was asked for as JSON, and as arguments of a call: no cut shows, nor the word."""
    choice, size, body = headed(data)
    text, step = body.decode("utf-8", "replace"), 1 + size % 16
    parts = [text[at : at + step] for at in range(0, len(text), step)]
    rules = policy(rule(action=Action.BLOCK, message="No.")) if choice & 1 else policy()
    shown = []
    for cut in ([text], parts):
        if choice & 2:
            events = [calls(call(0, "f", "")), *(calls(call(0, arguments=part)) for part in cut)]
        else:
            events = [chunk({"content": part}) for part in cut]
        client = play(rules, script(*events, chunk(finish="stop")), json_content=True)
        message = client.messages.get(0, {})
        called = message.get("tool_calls") or [{}]
        shown.append((client.content, called[0].get("function", {}).get("arguments") or "", client.finish))
    assert shown[0] == shown[1]
    for each in shown[0][:2]:
        assert WORD not in _ESCAPE.sub("?", each)
        with contextlib.suppress(ValueError, RecursionError):
            assert not any(WORD in text for text in _strings(json.loads(each)))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _strings(each)


TARGETS = {
    "lenses": Target(
        _censored(_LENSES, oracle=True),
        seeds(
            "ABa\u0301 ﬁ ß a\u200bb 각".encode(), "> a\n> b 中 文 a’b".encode(), b"\1\2\3\4", choices=(0, 1, 2, 3, 128)
        ),
        longest=200,
    ),
    "disguises": Target(
        _censored(_DISGUISES, oracle=False),
        seeds(
            b"m0nk3y m-o-n-k-e-y mmoonnkkeeyy &#109;onkey \\x6donkey %6Donkey yeknom",
            b"bW9ua2V5 6d6f6e6b6579 zbxnrl zebra\ncross -- --- -. -.- . -.-- sotp mnokeys",
            choices=(0, 1, 2, 3),
        ),
        longest=300,
    ),
    "rewriting": Target(
        rewrite_json,
        seeds(
            b'{"a": "12MON\\u004bEYS", "12MONKEYS": [1, 2.5e3, null]}',
            b'{"a": {"a": "x\\ud83d\\ude00"}} {"b"',
            b'not json "12MONKEYS',
            choices=(0, 1, 2, 3),
        ),
    ),
}
