"""Texts on which words in disguise cost most: nothing in them repeats, and everything may begin a word.

    python -m loadtest.hostile [--size CHARACTERS]

CPU time a character, in tokens of four: `first` through an automaton that has seen no text, `later` the same once more.
"""

from __future__ import annotations

import argparse
import base64
import random
from collections.abc import Callable, Iterator, Mapping
from time import process_time

from gateway.censor.compile import Program, compile_policy
from gateway.censor.stream import Censor
from gateway.policy.model import Channel, Direction, Policy, Rule, Strength
from loadtest.censor_bench import CENSOR_PROSE
from loadtest.pattern_bench import prose
from loadtest.script import listed_words

Text = Callable[[int], str]  # of so many characters

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _source() -> random.Random:
    return random.Random("hostile")


def _drawn(draw: Callable[[random.Random], str]) -> Text:
    def text(size: int) -> str:
        source, pieces, length = _source(), list[str](), 0
        while length < size:
            pieces.append(draw(source))
            length += len(pieces[-1])
        return "".join(pieces)[:size]

    return text


def _escape(source: random.Random) -> str:
    return source.choice(("\\u%04x", "&#%d;", "\\x%02x", "&#x%x;")) % ord(source.choice(LETTERS))


DISGUISED: Mapping[str, Text] = {
    "Base64": lambda size: base64.b64encode(_source().randbytes(size)).decode()[:size],
    "hexadecimal": lambda size: _source().randbytes(size).hex()[:size],
    "digits": _drawn(lambda source: source.choice("0123456789")),
    "signs for letters": _drawn(lambda source: source.choice("4$|!310@5+(<{#")),
    "control sequences": _drawn(lambda source: f"\x1b[38;5;{source.randrange(256)}m{source.choice(LETTERS)}"),
    "percent-encoding": _drawn(lambda source: f"%{ord(source.choice(LETTERS)):02x}"),
    "escapes": _drawn(_escape),
    "syllables": _drawn(lambda source: source.choice("bcdfghjklmnprstvw") + source.choice("aeiou")),
    "one letter": lambda size: "a" * size,
    "one letter, percent-encoded": lambda size: ("%61" * size)[:size],
    "one letter, escaped": lambda size: ("\\u0061" * size)[:size],
}


def rules() -> Mapping[str, Rule]:
    """What is measured: a thousand words, and one of a single letter but for its last."""
    words = tuple(word for word in listed_words(CENSOR_PROSE, 1000) if len(word) >= 9)
    return {
        "careful": Rule(id="r", words=words, strength=Strength.CAREFUL),
        "paranoid": Rule(id="r", words=words, strength=Strength.PARANOID),
        "paranoid, edits: 2": Rule(id="r", words=words, strength=Strength.PARANOID, edits=2),
        "paranoid, one word": Rule(id="r", words=("a" * 19 + "b",), strength=Strength.PARANOID),
    }


def time_text(program: Program | None, text: str) -> float:
    """Microseconds of CPU a character."""
    censor = Censor(program)
    begin = process_time()
    for at in range(0, len(text), 4):
        censor.feed(text[at : at + 4])
    censor.finish()
    return (process_time() - begin) / len(text) * 1e6


def rows(size: int) -> Iterator[str]:
    yield "| rule | text | first | later |"
    yield "|---|---|---|---|"
    for name, rule in rules().items():
        for kind, text in {"prose": prose, **DISGUISED}.items():
            program = compile_policy(Policy(name="p", rules=(rule,))).program(Direction.OUTPUT, Channel.CONTENT)
            first, later = (time_text(program, text(size)) for _ in range(2))
            yield f"| {name} | {kind} | {first:.0f} µs | {later:.1f} µs |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.hostile", description=__doc__)
    parser.add_argument("--size", type=int, default=2000, metavar="N", help="characters of a text")
    for row in rows(parser.parse_args().size):
        print(row, flush=True)


if __name__ == "__main__":
    main()
