"""Rows and verdicts from measurements: ratios within a round, medians over rounds, the limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from loadtest.dialects import WAYS
from loadtest.run import Measurement
from loadtest.scenario import Limits

Round = dict[tuple[str, str], Measurement]  # by scenario and target


@dataclass(frozen=True, slots=True)
class Figure:
    """A number measured once a round: the median, and the least and the most as the noise."""

    median: float
    least: float
    most: float

    @staticmethod
    def over(numbers: Iterable[float | None]) -> Figure | None:
        """None where no round has the number."""
        known = [number for number in numbers if number is not None]
        return Figure(median(known), min(known), max(known)) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; times of CPU in microseconds, delays in milliseconds."""

    scenario: str
    target: str
    cpu_us: Figure | None
    vs_nginx: Figure | None
    vs_bytecopy: Figure | None
    p50: Figure | None
    p99: Figure | None
    longest: Figure | None
    added_p50: Figure | None
    added_p99: Figure | None
    kb_per_stream: Figure | None
    late_share: float
    foreign_share: float
    counts: str
    skipped: str
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One limit and what was measured; `holds` is None where it was not measured."""

    what: str
    limit: float
    figure: Figure | None

    @property
    def holds(self) -> bool | None:
        return None if self.figure is None else self.figure.median <= self.limit


def rows(rounds: Sequence[Round]) -> list[Row]:
    """One row for each scenario and target, in the order of the first round."""
    return [_row(rounds, scenario, target) for scenario, target in rounds[0]]


def _row(rounds: Sequence[Round], scenario: str, target: str) -> Row:
    runs = [found[scenario, target] for found in rounds if (scenario, target) in found]
    last = runs[-1]
    return Row(
        scenario=scenario,
        target=target,
        cpu_us=Figure.over(run.cpu_us for run in runs),
        vs_nginx=Figure.over(_cpu_ratios(rounds, scenario, target, "nginx")),
        vs_bytecopy=Figure.over(_cpu_ratios(rounds, scenario, target, "bytecopy")),
        p50=Figure.over(_delay(run, 0) for run in runs),
        p99=Figure.over(_delay(run, 1) for run in runs),
        longest=Figure.over(_delay(run, 2) for run in runs),
        added_p50=Figure.over(_added(rounds, scenario, target, 0)),
        added_p99=Figure.over(_added(rounds, scenario, target, 1)),
        kb_per_stream=Figure.over(run.kb_per_stream for run in runs),
        late_share=max(run.late_share for run in runs),
        foreign_share=max(run.foreign_share for run in runs),
        counts=_counts(last),
        skipped=last.skipped,
        faults=tuple(fault for run in runs for fault in run.faults),
    )


def _counts(run: Measurement) -> str:
    """Seen and expected of what each stream must hold: replacements behind a guard, forbidden words elsewhere."""
    least, most = run.redactions if run.guarded else run.leaks
    seen = str(least) if least == most else f"{least}..{most}"
    return f"{seen}/{run.expected} {'redacted' if run.guarded else 'passed'}"


def _delay(run: Measurement | None, place: int) -> float | None:
    return run.delays_ms[place] if run and run.delays_ms else None


def _cpu_ratios(rounds: Sequence[Round], scenario: str, target: str, base: str) -> list[float | None]:
    def ratio(found: Round) -> float | None:
        above, below = found.get((scenario, target)), found.get((scenario, base))
        return above.cpu_us / below.cpu_us if above and below and above.cpu_us and below.cpu_us else None

    return [ratio(found) for found in rounds]


def _added(rounds: Sequence[Round], scenario: str, target: str, place: int) -> list[float | None]:
    def added(found: Round) -> float | None:
        behind, direct = _delay(found.get((scenario, target)), place), _delay(found.get((scenario, "direct")), place)
        return behind - direct if behind is not None and direct is not None and target != "direct" else None

    return [added(found) for found in rounds]


def verdicts(rounds: Sequence[Round], limits: Limits) -> list[Verdict]:
    """Every limit, for every scenario that it is judged by.

    CPU beside others is taken where they ran together (`together-...`, `words-...`, `dialects-...`); the rest alone
    (`paced-...`, `many-...`), delays and memory of the worst list of words.
    """
    scenarios = dict.fromkeys(scenario for scenario, _ in rounds[0])
    return [verdict for scenario in scenarios for verdict in _scenario_verdicts(rounds, scenario, limits)]


def _scenario_verdicts(rounds: Sequence[Round], scenario: str, limits: Limits) -> list[Verdict]:
    def ratio(target: str, base: str) -> Figure | None:
        return Figure.over(_cpu_ratios(rounds, scenario, target, base))

    guards = [row for row in rows(rounds) if row.scenario == scenario and row.target.startswith("portcullis")]
    if not guards or not scenario.startswith(("together", "words", "workers", "patterns", "dialects", "paced", "many")):
        return []
    measured: tuple[tuple[str, float, Figure | None], ...] = (
        ("CPU a chunk, 1,000 words / nginx", limits.cpu_vs_nginx, ratio("portcullis-1000", "nginx")),
        ("CPU a chunk, 1,000 words / byte copy", limits.cpu_vs_bytecopy, ratio("portcullis-1000", "bytecopy")),
    )
    if scenario.startswith("workers"):
        figure = ratio("portcullis-1000-x2", "portcullis-1000")
        measured = (("CPU a chunk, 2 workers / 1", limits.workers_2_vs_1, figure),)
    if scenario.startswith("patterns"):
        figure = ratio("portcullis-1000-patterns", "portcullis-1000")
        measured = (("CPU a chunk, words with patterns and detectors / words", limits.patterns_vs_words, figure),)
    if scenario.startswith("dialects"):
        measured = tuple(
            (f"CPU a chunk, {way} / chat", limits.dialects_vs_chat, ratio(f"portcullis-1000-{way}", "portcullis-1000"))
            for way in WAYS
            if way != "chat"
        )
    if scenario.startswith("words"):
        figure = ratio("portcullis-100000", "portcullis-10")
        measured = (("CPU a chunk, 100,000 / 10 words", limits.words_100000_vs_10, figure),)
    if scenario.startswith("paced"):
        measured = _alone(guards, limits)
    if scenario.startswith("many"):
        measured = (("added delay p99, ms", limits.many_added_p99_ms, _worst(row.added_p99 for row in guards)),)
    return [Verdict(f"{scenario}: {what}", limit, figure) for what, limit, figure in measured]


def _alone(guards: Sequence[Row], limits: Limits) -> tuple[tuple[str, float, Figure | None], ...]:
    return (
        ("added delay p50, ms", limits.added_p50_ms, _worst(row.added_p50 for row in guards)),
        ("added delay p99, ms", limits.added_p99_ms, _worst(row.added_p99 for row in guards)),
        (
            "memory of the process an open stream, kB",
            limits.process_kb_per_stream,
            _worst(row.kb_per_stream for row in guards),
        ),
    )


def _worst(figures: Iterable[Figure | None]) -> Figure | None:
    return max((figure for figure in figures if figure), key=lambda figure: figure.median, default=None)
