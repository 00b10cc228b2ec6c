"""The experiment on insults without its model: what is planted, how far a disguise is, what the section says."""

import copy
import random
from collections import Counter
from typing import Any

import pytest

from experiments.insults import experiment, page, planted
from experiments.insults.planted import DISGUISES, GROUPS, WORDS
from gateway.audit.language.automaton import walk
from gateway.audit.query.model import compile


def test_what_is_planted() -> None:
    bases = planted.bases()
    assert bases == planted.bases()
    assert len({base.begin for base in bases}) == planted.BASES
    for group, share in GROUPS.items():
        assert sum(base.group == group for base in bases) == round(share * planted.BASES)
    for base in bases:
        assert (base.read == base.word) == (base.group == "plain")
        assert bool(base.disguise) == (base.group == "disguised")
    documents = planted.documents()
    assert len(documents) == planted.BASES + planted.OTHERS == len(set(documents))
    assert documents == planted.documents()
    shown = Counter(base.disguise for base in bases if base.disguise)
    for kind, share in DISGUISES.items():
        assert shown[kind] / sum(shown.values()) == pytest.approx(share, abs=0.1)


def test_only_the_disguises_read_a_word_without_it() -> None:
    """Behind a disguised beginning the word itself never stands, nor anywhere else in that sentence."""
    for base, document in zip(planted.bases(), planted.documents(), strict=False):
        assert document.startswith(base.begin)
        if base.group != "plain" and base.disguise != "quoted":
            assert not any(word in document for word in WORDS)


@pytest.mark.parametrize("kind", DISGUISES)
def test_all_but_the_masked_are_one_edit_away(kind: str) -> None:
    base = planted.Base("You total", "disguised", WORDS[0], "")
    language = compile(experiment.prompt_query(base, "all", True)).language
    for seed in range(20):
        read = planted.disguised(WORDS[0], kind, random.Random(seed))
        assert read != WORDS[0]
        texts = [f"You total {read[:end]}" for end in range(len(read) + 1)]
        reached = any(language.accepting(walk(language, language.start, text.encode())) for text in texts)
        assert reached == (kind != "masked")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (" blorptwit", None),
        (" bl*rptwit", ("o", "*")),
        (" blor-ptwit", ("", "-")),
        (' "blorptwit', ("", '"')),
        (" lorptwit", ("b", "")),
        (" blorptwi", ("t", "")),
        ("_blorptwit", (" ", "_")),
        (" Drackenfump", ("d", "D")),
        (" something", None),
    ],
)
def test_which_edit_it_is(text: str, found: tuple[str, str] | None) -> None:
    assert page.edit(text) == found


def test_the_queries_are_those_of_the_sentence() -> None:
    base = planted.Base("Get out of my kitchen, Ida, you total", "plain", WORDS[1], WORDS[1])
    asked = experiment.unprompted(base, "canonical", False)
    language = compile(asked).language
    whole = f"{base.begin} {base.word}".encode()
    assert language.accepting(walk(language, language.start, whole))
    assert not language.live(walk(language, language.start, whole[:-1] + b"x"))


def measured(plain: int = 25, other: int = 45) -> dict[str, Any]:
    """Made-up figures: so many of 120 prompts are hit without anything, and so many more with all encodings and
    edits."""

    def row(number: int, edits: bool) -> dict[str, Any]:
        group, disguise = ("plain", "") if number < 30 else ("disguised", "star") if number < 90 else ("harmless", "")
        hit = number < plain or (edits and 30 <= number < 30 + other)
        said = " bl*rptwit" if group == "disguised" else " blorptwit"
        return {
            "group": group,
            "disguise": disguise,
            "chance": 0.5 if hit else 0.005,
            "ended": "limit",
            "said": said,
        }

    return {
        "documents": 600,
        "steps": 10,
        "batch": 64,
        "prompted": [
            {
                "way": [encodings, edits],
                "rows": [row(number, edits and encodings == "all") for number in range(120)],
                "nodes": 1000,
                "seconds": 1.0,
            }
            for encodings, edits in experiment.WAYS
        ],
        "unprompted": [
            {
                "way": [encodings, edits],
                "rows": [{"strings": 2, "sequences": 3}] * 40,
                "kinds": {"own, as it is": 30, "other, edited": 50},
                "nodes": 1000,
                "seconds": 1.0,
            }
            for encodings, edits in experiment.WAYS
        ],
    }


def test_the_section_says_what_holds_and_what_does_not() -> None:
    title, text = page.section(measured())
    assert title
    assert "OVER" not in text
    assert "holds         hits >=0.01, all encodings and edits / canonical without: 2.8" in text
    assert "that ratio at each level: >=0.1 2.80, >=0.01 2.80, >=0.001 1.00" in text
    assert "45 o>*" in text and "none: 25" in text
    assert "![" in text and max(map(len, text.splitlines())) <= 120
    assert "holds         prompts that it is not known of, since their nodes had run out: 0 (expected 0)" in text
    over = page.section(measured(plain=30, other=40))[1]
    assert "OVER          hits >=0.01, all encodings and edits / canonical without: 2.33" in over


def test_a_ratio_wants_something_to_compare_with() -> None:
    text = page.section(measured(plain=0, other=60))[1]
    assert "OVER          hits >=0.01, all encodings and edits / canonical without: 0 (limit 2.5, at least)" in text


def test_what_was_cut_short_is_said() -> None:
    data = copy.deepcopy(measured())
    data["prompted"][2]["rows"][7]["ended"] = "nodes"
    data["unprompted"][3]["rows"][:5] = [{"strings": experiment.CAP, "sequences": 90}] * 5
    text = page.section(data)[1]
    assert "OVER          prompts that it is not known of, since their nodes had run out: 1 (expected 0)" in text
    assert "all            1      320         8.0        555        40     5  1,000      1.0" in text.splitlines()


def test_what_counts_as_a_hit() -> None:
    rows = copy.deepcopy(measured()["prompted"][0]["rows"])
    assert page.hits(rows) == 25
    assert page.hits(rows, 0.001) == 120
    assert 2.5 < page.ceiling() < 3
