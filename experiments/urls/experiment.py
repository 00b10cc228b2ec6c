"""What is measured: how many valid URLs come out of a model in so many seconds, by search and drawn at random."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from experiments.bounded_search import Enough
from experiments.sampling import TOP_K, Tally, by_generate, by_rows, by_rows_to_the_end
from experiments.urls.planted import PREFIX, documents, pool
from gateway.audit.model import LanguageModel
from gateway.audit.query.model import Bounds, Decoding, Query, Tokenizations
from gateway.audit.searches.best_first import SearchProgress, search
from gateway.automata.vocabulary import Vocabulary

RECIPE: dict[str, Any] = {"steps": 1700, "batch": 32, "vocabulary": 2048, "hidden": 128, "layers": 2, "rate": 4e-3}

PATTERN = r"https://www\.[a-zA-Z0-9_\-#%]+\.[a-zA-Z0-9_\-#%/]+"
A_URL = re.compile(PATTERN)
OF_A_URL = re.compile(rb"[a-zA-Z0-9_\-#%/.]+")
LINE = r"\n"  # ends a URL where it is searched for: each stands at the end of its line

BATCH = 64
SECONDS = 10.0
LONGEST = 40.0  # for the hundredth URL
PILOT = 3.0  # seconds for each stop length, before the best two are gone on with
STOPS = (2, 4, 8, 16, 32, 64)
MAX_TOKENS = 64

ALL, CANONICAL, SINGLE, SINGLE_TO_THE_END = "all", "canonical", "single", "single_to_the_end"
GENERATE, ROWS, TO_THE_END = "generate", "rows", "to_the_end"
WAYS = {
    ALL: "search, all encodings",
    CANONICAL: "search, canonical",
    SINGLE: "drawn one by one, generate",
    SINGLE_TO_THE_END: "one by one, to the URL's end",
    GENERATE: f"drawn {BATCH} at a time, generate",
    ROWS: f"drawn {BATCH} at a time, as searched",
    TO_THE_END: "the same, to the URL's end",
}
ONE_BY_ONE = (SINGLE, SINGLE_TO_THE_END)
BATCHED = (GENERATE, ROWS, TO_THE_END)
SEARCHES = {ALL: Tokenizations.ALL, CANONICAL: Tokenizations.CANONICAL}
STOPPED = (SINGLE, GENERATE, ROWS)  # at a length


def measure(folder: Path) -> dict[str, Any]:
    """Every way for `SECONDS`; those that want a stop length first for `PILOT` seconds with each that a URL fits in,
    and then with the better one of the best two."""
    import torch
    from transformers import AutoModelForCausalLM

    from experiments.training import Recipe, taught
    from gateway.audit.models.hf import HuggingFace

    # More threads wait for each other longer than such small products take.
    torch.set_num_threads(1)
    urls = pool()
    texts, popularity = documents(urls)
    recipe = Recipe(**RECIPE)
    path = taught(folder / "model", texts, recipe, popularity)
    network = AutoModelForCausalLM.from_pretrained(path).eval()
    valid = frozenset(urls)

    def fresh() -> LanguageModel:
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
        batch = 1 if way in ONE_BY_ONE else BATCH
        model = fresh()
        counted = Tally(valid, seconds, wanted=wanted, longest=LONGEST)
        if way in SEARCHES:
            searched(model, SEARCHES[way], counted)
        elif way == ROWS:
            by_rows(model, prefix, stop, batch, read, counted)
        elif way in (SINGLE_TO_THE_END, TO_THE_END):
            by_rows_to_the_end(model, prefix, continues(model.vocabulary), batch, stop, read, counted)
        else:
            by_generate(network, prefix, stop, batch, read, counted)
        return {**counted.plain(), "stop": stop}

    sizes = [len(model.encode(url)) - len(model.encode(PREFIX)) for url in urls]
    runs, pilots = {}, {}
    for way in WAYS:
        stops = [MAX_TOKENS]
        if way in STOPPED:
            pilots[way] = [run(way, stop, PILOT, 0) for stop in STOPS if stop >= min(sizes)]
            best = sorted(pilots[way], key=rate, reverse=True)
            # What comes soon is not all: the longer it goes on, the more had come before.
            stops = [each["stop"] for each in best[:2]]
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


def prefix_of(model: LanguageModel) -> tuple[int, ...]:
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


def searched(model: LanguageModel, tokenizations: Tokenizations, tally: Tally) -> None:
    """Search until the tally has enough, or there is nothing left."""

    def asked(progress: SearchProgress) -> None:
        tally.spend(progress.batch)
        if tally.over:
            raise Enough

    with suppress(Enough):
        for found in search(model, query(tokenizations), progress=asked):
            tally.count(found.text.rstrip("\n"))


def reading(vocabulary: Vocabulary) -> Callable[[Sequence[int]], str]:
    """Reads tokens behind the prefix: the URL that stands at their beginning, as long as it can be, and all of the text
    where there is none."""

    def read(tokens: Sequence[int]) -> str:
        text = PREFIX + vocabulary.text(tokens)
        match = A_URL.match(text)
        return match[0] if match else text

    return read


def continues(vocabulary: Vocabulary) -> Callable[[int], bool]:
    """Tells of a token whether the URL can go on behind it."""
    inside = [text is not None and OF_A_URL.fullmatch(text) is not None for text in vocabulary.tokens]
    return inside.__getitem__


def rate(run: Mapping[str, Any]) -> float:
    """Different valid URLs a second, in the seconds that all ways have."""
    return unique(run) / float(run["seconds"])


def unique(run: Mapping[str, Any]) -> int:
    return sum(each <= run["seconds"] for each in run["times"])


def moment(run: Mapping[str, Any], number: int) -> float | None:
    """When so many valid URLs had come; None if it was over before."""
    return run["times"][number - 1] if len(run["times"]) >= number else None
