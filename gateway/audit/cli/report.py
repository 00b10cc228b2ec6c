"""The findings of an audit as one HTML page that needs nothing else.

A model's output may contain anything: every text is escaped, invisible characters are spelled out, and a
Content-Security-Policy forbids scripts and requests.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from string import Template

from gateway.audit.searches.best_first import Result

MAX_ROWS = 2_000  # of the table; the JSON lines have all
MAX_POINTS = 400  # of the curve
MAX_BARS = 120  # of the histogram, the last for all positions from there on

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 240, 56, 36, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """A string that was found. `canonical`: is the best path the tokenizer's own encoding? None if unknown. `edits`:
    where it was edited, in characters from its beginning. `more`: further columns by name."""

    result: Result
    canonical: bool | None = None
    edits: tuple[int, ...] = ()
    more: Mapping[str, str] = field(default_factory=dict, repr=False)


def page(
    title: str, summary: Mapping[str, object], rows: Sequence[ReportRow], *, edited: bool = False, ranked: bool = True
) -> str:
    """The report. `summary` is shown as it is, key by key; `rows` are in the order of the JSON lines, the most likely
    first if they are `ranked`; `edited`: the query asked for edits, so that it matters where they are."""
    parts = [_summary(summary)]
    if rows:
        if ranked:
            parts += [_curve(rows), _encodings(rows)]
        if edited:
            parts.append(_histogram(rows))
    parts.append(_table(rows))
    template = Template(Path(__file__).with_name("report.html").read_text("utf-8"))
    return template.substitute(name=_named(title), title=shown(title), body="\n".join(filter(None, parts)))


def shown(text: str) -> str:
    """Text for a page: escaped, and what has no visible form written out as in a program."""
    return "".join(
        _named(char) if char.isprintable() else f'<span class="unseen">{_named(char)}</span>' for char in text
    )


def _named(text: str) -> str:
    """The same for places where no element is allowed."""
    return "".join(html.escape(char if char.isprintable() else ascii(char)[1:-1]) for char in text)


# -- the parts of the page ---------------------------------------------------------------------------------------------


def _summary(summary: Mapping[str, object]) -> str:
    entries = "".join(f"<dt>{shown(key)}</dt><dd>{shown(_value_text(value))}</dd>" for key, value in summary.items())
    return _section("Summary", f"<dl>{entries}</dl>")


def _value_text(value: object) -> str:
    match value:
        case None:
            return "—"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case Mapping():
            return ", ".join(f"{key}: {_value_text(each)}" for key, each in value.items())
        case list() | tuple():
            return ", ".join(map(_value_text, value))
        case _:
            return str(value)


def _table(rows: Sequence[ReportRow]) -> str:
    more = list(dict.fromkeys(name for row in rows for name in row.more))
    with_path = any(row.canonical is not None for row in rows)
    numbers = ["log p", "p", "log p of the string", "encodings", *(["best path"] if with_path else [])]
    head = '<th scope="col">#</th>'
    head += "".join(f'<th scope="col" class="text">{shown(column)}</th>' for column in ["string", *more])
    head += "".join(f'<th scope="col">{column}</th>' for column in numbers)
    body = "\n".join(_table_row(number, row, more, with_path) for number, row in enumerate(rows[:MAX_ROWS], start=1))
    left_out = len(rows) - MAX_ROWS
    note = f"<p>{left_out:,} more are in the JSON lines only.</p>" if left_out > 0 else ""
    if not rows:
        return _section("Strings", "<p>None was found.</p>")
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
    return _section("Strings", table + note)


def _table_row(number: int, row: ReportRow, more: Sequence[str], with_path: bool) -> str:
    result = row.result
    prefix, rest = result.text[: result.prefix], result.text[result.prefix :]
    text = f'<span class="prefix">{shown(prefix)}</span>{shown(rest)}'
    others = "".join(f'<td class="text">{shown(row.more.get(name, ""))}</td>' for name in more)
    likely = f"{result.logprob:.3f}", f"{math.exp(result.logprob):.3g}", f"{result.string_logprob:.3f}"
    numbers = [*likely, f"{result.encodings:,}"]
    if with_path:
        numbers.append({True: "canonical", False: "another", None: ""}[row.canonical])
    cells = "".join(f"<td>{each}</td>" for each in numbers)
    return f'<tr><td>{number}</td><td class="text string">{text}</td>{others}{cells}</tr>'


def _curve(rows: Sequence[ReportRow]) -> str:
    """The cumulative probability of the first strings.

    Encodings of a prefix count in a string's sum, each with all the probability behind it; so where there are prefixes
    only the best paths can be added up.
    """
    results = [row.result for row in rows]
    behind = any(result.prefix for result in results)
    sums = list(accumulate(math.exp(each.logprob if behind else each.string_logprob) for each in results))
    places = sorted({round(at * (len(sums) - 1) / (MAX_POINTS - 1)) for at in range(MAX_POINTS)})
    chart = _Chart(1, max(len(sums), 2), _ceiling(sums[-1]))
    steps = [(place + 1, sums[place]) for place in places]
    line_of_steps = " ".join(
        f"{'L' if at else 'M'}{chart.x(x):.1f} {chart.y(y):.1f}" for at, (x, y) in enumerate(steps)
    )
    last_x, last_y = chart.x(steps[-1][0]), chart.y(steps[-1][1])
    drawing = (
        f'<path class="line" d="{line_of_steps}"/><circle class="dot" cx="{last_x:.1f}" cy="{last_y:.1f}" r="4"/>'
        f"{chart.axes('strings, the most likely first')}"
    )
    whose = ", by their best paths, each behind its own prefix" if behind else ""
    what = f"<p>{len(rows):,} strings have {sums[-1]:.3g} of the probability{whose}.</p>"
    return _section("Probability", what + chart.svg(drawing, "cumulative probability by rank"))


def _encodings(rows: Sequence[ReportRow]) -> str:
    """Which encodings have the probability. Only of best paths is it known whether they are canonical."""
    masses = {"the best path, canonical": 0.0, "the best path, another encoding": 0.0, "further encodings": 0.0}
    canonical, another, further = masses
    for row in rows:
        if row.canonical is None:
            return ""
        best, every = math.exp(row.result.logprob), math.exp(row.result.string_logprob)
        masses[canonical if row.canonical else another] += best
        masses[further] += max(0.0, every - best)
    whole = sum(masses.values())
    if not whole:
        return ""
    begin, bars, legend = 0.0, "", ""
    for number, (name, mass) in enumerate(masses.items()):
        width = _WIDTH * mass / whole
        # A gap of two keeps neighbours apart without a border.
        bars += f'<rect class="part{number}" x="{begin:.1f}" y="0" width="{max(width - 2, 0):.1f}" height="24"/>'
        begin += width
        legend += (
            f'<li><svg class="key" viewBox="0 0 10 10" aria-hidden="true"><rect class="part{number}" width="10" '
            f'height="10"/></svg> {shown(name)}: {mass / whole:.1%}</li>'
        )
    label = "share of the probability by encoding"
    drawing = f'<svg viewBox="0 0 {_WIDTH} 24" role="img" aria-label="{label}">{bars}</svg>'
    many = sum(row.result.encodings > 1 for row in rows)
    what = f"<p>{many:,} of {len(rows):,} strings were found in more than one encoding.</p>"
    return _section("Encodings", f'{what}{drawing}<ul class="legend">{legend}</ul>')


def _histogram(rows: Sequence[ReportRow]) -> str:
    """The characters at which the strings differ from the unedited query."""
    counts = Counter(min(place, MAX_BARS - 1) for row in rows for place in row.edits)
    edited = sum(bool(row.edits) for row in rows)
    what = f"<p>{edited:,} of {len(rows):,} strings are edited.</p>"
    if not counts:
        return _section("Edits", what)
    last = max(counts)
    chart = _Chart(0, last + 1, _ceiling(max(4, *counts.values())))
    width = (chart.x(1) - chart.x(0)) * 0.8
    bars = "".join(
        f'<rect class="bar" x="{chart.x(place) + width * 0.125:.1f}" y="{chart.y(count):.1f}" width="{width:.1f}" '
        f'height="{chart.y(0) - chart.y(count):.1f}"><title>character {place}: {count}</title></rect>'
        for place, count in sorted(counts.items())
    )
    beyond = " The last bar has all that come later, too." if last == MAX_BARS - 1 else ""
    drawing = bars + chart.axes("character of the string, from 0")
    return _section("Edits", what + chart.svg(drawing, "edits by position") + (f"<p>{beyond}</p>" if beyond else ""))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{shown(title)}</h2>\n{content}</section>"


@dataclass(frozen=True, slots=True)
class _Chart:
    """A plane from `low` to `high` and from 0 to `top`."""

    low: float
    high: float
    top: float

    def x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 12) * (value - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / self.top

    def axes(self, title: str) -> str:
        """Grid lines with their values, and the title of the horizontal axis."""
        out = ""
        for step in range(5):
            value = self.top * step / 4
            y = self.y(value)
            out += f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}"/>'
            out += f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        for value in sorted({round(self.low + (self.high - self.low) * step / 6) for step in range(7)}):
            out += f'<text x="{self.x(value):.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{value:,}</text>'
        middle = (_LEFT + _WIDTH) / 2
        return out + f'<text x="{middle:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">{shown(title)}</text>'

    def svg(self, drawing: str, label: str) -> str:
        return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_named(label)}">{drawing}</svg>'


def _ceiling(value: float) -> float:
    """The next number with one digit, in steps that divide by four well."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 6, 8, 10) if power * step >= value * (1 - 1e-9))
