"""What is found becomes rules: which words, how they are written, and that the loader reads them as they were meant."""

from __future__ import annotations

import io
import string
from contextlib import redirect_stdout
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import censor_stream, cli
from gateway.audit.cli.emit_rules import ACTIONS, rules_of, rules_yaml, short_words
from gateway.audit.matcher import RuleMatcher
from gateway.censor.compile import fold_word
from gateway.config import finder, parse
from gateway.policy.model import DEFAULT_MAX_HOLD, Action, Decode, Rule

# What YAML, `${}` and lenses have something to say about.
AWKWARD = [
    "yes", "007", "null", "~", "- a", "a: b", "# no comment", "'", '"', "\\", "\\n", "a\nb", "tab\there",
    "\x00\x07\x1b", "${HOME}", "$${HOME}", "$", "${", "{}", "[x]", "&a *a !a %a @a",
    "\x7f\x85\xa0", "\u2028", "\ufeffx", "\u202eabc",
    "Grüß Gott", "你好", "😀🎉", "\U000e0041b", "<script>",
]  # fmt: skip


def words_of(rules: tuple[Rule, ...]) -> list[str]:
    return [word for rule in rules for word in rule.words]


def loaded(text: str) -> tuple[Rule, ...]:
    """The rules as a configuration has them that puts the text under a policy."""
    rules = "".join(f"      {line}\n" for line in text.splitlines())
    whole = (
        "upstreams: {demo: {type: demo}}\n"
        'routes: [{model: "*", upstream: demo, policy: default}]\n'
        f"policies:\n  default:\n    rules:\n{rules}"
    )
    return parse(whole, "F", Path(), {"HOME": "/nowhere"}).policies["default"].rules


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (["555 0100", "12MONKEYS"], ["555 0100", "12MONKEYS"]),  # of equal length they would be sorted
        (["longer word", "short"], ["short", "longer word"]),
        ([" 555 0100\n", "555 0100"], ["555 0100"]),
        (["July 4, 1732", "July 4", "on July 4"], ["July 4"]),
        (["Straße", "STRASSE"], ["STRASSE"]),
        (["straße", "stras"], ["stras"]),  # found in it, and then the whole letter is replaced
        (["b", "a", "ab"], ["a", "b"]),
        (["ＰＡＳＳ", "pass"], ["pass"]),
        (["", "  ", "\u200b"], []),
        ([], []),
    ],
)
def test_which_words_are_needed(found: list[str], words: list[str]) -> None:
    assert words_of(rules_of(found)) == words


TEXTS = st.lists(st.text(st.sampled_from("aAbsßSﬁfi １1\u200b"), max_size=6), max_size=8)


@given(TEXTS)
def test_the_rules_find_all_that_was_found_and_none_is_needless(found: list[str]) -> None:
    rules = rules_of(found)
    for text in found:
        alone = Rule(id="alone", words=(text,)) if text else None
        if alone is not None and fold_word(text.strip(), alone.fold):
            assert any(finder(rule)(text) for rule in rules)
    for rule in rules:
        others = [other for other in rules if other is not rule]
        assert not any(finder(other)(rule.words[0]) for other in others)


@given(TEXTS, st.randoms())
def test_the_order_in_which_strings_were_found_changes_nothing(found: list[str], random: object) -> None:
    shuffled = sorted(found, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert rules_of(shuffled) == rules_of(found)


@pytest.mark.parametrize("length", [1024, 1025, 2049, 5000])
def test_nothing_is_left_of_a_string_that_is_longer_than_a_match(length: int) -> None:
    numbers = Random(length)
    text = "".join(numbers.choice("abcdEFGßﬁ １") for _ in range(length - 2))
    rules = rules_of([f"a{text}b"])
    assert [rule.id for rule in rules] == ["audit-1"] and loaded(rules_yaml(rules)) == rules
    assert all(len(word) > DEFAULT_MAX_HOLD // 3 for word in rules[0].words)
    for pieces in ([f"See a{text}b!"], f"See a{text}b!"):
        assert "".join(censor_stream(pieces, rules)).replace("[REDACTED]", "") == "See !"
    assert RuleMatcher(rules).matches(f"a{text}b")


def test_what_no_lens_sees_makes_no_string_long() -> None:
    word = f"a{chr(0x200B) * 3000}b"
    assert words_of(rules_of([word])) == [word]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("masked", [False, True])
def test_the_loader_reads_the_rules_that_were_written(action: Action, masked: bool) -> None:
    rules = rules_of(AWKWARD, action=action, masked=masked)
    assert loaded(rules_yaml(rules)) == rules
    assert [rule.id for rule in rules] == [f"audit-{number}" for number in range(1, len(rules) + 1)]
    assert {rule.decode for rule in rules} == {Decode.MASK if masked else None}


@given(st.lists(st.text(st.one_of(st.sampled_from(string.printable + "${}"), st.characters(codec="utf-8")))))
def test_any_text_can_be_written(found: list[str]) -> None:
    rules = rules_of(found)
    if rules:
        assert loaded(rules_yaml(rules)) == rules


def test_no_rules_are_an_empty_list() -> None:
    assert loaded(rules_yaml(())) == ()


def test_the_check_accepts_the_file_under_a_policy(tmp_path: Path) -> None:
    rules = "".join(f"      {line}\n" for line in rules_yaml(rules_of(AWKWARD)).splitlines())
    config = tmp_path / "portcullis.yaml"
    config.write_text(
        "upstreams: {demo: {type: demo}}\n"
        'routes: [{model: "*", upstream: demo, policy: default}]\n'
        f"policies:\n  default:\n    rules:\n{rules}",
        encoding="utf-8",
    )
    with redirect_stdout(io.StringIO()):
        assert cli.main(["check", str(config)]) == 0


def test_short_words_are_counted() -> None:
    assert short_words(rules_of(["no", "yes", "a bc", "word", "\u200ba\u200bb\u200bc"])) == 3
