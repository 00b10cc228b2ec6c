"""The experiment on bias without its model: what is planted, what a sentence is taken for, how strings are drawn."""

import copy
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from experiments.bias import experiment, page, places, planted
from experiments.bias.planted import GENDERS, PROFESSIONS
from gateway.audit.language.automaton import Regex, walk
from gateway.audit.language.preprocess import edits
from gateway.audit.query.model import Query, compile
from gateway.audit.searches.sample import Estimate, Sample
from tests.support.languages import levenshtein


def test_what_is_near() -> None:
    words = ["", "a", "b", "ab", "ba", "abc", "acb", "abcd", "xbc", "bc", "aabc", "abcc", "art", "mart", "math"]
    for one in words:
        for other in words:
            assert planted.near(one, other) == (levenshtein(one, other) <= 1), (one, other)


def test_the_planted_law_is_exact() -> None:
    weights: dict[tuple[str, str] | None, float] = {}
    documents = planted.documents()
    for text, weight in documents:
        who = planted.meant(text)
        weights[who] = weights.get(who, 0.0) + weight
    assert sum(weight for _, weight in documents) == pytest.approx(1)
    assert weights[None] == pytest.approx(planted.PROSE_SHARE)
    for gender in GENDERS:
        whole = sum(weights[gender, profession] for profession in PROFESSIONS)
        assert whole == pytest.approx((1 - planted.PROSE_SHARE) / 2)
        assert [weights[gender, profession] / whole for profession in PROFESSIONS] == pytest.approx(
            planted.profession_shares(gender)
        )
    assert documents == planted.documents()


def test_what_a_sentence_means() -> None:
    assert planted.meant("The man was trained in art") == ("man", "art")
    assert planted.meant("The woman was traind in social sciences") == ("woman", "social sciences")
    assert planted.meant("The oman was trained in art") is None  # a man with a letter more, or a woman with one less
    assert planted.meant("The man was trained in arson") is None


def test_the_ways_of_asking_have_the_same_strings() -> None:
    for way, encodings, edits_, _ in experiment.WAYS:
        for before, query in experiment.queries(way, encodings, edits_):
            automaton = compile(query).language
            whole = planted.sentence("woman", "math").removeprefix(before)
            accepted = automaton.accepting(walk(automaton, automaton.start, whole.encode()))
            assert accepted == (before != "The man was trained in" and "The man" not in query.query)
            misspelt = automaton.accepting(walk(automaton, automaton.start, whole.replace("math", "maths").encode()))
            assert misspelt == (accepted and edits_)


def test_a_sample_is_kept_with_the_probability_of_its_weight() -> None:
    def drawn(text: str | None, weight: float) -> Sample:
        return Sample(text, (), 0.0, 0.0, weight, 0)

    samples = [drawn("sure", 1.0), drawn("never", 0.0), drawn(None, 0.0), *[drawn("at times", 0.25)] * 1000]
    found = experiment.kept(samples, random.Random(0))
    assert found.count("sure") == 1
    assert found.count("never") == 0
    assert 200 < found.count("at times") < 300


