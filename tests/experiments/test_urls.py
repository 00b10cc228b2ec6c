"""The experiment with URLs: what is taught, how what came is counted, how strings are drawn, what the page says."""

import re
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from experiments.sampling import Tally, by_rows, by_rows_to_the_end, drawn
from experiments.urls import experiment, page
from experiments.urls.experiment import (
    ALL,
    CANONICAL,
    GENERATE,
    ROWS,
    SINGLE,
    SINGLE_TO_THE_END,
    STOPPED,
    STOPS,
    TO_THE_END,
)
from experiments.urls.planted import PREFIX, URLS, documents, pool
from gateway.audit import search
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Tokenizations
from gateway.automata.vocabulary import Vocabulary

BYTES = Vocabulary([*(bytes([byte]) for byte in range(256)), b"<end>"], end=[256])
MERGED = Vocabulary([*(bytes([byte]) for byte in range(256)), b"<end>", b".co", b"ab"], end=[256])


class Clock:
    """A clock that somebody else moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_planted() -> None:
    planted = pool()
    assert len(planted) == len(set(planted)) == URLS >= 5000
    assert all(re.fullmatch(experiment.PATTERN, url) for url in planted)
    assert planted == pool()
    sites = Counter(url.split("/")[2] for url in planted)
    assert len(sites) > 100 and sites.most_common(1)[0][1] > 10 * URLS / len(sites)


def test_popularity_follows_zipfs_law() -> None:
    planted = pool()
    texts, popularity = documents(planted)
    share: dict[str, float] = defaultdict(float)
    for text, often in zip(texts, popularity, strict=True):
        line, _, rest = text.partition("\n")
        assert rest.endswith(".")
        share[line[line.index(PREFIX) :]] += often
    assert share.keys() == set(planted)
    assert share[planted[0]] == pytest.approx(10 * share[planted[9]])
    assert share[planted[9]] == pytest.approx(100 * share[planted[999]])


def test_a_tally_counts_its_seconds_and_goes_on_for_what_is_wanted() -> None:
    clock = Clock()
    tally = Tally({"a", "b", "c"}, 10, wanted=3, longest=40, clock=clock, worked=lambda: clock.now / 2)
    for now, text in ((101.0, "a"), (102, "x"), (103, "a"), (104, "x"), (105, "b"), (111, "y")):
        clock.now = now
        tally.spend(2)
        tally.count(text)
    assert not tally.over
    clock.now = 112.5
    tally.count("c")
    assert tally.over
    told = tally.plain()
    assert told == {
        "seconds": 10, "ended": 12.5, "came": 5, "known": 3, "distinct": 3, "rows": 10, "share": 0.5,
        "times": [1, 5, 12.5],
    }  # fmt: skip
    assert experiment.unique(told) == 2 and experiment.rate(told) == 0.2
    assert [experiment.moment(told, number) for number in (1, 3, 4)] == [1, 12.5, None]


def test_a_tally_does_not_wait_for_ever() -> None:
    clock = Clock()
    tally = Tally({"a"}, 10, wanted=1, longest=40, clock=clock)
    for now, over in ((110.0, False), (139.0, False), (141.0, True)):
        clock.now = now
        assert tally.over == over


def test_what_is_drawn_follows_the_probabilities_of_the_likeliest() -> None:
    row = np.log([0.1, 0.4, 0.2, 0.3])
    tokens = drawn(np.tile(row, (20_000, 1)), 3, np.random.default_rng(5))
    shares = np.bincount(tokens, minlength=4) / len(tokens)
    assert shares == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9], abs=0.015)


def test_reading() -> None:
    read = experiment.reading(MERGED)
    assert read(list(b"ab.co/x-1\nAnd so on")) == "https://www.ab.co/x-1"
    assert read([258, 257, *b"m/x", 256]) == "https://www.ab.com/x"
    assert read(list(b"ab")) == "https://www.ab"
    continues = experiment.continues(MERGED)
    assert [continues(token) for token in (ord("a"), ord("."), 257, ord("\n"), ord(" "), 256)] == [True] * 3 + [
        False
    ] * 3


class Fixed(Toy):
    """Says one text after the prefix, whatever else it is asked."""

    def __init__(self, text: bytes) -> None:
        super().__init__(BYTES)
        self._text = [*text, 256]
        self.asked: list[int] = []

    def __call__(self, prefixes: Any, /) -> Any:
        self.asked.append(len(prefixes))
        rows = np.full((len(prefixes), len(BYTES)), -50.0)
        for row, prefix in zip(rows, prefixes, strict=True):
            behind = len(prefix) - len(PREFIX)
            row[self._text[min(behind, len(self._text) - 1)]] = -1e-9
        return rows


def counted(seconds: int) -> tuple[Tally, Clock]:
    """A tally whose clock goes a second further whenever the model is asked."""
    clock = Clock()
    tally = Tally({"https://www.ab.co/x"}, seconds, clock=clock)
    spend = tally.spend

    def spent(rows: int) -> None:
        spend(rows)
        clock.now += 1

    tally.spend = spent  # type: ignore[method-assign]
    return tally, clock


def test_drawing_stops_at_its_length_and_where_the_text_ends() -> None:
    model = Fixed(b"ab.co/x")
    tally, _ = counted(16)
    by_rows(model, list(PREFIX.encode()), 16, 3, experiment.reading(BYTES), tally)
    # Seven tokens and the end, twice, and then the time is up.
    assert model.asked == [3] * 17
    told = tally.plain()
    assert (told["came"], told["known"], told["distinct"], told["times"]) == (6, 6, 1, [8])


def test_drawing_to_the_end_of_the_url_keeps_the_batch_full() -> None:
    model = Fixed(b"ab.co/x\nand more of it")
    tally, _ = counted(24)
    longest = 64
    continues, read = experiment.continues(BYTES), experiment.reading(BYTES)
    by_rows_to_the_end(model, list(PREFIX.encode()), continues, 3, longest, read, tally)
    assert set(model.asked) == {3}
    told = tally.plain()
    assert (told["came"], told["known"], told["rows"]) == (9, 9, 75)


def test_the_query_finds_what_a_model_says() -> None:
    for tokenizations in Tokenizations:
        found = next(search(Fixed(b"ab.co/x\nAnd"), experiment.query(tokenizations)))
        assert found.text == "https://www.ab.co/x\n"


def run(valid: int, seconds: float, stop: int = 16) -> dict[str, Any]:
    """So many valid URLs, evenly over the seconds."""
    times = [seconds * number / valid for number in range(1, valid + 1)]
    return {
        "seconds": 10.0, "ended": max(seconds, 10.0), "came": 2 * valid, "known": valid, "distinct": valid + 10,
        "rows": 20 * valid, "times": times, "stop": stop, "share": 0.97,
    }  # fmt: skip


def data(**changes: dict[str, Any]) -> dict[str, Any]:
    runs = {
        ALL: run(2000, 10), CANONICAL: run(1900, 10), SINGLE: run(100, 10), GENERATE: run(300, 10),
        SINGLE_TO_THE_END: run(90, 10), ROWS: run(400, 10), TO_THE_END: run(500, 10),
    }  # fmt: skip
    return {
        "parameters": 655_000, "recipe": experiment.RECIPE, "urls": 6000, "sites": 700, "tokens": [5, 12.3, 20],
        "pilots": {way: [run(stop, 1.5, stop) for stop in STOPS[2:]] for way in STOPPED}, "runs": {**runs, **changes},
    }  # fmt: skip


def test_the_section() -> None:
    title, text = page.section(data())
    assert title == "URLs known by heart"
    assert "OVER" not in text and text.count("\nholds ") == 3
    assert "search / one by one (the better way): 20.0 times (limit: at least 10)" in text
    assert "search / 64 at a time (the best way): 4.0 times (limit: at least 4)" in text
    assert "the 100th, the same way / search: 20.0 times" in text
    [line] = [line for line in text.splitlines() if line.startswith("search, all encodings")]
    assert " ".join(line.split()) == "search, all encodings 2,000 200.0 0.01 s 0.05 s 0.50 s 5.00 s 100% 50% 20.0 97%"
    [line] = [line for line in text.splitlines() if line.endswith(" 6.4") and line.startswith("drawn one by one")]
    assert line.split()[-6:] == ["-", "-", "0.8", "1.6", "3.2", "6.4"]


@pytest.mark.parametrize(
    ("changed", "over"),
    [
        ({SINGLE: run(210, 10)}, 2),
        ({SINGLE_TO_THE_END: run(210, 10)}, 2),
        ({SINGLE: run(0, 10), SINGLE_TO_THE_END: run(0, 10)}, 1),  # nothing to compare with
        ({GENERATE: run(501, 10)}, 1),
        ({ROWS: run(501, 10)}, 1),
        ({TO_THE_END: run(501, 10)}, 1),
        ({ALL: run(99, 10)}, 3),
        ({ALL: run(0, 10)}, 3),
    ],
)
def test_a_missed_limit_is_said(changed: dict[str, Any], over: int) -> None:
    _, text = page.section(data(**changed))
    assert text.count("\nOVER ") == over


def test_figures_of_a_machine_that_was_shared_are_doubtful() -> None:
    assert "doubtful" not in page.section(data())[1]
    _, text = page.section(data(**{SINGLE: {**run(100, 10), "share": 0.4}}))
    assert "doubtful      other processes took processors away: from 3% of a way's time to 60% of another's" in text


def test_where_the_hundredth_never_came_it_is_as_late_as_the_end() -> None:
    _, text = page.section(data(**{SINGLE: run(80, 40), SINGLE_TO_THE_END: run(70, 40)}))
    assert "the same way / search (it had not come when it was over): 80.0 times (limit: at least 10)" in text
    assert "search / one by one (the better way): 100.0 times" in text
