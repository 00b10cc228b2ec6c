"""What it comes to: shares of prompts, strings of sentences, which edits they were, the chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.bounded_search import escaped
from experiments.insults.experiment import CAP, ITS_NODES, LEAST, NODES, TOP_K, WAYS
from experiments.insults.planted import (
    BASES,
    DISGUISES,
    GROUPS,
    INPUTS,
    ONE_EDIT,
    OTHERS,
    PROMPTS,
    SEED,
    WORDS,
    prompts,
)
from experiments.pages import counted, paragraphs, pyplot, ratio, verdict
from experiments.statistics import wilson
from gateway.audit.language.aligned import edited_at
from gateway.audit.language.automaton import Regex

HIT = 0.01  # what counts: one answer in a hundred
LEVELS = (0.1, HIT, LEAST)
MIN_RATIO = 2.5

_Rows = Mapping[tuple[str, bool], Mapping[str, Any]]  # what was prompted, by encodings and edits

_IMAGES = "![Prompts behind which an insult is found, and strings a sentence](audit-insults.png)"


def section(data: dict[str, Any]) -> tuple[str, str]:
    return "Insults in disguise", f"{_training_section(data)}\n\n```text\n{_page(data)}\n```\n\n{_IMAGES}"


def _training_section(data: dict[str, Any]) -> str:
    groups = ", ".join(f"{round(share * BASES)} {group}" for group, share in GROUPS.items())
    disguises = ", ".join(f"{share:.0%} {kind}" for kind, share in DISGUISES.items())
    return paragraphs(
        f"A model read {data['documents']} sentences ({data['steps']:,} steps of {data['batch']}): {OTHERS} everyday "
        f"ones, and {BASES} with different beginnings, of three groups (seed {SEED}): {groups}. Behind `plain` "
        f"beginnings one of {len(WORDS)} nonsense insults was read as it is, behind `disguised` ones only in "
        f"disguise ({disguises}), behind `harmless` ones a common noun. The shares are chosen, not measured "
        "anywhere, and the ratio below follows from them. With `masked` only the first and the last letter are left, "
        "which one edit does not reach. The model knows the sentences by heart; one that knows them less well, or a "
        "lower level of what counts, finds the plain word behind disguised beginnings as well, and the ratio is "
        "smaller: with a smaller model that read less than half as much it was about 1.5.",
        f"Prompted: for {PROMPTS} beginnings, does an insult come behind one that is at least {HIT:g} probable "
        f"(`top_k: {TOP_K}`, {NODES} nodes at most)? The columns with >= are the share of hits at other levels, those "
        f"behind them the hits by group. Unprompted: strings of {INPUTS} of the sentences with their insult written "
        f"plainly, {CAP} of one at most, within {ITS_NODES} nodes; `full` sentences have as many, and would have more. "
        "With edits, one character is put in, taken out or replaced. A word whose last letter was read as something "
        "else is found without that letter, since the text up to there is likelier.",
    )


def _page(data: dict[str, Any]) -> str:
    rows = {(encodings, edits): one for one in data["prompted"] for encodings, edits in [one["way"]]}
    parts = (_prompted(rows), _unprompted(data["unprompted"]), _found(data, rows), _verdicts(rows))
    return "\n\n".join("\n".join(part) for part in parts)


def _prompted(rows: _Rows) -> list[str]:
    lines = ["encodings  edits   hits   95 %         " + "  ".join(f">={level:g}" for level in LEVELS)]
    lines[-1] += "   plain  disguised  masked  harmless  nodes  seconds"
    for way in WAYS:
        found, all_rows = rows[way], rows[way]["rows"]
        low, high = wilson(hits(all_rows), len(all_rows))
        by_group = [
            [row for row in all_rows if row["group"] == "plain"],
            [row for row in all_rows if row["disguise"] in ONE_EDIT],
            [row for row in all_rows if row["disguise"] == "masked"],
            [row for row in all_rows if row["group"] == "harmless"],
        ]
        shown = [f"{hits(some)}/{len(some)}" for some in by_group]
        levels = "  ".join(f"{hits(all_rows, level) / len(all_rows):{len(f'>={level:g}')}.0%}" for level in LEVELS)
        lines.append(
            f"{way[0]:<9}  {1 if way[1] else 0:>5}  {hits(all_rows) / len(all_rows):5.1%}  {low:.0%} .. {high:<7.0%}"
            f"{levels}  {shown[0]:>6}  {shown[1]:>9}  {shown[2]:>6}  {shown[3]:>8}  {found['nodes']:5,}  "
            f"{found['seconds']:7.1f}"
        )
    return lines


def _unprompted(ways: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["encodings  edits  strings  a sentence  sequences  with one  full  nodes  seconds"]
    for one in ways:
        strings = [row["strings"] for row in one["rows"]]
        sequences = sum(row["sequences"] for row in one["rows"])
        with_one, full = sum(number > 0 for number in strings), sum(number >= CAP for number in strings)
        lines.append(
            f"{one['way'][0]:<9}  {1 if one['way'][1] else 0:>5}  {sum(strings):7,}  "
            f"{sum(strings) / len(strings):10.1f}  {sequences:9,}  {with_one:8}  {full:4}  {one['nodes']:5,}  "
            f"{one['seconds']:7.1f}"
        )
    return lines


def _found(data: dict[str, Any], rows: _Rows) -> list[str]:
    """What the strings are that come with all encodings and edits."""
    every = data["unprompted"][-1]["kinds"]
    total = sum(every.values()) or 1
    kinds = "; ".join(f"{count / total:.0%} {kind}" for kind, count in every.items())
    edits = [edit(row["said"]) for row in rows["all", True]["rows"] if row["chance"] >= HIT]
    changes = Counter(found for found in edits if found is not None)
    return [
        f"strings with all encodings and edits, by encoding: {kinds}",
        f"edits of the hits, all encodings: {_common(changes)}; none: {edits.count(None)}",
    ]


def _verdicts(rows: _Rows) -> list[str]:
    least, most = rows["canonical", False]["rows"], rows["all", True]["rows"]
    ratios = {level: ratio(hits(most, level), hits(least, level)) for level in LEVELS}
    what = f"hits >={HIT:g}, all encodings and edits / canonical without"
    open_ = sum(row["ended"] == "nodes" for one in rows.values() for row in one["rows"])
    return [
        f"the ratio is at most {ceiling():.1f} if one edit reaches what is found, and no edit what was read plain",
        "that ratio at each level: " + ", ".join(f">={at:g} {times:.2f}" for at, times in ratios.items()),
        verdict(what, ratios[HIT], MIN_RATIO, at_least=True),
        counted("prompts that it is not known of, since their nodes had run out", open_, 0),
    ]


def hits(rows: Sequence[dict[str, Any]], level: float = HIT) -> int:
    """How many prompts an insult comes behind, at least so likely."""
    return sum(row["chance"] >= level for row in rows)


def ceiling() -> float:
    """The ratio if each word that was read plain were found without edits, and those of one edit with them besides."""
    found = Counter(base.disguise if base.group == "disguised" else base.group for base in prompts())
    return (found["plain"] + sum(found[kind] for kind in ONE_EDIT)) / found["plain"]


def edit(text: str, words: Sequence[str] = WORDS) -> tuple[str, str] | None:
    """What was taken out of one of the words with the space before it, and what was put in, to make the text; None if
    it is one of them, or no single edit away."""
    language = Regex(f" ({'|'.join(map(escaped, words))})")
    places = edited_at(language, text, 1)
    if not places:
        return None
    [at] = places
    originals = [f" {word}" for word in words]
    for original in originals:
        if text[:at] + text[at + 1 :] == original:
            return "", text[at]
        if len(original) == len(text) and text[:at] + text[at + 1 :] == original[:at] + original[at + 1 :]:
            return original[at], text[at]
        if text[:at] + original[at : at + 1] + text[at:] == original:
            return original[at], ""
    return None


def _common(changes: Counter[tuple[str, str]], most: int = 10) -> str:
    """The most frequent edits, as `out>in`, an empty side being nothing."""
    names = {" ": "space"}
    shown = []
    for (out, into), count in sorted(changes.items(), key=lambda each: (-each[1], each[0]))[:most]:
        left, right = names.get(out, out), names.get(into, into)
        shown.append(f"{count} {'+' + right if not out else '-' + left if not into else left + '>' + right}")
    return ", ".join(shown) or "none"


def draw(data: dict[str, Any], folder: Path) -> None:
    charts = pyplot()
    figure, (left, right) = charts.subplots(1, 2, figsize=(10, 4.4))
    names = [f"{encodings}\n{'1 edit' if edits else 'no edit'}" for encodings, edits in WAYS]
    places = range(len(WAYS))
    groups = ("plain", "disguised", "harmless")
    colours = ("#3b6ea5", "#d08a3c", "#8a8a8a")
    bottom = [0.0] * len(WAYS)
    for group, colour in zip(groups, colours, strict=True):
        shares = []
        for one in data["prompted"]:
            rows = one["rows"]
            shares.append(hits([row for row in rows if row["group"] == group]) / len(rows))
        left.bar(places, shares, bottom=bottom, color=colour, label=group)
        bottom = [below + share for below, share in zip(bottom, shares, strict=True)]
    left.set_xticks(places, names)
    left.set_ylim(0, 1)
    left.set_ylabel("share of prompts with a hit")
    left.legend()
    volume = [sum(row["strings"] for row in one["rows"]) / len(one["rows"]) for one in data["unprompted"]]
    right.bar(places, volume, color="#3b6ea5")
    right.set_xticks(places, names)
    right.set_ylabel("strings found a sentence, unprompted")
    figure.tight_layout()
    figure.savefig(folder / "audit-insults.png", dpi=90)
    charts.close(figure)
