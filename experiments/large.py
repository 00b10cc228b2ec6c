"""Languages that nobody could list: how soon their first string comes, and what memory waits for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path, PurePath
from statistics import median
from typing import Any

from experiments.bounded_search import Enough
from experiments.pages import counted, judged
from gateway.audit.language.count import cardinality
from gateway.audit.query.load import parse_query
from gateway.audit.query.model import compile
from gateway.audit.searches.best_first import SearchProgress, search

# Numbers of no one, each as often as that many of the others.
KNOWN = {"202 555 0143": 60, "415 555 0199": 40, "312 555 0107": 25, "617 555 0162": 15, "503 555 0178": 10}
OTHERS, OTHERS_SEED = 400, 1
STEPS = 300
ROUNDS = 3
LIMIT = 100
FIRST_WITHIN = 2.0  # seconds, from the query's text to its first string
MAX_NODES = (1_000, 10_000, 100_000)
ASKED = 4_000  # paths, by when the search that fills the memory is stopped
TIMEOUT = 240.0  # seconds for a process that measures memory

NUMBERS = """\
query: "My number is [0-9]{3} [0-9]{3} [0-9]{4}"
prefix: "My number is"
decoding: {top_k: 40, end_of_text: true}
"""
EDITED = NUMBERS + "preprocess: [{edits: 1, alphabet: digits, on: query}]\n"
# Without a rule every token of digits is a path that waits.
WIDE = EDITED.replace("top_k: 40, ", "")

# Of three groups of digits with a space before each: as they are; a space that became a digit, or is gone; a digit
# that is gone, of one of the groups; a digit more, before the first space or in one of the groups. A digit that became
# another is the same language again.
_EDITED_STRINGS = 10**10 + 3 * 10**11 + 3 * 10**10 + 3 * 10**9 + 4 * 10**11
LANGUAGES = {"numbers": (NUMBERS, 10**10), "edits: 1": (EDITED, _EDITED_STRINGS)}


def measure(folder: Path) -> dict[str, Any]:
    from experiments.training import Recipe, taught

    documents, weights = _documents()
    recipe = Recipe(steps=STEPS, batch=32, window=32, vocabulary=512, hidden=64)
    taught(folder, documents, recipe, weights)
    return {
        "bytes": (folder / "model.safetensors").stat().st_size,
        "languages": [
            {"name": name, "strings": cardinality(compile(_query(text)).language), **_timed(folder, text)}
            for name, (text, _) in LANGUAGES.items()
        ],
        "memory": [_apart(_held, folder, max_nodes) for max_nodes in MAX_NODES],
    }


def section(data: Mapping[str, Any]) -> tuple[str, str]:
    known = ", ".join(f"{number} × {weight}" for number, weight in KNOWN.items())
    text = f"""\
`large`: telephone numbers, `My number is [0-9]{{3}} [0-9]{{3}} [0-9]{{4}}` behind the prefix `My number is`, and all
that one edit with a digit makes of them. A model of {data["bytes"] / 4e6:.2f} million parameters read {OTHERS}
sentences with random numbers (seed {OTHERS_SEED}, {STEPS} steps) and five made-up ones more often:
{known}.
The queries have `top_k: 40`, and the text ends behind the number.

Each round loads the model anew and asks twice. `first` and `{LIMIT}th` are seconds from the query's text to the string,
the model being loaded; `again` those of the second time, with what the model keeps of the first. Medians of {ROUNDS}
rounds; in brackets the least and the most. `known` are the taught numbers among the first {len(KNOWN)} strings.

```text
{_times(data["languages"])}
```

What waits is bounded by `max_nodes`. The language with edits once more, without `top_k`, so that all tokens of digits
count, until the model was asked about {ASKED:,} paths; each time in a process of its own. `MB` is how much its memory
has grown by then, the libraries' part included, and `half way` at the half of the paths. `exact to`: strings less
likely than this may be missing or out of order, so more strings are not better ones: where paths are dropped, what is
left is complete sooner.

```text
{_memory(data["memory"])}
```

