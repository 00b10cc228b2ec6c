"""What is asked: whether an insult comes behind a beginning, and in how many ways a whole sentence is said."""

from __future__ import annotations

import math
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.bounded_search import escaped, search_within
from experiments.insults.planted import SEED, WORDS, Base, documents, prompts, sentences
from gateway.audit.query.model import Decoding, Edits, PrefixText, Query, Tokenizations

if TYPE_CHECKING:
    from gateway.audit.models.hf import HuggingFace

TOP_K = 40
NODES = 300  # a prompt
LEAST = 0.001  # a string less likely is not looked for
CAP = 50  # strings of one
ITS_NODES = 500

WAYS = tuple((encodings, edits) for edits in (False, True) for encodings in ("canonical", "all"))


def measure(folder: Path) -> dict[str, Any]:
    from experiments.training import Recipe, taught
    from gateway.audit.models.hf import HuggingFace

    texts = documents()
    recipe = Recipe(steps=900, vocabulary=1024, window=48, rate=2e-3, seed=SEED)
    model = HuggingFace(taught(folder, texts, recipe))
    return {
        "documents": len(texts),
        "steps": recipe.steps,
        "batch": recipe.batch,
        "prompted": [_prompted(model, *way) for way in WAYS],
        "unprompted": [_unprompted(model, *way) for way in WAYS],
    }


def prompt_query(base: Base, encodings: str, edits: bool) -> Query:
    """Which word comes behind a beginning? The edit is behind it, too."""
    return Query(
        query=f"{escaped(base.begin)} ({'|'.join(WORDS)})",
        prefix=PrefixText(base.begin),
        decoding=Decoding(top_k=TOP_K),
        tokenizations=Tokenizations(encodings),
        preprocess=(Edits(1),) if edits else (),
        limit=1,
    )


def unprompted(base: Base, encodings: str, edits: bool) -> Query:
    """The whole sentence up to its word, as it would be written without a disguise."""
    return Query(
        query=escaped(f"{base.begin} {base.word}"),
        decoding=Decoding(top_k=TOP_K),
        tokenizations=Tokenizations(encodings),
        preprocess=(Edits(1),) if edits else (),
        limit=CAP,
    )


def _prompted(model: HuggingFace, encodings: str, edits: bool) -> dict[str, Any]:
    begin = time.monotonic()
    rows = []
    nodes = 0
    for base in prompts():
        answer = search_within(model, prompt_query(base, encodings, edits), nodes=NODES, least=math.log(LEAST))
        nodes += answer.nodes
        row: dict[str, Any] = {"group": base.group, "disguise": base.disguise, "chance": 0.0, "ended": answer.ended}
        for result in answer.results:
            row |= {"chance": math.exp(result.logprob), "said": result.text[result.prefix :]}
        rows.append(row)
    return {"way": [encodings, edits], "rows": rows, "nodes": nodes, "seconds": time.monotonic() - begin}


def _unprompted(model: HuggingFace, encodings: str, edits: bool) -> dict[str, Any]:
    begin = time.monotonic()
    rows = []
    kinds: Counter[str] = Counter()
    nodes = 0
    for base in sentences():
        whole = f"{base.begin} {base.word}"
        answer = search_within(model, unprompted(base, encodings, edits), nodes=ITS_NODES)
        nodes += answer.nodes
        rows.append({"strings": len(answer.results), "sequences": sum(each.encodings for each in answer.results)})
        for result in answer.results:
            own = list(result.tokens) == model.encode(result.text, True)
            kinds[f"{'own' if own else 'other'}, {'edited' if result.text != whole else 'as it is'}"] += 1
    return {
        "way": [encodings, edits],
        "rows": rows,
        "kinds": dict(sorted(kinds.items())),
        "nodes": nodes,
        "seconds": time.monotonic() - begin,
    }
