"""How often word lists hit text that does not have their words, with each strength.

    python -m loadtest.word_hits [--list FILE]... [--text FILE]... [--write]

Without `--list` it is the lists in deploy/policies/words, as whole words. Without `--text`, what every installation of
Python brings (documentation, sources), tables of numbers drawn with a fixed seed, and the messages of installed
programs in German and French, where the system has them. A hit is false if the text has the word in no letters: as
it is listed, but for case. Every distinct false hit is printed. `--write` puts the figures into the package, from where
`portcullis check` and docs/evasion.md have them.
"""

from __future__ import annotations

import argparse
import contextlib
import gettext
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.censor.compile import Program, compile_policy
from gateway.censor.explain import prose
from gateway.censor.stream import Censor
from gateway.policy.model import Channel, Direction, Mode, Policy, Rule, Strength
from loadtest.false_hits import documentation, numbers, sources

ROOT = Path(__file__).parent.parent
LISTS = ROOT / "deploy" / "policies" / "words"
FIGURES = ROOT / "gateway" / "policy" / "strength.toml"
MOST_WORDS = 20_000  # of each corpus
PIECE = 256  # characters
_LOCALE = Path("/usr/share/locale")
_WORD = re.compile(r"\w+")
_HEAD = """\
# False hits of the shipped lists in 10,000 words of ordinary text. Written by python -m loadtest.word_hits --write.
"""


def english() -> Iterator[str]:
    yield "".join(prose())
    yield from documentation()


def messages(language: str) -> Iterator[str]:
    """What installed programs say in a language, as their translators wrote it."""
    for path in sorted((_LOCALE / language / "LC_MESSAGES").glob("*.mo")):
        with path.open("rb") as file, contextlib.suppress(UnicodeDecodeError):  # some do not say their encoding
            said: Mapping[object, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
            yield "\n".join(text for key, text in said.items() if key != "")


CORPORA: Mapping[str, Callable[[], Iterator[str]]] = {
    "English": english,
    "German": lambda: messages("de"),
    "French": lambda: messages("fr"),
    "code": sources,
    "tables": numbers,
}


@dataclass(slots=True)
class WordCount:
    """Words of a corpus, hits, and the false ones with how often they came."""

    words: int = 0
    hits: int = 0
    false: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """False hits in 10,000 words."""
        return round(10_000 * self.false.total() / self.words, 2) if self.words else 0.0


def count(texts: Iterable[str], lists: Mapping[str, Sequence[str]], strength: Strength) -> WordCount:
    """Count in at most `MOST_WORDS` words."""
    counted = WordCount()
    plain = {word.casefold() for words in lists.values() for word in words}
    program = _program(lists, strength)
    for whole in texts:
        words = list(itertools.islice(_WORD.finditer(whole), MOST_WORDS - counted.words))
        counted.words += len(words)
        text = whole[: words[-1].end()] if words else ""
        for start, end in _found(program, text):
            counted.hits += 1
            if " ".join(text[start:end].casefold().split()) not in plain:
                counted.false[text[start:end]] += 1
        if counted.words >= MOST_WORDS:
            break
    return counted


def _program(lists: Mapping[str, Sequence[str]], strength: Strength) -> Program:
    rules = tuple(
        Rule(id=f"list-{number}", words=tuple(words), whole_word=True, strength=strength)
        for number, words in enumerate(lists.values())
    )
    compiled = compile_policy(Policy(name="count", mode=Mode.OBSERVE, rules=rules))
    program = compiled.program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    return program


def _found(program: Program, text: str) -> Iterator[tuple[int, int]]:
    censor = Censor(program)
    for start in range(0, len(text), PIECE):
        censor.feed(text[start : start + PIECE])
    censor.finish()
    for match in censor.matches:
        yield match.start, match.end


def read_list(path: Path) -> list[str]:
    """One word a line, as `words_file` has it."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith(("# ", "//"))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of each corpus and strength. Exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.word_hits", description=__doc__)
    parser.add_argument("--list", type=Path, action="append", default=[])
    parser.add_argument("--text", type=Path, action="append", default=[])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    lists = {path.name: read_list(path) for path in options.list or sorted(LISTS.glob("*.txt"))}
    corpora = CORPORA
    if options.text:
        corpora = {path.name: lambda path=path: iter([path.read_text(encoding="utf-8")]) for path in options.text}
    figures: dict[Strength, dict[str, float]] = {strength: {} for strength in Strength}
    for name, texts in corpora.items():
        for strength in Strength:
            counted = count(texts(), lists, strength)
            if not counted.words:
                print(f"{name}: this system has none")
                break
            print(f"{name}, {strength}: {counted.words} words, {counted.hits} hits, {counted.rate:g} false in 10,000")
            for hit, times in itertools.islice(counted.false.most_common(), 20):
                print(f"  x{times} {hit!r}")
            figures[strength][name] = counted.rate
    if options.write:
        FIGURES.write_text(_HEAD + "".join(_table(strength, figures[strength]) for strength in Strength), "utf-8")
    return 0


def _table(strength: Strength, figures: Mapping[str, float]) -> str:
    return "\n".join([f"\n[{strength}]", *(f"{name} = {rate}" for name, rate in figures.items()), ""])


if __name__ == "__main__":
    sys.exit(main())
