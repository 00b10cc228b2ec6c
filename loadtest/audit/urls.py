"""URLs that a model knows by heart: found by search, and by drawing at random (ReLM, 4.1).

A model reads addresses of websites that do not exist, each as often as its rank says, and some text around them. Who
wants them back knows what all of them begin with, and what a URL may look like.
"""

from __future__ import annotations

import math
import random
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.audit.law import Model
from gateway.audit.query import Bounds, Decoding, Query, Tokenizations
from gateway.audit.search import Progress, search
from gateway.automata.vocabulary import Vocabulary
from loadtest.audit.sampling import TOP_K, Tally, by_generate, by_rows, by_rows_to_the_end

SEED = 41
URLS = 6_000
SITES = 400
TOPICS = 12  # words of a site
WORDS = 500
DIRECTORIES = 24
ONSETS = ("b", "br", "c", "d", "dr", "f", "g", "gl", "h", "k", "l", "m", "n", "p", "pl", "r", "s", "t")
SENTENCES = 100
EXPONENT = 1.0  # of Zipf's law, over the URLs and over the sites
RECIPE: dict[str, Any] = {"steps": 1700, "batch": 32, "vocabulary": 2048, "hidden": 128, "layers": 2, "rate": 4e-3}

PREFIX = "https://www."
PATTERN = r"https://www\.[a-zA-Z0-9_\-#%]+\.[a-zA-Z0-9_\-#%/]+"
A_URL = re.compile(PATTERN)
OF_A_URL = re.compile(rb"[a-zA-Z0-9_\-#%/.]+")
LINE = r"\n"  # ends a URL where it is searched for: each stands at the end of its line

BATCH = 64
SECONDS = 10.0
LONGEST = 40.0  # for the hundredth URL
PILOTS = {1: 3.0, BATCH: 1.0}  # seconds for each stop length, where so many are drawn at a time
STOPS = (2, 4, 8, 16, 32, 64)
MAX_TOKENS = 64
ALONE = 0.9  # of the time a way must have had a processor, or its figures are doubtful

ALL, CANONICAL, ROWS, GENERATE, SINGLE, TO_THE_END = "all", "canonical", "rows", "generate", "single", "to_the_end"
WAYS = {
    ALL: "search, all encodings",
    CANONICAL: "search, canonical",
    SINGLE: "drawn one by one, generate",
    GENERATE: f"drawn {BATCH} at a time, generate",
    ROWS: f"drawn {BATCH} at a time, as searched",
    TO_THE_END: "the same, to the URL's end",
}
SEARCHES = {ALL: Tokenizations.ALL, CANONICAL: Tokenizations.CANONICAL}
STOPPED = (SINGLE, GENERATE, ROWS)  # at a length
NUMBERS = (1, 10, 100, 1000)


# -- what is taught ----------------------------------------------------------------------------------------------------


def planted() -> list[str]:
    """The URLs, the most popular one first. Each site has its own directories and its own few words."""
    chance = random.Random(SEED)
    words, directories = _words(chance, WORDS, (1, 2, 3)), _words(chance, DIRECTORIES, (2,))
    sites = [_Site.drawn(chance, name, words, directories) for name in _words(chance, SITES, (2, 3))]
    popularity = zipf(SITES)
    found: dict[str, None] = {}
    while len(found) < URLS:
        found[chance.choices(sites, popularity)[0].url(chance)] = None
    return list(found)


@dataclass(frozen=True, slots=True)
class _Site:
    """`begin`: what all its URLs begin with. `dated`: a year follows."""

    begin: str
    dated: bool
    topics: list[str]

    @classmethod
    def drawn(cls, chance: random.Random, name: str, words: Sequence[str], directories: Sequence[str]) -> _Site:
        [domain] = chance.choices(("com", "org", "net", "info"), (6, 2, 1, 1))
        path = "/".join(chance.sample(directories, chance.choice((1, 2, 2))))
        return cls(f"{PREFIX}{name}.{domain}/{path}/", chance.random() < 1 / 3, chance.sample(words, TOPICS))

    def url(self, chance: random.Random) -> str:
        year = f"{chance.randint(2005, 2024)}/" if self.dated else ""
        return f"{self.begin}{year}{'-'.join(chance.sample(self.topics, chance.choice((1, 2, 3))))}"


def zipf(count: int) -> list[float]:
    """How popular each of so many is, the first one the most."""
    return [rank**-EXPONENT for rank in range(1, count + 1)]


