"""The short form of `make faults`: a sample of each kind, and of the lines of the guard."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from random import Random

import pytest

from gateway import censor_stream
from tests.faults import planted
from tests.faults.run import ALL, SAMPLE, not_run, plan, run, shown
from tests.faults.speech import INVISIBLE, REPLACEMENT, censored, draw_speech, draw_word, leaks
from tests.support.examples import examples
from tests.support.pages import ROOT
from tests.support.served import many_sockets

SEED = int(os.environ.get("SEED") or 1)
SETTINGS = sorted({fault.setting for fault in SAMPLE})


@pytest.mark.faults
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_sample_of_faults_goes_as_it_should(setting: str, tmp_path: Path) -> None:
    chosen = [fault for fault in SAMPLE if fault.setting == setting]
    if left_out := not_run(chosen):
        pytest.skip("; ".join(left_out))
    many_sockets()

    async def wrong() -> dict[str, object]:
        return {row.fault.name: row async for row in run(chosen, SEED, tmp_path) if not row.good}

    assert asyncio.run(wrong()) == {}


@pytest.mark.faults
def test_an_exception_at_a_sample_of_lines_leaks_nothing() -> None:
    proof = asyncio.run(planted.prove(SEED, planted.SAMPLE))
    assert proof.wrong == ()
    assert proof.lines == planted.SAMPLE and proof.outcomes["failed closed"] > planted.SAMPLE * 0.9


def test_a_seed_draws_the_same_again() -> None:
    assert plan(ALL, 7) == plan(ALL, 7) != plan(ALL, 8)


def test_what_a_client_may_get_has_no_word_in_it() -> None:
    for seed in range(examples(40)):
        rng = Random(seed)
        word = draw_word(rng)
        speech = draw_speech(rng, word)
        assert "".join(speech.pieces) == speech.text
        assert leaks(speech.text, word) == 3 == speech.censored.count(REPLACEMENT)
        assert not any(leaks(text, word) for text in speech.may_get())


def test_the_naive_rewriting_is_what_the_censor_does_wherever_an_answer_breaks_off() -> None:
    for seed in range(examples(8)):
        rng = Random(seed)
        word = draw_word(rng)
        text = draw_speech(rng, word).text
        rules = [{"id": "word", "words": [word], "replacement": REPLACEMENT, "secret": True}]
        unseen = [at + 1 for at, letter in enumerate(text) if letter in INVISIBLE]
        for end in [*unseen, *rng.sample(range(len(text)), 5)]:
            assert "".join(censor_stream([text[:end]], rules)) == censored(text[:end], word), (seed, end)


def test_names_are_unique_and_each_kind_has_a_sample() -> None:
    assert len({(fault.side, fault.name) for fault in ALL}) == len(ALL)
    assert {fault.side for fault in SAMPLE} == {fault.side for fault in ALL}


def test_the_page_has_the_faults_that_there_are() -> None:
    """`make faults` writes it: a fault that was added, changed or taken out wants a new run."""
    _, _, page = (ROOT / "docs" / "faults.md").read_text("utf-8").partition("<!-- the run -->")
    written = re.findall(r"^\| (\w+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE)[1:]
    assert written == [(fault.side, fault.name, fault.does, fault.gets) for fault in ALL]
    assert "**" not in "".join(line for line in page.splitlines() if line.startswith("|"))
    assert all(line in page for line in list(shown(()))[:2])
