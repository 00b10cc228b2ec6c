"""The bench of distributions: each against a naive computation; the limits, the recorded figures."""

import dataclasses
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gateway.decode.rollback import Attempts, Caps
from loadtest import distribution_bench, distributions
from loadtest.distribution_bench import FAMILIES, Row, main, measure, table, verdicts
from loadtest.sections import HEAD, put

SIZE, LENGTH = 3, 5
MODEL = distributions.random_model(7, SIZE, (1, 3, 3))
UNLIMITED = Caps(per_position=10**6, per_answer=10**6)

Text = tuple[int, ...]
TEXTS = list(product(range(SIZE), repeat=LENGTH))


def holds_the_word(text: Text) -> bool:
    return any(text[at : at + 3] == distributions.WORD for at in range(len(text)))


def chance(text: Text, without: bool = False) -> float:
    """The probability of a text; `without`: where the token that would complete the word never comes."""
    found = 1.0
    for end, token in enumerate(text):
        steps = distributions.next_token(MODEL, text[:end]).copy()
        if without and text[:end][-2:] == distributions.WORD[:2]:
            steps[distributions.WORD[2]] = 0
        found *= steps[token] / steps.sum()
    return found


def test_the_exact_distribution() -> None:
    clean, distribution = distributions.without_word(MODEL, LENGTH)
    assert clean == pytest.approx(sum(chance(text) for text in TEXTS if not holds_the_word(text)))
    assert 0.3 < clean < 0.8
    for text in TEXTS:
        assert distribution[text] == pytest.approx(0 if holds_the_word(text) else chance(text) / clean)


def test_the_masked_distribution() -> None:
    distribution = distributions.masked(MODEL, LENGTH, distributions.ban_mask(SIZE))
    for text in TEXTS:
        assert distribution[text] == pytest.approx(chance(text, without=True))


def test_the_distribution_of_drawing_again() -> None:
    """Against the same walk over all texts that have begun, as a Markov chain: how often each is visited."""
    begun = [text for length in range(LENGTH + 1) for text in product(range(SIZE), repeat=length)]
    place = {text: at for at, text in enumerate(begun)}
    walk = np.eye(len(begun))
    for text in begun:
        for token, step in enumerate(distributions.next_token(MODEL, text) if len(text) < LENGTH else ()):
            longer = (*text, token)
            walk[place[longer[:-3] if longer[-3:] == distributions.WORD else longer], place[text]] -= step
    visits = np.linalg.solve(walk, np.eye(len(begun))[place[()]])
    distribution = distributions.rolled_back(MODEL, LENGTH, distributions.DrawAgain())
    for text in TEXTS:
        assert distribution[text] == pytest.approx(visits[place[text]])


@pytest.mark.parametrize(
    "way", [Attempts(UNLIMITED), Attempts(UNLIMITED, at_once=True), distributions.DrawAgain()], ids=repr
)
def test_a_distribution_of_rollback_adds_up_to_one_without_the_word(way: distributions.Decisions) -> None:
    distribution = distributions.rolled_back(MODEL, LENGTH, way)
    assert distribution.sum() == pytest.approx(1)
    assert not any(distribution[text] for text in TEXTS if holds_the_word(text))


def test_to_begin_the_whole_answer_again_is_exact() -> None:
    """The word takes up all of an answer of its length, so that to draw again there is to begin again."""
    _, true = distributions.without_word(MODEL, 3)
    again = distributions.distance(distributions.rolled_back(MODEL, 3, distributions.DrawAgain()), true)
    once = distributions.distance(distributions.rolled_back(MODEL, 3, Attempts(UNLIMITED)), true)
    at_once = distributions.distance(distributions.rolled_back(MODEL, 3, Attempts(UNLIMITED, at_once=True)), true)
    assert again == pytest.approx(0)
    assert at_once > once > 0.001


def test_distance() -> None:
    assert distributions.distance(np.array([0.5, 0.5, 0]), np.array([0, 0.5, 0.5])) == 0.5


# -- the bench ---------------------------------------------------------------------------------------------------------


def row(ours: float) -> Row:
    return Row(FAMILIES[1], clean=(0.7,), masked=(0.4,), banned=(0.2,), again=(0.1,), ours=(ours,))


def test_the_limit_is_for_rows_in_the_middle() -> None:
    [near], [far] = verdicts([row(0.1)]), verdicts([row(0.11)])
    assert (near.holds, far.holds) == (True, False)
    assert near.what.startswith("each step alike, 70% clean")
    assert verdicts([dataclasses.replace(row(0.1), family=FAMILIES[0])]) == []
    assert table([row(0.1)]).splitlines()[-1].endswith("  0.200  0.100  0.100        2.0    4.0   4.0")


def test_a_figure_that_is_not_the_recorded_one_is_a_fault() -> None:
    family = FAMILIES[-2]
    measured = measure(family)
    assert measured.fault == ""
    recorded = (*family.recorded[:4], family.recorded[4] + 0.001)
    other = dataclasses.replace(measured, family=dataclasses.replace(family, recorded=recorded))
    assert other.fault == "no other tokens, 74% clean: 0.0254 where 0.0264 is recorded"


def test_a_quick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "decode.md").read_text(encoding="utf-8")
    said = capsys.readouterr().out.strip()
    assert said.count("holds") == 4
    assert page.startswith(HEAD) and said in page


def test_a_missed_limit_and_a_wrong_figure_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(distribution_bench, "FAMILIES", (dataclasses.replace(FAMILIES[-1], judged=True),))
    assert main(["--quick", "--out", str(tmp_path)]) == 1
    assert "OVER" in capsys.readouterr().out
    monkeypatch.setattr(distribution_bench, "FAMILIES", (dataclasses.replace(FAMILIES[-1], recorded=(0, 0, 0, 0, 0)),))
    assert main(["--out", str(tmp_path)]) == 1
    assert "WRONG  no other tokens, 42% clean: 0.4166 where 0.0000 is recorded" in capsys.readouterr().err


def test_each_bench_has_its_own_section(tmp_path: Path) -> None:
    page = tmp_path / "results" / "page.md"
    put(page, "One", "first")
    put(page, "Two", "second\n### not a section")
    put(page, "One more", "third")
    put(page, "One", "changed\n")
    assert page.read_text(encoding="utf-8") == (
        f"{HEAD}\n## One\n\nchanged\n\n## Two\n\nsecond\n### not a section\n\n## One more\n\nthird\n"
    )
