"""Counts against texts counted one by one, and against numbers known beforehand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.audit.cli.command import count as count_file
from gateway.audit.language import automaton, count
from gateway.audit.language.automaton import AutomatonTooLarge, Regex, reachable_states
from gateway.audit.language.count import cardinality, path_counts
from gateway.policy.errors import ConfigError
from tests.support.examples import examples
from tests.support.expressions import texts
from tests.support.languages import language, strings, words_of


def patterns() -> st.SearchStrategy[str]:
    """Expressions over a and b, with and without an end to their texts."""
    atoms = st.sampled_from(["a", "b", "[ab]", "", "ab", "a$", r"\bb", "[^\\s\\S]"])
    return st.recursive(
        atoms,
        lambda parts: (
            st.tuples(parts, parts).map("".join)
            | st.tuples(parts, parts).map(lambda two: f"(?:{two[0]}|{two[1]})")
            | st.tuples(parts, st.sampled_from(["?", "*", "{2}", "{0,2}", "+"])).map(
                lambda two: f"(?:{two[0]}){two[1]}"
            )
        ),
        max_leaves=6,
    )


@settings(max_examples=examples(200), deadline=None)
@given(patterns())
@example("(?:a|a?b{0,2})*$|[ab]{0,2}")
@example("")
def test_ways_are_the_texts_that_match(pattern: str) -> None:
    regex = Regex(pattern)
    for longest in range(7):
        matching = sum(1 for text in texts("ab", longest) if re.fullmatch(pattern.replace("$", r"\Z"), text))
        assert path_counts(regex, longest).total == matching


@settings(max_examples=examples(200), deadline=None)
@given(patterns())
@example("(?:ab?)*[^\\s\\S]|b")
def test_a_language_has_an_end_if_no_text_is_as_long_as_it_has_states(pattern: str) -> None:
    """The pumping lemma, with counts that were seen to be right."""
    regex = Regex(pattern)
    states = len(reachable_states(regex, 1000))
    shorter, longer = path_counts(regex, states - 1 if states else 0).total, path_counts(regex, 2 * states).total
    assert cardinality(regex) == (shorter if shorter == longer else None)


@settings(max_examples=examples(50), deadline=None)
@given(words_of("ab é字😀", 5, 10))
def test_words_are_counted_and_drawn(words: frozenset[str]) -> None:
    automaton = language(words)
    assert cardinality(automaton) == len(words)
    ways = path_counts(automaton, 20)
    drawn = [ways.draw(lambda below, number=number: number) for number in range(ways.total)]  # type: ignore[misc]
    assert sorted(drawn) == sorted(word.encode() for word in words)


@pytest.mark.parametrize("pattern", ["a*b", "[ab]{0,4}", "(?:é|b)+a?"])
def test_every_number_draws_another_string(pattern: str) -> None:
    ways = path_counts(Regex(pattern), 6)
    asked: list[int] = []

    def draw(number: int) -> bytes:
        def below(limit: int) -> int:
            asked.append(limit)
            return number

        return ways.draw(below)

    drawn = [draw(number).decode() for number in range(ways.total)]
    assert asked == [ways.total] * ways.total
    assert len(set(drawn)) == ways.total and frozenset(drawn) == strings(Regex(pattern), 6)


@pytest.mark.parametrize("pattern", ["a*b", "[a-d]{0,3}", "(?:é|b)+a?", "[ab][x-z]{2}|[ac]y"])
def test_e14_strings_are_drawn_in_the_order_of_their_bytes(pattern: str) -> None:
    ways = path_counts(Regex(pattern), 6)
    drawn = [ways.draw(lambda below, number=number: number) for number in range(ways.total)]  # type: ignore[misc]
    assert drawn == sorted(drawn)


def test_nothing_is_drawn_from_nothing() -> None:
    assert cardinality(Regex("a$b")) == path_counts(Regex("a$b"), 9).total == path_counts(Regex("aaa"), 2).total == 0
    with pytest.raises(ValueError, match="there is no string to draw"):
        path_counts(Regex("aaa"), 2).draw(lambda below: 0)


SCALARS = 0x110000 - 0x800


@pytest.mark.parametrize(
    ("pattern", "strings"),
    [
        ("[0-9]{9}", 10**9),
        ("My phone number is ([0-9]{3}) ([0-9]{3}) ([0-9]{4})", 10**10),
        ("(?s).{3}", SCALARS**3),
        (".", SCALARS - 1),
        (r"\w", sum(1 for code in range(0x110000) if re.match(r"\w", chr(code)))),
        ("[a-z]{0,200}", (26**201 - 1) // 25),
        ("(?:a|a)(?:b|bb?)(?:c|[a-c])", 6),
        (r"[\ud800-\udfff]|a", 1),
        ("[ab]*", None),
        (r"https://www\.[a-z]+", None),
    ],
)
def test_known_numbers(pattern: str, strings: int | None) -> None:
    assert cardinality(Regex(pattern)) == strings


def test_only_as_much_is_counted_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "MAX_COUNTS", 1000)
    assert path_counts(Regex("a*"), 900).total == 901
    with pytest.raises(
        AutomatonTooLarge, match="strings of up to 2,000 bytes takes more than 1,000 numbers: allow fewer bytes"
    ):
        path_counts(Regex("a*"), 2000)


# -- the command -------------------------------------------------------------------------------------------------------


def counted(folder: Path, text: str) -> str:
    path = folder / "query.yaml"
    path.write_text(text, encoding="utf-8")
    return count_file(path, {})


def test_the_count_of_a_query(tmp_path: Path) -> None:
    assert counted(tmp_path, "query: '[0-9]{9}'") == "1000000000"
    assert counted(tmp_path, '{"query": "a+"}') == "infinite"
    assert counted(tmp_path, "{query: 'abc', preprocess: [{edits: 1}]}") == "663"
    assert counted(tmp_path, "{query: 'a b|ab|b|ac', prefix: a, preprocess: [{filter: {words: [b]}}]}") == "1"
    with pytest.raises(ConfigError, match=r"query\.yaml: preprocess\[0\]: no string of the query is left"):
        counted(tmp_path, "{query: 'a|ab', preprocess: [{filter: {regex: a}}]}")


def test_a_number_of_more_digits_than_python_writes(tmp_path: Path) -> None:
    assert counted(tmp_path, "query: '[0-9]{4500}'") == "1" + "0" * 4500
    assert counted(tmp_path, "query: '[0-9]{4000}|a'") == "1" + "0" * 3999 + "1"
    assert counted(tmp_path, "query: '[ab]{3}[0-9]{4000}'") == "8" + "0" * 4000


def test_what_is_too_large_to_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "MAX_STATES", 1000)
    with pytest.raises(ConfigError) as refused:
        counted(tmp_path, "query: '[ab]{0,20}a[ab]{20}'")
    assert str(refused.value).startswith(
        f"{tmp_path}/query.yaml: query: the language needs more than 1,000 states: ask"
    )
    with pytest.raises(ConfigError, match=r"nothing\.yaml: file not found"):
        count_file(tmp_path / "nothing.yaml")


def test_the_base_install_counts(tmp_path: Path) -> None:
    """Without numpy, which comes with an extra."""
    (tmp_path / "query.yaml").write_text(
        "{query: 'The (?:cat|dog)', prefix: The, preprocess: [{edits: 1, on: prefix}]}"
    )
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from gateway.audit.cli.command import count; print(count(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "query.yaml")], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == "" and done.stdout == "1326\n"