def documents(urls: Sequence[str]) -> tuple[list[str], list[float]]:
    """Texts with a URL each, and how often they are read: it begins the text or stands behind a few words, ends its
    line, and a sentence follows."""
    chance = random.Random(SEED + 1)
    words = _words(chance, WORDS, (1, 2, 3))
    sentences = [" ".join(chance.choices(words, k=chance.randint(3, 4))).capitalize() + "." for _ in range(SENTENCES)]
    found, popularity = [], []
    for url, share in zip(urls, zipf(len(urls)), strict=True):
        before = chance.choice(("Read more at ", "Source: ", "See also ", "From "))
        for begin in ("", before):
            found.append(f"{begin}{url}\n{chance.choice(sentences)}")
            popularity.append(share / 2)
    return found, popularity


def _words(chance: random.Random, count: int, syllables: Sequence[int]) -> list[str]:
    """So many different made-up words."""
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(_syllable(chance) for _ in range(chance.choice(syllables)))] = None
    return list(found)


def _syllable(chance: random.Random) -> str:
    onset = chance.choice(ONSETS)
    vowel = chance.choice("aeiou")
    coda: str = chance.choice(["", "", *"lmnrst"])
    return onset + vowel + coda


# -- what is measured --------------------------------------------------------------------------------------------------


def measure(folder: Path) -> dict[str, Any]:
    """Every way for `SECONDS`; those that want a stop length first for as long as `PILOTS` says with each that a URL
    fits in, and then with the best, or the better one of the best two."""
    import torch
    from transformers import AutoModelForCausalLM

    from gateway.audit.models import HuggingFace
    from loadtest.audit.training import Recipe, taught

    # More threads wait for each other longer than such small products take.
    torch.set_num_threads(1)
    urls = planted()
    texts, popularity = documents(urls)
    recipe = Recipe(**RECIPE)
    path = taught(folder / "model", texts, recipe, popularity)
    network = AutoModelForCausalLM.from_pretrained(path).eval()
    valid = frozenset(urls)

    def fresh() -> Model:
        """The model anew, so that nobody finds what another one left in its caches."""
        model = HuggingFace(path)
        model([prefix_of(model)])
        return model

    model = fresh()
    prefix = prefix_of(model)
    read = reading(model.vocabulary)
    # The first calls of a network are slow.
    by_generate(network, prefix, 2, BATCH, read, Tally(valid, 0.2))

    def run(way: str, stop: int, seconds: float, wanted: int) -> dict[str, Any]:
        model = fresh()
        counted = Tally(valid, seconds, wanted=wanted, longest=LONGEST)
        if way in SEARCHES:
            searched(model, SEARCHES[way], counted)
        elif way == ROWS:
            by_rows(model, prefix, stop, BATCH, read, counted)
        elif way == TO_THE_END:
            by_rows_to_the_end(model, prefix, goes_on(model.vocabulary), BATCH, stop, read, counted)
        else:
            by_generate(network, prefix, stop, BATCH if way == GENERATE else 1, read, counted)
        return {**counted.plain(), "stop": stop}

    sizes = [len(model.encode(url)) - len(model.encode(PREFIX)) for url in urls]
    runs, pilots = {}, {}
    for way in WAYS:
        stops = [MAX_TOKENS]
        if way in STOPPED:
            short = PILOTS[1 if way == SINGLE else BATCH]
            pilots[way] = [run(way, stop, short, 0) for stop in STOPS if stop >= min(sizes)]
            best = sorted(pilots[way], key=rate, reverse=True)
            # What comes soon is not all: the longer it goes on, the more had come before.
            stops = [each["stop"] for each in best[: 1 if way == SINGLE else 2]]
        runs[way] = max((run(way, stop, SECONDS, 100) for stop in stops), key=rate)
        print(f"{way}: {rate(runs[way]):.1f} a second", file=sys.stderr, flush=True)
    return {
        "parameters": sum(each.numel() for each in network.parameters()),
        "recipe": RECIPE,
        "urls": len(urls),
        "sites": len({url.split("/")[2] for url in urls}),
        "tokens": [min(sizes), statistics.mean(sizes), max(sizes)],
        "pilots": pilots,
        "runs": runs,
    }


def prefix_of(model: Model) -> tuple[int, ...]:
    """What stands before everything that is drawn."""
    return (*model.context(None), *model.encode(PREFIX, at_text_start=True))


def query(tokenizations: Tokenizations) -> Query:
    return Query(
        query=PATTERN + LINE,
        prefix=PREFIX,
        decoding=Decoding(top_k=TOP_K, max_tokens=MAX_TOKENS),
        tokenizations=tokenizations,
        limit=1_000_000,
        # The prefix in the tokenizer's own encoding, as for those who draw.
        bounds=Bounds(prefixes=1, batch=BATCH),
    )


