"""How far masks and rollback change a small model's answers, compared with its own answers without the word; exact.

    python -m loadtest.distribution_bench [--quick] [--out DIR]

The exact distribution is the model's own on condition that the word does not come, as if answers were drawn until one
is clean. The distance to it is total variation: the share of answers that would have to change. Every distribution is
computed, none is sampled, by the mask and the ledger that serve answers; so the figures must come out as recorded.

The models are random, of order 2 (see distributions.py); each row is the mean of several. `clean` is the share of
answers without the word when nothing is done. The ways:

    mask        the mask of `gateway.decode.masks`, which rules out the word's last token
    ban first   back to the word's first token, which is banned there at once, as at temperature 0
    again       back to the first token, which is drawn again as often as it takes
    ours        back to the first token, which is drawn again once and then banned
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gateway.decode.rollback import Attempts, Caps
from loadtest import distributions, sections
from loadtest.report import verdict_lines
from loadtest.verdicts import Figure, Verdict

STEPS = 9
MODELS = 5
NEARER = 4.0  # how many times nearer than the mask rollback must be, where most answers are neither clean nor hit
EXACT = 1e-4  # what rounding leaves between a figure and the recorded one
UNLIMITED = Caps(per_position=10**6, per_answer=10**6)
SECTION = "Distance to the exact distribution"


@dataclass(frozen=True, slots=True)
class Family:
    """Models of `size` tokens; `drawn_to` as in `random_model`. `recorded`: what must come out, as `Row.means`.

    `judged`: the limit is for this one. Where nearly every answer is clean little is at stake, and where nearly none
    is, nothing stays near.
    """

    name: str
    size: int
    drawn_to: tuple[float, float, float]
    recorded: tuple[float, float, float, float, float]
    judged: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A family: of each of its models the share of clean answers, and the distance that each way leaves."""

    family: Family
    clean: tuple[float, ...]
    masked: tuple[float, ...]
    banned: tuple[float, ...]
    again: tuple[float, ...]
    ours: tuple[float, ...]

    @property
    def means(self) -> tuple[float, ...]:
        return tuple(float(np.mean(each)) for each in (self.clean, self.masked, self.banned, self.again, self.ours))

    @property
    def name(self) -> str:
        return f"{self.family.name}, {self.means[0]:.0%} clean"

    @property
    def fault(self) -> str:
        """What is not as recorded, for a row of `MODELS` models; empty if nothing."""
        wrong = [
            f"{mean:.4f} where {recorded:.4f} is recorded"
            for mean, recorded in zip(self.means, self.family.recorded, strict=True)
            if abs(mean - recorded) > EXACT
        ]
        return f"{self.name}: {', '.join(wrong)}" if wrong else ""


FAMILIES = (
    Family("each step alike", 5, (1, 1, 1), (0.9327, 0.0553, 0.0098, 0.0080, 0.0079)),
    Family("each step alike", 5, (1, 4, 4), (0.7219, 0.2116, 0.0446, 0.0285, 0.0288), judged=True),
    Family("each step alike", 5, (1, 19, 19), (0.4120, 0.4706, 0.1113, 0.0758, 0.0809), judged=True),
    Family("each step alike", 5, (2, 40, 40), (0.1642, 0.6277, 0.2292, 0.1478, 0.1722)),
    # As of a word that is known by heart: once it has begun, its end is nearly certain.
    Family("the end certain", 5, (1, 0.18, 300), (0.9398, 0.0602, 0.0100, 0.0086, 0.0086)),
    Family("the end certain", 5, (1, 1.4, 300), (0.7145, 0.2841, 0.0455, 0.0342, 0.0339), judged=True),
    Family("the end certain", 5, (1, 9, 300), (0.4086, 0.5815, 0.1044, 0.0747, 0.0784), judged=True),
    Family("the end certain", 5, (3, 10, 300), (0.1645, 0.7913, 0.2530, 0.1282, 0.1584)),
    # Where the word's tokens are all there are, there is little else to say, and every way bends the answer.
    Family("no other tokens", 3, (1, 1, 1), (0.7368, 0.1360, 0.0603, 0.0242, 0.0254)),
    Family("no other tokens", 3, (1, 3, 3), (0.4166, 0.3005, 0.1569, 0.0679, 0.0850)),
)


