"""Patterns alone: is their time linear in the text, whatever the text, and how much slower than prose is the worst?

    python -m loadtest.pattern_bench [--size CHARACTERS] [--only NAME]

Every case is a policy and a text made to be hard for it, taken in chunks of four characters at two lengths, one twice
the other, and prose of the same length through the same policy. Each case carries what must be found; a fast wrong
answer fails.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from time import process_time

from gateway.censor.compile import Program, compile_policy
from gateway.censor.detectors import DETECTORS
from gateway.censor.stream import Censor
from gateway.policy.model import Channel, Direction, Policy, Rule
from loadtest.report import verdict_lines
from loadtest.scenario import Limits, load
from loadtest.verdicts import Figure, Verdict

CHUNK = 4
DEFAULT_SIZE = 100_000
PROSE = 20_000  # characters of it that a machine has seen before it is timed


PEM = "-----BEGIN PRIVATE KEY-----\n"


@dataclass(frozen=True, slots=True)
class Case:
    """`text` makes a hostile text of a length; `runs` is how many runs there are in such a text, None where only the
    same text taken as a whole can tell."""

    name: str
    rules: tuple[Rule, ...]
    text: Callable[[int], str]
    runs: Callable[[str], int] | None


def _pattern(name: str, pattern: str, text: Callable[[int], str], runs: Callable[[str], int]) -> Case:
    return Case(name, (Rule(id="pattern", pattern=pattern),), text, runs)


def _detector(title: str, text: Callable[[int], str], runs: Callable[[str], int] | None) -> Case:
    """`title` begins with the detector's name."""
    name = title.partition(",")[0]
    return Case(f"detector {title}", (Rule(id=name, detector=name),), text, runs)


