"""What is asked: the exact scores of a search in every way, and draws whose law is held against them."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.bias import places
from experiments.bias.planted import (
    BEGINNING,
    GENDERS,
    PLANTED,
    PROFESSIONS,
    SEED,
    TRAINED,
    documents,
    meant,
    profession_shares,
    sentence,
)
from experiments.bounded_search import search_within
from experiments.statistics import against_exact, independence, total_variation
from gateway.audit import sample
from gateway.audit.query.model import Decoding, Edits, PrefixText, Query, Tokenizations
from gateway.audit.searches.sample import Sample

if TYPE_CHECKING:
    from gateway.audit.models.hf import HuggingFace

NODES = 2000  # a query
LEAST_P = 1e-6
SAMPLES = 2000  # of each gender
PAIRS = 500  # of samples of one law, for false alarms

# Way of asking: is the beginning given, and as what; encodings; edits. `judged`: its scores are the model's own
# probabilities. Where a prefix has several encodings, `string_logprob` adds up what comes behind each as if each were
# certain, so its shares are those of another law.
WAYS = (
    ("prefix", "canonical", False, True),
    ("prefix", "all", False, False),
    ("prompt", "all", False, True),
    ("none", "canonical", False, True),
    ("none", "all", False, True),
    ("prefix", "canonical", True, True),
    ("prefix", "all", True, False),
    ("prompt", "all", True, True),
    ("none", "canonical", True, True),
    ("none", "all", True, True),
)
# Drawn: how, and the way whose exact scores it is held against. A prefix is drawn as the tokenizer writes it.
DRAWN = (
    (("prefix", "canonical", False), ("prefix", "canonical", False)),
    (("prefix", "all", False), ("prompt", "all", False)),
    (("prefix", "canonical", True), ("prefix", "canonical", True)),
    (("none", "all", False), ("none", "all", False)),
)


def measure(folder: Path) -> dict[str, Any]:
    from experiments.training import Recipe, taught
    from gateway.audit.models.hf import HuggingFace

    read = documents()
    recipe = Recipe(steps=800, vocabulary=1024, hidden=96, rate=2e-3, seed=SEED)
    model = HuggingFace(taught(folder, [text for text, _ in read], recipe, [weight for _, weight in read]))
    exact = [_exact(model, *way[:3]) for way in WAYS]
    by_way = {tuple(one["way"]): one for one in exact}
    by_table, as_exact = false_alarms(PAIRS, SAMPLES, SEED)
    return {
        "documents": len(read),
        "steps": recipe.steps,
        "batch": recipe.batch,
        "exact": exact,
        "rounding": _rounding(model, folder, by_way["none", "canonical", False]),
        "drawn": drawn_ways(model, by_way),
        "false_alarms": {"table": by_table, "exact": as_exact},
        "edits": places.measured(model),
    }


def _rounding(model: HuggingFace, folder: Path, exact: dict[str, Any]) -> float:
    """The largest difference between the scores of sentences and those that the network gives them in one call each,
    without the audit."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    worst = 0.0
    for gender, profession, chance in exact["scores"]:
        tokens = [*model.context(None), *model.encode(sentence(gender, profession), True), model.vocabulary.end[0]]
        with torch.inference_mode():
            logprobs = torch.log_softmax(network(input_ids=torch.tensor([tokens])).logits[0].double(), -1)
        score = sum(float(logprobs[at, token]) for at, token in enumerate(tokens[1:]))
        worst = max(worst, abs(score - math.log(chance)))
    return worst


# -- exact scores ------------------------------------------------------------------------------------------------------


def queries(way: str, encodings: str, edits: bool, begin: str = "<|bos|>") -> list[tuple[str, Query]]:
    """What is asked, each with the text that stands before what comes out. `begin`: what a text begins with, which a
    prompt has to say itself."""
    decoding = Decoding(end_of_text=True)
    change = (Edits(1),) if edits else ()
    common: dict[str, Any] = {
        "decoding": decoding,
        "preprocess": change,
        "tokenizations": Tokenizations(encodings),
        "limit": 1_000_000,
    }
    if way == "none":
        return [("", Query(query=f"{BEGINNING.format('(man|woman)')} {TRAINED}", **common))]
    found = []
    for gender in GENDERS:
        begun = BEGINNING.format(gender)
        if way == "prefix":
            found.append(("", Query(query=f"{begun} {TRAINED}", prefix=PrefixText(begun), **common)))
        else:
            found.append((begun, Query(query=f" {TRAINED}", prompt=begin + begun, **common)))
    return found


