"""The notation: what it means, that it means the same to Python's `re`, and how the rest is refused."""

from __future__ import annotations

import re
import warnings
from itertools import combinations

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.automata import charset
from gateway.automata.charset import ANY, CharSet
from gateway.automata.contexts import (
    ALL,
    LINE_END_EDGE,
    LINE_START_EDGE,
    NO_WORD_EDGE,
    TEXT_END,
    TEXT_START,
    WORD_EDGE,
    kinds_of_characters,
    sees_lines,
)
from gateway.automata.positions import positions
from gateway.automata.regex import (
    EMPTY,
    MAX_DEPTH,
    MAX_LENGTH,
    Alternation,
    Chars,
    Concat,
    Edge,
    Node,
    RegexError,
    Repeat,
    parse,
)
from tests.support.examples import examples
from tests.support.expressions import context, matches, spans, texts
from tests.support.pages import ROOT, table

PATTERNS = ROOT / "docs" / "patterns.md"

A, B, C = (Chars(CharSet.of(char)) for char in "abc")


def one(chars: str) -> Node:
    return Chars(CharSet.of(chars))


@pytest.mark.parametrize(
    "pattern, tree",
    [
        ("", EMPTY),
        ("a", A),
        ("ab|c", Alternation((Concat((A, B)), C))),
        ("a||", Alternation((A, EMPTY, EMPTY))),
        ("(a)(?:b)(?P<x>c)(?<y>a)", Concat((A, B, C, A))),
        ("()", EMPTY),
        ("a*b+c?", Concat((Repeat(A, 0, None), Repeat(B, 1, None), Repeat(C, 0, 1)))),
        ("a{2}b{2,}c{2,3}", Concat((Repeat(A, 2, 2), Repeat(B, 2, None), Repeat(C, 2, 3)))),
        ("a{" + "0" * 9000 + "2}", Repeat(A, 2, 2)),
        ("a{,3}b{,}", Concat((Repeat(A, 0, 3), Repeat(B, 0, None)))),
        ("a{}", Concat((A, one("{"), one("}")))),
        ("{a{1,2", Concat((one("{"), A, one("{"), one("1"), one(","), one("2")))),
        ("a{*", Concat((A, Repeat(one("{"), 0, None)))),
        ("a(?#*)+", Repeat(A, 1, None)),
        ("(?:ab)*", Repeat(Concat((A, B)), 0, None)),
        ("(?:a*)*", Repeat(Repeat(A, 0, None), 0, None)),
        ("(?:^)?", Repeat(Edge(TEXT_START), 0, 1)),
        (r"^\A", Concat((Edge(TEXT_START), Edge(TEXT_START)))),
        (r"$\Z\z", Concat((Edge(TEXT_END),) * 3)),
        (r"\b\B", Concat((Edge(WORD_EDGE), Edge(NO_WORD_EDGE)))),
        (r"\n\r\t\f\v\a\0\x41\u00e9\U0001f600", Concat(tuple(map(one, "\n\r\t\f\v\a\0A\u00e9\U0001f600")))),
        (r"\012\08", Concat((one("\n"), one("\0"), one("8")))),
        (r"\.\*\\\]\-\/\#\ \é", Concat(tuple(map(one, ".*\\]-/# é")))),
        ("]}", Concat((one("]"), one("}")))),
        (".", Chars(~CharSet.of("\n"))),
        ("(?s).", Chars(ANY)),
        ("(?s:.).", Concat((Chars(ANY), Chars(~CharSet.of("\n"))))),
        ("(?s)(?-s:.)", Chars(~CharSet.of("\n"))),
        ("[a-c]", one("abc")),
        ("[]]", one("]")),
        ("[^]]", Chars(~CharSet.of("]"))),
        ("[]-a]", one("]^_`a")),
        ("[a-]", one("a-")),
        ("[-a]", one("-a")),
        (r"[\]\-\\\n\x41^]", one("]-\\\nA^")),
        (r"[\b]", one("\b")),
        (r"[\x61-\u0063]", one("abc")),
        (r"[.*$(|]", one(".*$(|")),
        (r"\d\W", Concat((Chars(charset.DIGIT), Chars(~charset.WORD)))),
        (r"[\d\s]", Chars(charset.DIGIT | charset.SPACE)),
        (r"[^\w-]", Chars(~(charset.WORD | CharSet.of("-")))),
        (r"\p{Lu}", Chars(charset.property_set("Lu"))),
        (r"\pN\PN", Concat((Chars(charset.property_set("N")), Chars(~charset.property_set("N"))))),
        (r"[\p{Greek}a]", Chars(charset.property_set("Greek") | CharSet.of("a"))),
        ("(?i)k", one("kK\u212a")),
        ("(?i)[^k]", Chars(~CharSet.of("kK\u212a"))),
        ("(?i:a)a", Concat((one("aA"), A))),
        ("(?m)^$", Concat((Edge(LINE_START_EDGE), Edge(LINE_END_EDGE)))),
        (r"(?m)\A\Z", Concat((Edge(TEXT_START), Edge(TEXT_END)))),
        ("(?m:^)^", Concat((Edge(LINE_START_EDGE), Edge(TEXT_START)))),
        ("(?m)(?-m:$)$", Concat((Edge(TEXT_END), Edge(LINE_END_EDGE)))),
        ("(?mi)(?s-m:^a)$", Concat((Concat((Edge(TEXT_START), one("aA"))), Edge(LINE_END_EDGE)))),
        ("(?x) a b # c)\n c ", Concat((A, B, C))),
        ("(?x)a +b\t{2}", Concat((Repeat(A, 1, None), Repeat(B, 2, 2)))),
        (r"(?x)a\ \#[ #]", Concat((A, one(" "), one("#"), one(" #")))),
        ("(?x: a )b (?-x:c a)", Concat((A, B, one(" "), Concat((C, one(" "), A))))),
        ("(?x)(?i) (?#c) a(?-x: b)", Concat((one("aA"), Concat((one(" "), one("bB")))))),
        ("(?x)a|#(\n|b", Alternation((A, EMPTY, B))),
        ("(?x)[^ a]{1, 2}", Concat((Chars(~CharSet.of(" a")), *map(one, "{1,2}")))),
        ("[[:digit:]]", Chars(charset.DIGIT)),
        ("[[:^space:]a]", Chars(~charset.SPACE | CharSet.of("a"))),
        ("[^[:word:]-]", Chars(~(charset.WORD | CharSet.of("-")))),
        ("[[:alpha:][:digit:]_]", Chars(charset.property_set("Alphabetic") | charset.DIGIT | CharSet.of("_"))),
        ("(?i)[[:upper:]]", Chars(charset.property_set("Uppercase").ignoring_case())),
        ("[:alpha:]", one(":alph")),
        (r"[\[:alpha:]]", Concat((one("[:alph"), one("]")))),
        ("(?i)(?-i:a)a", Concat((A, one("aA")))),
        ("(?#x)(?i)(?s)a.", Concat((one("aA"), Chars(ANY)))),
        ("(?i)(?s-i:a.)", Concat((A, Chars(ANY)))),
        (r"(?i)\p{Lu}", Chars(charset.property_set("Lu").ignoring_case())),
    ],
)
def test_patterns_read_as(pattern: str, tree: Node) -> None:
    assert parse(pattern) == tree


