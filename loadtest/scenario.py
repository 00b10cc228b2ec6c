"""Scenarios as data: reading and checking `scenarios.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise, product
from pathlib import Path
from typing import Any

from loadtest.dialects import DIALECTS, OVER_CHAT, WAYS, Dialect

SCENARIOS = Path(__file__).with_name("scenarios.toml")
BASELINES = ("direct", "bytecopy", "nginx")
TEXTS = ("prose", "hostile")
MAX_STREAMS = 4000  # two sockets a stream in one process; beyond it the load tools measure themselves
TOKENS_A_PLANTED_WORD = 12  # a planted word takes up to three tokens, and some text must stand between two of them


class ScenarioError(ValueError):
    """The scenario file is wrong; the message names the file, the key and the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One load and the counts that must come out of each of its streams; `rate` is in tokens a second and stream.

    `together`: the streams are shared out over all targets, which run in the same seconds; evenly over their workers
    where `by_worker` is set, else evenly over the targets.
    """

    name: str
    streams: int
    rate: int
    tokens: int
    text: str
    planted: int
    redactions: int
    baselines: tuple[str, ...]
    words: tuple[int, ...]
    quick: bool = False
    together: bool = False
    by_worker: bool = False
    workers: tuple[int, ...] = (1,)
    patterns: tuple[bool, ...] = (False,)
    dialects: tuple[str, ...] = ("chat",)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of everything this scenario runs through, the unguarded ones first."""
        guards = product(self.words, self.workers, self.patterns, self.dialects)
        return self.baselines + tuple(Guard(*guard).name for guard in guards)

    def spans(self, names: Sequence[str]) -> list[range]:
        """The numbers of the streams of each of these targets, which run at once."""
        parts = [Guard.of(name).workers if self.by_worker and name not in BASELINES else 1 for name in names]
        part = self.streams // sum(parts)
        ends = list(accumulate((part * count for count in parts), initial=0))
        return [range(begin, end) for begin, end in pairwise(ends)]

    @property
    def seconds(self) -> float:
        """How long one stream takes."""
        return self.tokens / self.rate


@dataclass(frozen=True, slots=True)
class Guard:
    """Portcullis as a target: how long its list of words is, its workers, whether it has patterns too, and the endpoint
    that it is asked at, one of `dialects.WAYS`."""

    words: int
    workers: int = 1
    patterns: bool = False
    way: str = "chat"

    @property
    def dialect(self) -> Dialect:
        """Of the requests."""
        return DIALECTS[self.way.removesuffix(OVER_CHAT)]

    @property
    def name(self) -> str:
        """`portcullis-WORDS`, with `-xWORKERS` where there are several, `-patterns`, and the endpoint if not chat."""
        several = f"-x{self.workers}" if self.workers > 1 else ""
        way = "" if self.way == "chat" else f"-{self.way}"
        return f"portcullis-{self.words}{several}{'-patterns' if self.patterns else ''}{way}"

    @staticmethod
    def of(name: str) -> Guard:
        """From such a name."""
        rest = name.removeprefix("portcullis-")
        way = next((way for way in WAYS[::-1] if rest.endswith(f"-{way}")), "chat")
        rest = rest.removesuffix(f"-{way}")
        words, _, workers = rest.removesuffix("-patterns").partition("-x")
        return Guard(int(words), int(workers or 1), rest.endswith("-patterns"), way)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The figures a run is judged by; the keys of `[limits]`."""

    cpu_vs_nginx: float
    cpu_vs_bytecopy: float
    added_p50_ms: float
    added_p99_ms: float
    many_added_p99_ms: float
    words_100000_vs_10: float
    workers_2_vs_1: float
    patterns_vs_words: float
    dialects_vs_chat: float
    process_kb_per_stream: float
    censor_us_per_token: float
    censor_hostile_factor: float
    censor_careful_us: float
    censor_paranoid_us: float
    guard_kb_per_stream: float
    pattern_growth: float
    pattern_times_prose: float


def load(path: Path = SCENARIOS) -> tuple[tuple[Scenario, ...], Limits]:
    """The scenarios of a file, in its order, and its limits.

    Raises `ScenarioError` for anything it does not know or that could not be run.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    for key in document.keys() - {"scenario", "limits"}:
        raise ScenarioError(f"{path}: {key}: unknown key; known are scenario and limits")
    rows = document.get("scenario", [])
    scenarios = tuple(_scenario(f"{path}: scenario[{number}]", row) for number, row in enumerate(rows))
    names = [scenario.name for scenario in scenarios]
    if not names or len(set(names)) != len(names):
        raise ScenarioError(f"{path}: scenario: needs at least one, each with a name of its own; has {names}")
    return scenarios, _limits(f"{path}: limits", document.get("limits", {}))


