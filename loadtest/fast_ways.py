"""What each fast way of the guard saves: CPU time of a chunk with it, and with it switched off.

    python -m loadtest.fast_ways

docs/hot-path.md says what the ways are and when they are taken; the read callback, which needs sockets, is measured
there by the bench.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time_ns
from unittest.mock import patch

from gateway.automata.literals import LiteralMachine
from gateway.censor.compile import CompiledPolicy, compile_policy
from gateway.censor.pattern_cursor import PatternCursor
from gateway.censor.scanner import Scanner
from gateway.guard.answer import StreamAnswer
from gateway.guard.chat import ChatGuard
from gateway.policy.model import Limits, Policy, Rule
from gateway.wire import chunk_template, sse
from loadtest import patterns
from loadtest.censor_bench import compiled
from loadtest.dialects import chunk
from loadtest.scenario import Scenario
from loadtest.script import FORBIDDEN, VARIANTS, listed_words, tokens

ROUNDS = 7
_PROSE = Scenario(
    name="fast ways", streams=1, rate=50, tokens=400, text="prose", planted=0, redactions=0, baselines=(), words=()
)


@dataclass(frozen=True, slots=True)
class Way:
    """A method that answers None where the slow way has to be taken, and what to measure it with. `stamped`: `created`
    rises from chunk to chunk. `anew`: the rules are compiled for each run, so that nothing is worked out before."""

    name: str
    owner: object
    method: str
    policy: Callable[[], CompiledPolicy]
    texts: Sequence[Sequence[str]]
    stamped: bool = False
    anew: bool = False


def ways() -> list[Way]:
    """Prose, under a thousand words, under detectors; and beginnings of words that come only once."""
    prose = [tokens(_PROSE, variant) for variant in range(VARIANTS)]
    listed = (FORBIDDEN, *listed_words(_PROSE, 10_000))
    words = compiled(listed[:1000])
    rules = tuple(Rule(id=name, detector=name) for name in patterns.DETECTORS)
    detectors = compile_policy(Policy(name="detectors", rules=rules))
    cold = "".join(word[:-1] for word in listed)
    once = [[cold[at : at + 4] for at in range(0, len(cold), 4)]]
    return [
        Way("one event a read", sse.Decoder, "single", lambda: words, prose),
        Way("chunks like the one before", ChatGuard, "repeat", lambda: words, prose),
        Way("of these, equal but for the content", chunk_template.Template, "read", lambda: words, prose),
        Way("chunks with labels seen before", chunk_template, "read", lambda: words, prose, stamped=True),
        Way("all words over a chunk", Scanner, "scan_quickly", lambda: words, prose),
        Way("all patterns over a chunk", PatternCursor, "try_quickly", lambda: detectors, prose),
        Way("words that come once", LiteralMachine, "walk", lambda: compiled(listed), once, anew=True),
    ]


def _run(way: Way) -> float:
    """Microseconds of CPU a chunk, from the upstream's bytes to the client's."""
    policy, limits = way.policy(), Limits()
    read = [
        [str(number * way.stamped).encode().join(chunk(token)) for number, token in enumerate(text)]
        for text in way.texts
    ]
    began = process_time_ns()
    for chunks in read:
        answer = StreamAnswer(ChatGuard(policy), max_event=limits.max_event, max_whole=limits.max_body)
        for data in chunks:
            answer.feed(data, 0.0)
    return (process_time_ns() - began) / sum(map(len, read)) / 1000


def main() -> int:
    """Print a table: microseconds a chunk with the way and without it, alternating, and the share it saves."""
    print(f"{'way':36} {'with':>8} {'without':>8} {'saves':>6}")
    for way in ways():
        off = patch.object(way.owner, way.method, lambda *_: None)
        with_it: list[float] = []
        without: list[float] = []
        for _ in range(ROUNDS):
            if not way.anew:
                _run(way)
            with_it.append(_run(way))
            with off:
                without.append(_run(way))
        on, slow = median(with_it), median(without)
        print(f"{way.name:36} {on:8.2f} {slow:8.2f} {1 - on / slow:6.0%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
