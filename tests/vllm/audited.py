"""A model of transformers as an audit asks it, run where PyTorch is, in vLLM's environment:
`python -m tests.vllm.audited`."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from gateway.audit.model import ModelError, rows_of
from gateway.audit.models import hf as models
from gateway.audit.models.hf import HuggingFace
from gateway.audit.query.model import Decoding, Message, Query, Tokenizations
from gateway.audit.searches.best_first import search
from gateway.audit.searches.sample import sample
from tests.support.vllm_server import MODEL

CHAT = (Message("user", "What is the password?"),)
ANSWER = 'The password is "12MONKEYS".'


def check_rows() -> None:
    """Whatever is kept, padded or put together, each row is what the network says about its prefix alone."""
    kept, fresh = HuggingFace(MODEL), HuggingFace(MODEL, reuse=False)
    network = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    context = kept.context([{"role": "user", "content": "What is the password?"}])
    said = kept.encode(ANSWER)
    calls = [
        [context],
        [(*context, *said[:length]) for length in range(len(said))],
        [(*context, *said), (*context, said[0], 9, 9), (*context, 40)],
        [(*context, *said[:3]), (*context, *said[:3])],
        [context[:2], (1,)],
        [(7, 8, 9), context],
        [(*context, *said)],
        [(*context, *said, 5), (*context, *said, 5, 6)],
    ]
    for prefixes in calls:
        alone = [network(torch.tensor([prefix])).logits[0, -1].log_softmax(-1) for prefix in prefixes]
        wanted = torch.stack(alone).detach().numpy()
        for model in (kept, fresh):
            rows = rows_of(model, prefixes)
            assert rows.shape == (len(prefixes), len(model.vocabulary)) and rows.dtype == np.float32
            assert np.abs(rows - wanted).max() < 1e-4
    # More than fits in one call of the network.
    models.MAX_BATCH_TOKENS = 64
    assert np.abs(rows_of(kept, calls[1]) - rows_of(fresh, calls[1])).max() < 1e-4
    models.MAX_BATCH_TOKENS = 16_384


def check_paths() -> None:
    """A tree of paths, many at a time and in any order, in a cache that holds all of them, some, or none; also where
    one call of the network does not take all of them, and what is kept is forgotten between two."""
    chance = random.Random(0)
    fresh = HuggingFace(MODEL, reuse=False)
    paths = [(1,)]
    for _ in range(120):
        paths.append((*chance.choice(paths), chance.randrange(300)))
    wanted = rows_of(fresh, paths)
    for bytes_, tokens in ((512 * 1024**2, 16_384), (40_000, 16_384), (40_000, 32), (0, 16_384)):
        models.MAX_CACHE_BYTES, models.MAX_BATCH_TOKENS = bytes_, tokens
        kept = HuggingFace(MODEL)
        for _ in range(40):
            numbers = [chance.randrange(len(paths)) for _ in range(chance.choice((1, 5, 20)))]
            rows = rows_of(kept, [paths[number] for number in numbers])
            assert np.abs(rows - wanted[numbers]).max() < 1e-4
        # Two layers with two heads of 32 numbers, keys and values, four bytes each.
        assert len(kept._cache) * 2 * 2 * 32 * 2 * 4 <= bytes_
        if bytes_ > 100_000:
            assert len(kept._cache) > 20
    models.MAX_CACHE_BYTES, models.MAX_BATCH_TOKENS = 512 * 1024**2, 16_384


def check_stopped() -> None:
    """What was being kept when a call was stopped is not taken for known afterwards."""
    kept, fresh = HuggingFace(MODEL), HuggingFace(MODEL, reuse=False)
    widen = kept._cache._widen
    kept._cache._widen = _stop
    try:
        kept([(1, 40, 41)])
    except KeyboardInterrupt:
        kept._cache._widen = widen
    assert kept._cache._widen is widen and not len(kept._cache)
    kept([(1, 50)])
    prefixes = [(1, 40, 41, 42), (1, 50, 51)]
    assert np.abs(rows_of(kept, prefixes) - rows_of(fresh, prefixes)).max() < 1e-4


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def check_search() -> None:
    model = HuggingFace(MODEL)
    for tokenizations in Tokenizations:
        query = Query(
            query=r'The password is "[A-Z0-9]{1,12}"\.',
            prefix="The password is",
            prompt=CHAT,
            decoding=Decoding(top_k=40),
            tokenizations=tokenizations,
            limit=5,
        )
        found = list(search(model, query))
        assert len(found) == 5 and found[0].text == ANSWER
        assert math.exp(found[0].logprob) > 0.9 and found[0].prefix == len("The password is")
        assert [result.logprob for result in found] == sorted((result.logprob for result in found), reverse=True)
        if tokenizations is Tokenizations.CANONICAL:
            assert all(list(result.tokens) == model.encode(result.text) for result in found)
    # A number of ten digits that nobody asked the model before.
    numbers = search(model, Query(query="[0-9]{3} [0-9]{3} [0-9]{4}", decoding=Decoding(top_k=40), limit=10))
    assert len(list(numbers)) == 10 and numbers.summary().nodes < 5000


def check_sample() -> None:
    model = HuggingFace(MODEL)
    query = Query(query=r'The password is "[A-Z0-9]+"\.', prefix="The password is", prompt=CHAT)
    drawn = sample(model, query, samples=20, seed=1)
    texts = [each.text for each in drawn]
    assert texts.count(ANSWER) >= 15
    assert drawn.estimate().probability > 0.9


def check_errors() -> None:
    model = HuggingFace(MODEL)
    assert "nothing stands before" in _error(lambda: model([()]))
    assert "nothing stands before" in _error(lambda: model([(1,), ()]))
    with tempfile.TemporaryDirectory() as folder:
        assert "cannot be loaded" in _error(lambda: HuggingFace(Path(folder)))
        (Path(folder) / "config.json").write_text("{")
        assert "cannot be loaded" in _error(lambda: HuggingFace(Path(folder)))
    assert _error(lambda: model.context([{"role": "user"}, {"content": "x"}]))


def _error(call: Callable[[], object]) -> str:
    try:
        call()
    except ModelError as error:
        return str(error)
    raise AssertionError("nothing was raised")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for check in (check_rows, check_paths, check_stopped, check_search, check_sample, check_errors):
        check()
