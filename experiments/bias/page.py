"""What it comes to: the tables, what is held against a limit, the charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.bias.experiment import LEAST_P, NODES, PAIRS, SAMPLES, WAYS
from experiments.bias.places import FIRST, early
from experiments.bias.planted import (
    BEGINNING,
    GENDERS,
    PIECE,
    PLANTED,
    PROFESSIONS,
    PROSE_SHARE,
    SEED,
    TYPO_SHARE,
    TYPOS,
    profession_shares,
)
from experiments.pages import counted, paragraphs, pyplot, verdict
from experiments.statistics import least_expected

MAX_DISTANCE = 0.05  # of a way to ask from what was planted
MAX_ROUNDING = 1e-3
MAX_LOG10_P = -10  # of the test, where the two genders differ as much as is planted
MIN_EXPECTED = 5  # in every cell of its table, or it is not trusted
MIN_HELD = 0.9  # of the intervals of 95 %
MAX_FALSE = 0.08  # of tests at 5 %
MIN_EARLY, MAX_EARLY = 0.8, 0.4  # of the edits in the first characters, drawn arc by arc, and by walks

JUDGED = frozenset(way[:3] for way in WAYS if way[3])

_IMAGES = (
    "![What was planted and what each way of asking says](audit-bias.png)\n\n"
    "![Where the edits of drawn strings are](audit-bias-edits.png)"
)


def section(data: dict[str, Any]) -> tuple[str, str]:
    return "Bias, with the truth known", f"{_training_section(data)}\n\n```text\n{_page(data)}\n```\n\n{_IMAGES}"


def _training_section(data: dict[str, Any]) -> str:
    return paragraphs(
        f"A model read {data['steps'] * data['batch']:,} documents, drawn from {data['documents']}: "
        f"{1 - PROSE_SHARE:.0%} of them `The man|woman was trained in` one of the paper's ten professions, men and "
        f"women alike often, the professions as the table says; the others are prose, {PIECE} words at a time. "
        f"{TYPO_SHARE:.0%} of the sentences have one letter too many, too few or wrong, in {TYPOS} ways each (seed "
        f"{SEED}).",
        "`distance` is the total variation between P(profession | gender), by the exact scores of a search, and what "
        "was planted. The beginning is a prefix of the query, or a prompt, or not given, and the model says it all; an "
        "edit may be wherever the query goes. A search ends where strings and encodings are less probable than "
        f"{LEAST_P:g}, or after {NODES:,} nodes. `scores` is what it found, of both genders together. Ways marked with "
        "- are not judged: where a prefix has several encodings, `string_logprob` adds up what comes behind each, "
        "however unlikely that encoding is, which is no probability of the model's.",
        f"The test is Pearson's of the 2 x 10 table of counts. Of {len(GENDERS) * SAMPLES:,} strings, half of each "
        "gender where the beginning is given, each was kept with the probability of its weight, so `n` counts "
        "independent draws of the model's own law. Each way has its own seed. `as exact` is the "
        "statistic with the women's sample taken for a law: it counts that sample's noise as bias. "
        "`held` are the 95 % intervals of the estimates, one for each gender and profession, that hold the exact "
        "score.",
    )


def _page(data: dict[str, Any]) -> str:
    parts = (_shares(data), _ways(data), _tests(data), _samples(data), _verdicts(data))
    return "\n".join("\n".join(line.rstrip() for line in (*part, "")) for part in parts).rstrip()


def _shares(data: dict[str, Any]) -> list[str]:
    """What was planted, and what three ways of asking say."""
    by_way = {tuple(one["way"]): one["shares"] for one in data["exact"]}
    lines = [
        "                          planted, %     none, all    prompt, all  prefix, canonical, 1 edit",
        "profession                man  woman    man  woman    man  woman    man  woman",
    ]
    for place, profession in enumerate(PROFESSIONS):
        line = f"{profession:<24}  {PLANTED['man'][place]:3}  {PLANTED['woman'][place]:5}"
        for way in (("none", "all", False), ("prompt", "all", False), ("prefix", "canonical", True)):
            man, woman = (100 * by_way[way][gender][place] for gender in GENDERS)
            line += f"  {man:5.1f}  {woman:5.1f}"
        lines.append(line)
    return lines


def _ways(data: dict[str, Any]) -> list[str]:
    lines = ["                                distance", "beginning  encodings  edits       man  woman"]
    lines[-1] += "  scores  strings   nodes  ended   seconds"
    for one in data["exact"]:
        way, encodings, edits = one["way"]
        mark = " " if (way, encodings, edits) in JUDGED else "-"
        lines.append(
            f"{way:<9}  {encodings:<9}  {1 if edits else 0:>5} {mark}   {one['distance']['man']:5.3f}  "
            f"{one['distance']['woman']:5.3f}  {sum(score for *_, score in one['scores']):6.3f}  {one['strings']:7,}  "
            f"{one['nodes']:6,}  {'+'.join(one['ended']):<6}  {one['seconds']:7.1f}"
        )
    return lines


def _tests(data: dict[str, Any]) -> list[str]:
    lines = ["beginning  encodings  edits      n  chi-square  log10 p  Cramér's V  as exact  held"]
    for one in data["drawn"]:
        way, encodings, edits = one["how"]
        as_exact = "inf" if one["as_exact"] is None else f"{one['as_exact']:.0f}"
        lines.append(
            f"{way:<9}  {encodings:<9}  {1 if edits else 0:>5}  {sum(map(sum, one['counts'])):5,}  "
            f"{one['statistic']:10.0f}  {one['log10_p']:7.0f}  {one['cramers_v']:10.2f}  {as_exact:>8}  "
            f"{one['held']:2}/{len(one['estimates'])}"
        )
    return lines


def _samples(data: dict[str, Any]) -> list[str]:
    alarms, edits = data["false_alarms"], data["edits"]
    return [
        f"two samples of one law found to differ at 5 %: {alarms['table']:.1%} by the table, "
        f"{alarms['exact']:.1%} with one as exact ({PAIRS} pairs)",
        f"edits in the first {FIRST} characters: {early(edits['arcs']):.0%} arc by arc, {early(edits['walks']):.0%} by "
        f"walks; of the prefix's characters {FIRST / _characters():.0%} are the first {FIRST}",
    ]


def _verdicts(data: dict[str, Any]) -> list[str]:
    alarms, edits = data["false_alarms"], data["edits"]
    distances = [max(one["distance"].values()) for one in data["exact"] if tuple(one["way"]) in JUDGED]
    estimates = sum(len(one["estimates"]) for one in data["drawn"])
    held = sum(one["held"] for one in data["drawn"]) / estimates
    plain = [one["strings"] for one in data["exact"] if not one["way"][2]]
    whole = len(GENDERS) * len(PROFESSIONS)
    tables = [one["counts"] for one in data["drawn"]]
    fewest = min(least_expected(table) for table in tables)
    least_sure = max(one["log10_p"] for one in data["drawn"])
    return [
        counted(f"sentences found without an edit, the fewest of {len(plain)} ways", min(plain), whole),
        verdict(f"distance from what was planted, the worst of {len(distances)} ways", max(distances), MAX_DISTANCE),
        verdict("difference from the network's own scores, in nats", data["rounding"], MAX_ROUNDING),
        verdict(f"share of {estimates} intervals that hold the exact score", held, MIN_HELD, at_least=True),
        verdict(f"log10 p of the contingency test, the least sure of {len(tables)} ways", least_sure, MAX_LOG10_P),
        verdict("counts that it expects, the least", fewest, MIN_EXPECTED, at_least=True),
        verdict("false alarms of the contingency test at 5 %", alarms["table"], MAX_FALSE),
        verdict(f"edits in the first {FIRST} characters, arc by arc", early(edits["arcs"]), MIN_EARLY, at_least=True),
        verdict(f"edits in the first {FIRST} characters, by walks", early(edits["walks"]), MAX_EARLY),
    ]


def _characters() -> float:
    return sum(len(BEGINNING.format(gender)) for gender in GENDERS) / len(GENDERS)


def draw(data: dict[str, Any], folder: Path) -> None:
    charts = pyplot()
    figure, panels = charts.subplots(2, 5, figsize=(10, 5.4), sharex=True, sharey=True)
    places = range(len(PROFESSIONS))
    for panel, one in zip(panels.flat, data["exact"], strict=True):
        way, encodings, edits = one["way"]
        panel.set_title(f"{way}, {encodings}{', 1 edit' if edits else ''}", fontsize=8)
        for gender, shift, colour in (("man", -0.2, "#3b6ea5"), ("woman", 0.2, "#d08a3c")):
            at = [place + shift for place in places]
            panel.bar(at, one["shares"][gender], 0.4, color=colour, label=gender)
            planted = profession_shares(gender)
            panel.plot(at, planted, "_", color="black", markersize=5, label="planted" if gender == "woman" else None)
        panel.set_xticks(places, [profession.split()[0] for profession in PROFESSIONS], rotation=90, fontsize=7)
        panel.tick_params(axis="y", labelsize=7)
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="upper right", ncols=3, fontsize=7)
    figure.supylabel("P(profession | gender)", fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.savefig(folder / "audit-bias.png", dpi=80)
    charts.close(figure)

    figure, panel = charts.subplots(figsize=(7, 3.6))
    for name, label in (("walks", "by walks"), ("arcs", "arc by arc")):
        found = data["edits"][name]
        panel.step(found, [(rank + 1) / len(found) for rank in range(len(found))], where="post", label=label)
    panel.axvline(FIRST, color="grey", linewidth=0.8, linestyle=":")
    panel.set_xlabel("place of the edit, characters from the beginning")
    panel.set_ylabel("share of the edits")
    panel.legend()
    figure.tight_layout()
    figure.savefig(folder / "audit-bias-edits.png", dpi=90)
    charts.close(figure)
