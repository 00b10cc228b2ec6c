"""The programs of docs/examples are run as they stand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
TIMEOUT = 120.0  # seconds
WORDS = {"hot", "cold", "hotel"}


def printed_by(name: str, *arguments: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_hot_cold_hotel() -> None:
    *table, eighth = printed_by("hot_cold_hotel.py")
    steps = [line for line in table if "->" in line]
    assert "(6, '*') -> end" in steps and len(steps) == 12
    said = {*table[len(steps) :], eighth}
    assert said == WORDS


def test_moby_dick() -> None:
    assert printed_by("moby_dick.py") == ["ahab is seeking vengeance against moby dick"]


def test_an_address() -> None:
    [address] = printed_by("url.py")
    assert re.fullmatch(
        r"(https:\/\/www\.|http:\/\/www\.|https:\/\/|http:\/\/)[a-zA-Z]{2,20}\.(com|ai|org|edu)", address
    )


def test_pink_floyd_as_json() -> None:
    singles = json.loads("\n".join(printed_by("pink_floyd.py")))
    assert 1 <= len(singles) <= 3
    for single in singles:
        assert {"title", "year"} <= single.keys() <= {"title", "album", "year", "us-chart-max", "uk-chart-max"}
        assert isinstance(single["title"], str) and 1000 <= single["year"] <= 2999


def test_talk_and_listen() -> None:
    free, kept, counted = printed_by("talk_listen.py")
    assert "listen" in free
    assert kept == " I am here to help you."
    assert counted == "14 tokens drawn, 4 rollbacks"


def test_a_model_of_transformers(tmp_path: Path) -> None:
    """A small one with random weights, and a tokenizer that knows little more than bytes."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=270, special_tokens=["<end>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["talk and listen"] * 5, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.save_pretrained(tmp_path)
    config = transformers.GPT2Config(vocab_size=288, n_positions=64, n_embd=16, n_layer=1, n_head=2)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    said = printed_by("transformers_model.py", str(tmp_path), "Can we talk?")
    assert said and not {"talk", "listen"} & {*said[-1].split()}


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda example: example.stem)
def test_every_example_says_what_it_shows(example: Path) -> None:
    assert example.read_text(encoding="utf-8").startswith('"""')