def measure(family: Family, models: int = MODELS, steps: int = STEPS) -> Row:
    mask = distributions.ban_mask(family.size)
    found = []
    for seed in range(models):
        model = distributions.random_model(seed, family.size, family.drawn_to)
        clean, true = distributions.without_word(model, steps)
        ways: tuple[distributions.Decisions, ...] = (
            Attempts(UNLIMITED, at_once=True),
            distributions.DrawAgain(),
            Attempts(UNLIMITED),
        )
        said = [
            distributions.masked(model, steps, mask),
            *(distributions.rolled_back(model, steps, way) for way in ways),
        ]
        found.append((clean, *(distributions.distance(distribution, true) for distribution in said)))
    return Row(family, *(tuple(column) for column in zip(*found, strict=True)))


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """One for each row that is judged: how much of the mask's distance is left; of its models the one in the middle."""
    return [
        Verdict(
            f"{row.name}: distance of ours / of the mask",
            1 / NEARER,
            Figure.over(ours / masked for ours, masked in zip(row.ours, row.masked, strict=True)),
        )
        for row in rows
        if row.family.judged
    ]


def table(rows: Sequence[Row]) -> str:
    """One line a row: the means, and how many times nearer than the mask each way to roll back is."""
    lines = [
        "                                             distance                         times nearer",
        "models           tokens  drawn to     clean   mask  ban first  again   ours  ban first  again  ours",
    ]
    for row in rows:
        clean, masked, banned, again, ours = row.means
        drawn_to = " ".join(f"{factor:g}" for factor in row.family.drawn_to)
        lines.append(
            f"{row.family.name:<15}  {row.family.size:6}  {drawn_to:<11}  {clean:5.3f}  {masked:5.3f}  {banned:9.3f}  "
            f"{again:5.3f}  {ours:5.3f}  {masked / banned:9.1f}  {masked / again:5.1f}  {masked / ours:4.1f}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the verdicts. Exit status 1 if a limit is missed or a figure is not the recorded one."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.distribution_bench",
        description="How far masks and rollback are from the true distribution.",
    )
    parser.add_argument("--quick", action="store_true", help="one model a row, held against the limits only")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where decode.md goes (loadtest/results; with --quick nowhere)"
    )
    options = parser.parse_args(arguments)
    rows = [measure(family, 1 if options.quick else MODELS) for family in FAMILIES]
    judged = verdicts(rows)
    page = f"{table(rows)}\n\n{verdict_lines(judged)}"
    print(page)
    faults = [] if options.quick else [row.fault for row in rows if row.fault]
    for fault in faults:
        print(f"WRONG  {fault}", file=sys.stderr)
    if options.out or not options.quick:
        sections.put((options.out or sections.RESULTS.parent) / sections.RESULTS.name, SECTION, written(page))
    return 1 if faults or any(verdict.holds is not True for verdict in judged) else 0


def written(page: str) -> str:
    """The section of the page of results."""
    return (
        "`python -m loadtest.distribution_bench`. Total variation between the answers and the model's own answers\n"
        f"on condition that the word does not come; exact, {STEPS} tokens, mean over random models of order 2.\n"
        "`drawn to`: how much likelier than by chance each of the word's tokens is. `mask` rules out the last one.\n"
        "The others go back to the first one: `ban first` bans it at once, `again` draws again as often as it takes,\n"
        "and `ours` draws again once and then bans.\n\n"
        "The limit is for the rows with other tokens than the word's, in which many answers are clean and many are\n"
        "not. It does not hold for every model: the table has rows below four times nearer.\n\n"
        f"```text\n{page}\n```"
    )


if __name__ == "__main__":
    sys.exit(main())