def shares_of(scores: dict[tuple[str, str], float]) -> dict[str, list[float]]:
    """P(profession | gender) from probabilities that need not add up to 1."""
    found = {}
    for gender in GENDERS:
        row = [scores.get((gender, profession), 0.0) for profession in PROFESSIONS]
        found[gender] = [each / (sum(row) or 1.0) for each in row]
    return found


def _exact(model: HuggingFace, way: str, encodings: str, edits: bool) -> dict[str, Any]:
    scores: dict[tuple[str, str], float] = {}
    unclear = 0.0
    strings = nodes = 0
    ends = []
    begin = time.monotonic()
    for before, query in queries(way, encodings, edits):
        answer = search_within(model, query, nodes=NODES, least=math.log(LEAST_P))
        strings += len(answer.results)
        nodes += answer.nodes
        ends.append(answer.ended)
        for result in answer.results:
            who = meant(before + result.text)
            chance = math.exp(result.string_logprob)
            if who is None:
                unclear += chance
            else:
                scores[who] = scores.get(who, 0.0) + chance
    shares = shares_of(scores)
    return {
        "way": [way, encodings, edits],
        "scores": [[gender, profession, chance] for (gender, profession), chance in sorted(scores.items())],
        "shares": shares,
        "distance": {gender: total_variation(shares[gender], profession_shares(gender)) for gender in GENDERS},
        "unclear": unclear,
        "strings": strings,
        "nodes": nodes,
        "ended": sorted(set(ends)),
        "seconds": time.monotonic() - begin,
    }


# -- drawn -------------------------------------------------------------------------------------------------------------


def kept(samples: Sequence[Sample], chance: random.Random) -> list[str]:
    """Samples kept with the probability of their weight: independent draws of the model's own law, given that it says a
    string of the language."""
    return [each.text for each in samples if each.text is not None and chance.random() < each.weight]


def drawn_ways(model: HuggingFace, exact: dict[Any, dict[str, Any]]) -> list[dict[str, Any]]:
    """Each way that is drawn, beside the exact scores. Each with seeds of its own: with the same ones they would draw
    nearly the same strings."""
    return [_drawn(model, how, exact[against], 10 * place) for place, (how, against) in enumerate(DRAWN)]


def _drawn(model: HuggingFace, how: tuple[str, str, bool], exact: dict[str, Any], seed: int) -> dict[str, Any]:
    """Counts of independent draws, and the estimates of the ten probabilities of each gender beside the exact ones."""
    asked = queries(*how)
    truth = {(gender, profession): chance for gender, profession, chance in exact["scores"]}
    chance = random.Random(seed)
    counts = dict.fromkeys(itertools.product(GENDERS, PROFESSIONS), 0)
    estimates = []
    drawn = 0
    begin = time.monotonic()
    for number, (before, query) in enumerate(asked):
        sampling = sample(model, query, samples=SAMPLES * len(GENDERS) // len(asked), seed=seed + number, batch=64)
        samples = list(sampling)
        drawn += len(samples)
        for text in kept(samples, chance):
            who = meant(before + text)
            if who is not None:
                counts[who] += 1
        for who in counts:
            if len(asked) == 1 or who[0] == GENDERS[number]:
                found = sampling.estimate(_means(before, who))
                estimates.append([*who, found.probability, found.low, found.high, truth.get(who, 0.0)])
    table = [[counts[gender, profession] for profession in PROFESSIONS] for gender in GENDERS]
    test, cramers = independence(table)
    alone = against_exact(table[0], table[1])
    return {
        "how": list(how),
        "samples": drawn,
        "counts": table,
        "statistic": test.statistic,
        "freedom": test.freedom,
        "log10_p": test.log10_p,
        "cramers_v": cramers,
        "as_exact": alone.statistic if math.isfinite(alone.statistic) else None,
        "estimates": estimates,
        "held": sum(low <= true <= high for *_, low, high, true in estimates),
        "seconds": time.monotonic() - begin,
    }


def _means(before: str, who: tuple[str, str]) -> Callable[[str], bool]:
    return lambda text: meant(before + text) == who


def false_alarms(pairs: int, samples: int, seed: int) -> tuple[float, float]:
    """How often two samples of the same law differ at the level of 5 %: by the contingency test, and where one of them
    is taken for the law itself."""
    chance = random.Random(seed)
    places = range(len(PROFESSIONS))
    by_table = as_exact = 0
    for _ in range(pairs):
        one, other = (
            [drawn.count(place) for place in places]
            for drawn in (chance.choices(places, PLANTED["man"], k=samples) for _ in range(2))
        )
        by_table += independence([one, other])[0].p < 0.05
        as_exact += against_exact(one, other).p < 0.05
    return by_table / pairs, as_exact / pairs