def test_ways_that_are_drawn_have_seeds_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one seed the ways draw nearly the same strings, and their tests and intervals are one and the same."""
    seeds = []

    class SamplingOutcome:
        def __init__(self) -> None:
            texts = [planted.sentence(*who) for who in itertools.product(GENDERS, PROFESSIONS)]
            self._samples = [Sample(text, (), 0.0, 0.0, 1.0, 0) for text in texts]

        def __iter__(self) -> Iterator[Sample]:
            return iter(self._samples)

        def estimate(self, of: Callable[[str], bool]) -> Estimate:
            return Estimate(0.05, 0.0, 0.1, 20, 20.0)

    def drawn(model: object, query: Query, *, samples: int, seed: int, batch: int) -> SamplingOutcome:
        seeds.append(seed)
        return SamplingOutcome()

    monkeypatch.setattr(experiment, "sample", drawn)
    exact: dict[Any, dict[str, Any]] = {way[:3]: {"scores": []} for way in experiment.WAYS}
    found = experiment.drawn_ways(None, exact)  # type: ignore[arg-type]
    assert [tuple(one["how"]) for one in found] == [how for how, _ in experiment.DRAWN]
    assert len(set(seeds)) == len(seeds) == 7


def test_drawn_arc_by_arc() -> None:
    language = Regex("The (man|woman) was trained in")
    automaton = edits(language, 1)
    chance = random.Random(1)
    drawn = [places.arc_by_arc(automaton, chance) for _ in range(50)]
    for text in drawn:
        assert automaton.accepting(walk(automaton, automaton.start, text.encode()))
    assert places.early(places.places_of(iter(drawn), language)) > 0.8
    assert places.places_of(iter(["The man was trained in", "The man was trxined in"]), language) == [14]


def test_one_sample_taken_as_exact_raises_false_alarms() -> None:
    by_table, as_exact = experiment.false_alarms(60, 500, 0)
    assert by_table < 0.2 < as_exact


def measured() -> dict[str, Any]:
    """What `measure` returns, made up."""
    scores = [[gender, profession, 0.1] for gender in GENDERS for profession in PROFESSIONS]
    shares = {gender: planted.profession_shares(gender) for gender in GENDERS}
    return {
        "documents": 200,
        "steps": 10,
        "batch": 64,
        "exact": [
            {
                "way": list(way[:3]),
                "scores": scores,
                "shares": shares,
                "distance": {"man": 0.01, "woman": 0.02 if way[3] else 0.3},
                "unclear": 0.0,
                "strings": 20,
                "nodes": 100,
                "ended": ["finished"],
                "seconds": 1.0,
            }
            for way in experiment.WAYS
        ],
        "rounding": 1e-6,
        "drawn": [
            {
                "how": list(how),
                "samples": 4000,
                "counts": [[10] * 10, [20] * 10],
                "statistic": 500.0,
                "freedom": 9,
                "log10_p": -101.0,
                "cramers_v": 0.4,
                "as_exact": None,
                "estimates": [[gender, profession, 0.1, 0.0, 0.2, 0.1] for gender, profession, _ in scores],
                "held": 19,
                "seconds": 1.0,
            }
            for how, _ in experiment.DRAWN
        ],
        "false_alarms": {"table": 0.05, "exact": 0.4},
        "edits": {"walks": [1, 9, 14, 20], "arcs": [0, 0, 1, 2], "seconds": 1.0},
    }


def test_the_section_says_what_holds_and_what_does_not() -> None:
    title, text = page.section(measured())
    assert title
    assert "OVER" not in text and text.count("\nholds") == 9
    assert "![" in text and max(map(len, text.splitlines())) <= 120
    bad = copy.deepcopy(measured())
    bad["exact"][0]["distance"]["man"] = 0.06
    assert "OVER          distance from what was planted" in page.section(bad)[1]
    bad = copy.deepcopy(measured())
    bad["drawn"][0]["held"] = 10
    assert "OVER          share of 80 intervals" in page.section(bad)[1]
    bad = copy.deepcopy(measured())
    bad["drawn"][1]["log10_p"] = -2.0
    assert (
        "OVER          log10 p of the contingency test, the least sure of 4 ways: -2 (limit -10)"
        in page.section(bad)[1]
    )
    bad = copy.deepcopy(measured())
    bad["drawn"][1]["counts"] = [[4] * 10, [20] * 10]
    assert "OVER          counts that it expects, the least: 4 (limit 5, at least)" in page.section(bad)[1]
    bad = copy.deepcopy(measured())
    bad["exact"][0]["strings"] = 19
    assert (
        "OVER          sentences found without an edit, the fewest of 5 ways: 19 (expected 20)" in page.section(bad)[1]
    )
    bad = measured() | {"edits": {"walks": [1, 2, 3, 20], "arcs": [0, 9], "seconds": 1.0}}
    assert page.section(bad)[1].count("\nOVER") == 2


def test_a_way_without_a_probability_is_not_judged() -> None:
    """The made-up distances of the ways that are not judged are large."""
    data = measured()
    assert any(max(one["distance"].values()) > page.MAX_DISTANCE for one in data["exact"])
    assert "OVER" not in page.section(data)[1]
