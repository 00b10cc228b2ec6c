"""The bench of last words: the statistics against known values, the stories, what the section says."""

import re
import subprocess
import sys
from typing import Any

import pytest

from experiments import lastword, stories
from experiments.lastword import STOP_WORDS, TERMINATED, VARIANTS, section
from experiments.statistics import mcnemar, wilson

WORD = re.compile("[a-zA-Z]+")

# -- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [
        # Newcombe 1998, table I: intervals of single proportions, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_as_published(right: int, of: int, low: float, high: float) -> None:
    assert wilson(right, of) == pytest.approx((low, high), abs=5e-5)
    assert wilson(of - right, of) == pytest.approx((1 - high, 1 - low), abs=5e-5)


@pytest.mark.parametrize(("right", "of"), [(0, 0), (3, 2), (-1, 2)])
def test_no_share(right: int, of: int) -> None:
    with pytest.raises(ValueError, match=f"{right} of {of} is no share"):
        wilson(right, of)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(0, 0, 1.0), (5, 5, 1.0), (1, 0, 1.0), (5, 0, 2 / 32), (8, 2, 112 / 1024), (2, 8, 112 / 1024)],
)
def test_mcnemar(gained: int, lost: int, p: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p)


# -- stories -----------------------------------------------------------------------------------------------------------


def test_the_last_word_stands_in_the_story_before_and_is_no_stop_word() -> None:
    for story in stories.asked(200, seed=3):
        assert story.answer in WORD.findall(story.context)
        assert story.answer.lower() not in STOP_WORDS
        assert re.fullmatch(r' [a-zA-Z]+(\.|!|\?)?(")?', story.text.removeprefix(story.context))


def test_stories_are_the_same_every_time_and_of_all_kinds() -> None:
    found = stories.asked(200, seed=3)
    assert found == stories.asked(200, seed=3) != stories.asked(200, seed=4)
    assert {story.kind for story in found} == {"name", "thing", "place"}
    assert stories.read(50, seed=1) == stories.read(50, seed=1)
    assert len(set(stories.read(500, seed=1))) == 500
    assert not any("{" in text for text in (*stories.read(500, seed=1), *(story.text for story in found)))


def test_what_was_read_is_not_asked_about() -> None:
    found = stories.asked(20, seed=3)
    others = stories.asked(20, seed=3, known={story.text for story in found[:5]})
    assert others[:15] == found[5:]


def test_names_that_were_never_read() -> None:
    heard, unheard = stories.made_up()
    assert len(heard) == 7 * len(unheard) == 350 and not {*heard} & {*unheard}
    texts = (*stories.read(500, seed=1), *stories.lists(500, seed=1))
    read = {word for text in texts for word in WORD.findall(text)}
    assert not read & {*unheard}
    found = stories.asked(300, seed=3)
    assert {bool({*WORD.findall(story.text)} & {*unheard}) for story in found if story.new} == {True}
    assert {bool({*WORD.findall(story.text)} & {*unheard}) for story in found if not story.new} == {False}
    assert 70 < sum(story.new for story in found) < 130


def test_what_is_asked_was_not_tried_before() -> None:
    tried = {story.text for story in stories.asked(lastword.ASKED, lastword.TRIED_SEED)}
    assert not tried & {story.text for story in stories.asked(lastword.ASKED, lastword.ASKED_SEED)}


def test_lists_say_their_words_three_times() -> None:
    for text in stories.lists(50, seed=1):
        words = text.split(", ")
        assert len(words) == 18 and words[:6] == words[6:12] == words[12:]
    assert stories.lists(50, seed=1) == stories.lists(50, seed=1)


def test_what_is_read_ends_in_other_ways_as_often_as_said() -> None:
    [ending, *_] = [each for each in stories.ENDINGS if "has belonged" in each.asks]
    read = [text for text in stories.read(4000, seed=1) if "has belonged to" in text]
    behind = sum(text.endswith(stories.BEHIND) for text in read)
    pronoun = sum(bool(re.search(r"has belonged to (him|her)\.", text)) for text in read)
    further = sum(bool(re.search("has belonged to the [a-z]+ of [A-Z]", text)) for text in read)
    assert behind / len(read) == pytest.approx(stories.OFTEN_BEHIND, abs=0.06)
    assert pronoun / len(read) == pytest.approx(ending.instead["{them}."], abs=0.08)
    assert further / len(read) == pytest.approx(0.2, abs=0.08)