```text
{_verdicts(data)}
```"""
    return "Languages of ten thousand million strings and more", text


def draw(data: Mapping[str, Any], folder: Path) -> None:
    """There is no chart: the tables say it."""


# -- measuring ---------------------------------------------------------------------------------------------------------


def _documents() -> tuple[list[str], list[float]]:
    """Sentences with numbers, and how often each is read beside the others."""
    chance = random.Random(OTHERS_SEED)
    numbers = dict(KNOWN)
    while len(numbers) < OTHERS + len(KNOWN):
        numbers.setdefault(f"{chance.randrange(1000):03} {chance.randrange(1000):03} {chance.randrange(10000):04}", 1)
    return [f"My number is {number}" for number in numbers], list(map(float, numbers.values()))


def _query(text: str) -> Any:
    return parse_query(text, "large", PurePath(), {})


def _timed(folder: Path, text: str) -> dict[str, Any]:
    """Seconds to the first string and to the last one, of the first time and of the second, a list for the rounds."""
    from gateway.audit.models.hf import HuggingFace

    found: dict[str, Any] = {"first": [], "all": [], "first_again": [], "all_again": []}
    for _ in range(ROUNDS):
        model = HuggingFace(folder)
        for suffix in ("", "_again"):
            began = time.monotonic()
            results = search(model, _query(text), limit=LIMIT)
            texts = [next(results).text]
            found[f"first{suffix}"].append(time.monotonic() - began)
            texts += [result.text for result in results]
            found[f"all{suffix}"].append(time.monotonic() - began)
    summary = results.summary()
    first = {found.removeprefix("My number is ") for found in texts[: len(KNOWN)]}
    return {**found, "found": summary.strings, "nodes": summary.nodes, "known": len(first & KNOWN.keys())}


def _held(folder: Path, max_nodes: int) -> dict[str, Any]:
    """How much a search with so much room for paths takes."""
    from gateway.audit.models.hf import HuggingFace

    model = HuggingFace(folder)
    next(search(model, _query(NUMBERS)))  # what the libraries load when they are first asked
    before = _resident()
    pending, grown, half_way = 0, 0, 0

    def note(progress: SearchProgress) -> None:
        nonlocal pending, grown, half_way
        pending = max(pending, progress.pending)
        grown = max(grown, _resident() - before)
        if progress.nodes <= ASKED // 2:
            half_way = grown
        if progress.nodes >= ASKED:
            raise Enough

    began = time.monotonic()
    results = search(model, _query(f"{WIDE}search: {{max_nodes: {max_nodes}}}\n"), limit=10**9, progress=note)
    try:
        for _ in results:
            pass
    except Enough:
        pass
    summary = results.summary()
    return {
        "max_nodes": max_nodes,
        "pending": pending,
        "mb": grown / 1e6,
        "mb_half_way": half_way / 1e6,
        "nodes": summary.nodes,
        "strings": summary.strings,
        "exact_to": summary.exact_to,
        "seconds": time.monotonic() - began,
    }


def _resident() -> int:
    """The bytes of memory that this process has; Linux."""
    import resource

    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _apart(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What a function returns in a process of its own, which has the memory of nothing else."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply_async(function, arguments).get(TIMEOUT)


# -- what came out -----------------------------------------------------------------------------------------------------


def _times(languages: Sequence[Mapping[str, Any]]) -> str:
    head = f"language            strings  known  paths  {'first':>17}  {'again':>17}  {f'{LIMIT}th':>19}  {'again':>19}"
    lines = [head]
    for each in languages:
        lines.append(
            f"{each['name']:<9}  {each['strings']:>15,}  {each['known']:>2}/{len(KNOWN)}  {each['nodes']:5,}  "
            f"{_range(each['first']):>17}  {_range(each['first_again']):>17}  "
            f"{_range(each['all']):>19}  {_range(each['all_again']):>19}"
        )
    return "\n".join(lines)


def _range(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f} ({min(seconds):.2f}..{max(seconds):.2f})"


def _memory(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["max_nodes  waiting at most  MB half way     MB  strings  exact to  seconds"]
    for row in rows:
        exact_to = "all" if row["exact_to"] is None else f"{row['exact_to']:.2f}"
        lines.append(
            f"{row['max_nodes']:>9,}  {row['pending']:>15,}  {row['mb_half_way']:>11.1f}  {row['mb']:>5.1f}  "
            f"{row['strings']:>7,}  {exact_to:>8}  {row['seconds']:>7.1f}"
        )
    return "\n".join(lines)


def _verdicts(data: Mapping[str, Any]) -> str:
    lines = []
    for each in data["languages"]:
        expected = LANGUAGES[each["name"]][1]
        lines.append(counted(f"{each['name']}: strings that are counted", each["strings"], expected))
        first = f"{each['name']}: seconds to the first string: {_range(each['first'])} (limit {FIRST_WITHIN:g})"
        lines.append(judged(median(each["first"]) <= FIRST_WITHIN, first))
    for row in data["memory"]:
        waiting = f"max_nodes {row['max_nodes']:,}: paths that wait: {row['pending']:,} (limit {row['max_nodes']:,})"
        lines.append(judged(row["pending"] <= row["max_nodes"], waiting))
    return "\n".join(lines)
