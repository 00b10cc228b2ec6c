"""The censor alone, without sockets, JSON or an event loop: time a token; and the memory of the guard around it.

    python -m loadtest.censor_bench

Every case carries the number of matches that must be found; a fast wrong answer fails. `first` is the first pass over
the texts, in which the machine computes the transitions it has not seen yet; `us/token` is a later pass.
"""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from time import perf_counter_ns

import ahocorasick

from gateway.censor.compile import CompiledPolicy, Program, compile_policy
from gateway.censor.stream import Censor
from gateway.guard.answer import StreamAnswer
from gateway.guard.open import open_guard
from gateway.policy.model import Channel, Direction, Limits, Policy, Rule, Strength
from gateway.wire.chat import CHAT
from loadtest.dialects import chunk
from loadtest.report import verdict_lines
from loadtest.scenario import Limits as JudgedBy
from loadtest.scenario import Scenario, load
from loadtest.script import FORBIDDEN, REPLACEMENT, VARIANTS, listed_words, tokens
from loadtest.verdicts import Figure, Verdict

TOKENS_A_TEXT = 400
PASSES = 3
_SAMPLE = 60_000  # so many different beginnings that no cache of transitions holds them all
_OPEN_STREAMS = 50
CENSOR_PROSE = Scenario(
    name="censor",
    streams=VARIANTS,
    rate=50,
    tokens=TOKENS_A_TEXT,
    text="prose",
    planted=5,
    redactions=5,
    baselines=(),
    words=(),
)

# What `paranoid` finds besides, an edit away from listed words: `overed` four times, and once at a planted word.
MISSPELT = 5

# A text that is read once, as an answer is: how a second pass would be says nothing of it.
_ONCE = Path(__file__).parent.parent / "LICENSE"
ONCE = {Strength.PLAIN: 0, Strength.CAREFUL: 0, Strength.PARANOID: 8}  # matches

Text = Sequence[str]  # tokens


@dataclass(frozen=True, slots=True)
class Case:
    """Words, the texts they are looked for in, and how many occurrences there are in all texts together.

    `kind`: `prose`; `careful` and `paranoid`, prose with this strength; `once`, text of which the first pass counts;
    `live`, hostile text that keeps long beginnings of words live; `cold`, hostile text that goes through more of a
    large list than the automaton keeps computed. Both are held against the same limit.
    """

    name: str
    kind: str
    words: tuple[str, ...]
    texts: tuple[Text, ...]
    matches: int
    strength: Strength = Strength.PLAIN


@dataclass(frozen=True, slots=True)
class Timing:
    """The censor's microseconds a token; and of the whole guard, from an upstream's event to the client's, the
    microseconds an event and the bytes that it keeps for one open stream after 200 of them."""

    case: Case
    first: float
    later: Figure
    guard_us: float
    state_bytes: float
    found: int

    @property
    def fault(self) -> str:
        if self.found == self.case.matches:
            return ""
        return f"the censor alone, {self.case.name}: {self.found} matches, expected {self.case.matches}"