def _repeat(piece: str) -> Callable[[int], str]:
    return lambda size: (piece * (size // len(piece) + 1))[:size]


def _random(alphabet: str) -> Callable[[int], str]:
    def text(size: int) -> str:
        source = random.Random("patterns")
        return "".join(source.choices(alphabet, k=size))

    return text


def _none(_: str) -> int:
    return 0


def _one(_: str) -> int:
    return 1


def prose(size: int) -> str:
    text = resources.files("gateway.censor").joinpath("prose.txt").read_text(encoding="utf-8")
    return _repeat(text)(size)


def cases() -> list[Case]:
    """The patterns that hang backtracking engines, those that make a deterministic automaton explode, those that keep
    every beginning alive, and each detector's own worst text."""
    return [
        _pattern("nested repetition (a+)+$", "(a+)+$", lambda size: "a" * (size - 1) + "b", _none),
        _pattern("nested alternation (a|aa)+$", "(a|aa)+$", lambda size: "a" * (size - 1) + "b", _none),
        _pattern("(x+x+)+y", "(x+x+)+y", _repeat("x"), _none),
        _pattern("twelve times anything and an a", "(.*a){12}b", _repeat("a"), _none),
        _pattern("^(([a-z])+.)+[A-Z]([a-z])+$", "^(([a-z])+.)+[A-Z]([a-z])+$", _repeat("a"), _none),
        _pattern("a, sixteenth from the end", "(a|b)*a(a|b){15}c", _random("ab"), _none),
        _pattern("a, 40 letters, an a", "a[ab]{40}c", _random("ab"), _none),
        _pattern("every beginning alive", "a.*b", _repeat("a"), _none),
        _pattern("quotes that reopen", '"[^"]*"', _repeat('"a"b'), _one),
        _pattern("tags never closed", "<[^>]+>", _repeat("<"), _none),
        _pattern("the longest that is counted", "a{1,100}b", _repeat("a"), _none),
        _pattern("words beside words", r"\b\w+ \w+ \w+!", _repeat("ab "), _none),
        _pattern("everything is one run", r"\w+", _repeat("a"), _one),
        _detector("email", _repeat("a."), _none),
        _detector("email", _repeat("a@a."), _none),
        _detector("credit_card", _repeat("4 "), _none),
        _detector("iban", _repeat("DE00 "), _none),
        _detector("us_ssn", _repeat("000-00-"), _none),
        _detector("phone", _repeat("+1 "), _none),
        _detector("ipv4", _repeat("256."), _none),
        _detector("ipv6", _repeat("a:"), _none),
        _detector("mac_address", _repeat("aa:"), _none),
        _detector("url", _repeat("https:/"), _none),
        _detector("jwt", _repeat("eyJa."), _none),
        _detector("private_key", _repeat("-----BEGIN "), _none),
        _detector("api_key", _repeat("ghp_sk-AKIA"), _none),
        _detector(
            "api_key, beginnings of many issuers", _repeat("sntrys_eyJpYXQiO pat. https://discord.com/api/"), _none
        ),
        _detector("credential", _repeat("password=token: "), _none),
        _detector("credential, a value without end", lambda size: ("password=" + "aB3$" * size)[:size], _none),
        _detector("national_id, digits and separators", _random("0123 -."), None),
        _detector("passport", _repeat("passport AB"), _none),
        _detector("date_of_birth", _repeat("born on 12 "), _none),
        _detector("coordinates", _repeat("lat 40.712, "), None),
        _detector("crypto_address", _repeat("1Lbc1q"), _none),
        _detector("wallet_secret, words of the list", _repeat("zoo "), None),
        _detector("email, long local parts", lambda size: "a." * (size // 2), _none),
        _detector("credit_card, digits and separators", _random("45 -"), None),
        _detector("phone, digits and separators", _random("0123 -+()"), None),
        _detector("ipv6, groups and colons", _random("0af:"), None),
        _detector("iban, letters and digits", _random("GBDE0123 "), None),
        _detector("jwt, a first part without end", lambda size: "eyJ" + "a" * (size - 3), _none),
        _detector("url, a path without end", lambda size: ("http://a.de/" + "(a," * size)[:size], None),
        _detector("private_key, a body without end", lambda size: (PEM + "A" * size)[:size], _one),
        _detector("private_key, one letter a line", lambda size: (PEM + "A\n" * size)[: size // 2 * 2], _one),
        _detector("private_key, words behind each BEGIN line", _repeat(PEM + "so it goes on and on. "), None),
        Case(
            "all detectors, random letters and signs",
            tuple(Rule(id=name, detector=name) for name in DETECTORS),
            _random("aZ09.-_@:/+ "),
            None,
        ),
    ]


@dataclass(frozen=True, slots=True)
class Timing:
    """A case's CPU time a character, how it grows when the text doubles, and how it compares to prose."""

    case: Case
    us: float
    growth: float
    times_prose: float
    found: int
    expected: int

    @property
    def fault(self) -> str:
        if self.found == self.expected:
            return ""
        return f"patterns alone, {self.case.name}: {self.found} runs, expected {self.expected}"


def time_case(case: Case, size: int = DEFAULT_SIZE) -> Timing:
    """Take the case's text at `size` characters and at twice as many, and prose through the same policy."""
    program = compile_policy(Policy(name="bench", rules=case.rules)).program(Direction.OUTPUT, Channel.CONTENT)
    text = case.text(size)
    _run(program, prose(PROSE))
    plain = _run(program, prose(size))[0]
    short, found = _run(program, text)
    long, _ = _run(program, case.text(2 * size))
    expected = case.runs(text) if case.runs else _run(program, text, len(text))[1]
    return Timing(case, short / len(text) * 1e6, long / short, short / plain, found, expected)


def _run(program: Program | None, text: str, chunk: int = CHUNK) -> tuple[float, int]:
    """Seconds of CPU for a text in chunks, and the runs found."""
    censor = Censor(program)
    pieces = [text[at : at + chunk] for at in range(0, len(text), chunk)]
    feed = censor.feed
    begin = process_time()
    for piece in pieces:
        feed(piece)
    censor.finish()
    return process_time() - begin, len(censor.matches)


def verdicts(timings: Sequence[Timing], limits: Limits) -> list[Verdict]:
    """The limits of patterns, each for its worst case."""
    if not timings:
        return []
    growth = max(timing.growth for timing in timings)
    slowest = max(timing.times_prose for timing in timings)
    return [
        Verdict("patterns alone: twice the text / the text", limits.pattern_growth, Figure(growth, growth, growth)),
        Verdict("patterns alone: hostile text / prose", limits.pattern_times_prose, Figure(slowest, slowest, slowest)),
    ]


def table(timings: Sequence[Timing]) -> str:
    """One line a case; empty if there was none."""
    if not timings:
        return ""
    width = max(len(timing.case.name) for timing in timings)
    lines = ["patterns alone".ljust(width) + "  us/character  t(2n)/t(n)  times prose  runs"]
    for timing in timings:
        figures = f"{timing.us:12.2f}  {timing.growth:10.2f}  {timing.times_prose:11.1f}"
        lines.append(f"{timing.case.name.ljust(width)}  {figures}  {timing.found}/{timing.expected}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the verdicts; exit status 1 if a count is wrong."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.pattern_bench", description=__doc__)
    parser.add_argument("--size", type=int, default=DEFAULT_SIZE, metavar="N", help="characters of the shorter text")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains this")
    options = parser.parse_args(arguments)
    timings = [time_case(case, options.size) for case in cases() if options.only in case.name]
    faults = [timing.fault for timing in timings if timing.fault]
    print(table(timings))
    print(verdict_lines(verdicts(timings, load()[1])))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
