"""What the detectors find in text that holds no personal data.

    python -m loadtest.false_hits [FILE ...]

Without files, the text is what every installation of Python brings (documentation, sources, licences, the pages of the
installed packages), manual pages in other languages where the system has them, and tables of numbers drawn with a
fixed seed. Every hit is printed with its surroundings, each distinct one once: whether it is what the detector claims,
only a reader can say. `FALSE` holds what readers have found; docs/detectors.md says so in words.
"""

from __future__ import annotations

import ast
import gzip
import random
import re
import sys
import sysconfig
import uuid
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from pydoc_data.topics import topics

from gateway.censor.compile import Program, compile_policy
from gateway.censor.detectors import DETECTORS
from gateway.censor.explain import prose
from gateway.censor.stream import Censor
from gateway.policy.model import Channel, Direction, Mode, Policy, Rule

SEED = 4
TABLE_LINES = 20_000
# By deploy/policies/pii.yaml, or without a rule there.
ONLY_FLAGGED = {
    *("ipv4", "ipv6", "mac_address", "url", "date_of_birth", "coordinates", "crypto_address", "wallet_secret"),
}
PIECE = 8  # characters: about what a model sends at a time
_MANUAL = Path("/usr/share/man")
_LICENCES = Path("/usr/share/common-licenses")
_LIBRARY = Path(sysconfig.get_path("stdlib"))
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "pydoc_data", "lib2to3"}  # tests hold values on purpose

# Hits that are not what their detector claims: versions and sections of four numbers, and names of locales. Of the
# drawn numbers every hit is false.
FALSE = {
    *(("ipv4", value) for value in ("0.5.1.2", "2.7.2.2", "3.1.1.6", "7.1.4.34", "8.1.2.2", "8.2.4.44", "8.2.4.45")),
    *(("ipv4", value) for value in ("1.4.0.7", "1.4.1.17", "1.4.1.19", "1.15.5.4", "1.15.7.2", "1.15.8.6")),
    *(("email", f"{language}_{country}@devanagari.utf") for language, country in (("ks", "in"), ("sd", "in"))),
    ("email", "sd_IN@devanagari.UTF"),
}

# Behind the end of a sentence, at an empty line, and at the end of a line that the next one does not continue.
_BOUNDARY = re.compile(r"(?<=[.!?])\s+|\n\s*\n|[。！？]|\n(?=\s*[-*#>|\d]|\s*\w+\()")
_WORD = re.compile(r"\w")
_TROFF = re.compile(r"^[.'].*$|\\f[A-Z]|\\&|\\\(..|\\\[[^]]*\]", re.MULTILINE)


def documentation() -> Iterator[str]:
    """The language's reference, and every docstring of the standard library."""
    yield from topics.values()
    for text in sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def sources() -> Iterator[str]:
    for path in sorted(_LIBRARY.rglob("*.py")):
        if not _LEFT_OUT & set(path.relative_to(_LIBRARY).parts):
            yield path.read_text(encoding="utf-8", errors="replace")


def licences() -> Iterator[str]:
    found = [path for path in sorted(_LICENCES.glob("*")) if path.is_file()]
    for distribution in metadata.distributions():
        found += [
            Path(str(distribution.locate_file(file))) for file in distribution.files or () if _is_licence(file.name)
        ]
    # The same licence comes with many packages.
    yield from dict.fromkeys(path.read_text(encoding="utf-8", errors="replace") for path in found if path.is_file())


def _is_licence(name: str) -> bool:
    return name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE"))


def packages() -> Iterator[str]:
    """What the installed packages say of themselves on their pages: prose, tables and examples."""
    for distribution in sorted(metadata.distributions(), key=lambda each: each.metadata["Name"]):
        yield (distribution.read_text("METADATA") or "").partition("\n\n")[2]


