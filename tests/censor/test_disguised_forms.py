"""What spaces, escapes and encodes words, against the most naive readers that can be right: each span of the text is
asked whether it says the word. Every way to cut the text in two, and character by character."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.automata import obfuscation, word_places
from gateway.policy.model import Fold, Policy, Rule, Variant
from tests.support.examples import examples
from tests.support.random_policies import run

Says = Callable[[str, int, int], bool]  # does text[start:end] say the word?
MAX_GAP = 3


class Form(NamedTuple):
    """A rule's keys and its word, of what texts are made, and when a part of one says the word."""

    keys: dict[str, Any]
    word: str
    pieces: tuple[str, ...]
    says: Says


@pytest.fixture(autouse=True)
def short_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that short texts reach."""
    monkeypatch.setattr(obfuscation, "SHORT_SPACED", 4)
    monkeypatch.setattr(obfuscation, "SHORT", 3)
    monkeypatch.setattr(obfuscation, "MAX_GAP", MAX_GAP)
    monkeypatch.setattr(word_places, "SHORT_DENSE", 1)
    monkeypatch.setattr(word_places, "SHORT_MASKED", 1)


def written(*ways: str, between_edges: str | None = None) -> Says:
    """As one of these expressions says; the last one where no letter, digit or `_` is beside it."""
    plain = re.compile("|".join(ways)) if ways else None
    edged = None if between_edges is None else re.compile(between_edges)

    def says(text: str, start: int, end: int) -> bool:
        if plain and plain.fullmatch(text, start, end):
            return True
        beside = text[max(start - 1, 0) : start] + text[end : end + 1]
        return bool(edged and edged.fullmatch(text, start, end) and not re.search(r"\w", beside))

    return says


def letters(alternatives: list[str], between: str = "") -> str:
    return between.join(f"(?:{each})" for each in alternatives)


# -- between letters ---------------------------------------------------------------------------------------------------

UNIT = r"(?:\s+|[^\w\s]|_)"


def line_begun(units: int) -> Iterator[str]:
    """At most so many units, of which one is a line break, behind which are only blanks and marks of lines."""
    for before, behind in product(range(units), repeat=2):
        if before + 1 + behind <= units:
            yield rf"{UNIT}{{{before}}}\s*\n\s*(?:[>*+#|-]|\s+){{{behind}}}"


FIRST, LATER = ("|".join(line_begun(units)) for units in (MAX_GAP, MAX_GAP - 1))
NUMBERED = rf"(?:{FIRST})\d{{1,3}}(?:(?:{LATER})\d{{1,3}})*{UNIT}{{1,{MAX_GAP - 1}}}"
GAP = rf"(?:{UNIT}{{1,{MAX_GAP}}}|{NUMBERED})?"

TAG = r"(?:(?:<|&lt;)(?:[a-z/!][^<>]*?(?:>|&gt;)|!--.*?-->)|\[[a-z][^\[\]]{0,14}\])"
ESCAPED = {
    "a": r"a|&\#97;?|&\#x61;?|&amp;\#97;?|\\x61|\\u0061|\\141",
    "c": r"c|&\#99;?|&\#x63;?|&amp;\#99;?|\\x63|\\u0063|\\143",
}
ESCAPES = ("&#97;", "&#x61;", "&amp;#97;", "\\x61", "\\u0061", "\\141", "&#99;", "&#99", "\\x63", "\\143")
BLANK, POINT = rf"(?:(?:\s|&\#32;|&nbsp;){TAG}*)+", rf"(?:\.|&\#46;){TAG}*"
ESCAPED_GAP = rf"(?:(?:{BLANK}|{POINT}){{1,{MAX_GAP}}}|{TAG}+(?:{BLANK}|{POINT}){{0,{MAX_GAP - 1}}})?"
EMPHASIS = rf"(?:(?:<i>)+(?:[*_~`](?:<i>)*){{0,{MAX_GAP - 1}}}|(?:[*_~`](?:<i>)*){{0,{MAX_GAP}}})"
A, B = r"(?:a|&\#97;)", r"(?:b|&\#98;)"
PERCENT = {"a": "a|%(?:25){0,2}61|%u0061", "ä": "ä|%(?:25)?[cC]3%(?:25)?[aA]4|%u00[eE]4"}


def leet_ways(between: str = "") -> str:
    """At least one letter of `sola` is written as it is."""
    looks = {"s": r"s|\$", "o": "o|0", "l": "l|1", "a": "a|@"}
    ways = [[letter if at == plain else looks[letter] for at, letter in enumerate("sola")] for plain in range(4)]
    return "|".join(letters(way, between) for way in ways)


def look_alike_ways() -> str:
    """A letter of an alphabet is as good as the letter of `lin0` itself, but not one of ASCII or of a common script."""
    itself = ["l|ł", "i|丨|ł", "n|₦", "0"]
    looks = ["I|ו", "l|ו", "п", "O|о"]
    either = [f"{one}|{other}" for one, other in zip(itself, looks, strict=True)]
    return "|".join(
        letters([itself[at] if at == plain else each for at, each in enumerate(either)]) for plain in range(4)
    )


def all_of(word: str, table: dict[str, str], between: str = "") -> str:
    return letters([table[letter] for letter in word], between)


# -- codes -------------------------------------------------------------------------------------------------------------

BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
PASSED = set(" \t\r\n\"'`,>|-+\\")


def base64_says(word: str) -> Says:
    """Some of the signs that may be passed by are left out, and what is left is decoded from any bit of its first."""

    def says(text: str, start: int, end: int) -> bool:
        part = text[start:end]
        if part[0] not in BASE64 + "-_" or part[-1] not in BASE64 + "-_":
            return False
        choices = [
            ([char] if char in BASE64 + "-_" else []) + ([""] if char in PASSED and 0 < at < len(part) - 1 else [])
            for at, char in enumerate(part)
        ]
        return any(decodes("".join(chosen)) for chosen in product(*choices))

    def decodes(coded: str) -> bool:
        coded = coded.replace("-", "+").replace("_", "/")
        bits = "".join(f"{BASE64.index(char):06b}" for char in coded)
        for skipped in (0, 2, 4):
            left = len(bits) - skipped
            data = bytes(int(bits[at : at + 8], 2) for at in range(skipped, skipped + left - 7, 8))
            if left % 8 < 6 and data and data[-1] and data[0] and data.replace(b"\0", b"").decode("latin-1") == word:
                return True
        return False

    return says


CODED = [base64.b64encode(before + b"abd" + behind).decode() for before in (b"", b"z", b"zz") for behind in (b"", b"x")]
HALVES = tuple(half for coded in CODED for half in (coded[:3], coded[3:].rstrip("=")))

SIGN = r"(?:[ \t]+|[^0-9a-z \t])"  # a run of blanks is one
ITEM = rf"{SIGN}{{0,3}}\n(?:\|[ \t]*)?[0-9]{{1,2}}(?:[.):]|[ \t]*\|)[ \t]*(?:[ \t]+|[^0-9a-z\n \t]){{0,2}}"
HEX_GAP = rf"(?:h?{SIGN}{{0,6}}(?:0x|x|h|u00|u\+00)?|{ITEM}(?:0x)?)"
DECIMAL_GAP = rf"(?:{SIGN}{{1,6}}(?:chr\()?|{ITEM})"
NATO_GAP = (
    rf"{SIGN}{{0,8}}(?:dash{SIGN}{{1,4}})?(?:[0-9]{{1,2}}[.):]{SIGN}{{1,4}})?"
    rf"(?:[0-9a-z]{{1,2}}(?:{SIGN}{{0,2}} (?:as in|for|is|like))?{SIGN}{{1,6}})?"
)
MORSE_GAP = rf"(?:(?:[ \t]+|[^0-9a-z._*·−-]){{1,6}}|\n[-*] |{ITEM})"
DOT, DASH = "[.*·]", "[-_−]"
MORSE_MARKS = (
    "-....- .----. .-.-.- --..-- -..-. ..--.- .--.-. -...- ---... ..--.. -.-.--"  # punctuation may stand between
)
MORSE_MARK = "|".join("".join(DOT if sign == "." else DASH for sign in mark) for mark in MORSE_MARKS.split(" "))


def variant(*names: Variant) -> dict[str, Any]:
    return {"variants": frozenset(names), "fold": frozenset()}


FORMS: dict[str, Form] = {
    "spacing": Form(
        {"fold": frozenset({Fold.SPACING})},
        "abba",
        ("a", "b", "ab", " ", "  ", ".", "-", "*", "_", "\n", "\n- ", "\n1. ", "\n> 12) ", "2"),
        written("abba", between_edges=letters([*"abba"], GAP)),
    ),
    "markup": Form(
        {"fold": frozenset({Fold.MARKUP})},
        "aca",
        ("a", "c", *ESCAPES, "<i>", "<b x='a'>", "</i>", "<!--k-->", "<!-->-->", "[b]", "&lt;i&gt;", "&", "d"),
        written(all_of("aca", ESCAPED, f"{TAG}*")),
    ),
    "markup, spaced": Form(
        {"fold": frozenset({Fold.MARKUP, Fold.SPACING})},
        "abba",
        ("a", "b", "&#97;", "&#98;", " ", "&#32;", "&nbsp;", ".", "&#46;", "<i>", "&lt;i&gt;", "x"),
        written(letters([A, B, B, A], f"{TAG}*"), between_edges=letters([A, B, B, A], ESCAPED_GAP)),
    ),
    "emphasis": Form(
        {"fold": frozenset({Fold.MARKUP})},
        "abab",
        ("a", "b", "*", "**", "~~", "_", "`", "<i>", "."),
        written(letters([*"abab"], EMPHASIS)),
    ),
    "url": Form(
        {"fold": frozenset({Fold.URL})},
        "aä",
        ("a", "ä", "%61", "%2561", "%252561", "%c3%a4", "%C3%A4", "%25c3%a4", "%u0061", "%u00E4", "%", "%c3", "61"),
        written(all_of("aä", PERCENT)),
    ),
    "leet, spaced": Form(
        {"fold": frozenset({Fold.LEET, Fold.SPACING})},
        "sola",
        ("s", "o", "l", "a", "$", "0", "1", "@", ".", " ", "x"),
        written(leet_ways(), between_edges=leet_ways(rf"(?:{UNIT}{{1,{MAX_GAP}}})?")),
    ),
    "look-alikes": Form(
        {"fold": frozenset({Fold.LEET})},
        "lin0",
        ("l", "i", "n", "0", "I", "O", "о", "ו", "₦", "卩", "丨", "п", "ł", "x"),
        written(look_alike_ways()),
    ),
    "leet in percent signs": Form(
        {"fold": frozenset({Fold.LEET, Fold.URL})},
        "so",
        ("s", "o", "%73", "%6f", "0", "$", "%30", "%24", "x"),
        written("(?:s|%73)(?:o|%6f)"),
    ),
    "base64": Form(
        variant(Variant.BASE64), "abd", (*HALVES, " ", "\n", '" + "', "-", "\\\n", "Y"), base64_says("abd")
    ),
    "hex": Form(
        variant(Variant.HEX),
        "ab",
        ("61", "62", "6", "h", " ", ", ", "0x", "\\x", "U+00", "&H", "\n1. ", "\n", "1", "     ", "|\n| 2 | "),
        written(rf"(?i:(?:00{HEX_GAP})*61{HEX_GAP}(?:00{HEX_GAP})*62)", rf"(?i:0061(?:{SIGN}{{0,6}}(?:0x|u\+?)?)0062)"),
    ),
    "decimal": Form(
        variant(Variant.DECIMAL),
        "ab",
        ("97", "98", "9", " ", ", ", "-", ") + chr(", "\n2. ", "\n", "1", ",\n        ", " |\n| 1 | "),
        written(rf"(?i:97{DECIMAL_GAP}98)"),
    ),
    "nato": Form(
        variant(Variant.NATO),
        "ab",
        ("Alpha", "Bravo", "alfa", " ", "-", "B as in ", "b", "\n2. ", "2", "for", " like ", "dash", '"', "**"),
        written("ab", rf"(?i:al(?:ph|f)a{NATO_GAP}bravo)"),
    ),
    "morse": Form(
        variant(Variant.MORSE),
        "ane",
        (".-", "-.", ".", "·−", " ", "/", "\n", "\n- ", "\n2. ", "*_", "x", "-....-"),
        written(letters([DOT + DASH, DASH + DOT, DOT], rf"(?:{MORSE_GAP}(?:{MORSE_MARK}))*{MORSE_GAP}")),
    ),
    "reverse": Form(variant(Variant.REVERSE), "abc d", ("abc d", "cba d", "d cba", "cba", " ", "d", "e"),
                    written("abc d", "d cba", "cba d")),
    "rot13, reversed": Form(variant(Variant.ROT13, Variant.REVERSE), "abc", ("abc", "cba", "nop", "pon", "n"),
                            written("abc", "cba", "nop", "pon")),
}  # fmt: skip


def censored(text: str, says: Says) -> str:
    """Spans that share a character are one replacement."""
    spans = [(b, e) for b in range(len(text)) for e in range(b + 1, len(text) + 1) if says(text, b, e)]
    out, at = "", 0
    for start, end in sorted(spans):
        if start >= at:
            out += text[at:start] + "<r>"
        at = max(at, end)
    return out + text[at:]


@pytest.mark.parametrize("name", FORMS)
def test_what_says_a_word_is_found_and_nothing_else_for_every_cut(name: str) -> None:
    form = FORMS[name]
    policy = Policy(name="p", rules=(Rule(id="r", words=(form.word,), replacement="<r>", **form.keys),))

    @settings(max_examples=examples(60), deadline=None)
    @given(st.lists(st.sampled_from(form.pieces), max_size=8).map("".join))
    def check(text: str) -> None:
        expected = censored(text, form.says)
        cuts = [[text], list(text), *([text[:cut], text[cut:]] for cut in range(1, len(text)))]
        assert {run(policy, pieces)[0] for pieces in cuts} == {expected}

    check()
