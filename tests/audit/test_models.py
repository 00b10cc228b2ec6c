"""The toy, and what models have in common."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gateway.audit.model import ModelError, rows_of
from gateway.audit.models.hf import HuggingFace, encoding
from gateway.audit.models.toy import Toy
from gateway.automata.vocabulary import Vocabulary
from tests.support.naive_search import vocabulary_of

VOCABULARY = vocabulary_of("a", "b", "c", " ", "ab", "bc", "é", b"\xc3", b"\xa9")


def test_a_toy_says_the_same_every_time() -> None:
    toy = Toy(VOCABULARY, seed=1)
    rows = rows_of(toy, [(), (0,), (5, 0), (1, 0)])
    assert rows.shape == (4, 10) and np.allclose(np.exp(rows).sum(axis=1), 1)
    assert (rows == rows_of(Toy(VOCABULARY, seed=1), [(), (0,), (5, 0), (1, 0)])).all()
    assert not np.allclose(rows, rows_of(Toy(VOCABULARY, seed=2), [(), (0,), (5, 0), (1, 0)]))
    # The last two tokens decide.
    assert (toy([(3, 5, 0)])[0] == rows[2]).all() and not np.allclose(rows[2], rows[3])
    assert len({tuple(row) for row in Toy(VOCABULARY, order=0)([(), (0,), (1, 2)]).tolist()}) == 1


def test_a_toy_writes_the_longest_tokens() -> None:
    toy = Toy(VOCABULARY)
    assert toy.encode("abca é") == [4, 2, 0, 3, 6]
    assert toy.context(None) == () and toy.context("ab") == (4,)
    with pytest.raises(ModelError, match="cannot be written"):
        toy.encode("x")
    named = Toy(vocabulary_of(*"user: \n", "hi"))
    assert named.vocabulary.text(named.context([{"role": "user", "content": "hi"}])) == "user: hi\n"
    spaced = Toy(Vocabulary([b" a", b"a", b" ", None], end=[3], strips_first_space=True))
    assert spaced.encode("a", at_text_start=True) == [0] and spaced.encode("a") == [1]


def test_a_text_that_goes_on_has_no_space_before_it() -> None:
    """As SentencePiece does it: a space before every text, and line breaks as bytes."""
    written = {"hot": ["▁hot"], "\n": ["▁", "<0x0A>"], "\nhot": ["▁", "<0x0A>", "hot"], "\n\n": ["▁\n\n"]}
    numbers = {
        name: number for number, name in enumerate(sorted({piece for each in written.values() for piece in each}))
    }

    def encode(text: str) -> list[int]:
        return [numbers[piece] for piece in written[text]]

    assert encoding(encode, "hot", continues=False) == [numbers["▁hot"]]
    assert encoding(encode, "hot", continues=True) == [numbers["hot"]]
    # Where the beginning does not stay as it is, the text itself is all there is.
    assert encoding(encode, "\n", continues=True) == encode("\n")


def test_probabilities_of_the_toy_are_what_they_seem() -> None:
    row = Toy(VOCABULARY, contrast=0.0)([()])[0]
    assert row.tolist() == pytest.approx([-math.log(10)] * 10)


def test_a_model_without_pytorch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match=r"^model: torch is not installed: pip install -e '\.\[audit\]' torch"):
        HuggingFace("model")


@pytest.mark.parametrize(
    "error", [AssertionError("not compiled\n  with CUDA"), KeyError("x"), ImportError("no part"), OSError()]
)
def test_a_model_fails_in_all_ways_of_its_libraries(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: object) -> None:
        raise error

    loads = SimpleNamespace(from_pretrained=load)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoModelForCausalLM=loads, AutoTokenizer=loads))
    with pytest.raises(ModelError, match=r"^here: the model cannot be loaded: .") as raised:
        HuggingFace("here")
    assert len(str(raised.value).splitlines()) == 1