def languages() -> Iterator[str]:
    """Manual pages that are not in English, without their markup."""
    for path in sorted(_MANUAL.glob("*/man*/*.gz")):
        yield _TROFF.sub("", gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace"))


def numbers() -> Iterator[str]:
    """One line for each row of tables such as models are asked for; none of their numbers is anybody's."""
    chance = random.Random(SEED)
    below = chance.randrange
    kinds: tuple[Callable[[], str], ...] = (
        lambda: (
            f"{2000 + below(30)}-{1 + below(12):02}-{1 + below(28):02} {below(24):02}:{below(60):02}:{below(60):02}"
        ),
        lambda: f"{1 + below(28):02}.{1 + below(12):02}.{1990 + below(40)} {below(24):02}:{below(60):02}",
        lambda: f"Item {below(10**6)}: {below(10**5) / 100:.2f} EUR, {below(10**9):,} pieces, {below(10**4)} kg",
        lambda: f"{chance.random()} {chance.gauss(0, 1):e} {chance.gauss(0, 10**6)}",
        lambda: f"version {below(20)}.{below(40)}.{below(200)}, build {below(10**6)}, API {below(5)}.{below(10)}",
        lambda: str(uuid.UUID(int=chance.getrandbits(128))),
        lambda: sha256(chance.randbytes(8)).hexdigest(),
        lambda: f"order {below(10**10):010}, customer {below(10**8):08}, parcel {below(10**12):012}",
        lambda: f"id={chance.getrandbits(63)} time={1_600_000_000 + below(10**8)}.{below(1000):03}",
        lambda: " ".join(str(below(10 ** chance.randint(1, 5))) for _ in range(12)),
        lambda: " ".join(f"{below(10**4):04}" for _ in range(8)),
        lambda: " ".join(f"{below(256):02x}" for _ in range(16)),
        lambda: "\t".join(f"{chance.uniform(-180, 180):.6f}" for _ in range(4)),
        lambda: (
            f"978-{below(10)}-{below(10**4):04}-{below(10**4):04}-{below(10)}, pages {below(500)}-{500 + below(500)}"
        ),
        lambda: f"1 {below(1000):03} {below(1000):03} {below(1000):03} inhabitants, {below(1000)} {below(1000):03} km",
        lambda: (
            f"{below(30)}:{below(60):02}.{below(1000):03}  {below(100)}%  {below(10**4)}/{below(10**4)}  -{below(99)}"
        ),
    )
    yield "\n\n".join(chance.choice(kinds)() for _ in range(TABLE_LINES))


CORPORA = {
    "Python's documentation": documentation,
    "Python's sources": sources,
    "licences": licences,
    "package pages": packages,
    "other languages": languages,
    "numbers": numbers,
    "bundled prose": lambda: ["".join(prose())],
}


@dataclass(slots=True)
class Count:
    """Sentences of a corpus: how many, and which of them, as (text, sentence), hold a hit or a false one of a detector.

    `hits`: how often each distinct one occurs, as (detector, value), and what surrounds it the first time.
    """

    all_false: bool = False
    sentences: int = 0
    touched: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    falsely: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    where: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, number: int, text: str, program: Program) -> None:
        boundaries = list(_BOUNDARY.finditer(text))
        starts = [0, *(found.end() for found in boundaries)]
        ends = [*(found.start() for found in boundaries), len(text)]
        self.sentences += sum(_WORD.search(text, *span) is not None for span in zip(starts, ends, strict=True))
        for detector, start, end in _found(program, text):
            hit = detector, text[start:end]
            self.hits[hit] += 1
            self.where.setdefault(
                hit, " ".join(f"{text[max(0, start - 40) : start]}>>>{hit[1]}<<<{text[end : end + 20]}".split())
            )
            sentence = number, bisect_right(starts, start)
            self.touched[detector].add(sentence)
            if self.is_false(hit):
                self.falsely[detector].add(sentence)

    def is_false(self, hit: tuple[str, str]) -> bool:
        return self.all_false or hit in FALSE


def _found(program: Program, text: str) -> Iterator[tuple[str, int, int]]:
    censor = Censor(program)
    for start in range(0, len(text), PIECE):
        censor.feed(text[start : start + PIECE])
    censor.finish()
    for match in censor.matches:
        yield match.rule, match.start, match.end


def count(documents: Iterable[str], all_false: bool) -> Count:
    rules = tuple(Rule(id=name, detector=name) for name in DETECTORS)
    compiled = compile_policy(Policy(name="count", mode=Mode.OBSERVE, rules=rules))
    program = compiled.program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    counted = Count(all_false)
    for number, text in enumerate(documents):
        counted.add(number, text, program)
    return counted


def report(name: str, counted: Count) -> Iterator[str]:
    """Lines for people: of each detector, in how many sentences it finds something, and in how many falsely."""
    yield f"## {name}: {counted.sentences} sentences"
    for detector in DETECTORS:
        if counted.touched[detector]:
            yield f"{detector}: in {len(counted.touched[detector])}, falsely in {len(counted.falsely[detector])}"
    for hit, often in sorted(counted.hits.items()):
        yield f"  {hit[0]} x{often}{' FALSE' if counted.is_false(hit) else ''}: {counted.where[hit]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is found in each corpus, then the share of all sentences with a false hit. Exit status 0."""
    paths = sys.argv[1:] if arguments is None else arguments
    corpora: dict[str, Callable[[], Iterable[str]]] = dict(CORPORA)
    if paths:
        corpora = {path: partial(_read, path) for path in paths}
    sentences = 0
    falsely: Counter[bool] = Counter()  # by whether shipped rules change the text
    for name, documents in corpora.items():
        counted = count(documents(), all_false=documents is numbers)
        print(*report(name, counted), sep="\n", flush=True)
        sentences += counted.sentences
        for changed in (True, False):
            falsely[changed] += len(
                set().union(*(counted.falsely[each] for each in DETECTORS if (each not in ONLY_FLAGGED) is changed))
            )
    print(f"## all: {sentences} sentences")
    print(f"falsely changed by deploy/policies/pii.yaml: {falsely[True]} ({falsely[True] / sentences:.4%})")
    print(f"falsely flagged: {falsely[False]} ({falsely[False] / sentences:.4%})")
    return 0


def _read(path: str) -> list[str]:
    return [Path(path).read_text(encoding="utf-8")]


if __name__ == "__main__":
    sys.exit(main())