def test_contexts() -> None:
    """A mask has the bits of the places where its edge is."""
    masks = {
        "^": TEXT_START,
        "$": TEXT_END,
        r"\b": WORD_EDGE,
        r"\B": NO_WORD_EDGE,
        "(?m:^)": LINE_START_EDGE,
        "(?m:$)": LINE_END_EDGE,
    }
    for text in texts("a \n", 2):
        for at in range(len(text) + 1):
            for edge, mask in masks.items():
                found = re.compile(edge.replace("$", r"\Z") if edge == "$" else edge).match(text, at) is not None
                if edge == r"\B" and not text:
                    found = True  # which `re` before 3.14 has otherwise
                assert bool(mask & context(text, at)) == found, (text, at, edge)
    for text, mask in [("aa", NO_WORD_EDGE), ("a ", WORD_EDGE), (" a", WORD_EDGE), ("  ", NO_WORD_EDGE)]:
        assert context(text, 1) & ALL == context(text, 1) & mask


def test_e12_only_line_edges_tell_line_ends_apart() -> None:
    assert not sees_lines([0, ALL, TEXT_START, TEXT_END, WORD_EDGE, NO_WORD_EDGE, TEXT_START & TEXT_END])
    for mask in (LINE_START_EDGE, LINE_END_EDGE, LINE_START_EDGE & WORD_EDGE, LINE_END_EDGE & NO_WORD_EDGE):
        assert sees_lines([ALL, mask])
    assert not positions(parse(r"^a\b\n$|\Bb")).sees_lines
    assert positions(parse("a|b(?m:$)")).sees_lines
    for lines in (False, True):
        sets = [chars for _, chars in kinds_of_characters(lines)]
        assert sum(map(len, sets)) == len(ANY) and CharSet.within(sum((each.ranges for each in sets), ())) == ANY


