"""What it comes to: the tables, what is held against a limit, the chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.pages import judged, pyplot, ratio
from experiments.sampling import TOP_K
from experiments.urls.experiment import (
    ALL,
    BATCH,
    BATCHED,
    LINE,
    ONE_BY_ONE,
    PATTERN,
    PILOT,
    SEARCHES,
    SECONDS,
    STOPPED,
    STOPS,
    WAYS,
    moment,
    rate,
    unique,
)
from experiments.urls.planted import EXPONENT, PREFIX, SEED, SENTENCES, TOPICS, WORDS

ALONE = 0.9  # of the time a way must have had a processor, or its figures are doubtful
NUMBERS = (1, 10, 100, 1000)

_HEAD = f"{'':<32}{'stop':>5}{'valid':>7}{'a second':>10}{'1st':>8}{'10th':>8}{'100th':>8}{'1000th':>8}" + (
    f"{'precision':>11}{'again':>7}{'rows':>7}{'share':>7}"
)


def section(data: Mapping[str, Any]) -> tuple[str, str]:
    runs, recipe = data["runs"], data["recipe"]
    shortest, mean, longest = data["tokens"]
    table = "\n".join([_HEAD, *(_line(way, runs[way]) for way in WAYS)])
    stops = "\n".join([_pilot_head(), *(_pilot_line(way, data["pilots"][way]) for way in STOPPED)])
    limits = "\n".join([*map(str, figures(runs)), *_doubts(runs)])
    text = f"""\
ReLM, 4.1. {data["urls"]:,} different made-up URLs on {data["sites"]} sites (seed {SEED}) are taught to a model of
{data["parameters"] / 1e6:.2f} million parameters: {recipe["steps"]:,} steps of {recipe["batch"]} texts. A site has its
own directories, which all its URLs begin with, and {TOPICS} of {WORDS} words, of which their names are made; a third of
the sites put a year before the name. How often a URL is read follows Zipf's law (exponent {EXPONENT:g}), and so does
how many URLs a site has. A text has one URL, which begins it or stands behind a few words and ends its line; one of
{SENTENCES} sentences follows. Behind `{PREFIX}` URLs have {shortest} to {longest} tokens, {mean:.0f} in the mean. Valid
is what was taught.

The query is `{PATTERN}{LINE}`, the prefix `{PREFIX}`, top-k {TOP_K}.
The line's end says that a URL is complete. It is not asked of what is drawn: there the longest match at the beginning
counts. All ways go on from the same tokens, and none finds anything in a cache that another one filled. Each is counted
for {SECONDS:g} s, on one thread. `precision`: of the different strings that came, the share that is valid; `again`: of
all that came, the share that had come before; `rows`: beginnings that the model was asked about, for each different
valid URL; `share`: how much of its time a way had a processor.

How far search is ahead of drawing many at a time depends on the corpus and on how well it is known. This one was chosen
after another, whose URLs were made of any of the words, with 24 directories for all sites, and which the model read
64,000 texts of: there a slower version of the search found, in 10 s of processor time, 16 times as many as drawing one
by one and 2.4 times as many as drawing 64 at a time, both with a stop length of 16, which misses the second limit.

```text
{table}

{limits}
```

Different valid URLs a second by stop length, in {PILOT:g} s, where a URL fits in. With the best two each way drew for
{SECONDS:g} s, and the table above has the better one:

```text
{stops}
```

![Different valid URLs over time](audit-urls.png)"""
    return "URLs known by heart", text


def figures(runs: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """What is held against a limit."""
    searched = runs[ALL]
    single, batched = (max((runs[way] for way in ways), key=rate) for ways in (ONE_BY_ONE, BATCHED))
    soon, late = moment(searched, 100), moment(single, 100)
    return [
        Figure("URLs a second in 10 s, search / one by one (the better way)", ratio(rate(searched), rate(single)), 10),
        Figure(
            f"URLs a second in 10 s, search / {BATCH} at a time (the best way)",
            ratio(rate(searched), rate(batched)),
            4,
        ),
        Figure(
            "time to the 100th, the same way / search" + ("" if late else " (it had not come when it was over)"),
            0.0 if soon is None else ratio(late or single["ended"], soon),
            10,
        ),
    ]


@dataclass(frozen=True, slots=True)
class Figure:
    """How many times, and how many it has to be at least."""

    what: str
    times: float
    least: float

    def __str__(self) -> str:
        return judged(self.times >= self.least, f"{self.what}: {self.times:.1f} times (limit: at least {self.least:g})")


def _line(way: str, run: Mapping[str, Any]) -> str:
    stop = str(run["stop"]) if way in STOPPED else ""
    moments = "".join(f"{_seconds(moment(run, number)):>8}" for number in NUMBERS)
    found = unique(run)
    precision = f"{found / run['distinct']:.0%}" if run["distinct"] else "-"
    again = f"{1 - run['distinct'] / run['came']:.0%}" if run["came"] else "-"
    rows = f"{run['rows'] / found:.1f}" if found else "-"
    return (
        f"{WAYS[way]:<32}{stop:>5}{found:>7,}{rate(run):>10.1f}{moments}{precision:>11}{again:>7}{rows:>7}"
        f"{run['share']:>7.0%}"
    )


def _doubts(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What to say where other processes had a part of the machine."""
    shares = [run["share"] for run in runs.values()]
    if min(shares) >= ALONE:
        return []
    return [
        f"{'doubtful':<13} other processes took processors away: from {1 - max(shares):.0%} of a way's time to "
        f"{1 - min(shares):.0%} of another's"
    ]


def _seconds(moment: float | None) -> str:
    return "-" if moment is None else f"{moment:.2f} s"


def _pilot_head() -> str:
    return f"{'':<32}" + "".join(f"{stop:>8}" for stop in STOPS)


def _pilot_line(way: str, runs: Sequence[Mapping[str, Any]]) -> str:
    rates = {run["stop"]: f"{rate(run):.1f}" for run in runs}
    return f"{WAYS[way]:<32}" + "".join(f"{rates.get(stop, '-'):>8}" for stop in STOPS)


def draw(data: Mapping[str, Any], folder: Path) -> None:
    """Different valid URLs over the seconds that all ways have, and how long each way took to the n-th."""
    charts = pyplot()
    figure, (over_time, to_the_nth) = charts.subplots(1, 2, figsize=(10.5, 5))
    for way, name in WAYS.items():
        run = data["runs"][way]
        times = run["times"]
        style = "-" if way in SEARCHES else "--"
        inside = times[: unique(run)]
        over_time.plot([0, *inside, run["seconds"]], [0, *range(1, len(inside) + 1), len(inside)], style, label=name)
        to_the_nth.plot(range(1, len(times) + 1), times, style, label=name)
    over_time.set(xlabel="seconds", ylabel="different valid URLs", title="Found")
    to_the_nth.set(xscale="log", yscale="log", xlabel="n", ylabel="seconds", title="Time to the n-th")
    to_the_nth.grid(alpha=0.3)
    over_time.grid(alpha=0.3)
    figure.legend(*over_time.get_legend_handles_labels(), loc="lower center", ncols=3, fontsize=9)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    figure.savefig(folder / "audit-urls.png", dpi=75)
    charts.close(figure)
