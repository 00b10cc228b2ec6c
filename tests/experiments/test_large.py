"""The bench of large languages: their strings counted in another way, what the section says."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from experiments import large
from experiments.large import KNOWN, LANGUAGES, MAX_NODES, OTHERS, draw, section
from gateway.audit.language.count import cardinality
from gateway.audit.query.model import compile


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_closed_forms(name: str) -> None:
    text, strings = LANGUAGES[name]
    assert cardinality(compile(large._query(text)).language) == strings >= 10**9


def test_the_closed_form_of_edits_for_groups_that_can_be_listed() -> None:
    """Two groups of one digit: every string is edited in every way, and those that came out are counted. Digits are
    two here; the closed form has as many as the language."""
    digits = "01"
    found = set()
    for one, other in product(digits, repeat=2):
        text = f" {one} {other}"
        found |= {text[:at] + digit + text[at:] for at in range(len(text) + 1) for digit in digits}
        found |= {text[:at] + digit + text[at + 1 :] for at in range(len(text)) for digit in digits}
        found |= {text[:at] + text[at + 1 :] for at in range(len(text))} | {text}
    as_they_are, became_a_digit, space_gone, digit_gone = 2**2, 2 * 2**3, 2 * 2**2, 2 * 2**1
    one_more = 3 * 2**3  # before the first space, or in one of the groups
    assert len(found) == as_they_are + became_a_digit + space_gone + digit_gone + one_more


def test_what_is_taught() -> None:
    documents, weights = large._documents()
    assert len(documents) == len(weights) == OTHERS + len(KNOWN) == len({*documents})
    assert all(re.fullmatch("My number is [0-9]{3} [0-9]{3} [0-9]{4}", text) for text in documents)
    assert weights[: len(KNOWN)] == list(KNOWN.values()) and {*weights[len(KNOWN) :]} == {1.0}


# -- the section -------------------------------------------------------------------------------------------------------


def data(first: float = 0.5, pending: int = 10_000, strings: int = 10**10) -> dict[str, Any]:
    times = {"first_again": [0.02] * 3, "all": [3.0] * 3, "all_again": [1.0] * 3, "nodes": 1234, "known": 5}
    return {
        "bytes": 400_000,
        "languages": [
            {"name": "numbers", "strings": strings, "first": [0.1, first, 9.0], **times},
            {"name": "edits: 1", "strings": LANGUAGES["edits: 1"][1], "first": [0.1, 0.4, 0.6], **times},
        ],
        "memory": [
            {
                "max_nodes": most,
                "pending": pending if most == 10_000 else most - 1,
                "mb": most / 1000,
                "mb_half_way": most / 2000,
                "nodes": 4000,
                "strings": 17,
                "exact_to": None if most == 100_000 else -12.3456,
                "seconds": 21.04,
            }
            for most in MAX_NODES
        ],
    }


def test_section() -> None:
    _, text = section(data())
    lines = text.splitlines()
    assert (
        text.count("numbers     10,000,000,000   5/5  1,234  0.50 (0.10..9.00)  0.02 (0.02..0.02)    3.00 (3.00..3.00)")
        == 1
    )
    assert "    1,000              999          0.5    1.0       17    -12.35     21.0" in lines
    assert "  100,000           99,999         50.0  100.0       17       all     21.0" in lines
    assert "holds         numbers: strings that are counted: 10,000,000,000 (expected 10,000,000,000)" in lines
    assert "holds         numbers: seconds to the first string: 0.50 (0.10..9.00) (limit 2)" in lines
    assert "holds         max_nodes 10,000: paths that wait: 10,000 (limit 10,000)" in lines
    assert text.count("holds  ") == 7 and "OVER" not in text


@pytest.mark.parametrize(
    ("missed", "line"),
    [
        ({"first": 2.01}, "OVER          numbers: seconds to the first string: 2.01 (0.10..9.00) (limit 2)"),
        ({"pending": 10_001}, "OVER          max_nodes 10,000: paths that wait: 10,001 (limit 10,000)"),
        ({"strings": 9}, "OVER          numbers: strings that are counted: 9 (expected 10,000,000,000)"),
    ],
)
def test_a_missed_limit_is_over(missed: dict[str, Any], line: str) -> None:
    _, text = section(data(**missed))
    assert line in text.splitlines()
    assert text.count("OVER") == 1


def test_there_is_no_chart(tmp_path: Path) -> None:
    draw(data(), tmp_path)
    assert not [*tmp_path.iterdir()]