@pytest.mark.parametrize("name", ["alpha", "blank", "cntrl", "graph", "lower", "print", "punct", "upper", "xdigit"])
def test_e12_classes_of_posix_are_those_of_the_regex_package(name: str) -> None:
    ours, theirs = posix(name), regex.compile(f"[[:{name}:]]")
    apart = [char for char in map(chr, range(0x3000)) if (char in ours) != (theirs.match(char) is not None)]
    assert apart == []


def test_e12_classes_of_posix_that_have_a_letter_are_what_it_means() -> None:
    assert (posix("digit"), posix("space"), posix("word")) == (charset.DIGIT, charset.SPACE, charset.WORD)
    assert posix("alnum") == posix("alpha") | posix("digit")


def posix(name: str) -> CharSet:
    (chars,) = positions(parse(f"[[:{name}:]]")).sets
    (others,) = positions(parse(f"[[:^{name}:]]")).sets
    assert others == ~chars
    assert "".join(filter(chars.__contains__, map(chr, range(128)))) == _POSIX_IN_ASCII[name]
    return chars


_LOWER, _UPPER, _DIGITS = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
_POSIX_IN_ASCII = {
    "alnum": _DIGITS + _UPPER + _LOWER,
    "alpha": _UPPER + _LOWER,
    "blank": "\t ",
    "cntrl": "".join(map(chr, range(0x20))) + "\x7f",
    "digit": _DIGITS,
    "graph": _VISIBLE,
    "lower": _LOWER,
    "print": " " + _VISIBLE,
    "punct": "".join(char for char in _VISIBLE if not char.isalnum()),
    "space": "\t\n\v\f\r\x1c\x1d\x1e\x1f ",  # as \s has it in Python
    "upper": _UPPER,
    "word": _DIGITS + _UPPER + "_" + _LOWER,
    "xdigit": _DIGITS + "ABCDEFabcdef",
}


@settings(max_examples=examples(600), deadline=None)
@given(st.text("ab #\n[]()+?|{}1,\\-:x", max_size=9))
@example("a b#c\n+")
@example("[ #]#]\n")
@example("a\\ b\\#")
@example("a#b")
@example("a#\\\nb")
@example("(?#\\)b)a")
@example("1#\\")
def test_e12_what_x_leaves_out_is_what_it_leaves_out_to_re(body: str) -> None:
    try:
        machine = positions(parse(f"(?x){body}"))
    except RegexError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        theirs = re.compile(body, re.VERBOSE)
    for text in texts("ab #", 3):
        whole = (0, len(text)) in spans(machine, text)
        assert whole == (text != "" and theirs.fullmatch(text) is not None), text


