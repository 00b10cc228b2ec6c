"""Expressions that were written out mean what they meant, to Python's `re` and to us."""

from __future__ import annotations

import re

import outlines_core
import pytest
from hypothesis import assume, example, given, settings

from gateway.automata.regex import MAX_LENGTH, RegexError, parse
from gateway.automata.unparse import count_ranges, unparse
from tests.support.examples import examples
from tests.support.expressions import Expression, expressions, matches, texts
from tests.support.outlines import same_language

ALPHABET = "a^é-😀"
WRITTEN = re.compile(r"(?:\w|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|[\[\](){}|*+?,:-])*")


@settings(max_examples=examples(300), deadline=None)
@given(expressions(ALPHABET))
@example(Expression("^(?:a|^é$)$", r"^(?:a|^é\Z)\Z"))
@example(Expression(r"(?i:a)|[\W\d]{,2}", r"(?i:a)|[\W\d]{,2}"))
def test_the_language_is_the_same(expression: Expression) -> None:
    try:
        rendered = unparse(parse(expression.ours))
    except RegexError:
        assume(False)
        raise
    assert WRITTEN.fullmatch(rendered), rendered
    assume(len(rendered) <= MAX_LENGTH)
    patterns = re.compile(rendered), re.compile(unparse(parse(rendered)))
    for text in texts(ALPHABET, 3):
        expected = matches(expression.pythons, False, text, 0, len(text))
        assert [pattern.fullmatch(text) is not None for pattern in patterns] == [expected] * 2, text


@pytest.mark.parametrize("pattern", ["|a", "(|a|bc)", "(?:|a)*c?", "(?:|(?:|a)){2}", "^$|a"])
def test_e11_outlines_gets_to_what_stands_behind_an_empty_alternative(pattern: str) -> None:
    rendered = unparse(parse(pattern))
    end = 256
    vocabulary = outlines_core.Vocabulary(end, {bytes([byte]): [byte] for byte in range(end)})
    index = outlines_core.Index(rendered, vocabulary)
    begin = index.get_initial_state()
    assert index.is_final_state(begin)
    assert ord("a") in index.get_transitions()[begin]


@settings(max_examples=examples(60), deadline=None)
@given(expressions(ALPHABET + "\n", portable=True))
def test_it_is_the_same_to_outlines_core(expression: Expression) -> None:
    same_language(unparse(parse(expression.ours)))


@pytest.mark.parametrize(
    ("pattern", "rendered"),
    [
        ("[A-Z][a-z]+ [0-9]{4}", r"[A-Z][a-z]+\u0020[0-9]{4}"),
        ("(?i)k", "[Kk\u212a]"),
        ("(?is)a.", r"[Aa][\u0000-\ud7ff\ue000-\U0010ffff]"),
        (r"\.\n\\/", r"\u002e\u000a\u005c\u002f"),
        ("😀é", r"\U0001f600é"),
        ("(a)(?:b)(?P<n>c)", "abc"),
        ("(?:a|bc){2,}|(?:de)?f{3}g{0}", r"(?:a|bc){2,}|(?:de)?f{3}"),
        ("(?:(?:ab)*)+", "(?:(?:ab)*)+"),
        ("a|", "(?:a)?"),
        ("(?:a|)b", "(?:(?:a)?)b"),
        ("|a||[0-9]{2}|", "(?:a|[0-9]{2})?"),
        ("(?:^|)(?:|b{0})a", "a"),
        ("(?:|a){2}", "(?:(?:a)?){2}"),
        (r"^a$|^(?:b|^c)\z|\Ad\Z", "a|(?:b|c)|d"),
        ("^^a$$", "a"),
        ("(?m)^a$", "a"),
        ("(?m)^a|b$", "a|b"),
        (r"(?x) a \ b # c", r"a\u0020b"),
        ("[[:xdigit:]&&&]", r"[\u00260-9A-Fa-f０-９Ａ-Ｆａ-ｆ]"),
        ("[a^]", r"[a\u005e]"),
        ("[_^]", r"[\u005f\u005e]"),
        (r"[\^-z]", r"[\u005f-z\u005e]"),
        ("[^a]", r"[\u0000-\u0060b-\ud7ff\ue000-\U0010ffff]"),
        (r"[\ud800-\udfffx]", "x"),
    ],
)
def test_written_out(pattern: str, rendered: str) -> None:
    assert unparse(parse(pattern)) == rendered


@pytest.mark.parametrize("pattern", ["[_^]", r"[\^x]", r"[\^-z]", "[^a]", r"[\]-_]", r"[!^]"])
def test_no_class_begins_with_a_caret(pattern: str) -> None:
    """One engine takes it for a negation, even as a number."""
    assert r"[\u005e" not in unparse(parse(pattern))


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"\bword", r"\b and \B cannot be passed to a model"),
        (r"a\Bb", r"\b and \B cannot be passed to a model"),
        ("a^b", "can only stand at the beginning and at the end"),
        ("a$b", "can only stand at the beginning and at the end"),
        ("(?:^|a)^b", "can only stand at the beginning and at the end"),
        ("(?:a$)+", "can only stand at the beginning and at the end"),
        ("(?m)a$\\nb", "^ and $ under (?m) can only stand at the beginning and at the end of the whole"),
        ("(?m)a\n^b", "write the line breaks as \\n"),
        (r"a[^\x00-\U0010ffff]", "has no character that can stand in a text"),
        (r"[\ud800]", "has no character that can stand in a text"),
    ],
)
def test_refused(pattern: str, reason: str) -> None:
    with pytest.raises(RegexError) as refused:
        unparse(parse(pattern))
    assert reason in refused.value.reason and refused.value.position is None


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("abc", 3), ("[a-z0-9]", 2), ("(?:[a-z]x){3,9}", 18), ("[a-z]{4,}", 4), ("[a-z]*", 1), ("a|bc", 3), ("a{0}^", 0)],
)
def test_ranges_are_counted_as_often_as_they_are_repeated(pattern: str, count: int) -> None:
    assert count_ranges(parse(pattern)) == count