def _scenario(where: str, row: Mapping[str, Any]) -> Scenario:
    known = {field.name: field for field in fields(Scenario)}
    for key in row.keys() - known.keys():
        raise ScenarioError(f"{where}.{key}: unknown key; known are {', '.join(known)}")
    for key in known.keys() - row.keys() - {"quick", "together", "by_worker", "workers", "patterns", "dialects"}:
        raise ScenarioError(f"{where}.{key}: missing")
    for key in ("streams", "rate", "tokens"):
        if type(row[key]) is not int or row[key] < 1:
            raise ScenarioError(f"{where}.{key}: must be a whole number above 0, is {row[key]!r}")
    for key in ("planted", "redactions"):
        if type(row[key]) is not int or row[key] < 0:
            raise ScenarioError(f"{where}.{key}: must be a whole number, is {row[key]!r}")
    if row["streams"] > MAX_STREAMS:
        raise ScenarioError(f"{where}.streams: at most {MAX_STREAMS}, is {row['streams']}")
    if row["planted"] * TOKENS_A_PLANTED_WORD > row["tokens"]:
        raise ScenarioError(
            f"{where}.planted: {row['planted']} words need {row['planted'] * TOKENS_A_PLANTED_WORD} tokens or more,"
            f" tokens is {row['tokens']}"
        )
    if row["text"] not in TEXTS:
        raise ScenarioError(f"{where}.text: must be one of {', '.join(TEXTS)}, is {row['text']!r}")
    if not set(row["baselines"]) <= set(BASELINES):
        raise ScenarioError(f"{where}.baselines: must be of {', '.join(BASELINES)}, is {row['baselines']!r}")
    if any(type(count) is not int or count < 1 for count in row["words"]):
        raise ScenarioError(f"{where}.words: must be whole numbers above 0, is {row['words']!r}")
    if any(type(count) is not int or not 1 <= count <= 64 for count in row.get("workers", (1,))):
        raise ScenarioError(f"{where}.workers: must be whole numbers from 1 to 64, is {row['workers']!r}")
    if any(type(wanted) is not bool for wanted in row.get("patterns", (False,))):
        raise ScenarioError(f"{where}.patterns: must be true or false for each, is {row['patterns']!r}")
    if not set(row.get("dialects", ())) <= set(WAYS):
        raise ScenarioError(f"{where}.dialects: must be of {', '.join(WAYS)}, is {row['dialects']!r}")
    tuples = {"baselines": tuple(row["baselines"]), "words": tuple(row["words"])}
    tuples |= {key: tuple(row[key]) for key in ("workers", "patterns", "dialects") if key in row}
    scenario = Scenario(**{**row, **tuples})
    if scenario.together and not all(scenario.spans(scenario.targets)):
        raise ScenarioError(f"{where}.streams: too few for the targets that run together, is {scenario.streams}")
    return scenario


def _limits(where: str, row: Mapping[str, Any]) -> Limits:
    known = [field.name for field in fields(Limits)]
    if sorted(row) != sorted(known):
        raise ScenarioError(f"{where}: must have exactly {', '.join(known)}, has {', '.join(row) or 'nothing'}")
    return Limits(**{key: float(number) for key, number in row.items()})