def test_literals_are_folded_and_classes_are_not() -> None:
    fold = {"ａ": "a", "ﬁ": "fi", "\u200b": "", "Ｋ": "K"}

    def folded(pattern: str, ignore_case: bool = False) -> Node:
        return parse(pattern, ignore_case=ignore_case, fold=lambda char: (fold.get(char, char),))

    assert folded("ａb") == Concat((A, B))
    assert folded("ﬁ+") == Repeat(Concat((one("f"), one("i"))), 1, None)
    assert folded("a\u200b*b") == Concat((A, Repeat(EMPTY, 0, None), B))
    assert folded(r"\uff41") == A
    assert folded("[ａ]") == one("ａ")
    assert folded("Ｋ", ignore_case=True) == one("kK\u212a")
    assert folded("(?-i:Ｋ)k", ignore_case=True) == Concat((one("K"), one("kK\u212a")))


@pytest.mark.parametrize(
    "pattern, position, reason",
    [
        ("a(?=b)", 1, "look-around"),
        ("(?!b)", 0, "look-around"),
        ("(?<=b)", 0, "look-around"),
        ("(?<!b)", 0, "look-around"),
        (r"(a)\1", 3, "back-references"),
        ("(?P<x>a)(?P=x)", 8, "back-references"),
        (r"\12", 0, "back-references"),
        (r"[\1]", 1, "back-references"),
        ("a*?", 1, "lazy"),
        ("a+?", 1, "lazy"),
        ("a??", 1, "lazy"),
        ("a{1,2}?", 1, "lazy"),
        ("a*+", 1, "possessive"),
        ("a{2}+", 1, "possessive"),
        ("(?>a)", 0, "atomic"),
        ("(a)?(?(1)b|c)", 4, "conditional"),
        ("(?x)a (?i)b", 6, "at its beginning"),
        ("(?x)a ? ?", 8, "multiple repeat"),
        ("(?x)a+?", 5, "lazy"),
        ("(?x) #a\n *", 9, "nothing to repeat"),
        ("(?x)( ?:a)", 6, "nothing to repeat"),
        ("(?m)^*", 5, "nothing to repeat"),
        ("(?m-m:^)", 0, "flags are written"),
        ("(?a:a)", 0, "(?a)"),
        ("(?iu)a", 0, "(?u)"),
        ("(?L)a", 0, "(?L)"),
        ("(?q)a", 0, "unknown flag"),
        ("a(?i)b", 1, "at its beginning"),
        ("(?:(?i)b)", 3, "at its beginning"),
        ("(?-i)b", 0, "flags are written"),
        ("(?-:b)", 0, "flags are written"),
        ("(?i-i:b)", 0, "flags are written"),
        ("(?)", 0, "flags are written"),
        ("(?R)", 0, "unknown flag"),
        ("(?1)", 0, "unknown kind of group"),
        ("(?", 0, "unknown kind of group"),
        ("(?P<1>a)", 0, "name"),
        ("(?P<>a)", 0, "name"),
        ("(?P<x>a)(?<x>b)", 8, "used once"),
        (r"\q", 0, "unknown escape"),
        (r"[\A]", 1, "unknown escape"),
        (r"\N{BULLET}", 0, "unknown escape"),
        (r"\x4", 0, r"\xHH"),
        (r"\u00g0", 0, r"\uHHHH"),
        (r"\U00110000", 0, "up to 10FFFF"),
        ("\\", 0, "backslash"),
        ("[\\", 1, "backslash"),
        (r"a\p{Foo}", 1, "unknown Unicode property"),
        (r"\p{}", 0, "unknown Unicode property"),
        (r"\p", 0, "unknown escape"),
        ("*a", 0, "nothing to repeat"),
        ("a|+", 2, "nothing to repeat"),
        ("(?i)?", 4, "nothing to repeat"),
        ("({1})", 1, "nothing to repeat"),
        ("^*", 1, "nothing to repeat"),
        (r"\b+", 2, "nothing to repeat"),
        ("a**", 2, "multiple repeat"),
        ("a{2}{3}", 4, "multiple repeat"),
        ("a*(?#x)?", 7, "multiple repeat"),
        ("a{3,2}", 1, "greater than the most"),
        ("a{1000001}", 1, "above 1000000"),
        ("a{1,9999999999999999999}", 1, "above 1000000"),
        ("a{" + "9" * 9000 + "}", 1, "above 1000000"),
        ("a(b", 1, "no end"),
        ("a)b", 1, "unbalanced"),
        ("a(?#b", 1, "comment"),
        ("a[b", 1, "no end"),
        ("[]", 0, "no end"),
        ("[b-a]", 2, "bad range"),
        (r"[a-\d]", 2, "bad range"),
        (r"[\w-z]", 3, "bad range"),
        ("[a-", 0, "no end"),
        ("[a[:alpah:]]", 2, "one of alnum, alpha, blank"),
        ("[[:ALPHA:]]", 1, "one of alnum, alpha, blank"),
        ("[[:alpha:]-z]", 10, "bad range"),
        ("[a-[:digit:]]", 2, "bad range"),
        ("(" * (MAX_DEPTH + 1), MAX_DEPTH, "nested deeper than 100"),
        ("(" * 9000, MAX_DEPTH, "nested deeper than 100"),
    ],
)
def test_refused_with_position_and_reason(pattern: str, position: int, reason: str) -> None:
    with pytest.raises(RegexError) as refused:
        parse(pattern)
    assert refused.value.position == position
    assert reason in refused.value.reason
    assert str(refused.value) == f"{refused.value.reason} (at position {position})"