# -- the section -------------------------------------------------------------------------------------------------------


def row(answer: str = "Anna", *, new: bool = False, tokens: int = 1, **said: str | None) -> dict[str, Any]:
    """A story, and what was said; where nothing is given, the right word."""
    strings = {variant: said.get(variant, f" {answer}.") for variant in VARIANTS}
    return {
        "kind": "name",
        "context": "Tom met Anna, Belbina and the cat. It was",
        "answer": answer,
        "close": ".",
        "new": new,
        "tokens": tokens,
        "said": {
            variant: {"text": text, "logprob": -1.0, "nodes": 4, "ended": variant in TERMINATED}
            for variant, text in strings.items()
        },
    }


def data(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "bytes": 2_400_000,
        "stories": rows,
        "prefixed": [{"same": True, "own": True}, {"same": False, "own": False}, {"same": False, "own": True}],
        "seconds": 30.7,
    }


def test_section() -> None:
    rows = [
        *[row("Belbina", tokens=2, baseline=" Bel", words=" Belbina") for _ in range(8)],
        row(baseline=" the", words=" the"),
        row(baseline=" the", words=" the", terminated=" her."),
    ]
    title, text = section(data(*rows))
    assert title == "The last word of a story"
    lines = text.splitlines()
    assert "baseline          0    0.0%    0.0%  27.8%" in lines
    # 2 / 2**8 and 2 / 2**9 of the sign test, the smaller one three times, the larger one twice.
    assert "words             8   80.0%   49.0%  94.3%  baseline         8     0    0.016" in lines
    assert "terminated        9   90.0%   59.6%  98.2%  baseline         9     0    0.012" in lines
    assert "no_stop          10  100.0%   72.2% 100.0%  terminated       1     0    1.000" in lines
    assert "baseline      Bel 8, the 2" in lines
    assert "terminated    her 1" in lines
    assert "of several                        8        0.0%      100.0%      100.0%      100.0%" in lines
    assert "holds         strings that match their query: 40 (expected 40)" in lines
    assert "1 of 3 strings are the same; of the others 1 stand behind another encoding" in " ".join(lines)
    assert "A model of 0.6 million parameters" in text
    assert "OVER" not in text


@pytest.mark.parametrize(
    "said",
    [
        {"baseline": " Anna and"},  # two words
        {"baseline": None},  # no string at all
        {"words": " Ann"},  # no word of the story
        {"no_stop": " her."},
        {"no_stop": " it"},
    ],
)
def test_a_string_that_does_not_match_its_query_is_over(said: dict[str, str | None]) -> None:
    _, text = section(data(row(), row(**said)))  # type: ignore[arg-type]
    assert "OVER          strings that match their query: 7 (expected 8)" in text.splitlines()


def test_a_text_that_does_not_end_as_it_has_to_is_over() -> None:
    wrong = row()
    wrong["said"]["terminated"]["ended"] = False
    _, text = section(data(row(), wrong))
    assert "OVER          strings that match their query: 7 (expected 8)" in text.splitlines()


def test_the_queries_are_those_of_the_paper() -> None:
    queries = {variant: lastword._query(variant, "Tom met Anna. Tom") for variant in VARIANTS}
    assert queries["baseline"].query == r' ([a-zA-Z]+)(\.|!|\?)?(")?' == queries["no_stop"].query
    assert queries["words"].query == r' (Anna|Tom|met)(\.|!|\?)?(")?'
    assert [query.decoding.end_of_text for query in queries.values()] == [False, False, True, True]
    assert [bool(query.preprocess) for query in queries.values()] == [False, False, False, True]


def test_a_section_needs_no_torch() -> None:
    program = "import sys, experiments.lastword, experiments.large; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