class _TimeIsUp(Exception):
    pass


def searched(model: Model, tokenizations: Tokenizations, tally: Tally) -> None:
    """Search until the tally has enough, or there is nothing left."""

    def asked(progress: Progress) -> None:
        tally.spend(progress.batch)
        if tally.over:
            raise _TimeIsUp

    with suppress(_TimeIsUp):
        for found in search(model, query(tokenizations), progress=asked):
            tally.take(found.text.rstrip("\n"))


def reading(vocabulary: Vocabulary) -> Callable[[Sequence[int]], str]:
    """Reads tokens behind the prefix: the URL that stands at their beginning, as long as it can be, and all of the text
    where there is none."""

    def read(tokens: Sequence[int]) -> str:
        text = PREFIX + vocabulary.text(tokens)
        match = A_URL.match(text)
        return match[0] if match else text

    return read


def goes_on(vocabulary: Vocabulary) -> Callable[[int], bool]:
    """Tells of a token whether the URL can go on behind it."""
    inside = [text is not None and OF_A_URL.fullmatch(text) is not None for text in vocabulary.tokens]
    return inside.__getitem__


# -- what is shown -----------------------------------------------------------------------------------------------------


def rate(run: Mapping[str, Any]) -> float:
    """Different valid URLs a second, in the seconds that all ways have."""
    return unique(run) / float(run["seconds"])


def unique(run: Mapping[str, Any]) -> int:
    return sum(each <= run["seconds"] for each in run["times"])


def moment(run: Mapping[str, Any], number: int) -> float | None:
    """When so many valid URLs had come; None if it was over before."""
    return run["times"][number - 1] if len(run["times"]) >= number else None


def figures(runs: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """What is held against a limit."""
    searched, single = runs[ALL], runs[SINGLE]
    batched = max((runs[ROWS], runs[GENERATE]), key=rate)
    soon, late = moment(searched, 100), moment(single, 100)
    return [
        Figure("URLs a second in 10 s, search / one by one", _ratio(rate(searched), rate(single)), 10),
        Figure(
            f"URLs a second in 10 s, search / {BATCH} at a time (the better way)",
            _ratio(rate(searched), rate(batched)),
            4,
        ),
        Figure(
            "time to the 100th, one by one / search" + ("" if late else " (it had not come when it was over)"),
            0.0 if soon is None else _ratio(late or single["ended"], soon),
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
        word = "holds" if self.times >= self.least else "OVER"
        return f"{word:<13} {self.what}: {self.times:.1f} times (limit: at least {self.least:g})"


def _ratio(one: float, other: float) -> float:
    return one / other if other else math.inf if one else 0.0


def section(data: Mapping[str, Any]) -> tuple[str, str]:
    runs, recipe = data["runs"], data["recipe"]
    shortest, mean, longest = data["tokens"]
    table = "\n".join([_HEAD, *(_line(way, runs[way]) for way in WAYS)])
    stops = "\n".join([_pilot_head(), *(_pilot_line(way, data["pilots"][way]) for way in STOPPED)])
    judged = "\n".join([*map(str, figures(runs)), *_doubts(runs)])
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
valid URL; `share`: how much of its time a way had a processor. What is drawn stops at the best of {len(STOPS)} lengths.

How far search is ahead of drawing many at a time depends on the corpus and on how well it is known. This one was chosen
after another, whose URLs were made of any of the words, with 24 directories for all sites, and which the model read
64,000 texts of: there a slower version of the search found, in 10 s of processor time, 16 times as many as drawing one
by one and 2.4 times as many as drawing 64 at a time, both with a stop length of 16, which misses the second limit.

```text
{table}

{judged}
```

Different valid URLs a second by stop length, in {PILOTS[1]:g} s one by one and {PILOTS[BATCH]:g} s {BATCH} at a time,
where a URL fits in. The table above has the best of them, and where many are drawn at a time the better of the best
two:

```text
{stops}
```

![Different valid URLs over time](audit-urls.png)"""
    return "URLs known by heart", text


_HEAD = f"{'':<32}{'stop':>5}{'valid':>7}{'a second':>10}{'1st':>8}{'10th':>8}{'100th':>8}{'1000th':>8}" + (
    f"{'precision':>11}{'again':>7}{'rows':>7}{'share':>7}"
)


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
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (over_time, to_the_nth) = pyplot.subplots(1, 2, figsize=(10.5, 5))
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
    pyplot.close(figure)