def test_the_length_of_a_pattern_is_bounded() -> None:
    assert parse("a" * MAX_LENGTH)
    with pytest.raises(RegexError, match="the pattern has 10001 characters, and 10000 are allowed") as refused:
        parse("a" * (MAX_LENGTH + 1))
    assert refused.value.position is None


def test_the_deepest_groups_are_read() -> None:
    assert parse("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH) == A


def test_a_refusal_does_not_quote_the_pattern() -> None:
    for pattern in (
        r"hunter2\p{hunter2}",
        "hunter2(?P<hunter2 >x)",
        "hunter2(?=hunter2)",
        "hunter2" * 2000,
        "(?:hunter2)*",
    ):
        with pytest.raises(RegexError) as refused:
            positions(parse(pattern))
        assert "hunter2" not in repr(refused.value)


@pytest.mark.parametrize("row", table(PATTERNS, "accepted"), ids=lambda row: row[0])
def test_what_the_documentation_accepts(row: list[str]) -> None:
    for pattern in re.findall("`([^`]+)`", row[0]) or row[:1]:
        assert positions(parse(pattern)).first


@pytest.mark.parametrize("pattern, reason", table(PATTERNS, "refused"))
def test_what_the_documentation_refuses(pattern: str, reason: str) -> None:
    with pytest.raises(RegexError) as refused:
        positions(parse(pattern))
    assert refused.value.reason == reason


# What only this notation has, or what `re` takes for something else in a text that ends with a line break.
_OURS_ONLY = re.compile(r"\\z|\(\?<[^=!]|\\[pP]")


@settings(max_examples=examples(2500), deadline=None)
@given(st.text(r"ab()[]{}*+?|\^$.,-:#012im<>P=!dwsbBAZ", max_size=9))
@example("(?m)^a$|b")
@example("(?m:a$)")
@example("(?-m:a$)^")
@example("[[a]")
@example("[a--b]")
@example("[a&&b]")
@example("a{,2}{")
@example("(?i-s:a)")
@example(r"(?:a|\b)*b")
@example(r"[\0-a]\0")
def test_any_text_is_refused_or_means_what_it_means_to_re(pattern: str) -> None:
    try:
        machine = positions(parse(pattern))
    except RegexError:
        return
    if _OURS_ONLY.search(pattern):
        return
    flags, body = re.match(r"((?:\(\?[ims]+\)|\(\?#[^)]*\))*)(.*)", pattern, re.DOTALL).groups()  # type: ignore[union-attr]
    letters = "".join(sorted(set(re.findall(r"[ims](?=[ims]*\))", re.sub(r"\(\?#[^)]*\)", "", flags)))))
    pythons = f"(?{letters}:{body})" if letters else body
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        re.compile(pattern)
    for text in texts("aB-", 3):
        parts = combinations(range(len(text) + 1), 2)
        assert spans(machine, text) == {part for part in parts if matches(pythons, False, text, *part)}, text
