"""What each fast path of the guard saves: CPU time of a chunk with it, and with it switched off.

    python -m loadtest.fast_paths

docs/hot-path.md says what the fast paths are and when they are taken; the read callback, which needs sockets, is
measured there by the benchmark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time_ns
from unittest.mock import patch

from gateway.automata.literals import LiteralMachine
from gateway.censor import scanner
from gateway.censor.compile import CompiledPolicy, compile_policy
from gateway.censor.pattern_cursor import PatternCursor
from gateway.censor.scanner import Scanner
from gateway.guard.answer import StreamAnswer
from gateway.guard.commands import SendBytes
from gateway.guard.fast_path import EventFastPath, FastPath
from gateway.guard.open import open_guard
from gateway.policy.model import Limits, Policy, Rule
from gateway.wire import sse
from gateway.wire.chat import CHAT
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from gateway.wire.translation.messages_answer import MessagesEncoder
from gateway.wire.translation.responses_answer import ResponsesEncoder
from loadtest import patterns
from loadtest.censor_bench import compiled
from loadtest.dialects import DIALECTS
from loadtest.scenario import Scenario
from loadtest.script import FORBIDDEN, VARIANTS, listed_words, tokens

ROUNDS = 7
_PROSE = Scenario(
    name="fast paths", streams=1, rate=50, tokens=400, text="prose", planted=0, redactions=0, baselines=(), words=()
)


@dataclass(frozen=True, slots=True)
class MeasuredPath:
    """A method that answers None where the slow path has to be taken, and what to measure it with. `stamped`: `created`
    rises from chunk to chunk. `fresh`: the rules are compiled for each run, so that nothing is computed before.
    `in_python`: within the scanner in Python, since the one in C does not call the method.
    `upstream` and `client` are the dialects of the answer."""

    name: str
    owner: object
    method: str
    policy: Callable[[], CompiledPolicy]
    texts: Sequence[Sequence[str]]
    stamped: bool = False
    fresh: bool = False
    in_python: bool = False
    upstream: Dialect = CHAT
    client: Dialect = CHAT


def measured_paths(size: int = _PROSE.tokens) -> list[MeasuredPath]:
    """Prose of `size` tokens, under a thousand words, under detectors; and beginnings of words that come only once."""
    prose = [tokens(_PROSE, variant)[:size] for variant in range(VARIANTS)]
    listed = (FORBIDDEN, *listed_words(_PROSE, 10_000))
    words = compiled(listed[:1000])
    rules = tuple(Rule(id=name, detector=name) for name in patterns.DETECTORS)
    detectors = compile_policy(Policy(name="detectors", rules=rules))
    cold = "".join(word[:-1] for word in listed)
    once = [[cold[at : at + 4] for at in range(0, len(cold), 4)][: 100 * size]]
    native, steady, translated = (
        "an event that adds to a text: ",
        "equal but for that: ",
        "a chunk becomes an event: ",
    )
    return [
        MeasuredPath("one event a read", sse.Decoder, "single", lambda: words, prose),
        MeasuredPath("chunks like the one before", FastPath, "repeat", lambda: words, prose),
        MeasuredPath("equal but for content and figures", FastPath, "bytes_path", lambda: words, prose, stamped=True),
        MeasuredPath("all words over a chunk", Scanner, "scan_quickly", lambda: words, prose),
        MeasuredPath(
            "all patterns over a chunk", PatternCursor, "try_quickly", lambda: detectors, prose, in_python=True
        ),
        MeasuredPath("all patterns over a chunk, in C", Scanner, "scan_quickly", lambda: detectors, prose),
        MeasuredPath(
            "words that come once", LiteralMachine, "walk", lambda: compiled(listed), once, fresh=True, in_python=True
        ),
        *(
            MeasuredPath(kind + name, EventFastPath, method, lambda: words, prose, upstream=dialect, client=dialect)
            for kind, method in ((native, "repeat"), (steady, "bytes_path"))
            for name, dialect in (("responses", RESPONSES), ("messages", MESSAGES))
        ),
        MeasuredPath(
            translated + "responses", ResponsesEncoder, "content_form", lambda: words, prose, client=RESPONSES
        ),
        MeasuredPath(translated + "messages", MessagesEncoder, "content_form", lambda: words, prose, client=MESSAGES),
    ]


def run(way: MeasuredPath) -> tuple[float, list[bytes]]:
    """Microseconds of CPU a chunk, from the upstream's bytes to the client's, and these."""
    if not way.in_python:
        return _run(way)
    over_words, _, scan_quickly = scanner.IN_PYTHON
    with patch.object(scanner, "over_words", over_words), patch.object(Scanner, "scan_quickly", scan_quickly):
        return _run(way)


def _run(way: MeasuredPath) -> tuple[float, list[bytes]]:
    policy, limits = way.policy(), Limits()
    script = next(each.script for each in DIALECTS.values() if each.path.endswith(way.upstream.path))
    read = [
        [
            head if tail is None else str(number * way.stamped).encode().join((head, tail))
            for number, (head, tail) in each
        ]
        for each in (enumerate(script(text)) for text in way.texts)
    ]
    commands = []
    began = process_time_ns()
    for chunks in read:
        translation = None if way.client is way.upstream else way.client.translation
        encoder = None if translation is None else translation.encoder({"model": "bench-model"})
        answer = StreamAnswer(
            open_guard(way.upstream, policy),
            max_event=limits.max_event,
            max_whole=limits.max_body,
            dialect=way.upstream,
            encoder=encoder,
        )
        commands += [answer.feed(data, 0.0) for data in chunks]
    took = (process_time_ns() - began) / sum(map(len, read)) / 1000
    return took, [command.data for each in commands for command in each if isinstance(command, SendBytes)]


def main() -> int:
    """Print a table: microseconds a chunk with the fast path and without it, alternating, and the share it saves."""
    print(f"{'fast path':40} {'with':>8} {'without':>8} {'saves':>6}")
    for way in measured_paths():
        off = patch.object(way.owner, way.method, lambda *_: None)
        with_it: list[float] = []
        without: list[float] = []
        for _ in range(ROUNDS):
            if not way.fresh:
                run(way)
            with_it.append(run(way)[0])
            with off:
                without.append(run(way)[0])
        on, slow = median(with_it), median(without)
        print(f"{way.name:40} {on:8.2f} {slow:8.2f} {1 - on / slow:6.0%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
