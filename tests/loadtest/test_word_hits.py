"""The count of false hits: of words that stand there in other letters, and not of those that do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.policy.model import Strength
from loadtest import word_hits
from loadtest.word_hits import LISTS, count, main, read_list


def test_a_hit_is_false_where_the_word_stands_in_no_letters() -> None:
    counted = count(["Réne and RENE met René. ", "A renewal."], {"list": ["rene"]}, Strength.CAREFUL)
    assert (counted.words, counted.hits, dict(counted.false)) == (7, 3, {"Réne": 1, "René": 1})
    assert counted.rate == round(10_000 * 2 / 7, 2)


def test_a_corpus_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_hits, "MOST_WORDS", 4)
    assert count(("one two three" for _ in range(9)), {"list": ["rene"]}, Strength.PLAIN).words == 4


def test_lists_and_texts_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed, text = tmp_path / "names.txt", tmp_path / "text.md"
    listed.write_text("// names\nrene\n\n")
    text.write_text("So says René.")
    assert main(["--list", str(listed), "--text", str(text)]) == 0
    assert "text.md, careful: 3 words, 1 hits, 3333.33 false in 10,000\n  x1 'René'" in capsys.readouterr().out


def test_the_shipped_lists_have_no_word_twice() -> None:
    for path in LISTS.glob("*.txt"):
        words = [word.casefold() for word in read_list(path)]
        assert sorted(set(words)) == sorted(words)