def cases() -> list[Case]:
    """Prose with short and long lists, then hostile text: what makes a naive matcher start again and again."""
    prose = tuple(tokens(CENSOR_PROSE, variant) for variant in range(VARIANTS))
    listed = {count: listed_words(CENSOR_PROSE, count) for count in (10, 1000, 100_000)}
    found = [
        Case(f"prose, {count:,} words", "prose", (FORBIDDEN, *words), prose, VARIANTS * CENSOR_PROSE.redactions)
        for count, words in listed.items()
    ]
    basis = found[1]
    found += [
        replace(
            basis,
            name=f"{basis.name}, {strength}",
            kind=strength.value,
            strength=strength,
            matches=basis.matches + misspelt,
        )
        for strength, misspelt in ((Strength.CAREFUL, 0), (Strength.PARANOID, MISSPELT))
    ]
    source = random.Random("read once")
    text = _ONCE.read_text("utf-8")
    cuts = [0, *accumulate(source.randint(3, 6) for _ in range(len(text) // 3))]
    pieces = tuple(filter(None, (text[begin:end] for begin, end in pairwise(cuts))))
    found += [
        replace(basis, name=f"read once, {each}", kind="once", texts=(pieces,), matches=matches, strength=each)
        for each, matches in ONCE.items()
    ]
    long_word = "a" * 999 + "b"
    found.append(
        _hostile(
            "live", "one word of 1,000 letters, all but its last", (long_word,), ["a" * 6400] * 3 + ["a" * 6399 + "b"]
        )
    )
    source = random.Random("broken runs")
    broken = ["a" * source.randrange(999) + "c" for _ in range(60)]
    found.append(_hostile("live", "the same, broken off anywhere", (long_word,), broken))
    nested = tuple("a" * length + "b" for length in range(1, 900, 9))
    found.append(
        _hostile("live", "100 words, each the end of the next", nested, ["a" * 6000, "ac" * 3000, "a" * 898 + "b"])
    )
    for count in (1000, 100_000):
        words = source.sample(listed[count], min(count, _SAMPLE))
        name = f"beginnings of {len(words):,} of {count:,} words"
        found.append(_hostile("cold", name, listed[count], ["".join(word[:-1] for word in words)]))
    return found


def _hostile(kind: str, name: str, words: tuple[str, ...], texts: Iterable[str]) -> Case:
    """Texts cut into tokens of four characters; what must be found is counted by another matcher, on the whole text."""
    whole = tuple(texts)
    automaton = ahocorasick.Automaton()
    for word in words:
        automaton.add_word(word, word)
    automaton.make_automaton()
    matches = sum(1 for text in whole for _ in automaton.iter(text))
    return Case(
        name, kind, words, tuple(tuple(text[at : at + 4] for at in range(0, len(text), 4)) for text in whole), matches
    )


def compiled(words: tuple[str, ...], strength: Strength = Strength.PLAIN) -> CompiledPolicy:
    """What the gateway compiles for one rule of these words."""
    rule = Rule(id="listed", words=words, replacement=REPLACEMENT, strength=strength)
    return compile_policy(Policy(name="bench", rules=(rule,)))


def time_case(case: Case) -> Timing:
    """Run every text of a case through a censor of its own, several times."""
    policy = compiled(case.words, case.strength)
    program = policy.program(Direction.OUTPUT, Channel.CONTENT)
    first, found = _pass(program, case.texts)
    later = Figure.over([_pass(program, case.texts)[0] for _ in range(PASSES)])
    assert later is not None
    reads = [b"%s0%s" % chunk(token) for token in case.texts[0][: TOKENS_A_TEXT // 2]]
    return Timing(case, first, later, _guard_us(policy, reads), _state_bytes(policy, reads), found)


def _pass(program: Program | None, texts: Sequence[Text]) -> tuple[float, int]:
    found = 0
    began = perf_counter_ns()
    for text in texts:
        censor = Censor(program)
        feed = censor.feed
        for token in text:
            feed(token)
        censor.finish()
        found += len(censor.matches)
    return (perf_counter_ns() - began) / sum(map(len, texts)) / 1000, found


def _guard_us(policy: CompiledPolicy, reads: Sequence[bytes]) -> float:
    _open_guard(policy, reads)
    began = perf_counter_ns()
    for _ in range(_OPEN_STREAMS):
        _open_guard(policy, reads)
    return (perf_counter_ns() - began) / _OPEN_STREAMS / len(reads) / 1000


def _state_bytes(policy: CompiledPolicy, reads: Sequence[bytes]) -> float:
    _open_guard(policy, reads)  # what the first one makes for all of them is not the state of a stream
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    guards = [_open_guard(policy, reads) for _ in range(_OPEN_STREAMS)]
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return kept / len(guards)


def _open_guard(policy: CompiledPolicy, reads: Sequence[bytes]) -> StreamAnswer:
    limits = Limits()
    guard = StreamAnswer(open_guard(CHAT, policy), max_event=limits.max_event, max_whole=limits.max_body)
    for read in reads:
        guard.feed(read, 0.0)
    return guard


def verdicts(timings: Sequence[Timing], limits: JudgedBy) -> list[Verdict]:
    """The limits of the censor alone, each for its worst case."""
    if not timings:
        return []
    prose = [timing.later for timing in timings if timing.case.kind == "prose"]
    basis = median(figure.median for figure in prose)
    hostile = [timing for timing in timings if timing.case.kind in ("live", "cold")]
    plain = next((timing.later.median for timing in timings if timing.case.name == "prose, 1,000 words"), 0.0)
    stronger = {timing.case.kind: timing.later for timing in timings if timing.case.kind == timing.case.strength}
    later = {kind: [_over(t.later, basis) for t in hostile if t.case.kind == kind] for kind in ("live", "cold")}
    first = [Figure(t.first / basis, t.first / basis, t.first / basis) for t in hostile]
    state = max(timing.state_bytes for timing in timings) / 1000
    return [
        Verdict("the censor alone: us a token, prose", limits.censor_us_per_token, max(prose, key=_median)),
        *(
            Verdict(
                f"the censor alone: us a token more than plain, {name}",
                getattr(limits, f"censor_{name}_us"),
                Figure(*(value - plain for value in (figure.median, figure.least, figure.most))),
            )
            for name, figure in stronger.items()
        ),
        *(
            Verdict(f"the censor alone: hostile text, {name} / prose", limits.censor_hostile_factor, worst)
            for name, figures in (
                ("every prefix live", later["live"]),
                ("past what the automaton keeps", later["cold"]),
                ("never seen before", first),
            )
            if (worst := max(figures, key=_median, default=None)) is not None
        ),
        Verdict("the guard's state: kB an open stream", limits.guard_kb_per_stream, Figure(state, state, state)),
    ]


def _over(figure: Figure, basis: float) -> Figure:
    return Figure(figure.median / basis, figure.least / basis, figure.most / basis)


def _median(figure: Figure) -> float:
    return figure.median


def table(timings: Sequence[Timing]) -> str:
    """One line a case; empty if there was none."""
    if not timings:
        return ""
    width = max(len(timing.case.name) for timing in timings)
    head = (
        "the censor alone".ljust(width),
        "us/token  (least..most)",
        "  first",
        "guard us/event",
        "bytes/stream",
        "matches",
    )
    lines = ["  ".join(head)]
    for timing in timings:
        later = timing.later
        cells = (
            timing.case.name.ljust(width),
            f"{later.median:8.2f}  ({later.least:.2f}..{later.most:.2f})".ljust(len(head[1])),
            f"{timing.first:7.2f}",
            f"{timing.guard_us:14.2f}",
            f"{timing.state_bytes:12.0f}",
            f"{timing.found}/{timing.case.matches}",
        )
        lines.append("  ".join(cells))
    return "\n".join(lines)


def main() -> int:
    """Print the table and the verdicts; exit status 1 if a count is wrong."""
    timings = [time_case(case) for case in cases()]
    faults = [timing.fault for timing in timings if timing.fault]
    print(table(timings))
    print(verdict_lines(verdicts(timings, load()[1])))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
