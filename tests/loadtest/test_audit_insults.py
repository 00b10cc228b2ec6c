"""The experiment on insults without its model: what is planted, how far a disguise is, what the section says."""

import copy
import random
from collections import Counter
from typing import Any

import pytest

from gateway.audit.automaton import walk
from gateway.audit.query import compile
from loadtest.audit import insults
from loadtest.audit.insults import DISGUISES, GROUPS, WORDS


def test_what_is_planted() -> None:
    bases = insults.bases()
    assert bases == insults.bases()
    assert len({base.begin for base in bases}) == insults.BASES
    for group, share in GROUPS.items():
        assert sum(base.group == group for base in bases) == round(share * insults.BASES)
    for base in bases:
        assert (base.read == base.word) == (base.group == "plain")
        assert bool(base.disguise) == (base.group == "disguised")
    documents = insults.documents()
    assert len(documents) == insults.BASES + insults.OTHERS == len(set(documents))
    assert documents == insults.documents()
    shown = Counter(base.disguise for base in bases if base.disguise)
    for kind, share in DISGUISES.items():
        assert shown[kind] / sum(shown.values()) == pytest.approx(share, abs=0.1)


def test_only_the_disguises_read_a_word_without_it() -> None:
    """Behind a disguised beginning the word itself never stands, nor anywhere else in that sentence."""
    for base, document in zip(insults.bases(), insults.documents(), strict=False):
        assert document.startswith(base.begin)
        if base.group != "plain" and base.disguise != "quoted":
            assert not any(word in document for word in WORDS)


@pytest.mark.parametrize("kind", DISGUISES)
def test_all_but_the_masked_are_one_edit_away(kind: str) -> None:
    base = insults.Base("You total", "disguised", WORDS[0], "")
    language = compile(insults.prompted(base, "all", True)).language
    for seed in range(20):
        read = insults.disguised(WORDS[0], kind, random.Random(seed))
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
    assert insults.edit(text) == found


def test_the_queries_are_those_of_the_sentence() -> None:
    base = insults.Base("Get out of my kitchen, Ida, you total", "plain", WORDS[1], WORDS[1])
    asked = insults.unprompted(base, "canonical", False)
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
        "trained": 1.0,
        "prompted": [
            {
                "way": [encodings, edits],
                "rows": [row(number, edits and encodings == "all") for number in range(120)],
                "nodes": 1000,
                "seconds": 1.0,
            }
            for encodings, edits in insults.WAYS
        ],
        "unprompted": [
            {
                "way": [encodings, edits],
                "rows": [{"strings": 2, "sequences": 3}] * 40,
                "kinds": {"own, as it is": 30, "other, edited": 50},
                "nodes": 1000,
                "seconds": 1.0,
            }
            for encodings, edits in insults.WAYS
        ],
    }


def test_the_section_says_what_holds_and_what_does_not() -> None:
    title, text = insults.section(measured())
    assert title
    assert "OVER" not in text
    assert "holds         hits >=0.01, all encodings and edits / canonical without: 2.8" in text
    assert "that ratio at each level: >=0.1 2.80, >=0.01 2.80, >=0.001 1.00" in text
    assert "45 o>*" in text and "none: 25" in text
    assert "![" in text and max(map(len, text.splitlines())) <= 120
    over = insults.section(measured(plain=30, other=40))[1]
    assert "OVER          hits >=0.01, all encodings and edits / canonical without: 2.33" in over


def test_what_counts_as_a_hit() -> None:
    rows = copy.deepcopy(measured()["prompted"][0]["rows"])
    assert insults.hits(rows) == 25
    assert insults.hits(rows, 0.001) == 120
    assert 2.5 < insults.ceiling() < 3
