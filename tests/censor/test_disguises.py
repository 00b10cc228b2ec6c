"""Words in disguise against patterns that list every way to write them: random texts, every way of cutting."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.automata import coded_words, machine, native_words, obfuscation, word_chars, word_places
from gateway.automata.coded_words import CodedWords
from gateway.automata.encodings import DRAWN, LEET, PUNCTUATION
from gateway.automata.native_words import NativeWords
from gateway.automata.obfuscation import ObfuscatedWords
from gateway.censor.compile import compile_policy
from gateway.policy.model import EDITS_FROM, Action, Direction, Fold, Policy, Rule, Strength, Variant
from gateway.policy.presets import DEFAULT_FOLD, DISGUISES
from tests.support.compiled import compiled
from tests.support.examples import examples
from tests.support.native import native_module
from tests.support.oracle import Oracle
from tests.support.random_policies import censor_for, report, run

SIGN = r"(?! )[\W_]"
GAP = f"(?:[ ]+|{SIGN})"  # a run of blanks counts as one
EDGE_BEFORE, EDGE_BEHIND = r"(?<!\w)", r"(?!\w)"


@pytest.fixture(autouse=True, params=["python", "c"])
def native(request: pytest.FixtureRequest) -> Iterator[None]:
    """What finds words in C, too, where there is a compiler."""
    module = native_module("gateway.automata._ways") if request.param == "c" else None
    if module is None and request.param == "c":
        pytest.skip("there is no compiler")
    compiled.cache_clear()
    with patch.object(native_words, "NATIVE", module):
        yield
    compiled.cache_clear()


@pytest.fixture(autouse=True)
def short_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that texts of a few characters reach."""
    monkeypatch.setattr(obfuscation, "SHORT_SPACED", 4)
    monkeypatch.setattr(obfuscation, "SHORT", 3)
    monkeypatch.setattr(obfuscation, "MAX_GAP", 2)
    for edits in EDITS_FROM:
        monkeypatch.setitem(EDITS_FROM, edits, edits + 2)


def repeated(word: str) -> Iterator[str]:
    runs = [match[0] for match in re.finditer(r"(.)\1*", word)]
    if len(word) >= 3:
        yield "".join(f"{run[0]}{{{len(run)},}}" for run in runs)
    else:  # one more is no repetition
        yield "".join(f"(?:{run[0]}{{{len(run)}}}|{run[0]}{{{len(run) + 2},}})" for run in runs)


def leet(word: str) -> Iterator[str]:
    """At least one letter is written as it is, of short words two. Punctuation is no letter at the edges."""
    needed = 1 if len(word) == 1 or len(word) >= 3 else 2
    for plain in combinations(range(len(word)), needed):
        yield "".join(letter if at in plain else looks(word, at) for at, letter in enumerate(word))


def looks(word: str, at: int) -> str:
    """How the letter there may be written."""
    inside = 0 < at < len(word) - 1
    signs = [sign for sign, letters in LEET.items() if word[at] in letters and (inside or sign not in PUNCTUATION)]
    drawn = [text for text, letters in DRAWN.items() if word[at] in letters]
    return f"(?:{'|'.join(map(re.escape, [word[at], *signs, *drawn]))})"


def spaced(word: str) -> Iterator[str]:
    """Where not all letters are as far from each other, the word has at least four."""
    yield word
    alike = ("[ ]+", SIGN, f"[ ]+{SIGN}", f"{SIGN}{GAP}")
    yield from (f"{EDGE_BEFORE}{gap.join(word)}{EDGE_BEHIND}" for gap in alike if len(word) > 1)
    gaps = ["", f"{GAP}{{1,2}}"]
    for chosen in product(gaps, repeat=len(word) - 1) if len(word) >= 4 else ():
        if any(chosen):
            inner = "".join(letter + gap for letter, gap in zip(word, chosen, strict=False))
            yield f"{EDGE_BEFORE}{inner}{word[-1]}{EDGE_BEHIND}"


def edited(word: str, edits: int = 1) -> Iterator[str]:
    """The words that a match of the rule with `edits` may be: it begins and ends with letters of the word's own, of
    which the first and the last may be missing."""
    yield re.escape(word)
    if edits and len(word) >= EDITS_FROM[1]:
        for at in range(len(word)):
            yield re.escape(word[:at]) + re.escape(word[at + 1 :])
            if at > 0:
                yield re.escape(word[:at]) + "(?s:.)" + re.escape(word[at:])
            if 0 < at < len(word) - 1:
                yield re.escape(word[:at]) + "(?s:.)" + re.escape(word[at + 1 :])
            if 0 < at < len(word) - 2:
                yield re.escape(word[:at] + word[at + 1] + word[at] + word[at + 2 :])


# What a rule says, and every way to write a word of it.
KINDS: dict[str, tuple[dict[str, Any], Callable[[str], Iterator[str]], str]] = {
    "repeats": ({"fold": {Fold.REPEATS}}, repeated, "ab"),
    "leet": ({"fold": {Fold.LEET}}, leet, "as5$l1!"),
    "spacing": ({"fold": {Fold.SPACING}}, spaced, "ab. -_"),
    "edits": ({"edits": 1, "fold": frozenset()}, edited, "abc"),
}


def as_pattern(word: str, ways: Callable[[str], Iterator[str]]) -> str:
    # The oracle takes every `$` for an edge.
    return "|".join(dict.fromkeys(ways(word))).replace("\\$", r"\x24")


def oracle_of(policy: Policy, pattern: str) -> Oracle:
    """Of a rule of one word, which the oracle is given as a pattern."""
    (rule,) = policy.rules
    patterned = Rule(id=rule.id, pattern=pattern, action=rule.action, replacement=rule.replacement, fold=frozenset())
    return Oracle(Policy(name="p", rules=(patterned,)))


def case_of(kind: str, word: str, text: str, action: Action = Action.REDACT) -> tuple[Policy, Oracle, str]:
    keys, ways, _ = KINDS[kind]
    policy = Policy(name="p", rules=(Rule(id="r", words=(word,), replacement="<r>", action=action, **keys),))
    return policy, oracle_of(policy, as_pattern(word, ways)), text


@st.composite
def cases(draw: st.DrawFn) -> tuple[Policy, Oracle, str]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    alphabet = KINDS[kind][2]
    letters = "".join(char for char in alphabet if char.isalpha())
    word = draw(st.text(letters, min_size=1, max_size=4))
    action = draw(st.sampled_from([Action.REDACT, Action.REDACT, Action.BLOCK]))
    return case_of(kind, word, draw(st.text(alphabet, max_size=7)), action)


@settings(max_examples=examples(60), deadline=None)
@given(cases(), st.lists(st.integers(0, 9), max_size=3))
def test_output_and_verdict_equal_the_oracle_for_every_cut(case: tuple[Policy, Oracle, str], cuts: list[int]) -> None:
    policy, oracle, text = case
    expected, matches, blocked = oracle.whole(text)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(text)), len(text)]
    for chunks in ([text], list(text), [text[a:b] for a, b in pairwise(edges)]):
        out, censor = run(policy, chunks)
        assert out == expected
        assert {line[0] for line in report(censor)} == {line[0] for line in matches}
        assert (censor.blocked is not None) == blocked
        assert censor.scanned == len(out) - censor.inserted + censor.replaced + censor.withheld


@settings(max_examples=examples(20), deadline=None)
@example(case_of("spacing", "aa", "a_  "))
@example(case_of("spacing", "aaa", "a  a a"))
@given(cases())
def test_nothing_is_held_that_no_disguise_could_want(case: tuple[Policy, Oracle, str]) -> None:
    policy, oracle, text = case
    censor, out = censor_for(policy), ""
    for read in range(1, len(text) + 1):
        out += censor.feed(text[read - 1])
        assert out == oracle.released(text[:read]), text[:read]


DISGUISES_OF_SECRET = {
    "leet": ["s3cr3t", "$3cre7", "5ecret", "se(ret"],
    "spacing": [
        *("s e c r e t", "s.e.c.r.e.t", "se-cret", "s\ne\nc\nr\ne\nt", "s\u2003e c_r e  t"),
        's", "e", "c", "r", "e", "t',
    ],
    "repeats": ["seeecret", "seccret", "secreeeeet"],
    "markup": [
        *("s&#101;cret", "s&#x65;cret", "s&#101cret", "s&amp;#101;cret", "s<b>e</b>cret", "s<i class='x'>ecret"),
        *("s\\u0065cret", "s\\x65cret", "s\\145cret", "s\\u{65}cret", "s\\\\u0065cret", "s**e**cret"),
    ],
    "url": ["s%65cret", "s%2565cret", "%73%65%63%72%65%74"],
    "reverse": ["terces"],
    "rot13": ["frperg"],
    "base64": ["c2VjcmV0", "HNlY3JldC", "BzZWNyZXQ", "cwBlAGMAcgBlAHQA", "c2Vj\ncmV0"],
    "base32": ["ONSWG4TFOQ", "HGZLDOJSXI"],
    "hex": ["736563726574", "73 65 63 72 65 74", "73, 0x65, 0x63, 0x72, 0x65, 0x74", "73\\x65\\x63\\x72\\x65\\x74"],
    "decimal": ["115 101 99 114 101 116", "163 145 143 162 145 164", " ".join(f"{ord(char):08b}" for char in "secret")],
    "nato": ["Sierra Echo Charlie Romeo Echo Tango", "sierra-echo-charlie-romeo-echo-tango"],
    "morse": ["... . -.-. .-. . -", ".../././-.-."[:3] + "/./-.-./.-././-"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in DISGUISES_OF_SECRET.items() for text in texts]
)
def test_each_disguise_is_seen_through_however_it_is_cut(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    fold = {*DEFAULT_FOLD, *({Fold(name)} if name in set(DISGUISES) else ())}
    variants = {Variant(name)} if name in set(Variant) else set[Variant]()
    rule = Rule(id="r", words=("secret",), fold=frozenset(fold), variants=frozenset(variants), replacement="<r>")
    policy = Policy(name="p", rules=(rule,))
    whole = f"It is ({text}) now"
    expected, censor = run(policy, [whole])
    assert expected in ("It is (<r>) now", "It is (<r>A) now")  # the last byte of UTF-16 is no letter's
    assert {match.rule for match in censor.matches} == {"r"}
    for cut in range(len(whole) + 1):
        assert run(policy, [whole[:cut], whole[cut:]])[0] == expected, cut
    assert run(policy, list(whole))[0] == expected
    assert run(Policy(name="p", rules=(replace(rule, fold=DEFAULT_FOLD, variants=frozenset()),)), [whole])[0] == whole


@pytest.mark.parametrize("before", ["is ", "It was (", 'is "'])
def test_a_code_does_not_begin_with_what_stands_for_nothing(before: str) -> None:
    """`is` is a control character in Base32."""
    rule = Rule(id="r", words=("secret",), variants=frozenset({Variant.BASE32}), replacement="<r>")
    assert run(Policy(name="p", rules=(rule,)), [f"{before}ONSWG4TFOQ now"])[0] == f"{before}<r> now"


@pytest.mark.parametrize(
    ("fold", "text"),
    [
        *(
            ("leet", text)
            for text in ("rnemorandurn", "memorandurn", "mernorandum", "memoranclum", "ｒｎemorandum", "rnernoranclurn")
        ),
        ("confusables", "mɇɱøɽɑɲɖʉɱ"),
    ],
)
def test_letters_that_two_others_draw_and_letters_with_hooks(fold: str, text: str) -> None:
    rule = Rule(id="r", words=("memorandum",), fold=frozenset({*DEFAULT_FOLD, Fold(fold)}), replacement="<r>")
    assert run(Policy(name="p", rules=(rule,)), [f"the {text}."])[0] == "the <r>."


def test_common_words_and_short_ones_are_not_drawn() -> None:
    words = ("dashed", "modem", "pom", "dick")
    rule = Rule(id="r", words=words, fold=frozenset({*DEFAULT_FOLD, Fold.LEET}), replacement="<r>")
    text = "modern porn clashed with a click"
    assert run(Policy(name="p", rules=(rule,)), [text])[0] == text


@pytest.mark.parametrize(
    ("variant", "word", "text"),
    [
        ("base64", "opensesame", "b3Bl.bnNl.c2Ft.ZQ"),
        ("base64", "opensesame", "b3Bl:bnNl:c2Ft/ZQ"),
        ("base64", "falcon", "Zg== YQ== bA== Yw== bw== bg"),
        ("hex", "falcon", "66)+chr(0x61)+chr(0x6c)+chr(0x63)+chr(0x6f)+chr(0x6e"),
        ("hex", "opensesame!", "6f70656e736573616d65\n00000010: 21"),
        ("hex", "비밀번호", "be44)+chr(0xbc00)+chr(0xbc88)+chr(0xd638"),
        ("hex", "비밀번호", "be440000bc000000bc880000d638"),
        ("hex", "a🚀launch", "0061 d83d de80 006c 0061 0075 006e 0063 0068"),
        ("hex", "a🚀launch", "0061, U+1F680, U+006C, U+0061, U+0075, U+006E, U+0063, U+0068"),
    ],
)
def test_codes_in_pieces_and_of_all_planes(variant: str, word: str, text: str) -> None:
    rule = Rule(id="r", words=(word,), variants=frozenset({Variant(variant)}), replacement="<r>")
    shown = run(Policy(name="p", rules=(rule,)), [f"It is [{text}] now"])[0]
    assert shown in ("It is [<r>] now", "It is [00<r>] now", "It is [<r>==] now"), shown
    assert run(Policy(name="p", rules=(rule,)), list(f"It is [{text}] now"))[0] == shown


@pytest.mark.parametrize(("word", "text"), [("tests", "- . ... - ..."), ("eleven", ". .-.. . ...- . -.")])
def test_words_of_which_a_sign_of_morse_is_the_first_letter(word: str, text: str) -> None:
    rule = Rule(id="r", words=(word,), variants=frozenset({Variant.MORSE}), replacement="<r>", fold=DEFAULT_FOLD)
    assert run(Policy(name="p", rules=(rule,)), [f"so {text} it"])[0] == "so <r> it"
    # And what follows is a sign, too, no letter as it is.
    assert run(Policy(name="p", rules=(rule,)), [f"so {text[0]}{word[1:]} it"])[0] == f"so {text[0]}{word[1:]} it"


@pytest.mark.parametrize(
    ("variant", "word", "text"),
    [
        ("hex", "ass", "61  73  73"),  # signs that leave everything as it was
        ("decimal", "ass", "97   115   115"),
        ("nato", "as", "alpha   sierra"),
        ("morse", "e", "."),  # a match is certain with its first character
        ("nato", "5", "5"),
    ],
)
def test_short_words_in_codes(variant: str, word: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rule = Rule(id="r", words=(word,), variants=frozenset({Variant(variant)}), replacement="<r>")
    for pieces in ([f"It [{text}] now"], list(f"It [{text}] now"), ["It [", text, "] now"]):
        assert run(Policy(name="p", rules=(rule,)), pieces)[0] == "It [<r>] now"


def test_a_percent_escape_that_is_complete_is_held_for_no_other() -> None:
    rule = Rule(id="r", words=("secret",), fold=frozenset({Fold.URL}))
    censor = censor_for(Policy(name="p", rules=(rule,)))
    assert [censor.feed(piece) for piece in ("%7", "8", "%c3", "%a9", ".")] == ["", "%78", "", "%c3%a9", "."]


def test_what_hostile_text_costs_decides_where_it_is_scanned() -> None:
    def cost(count: int = 1, **keys: Any) -> int:
        words = tuple(f"secretword{number}" for number in range(count))
        rule = Rule(id="r", words=words, **keys)
        return compile_policy(Policy(name="p", rules=(rule,))).costs[Direction.OUTPUT]

    plain, careful, paranoid = (cost(strength=strength) for strength in Strength)
    assert plain == 0 < careful < paranoid < cost(strength=Strength.PARANOID, edits=2)
    assert cost(edits=1) < cost(edits=2) < cost(2000, edits=2)


def test_what_hostile_text_is_remembered_by_is_bounded_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rule = Rule(id="r", words=("swordfish", "Grünewald"), strength=Strength.PARANOID, replacement="<>")
    source = random.Random(17)
    hostile = ["".join(source.choices(signs, k=30)) for signs in ("abcdefgh0123", "4$|!310@5+(<{#", "\\u0061&#;x") * 2]
    text = " swordf1sh ".join([*hostile, "c3dvcmRmaXNo ", "73776f7264 66697368"])
    expected, _ = run(Policy(name="p", rules=(rule,)), [text])
    monkeypatch.setattr(word_places, "MAX_PLACES", 400)
    monkeypatch.setattr(word_chars, "MAX_READINGS", 100)
    monkeypatch.setattr(obfuscation, "MAX_TARGETS", 200)
    monkeypatch.setattr(machine, "MAX_ENTRIES", 1000)
    monkeypatch.setattr(machine, "MAX_STEPS", 500)
    monkeypatch.setattr(coded_words, "MAX_TABLED", 600)
    compiled.cache_clear()
    censor, out = censor_for(Policy(name="p", rules=(rule,))), ""
    machines = [each for each in censor._program.patterns if isinstance(each, ObfuscatedWords)]  # type: ignore[union-attr]
    assert len(machines) == 3
    for at in range(0, len(text), 5):
        out += censor.feed(text[at : at + 5])
        for each in machines:
            # What one character leads to may be too many; the next one clears them.
            assert len(list(each.positions())) <= 400 + 300
            assert len(each._chars._readings) <= 100
            assert sum(1 + len(state.positions) for state in each._states.values()) <= 1000
            assert each._targets <= 201
            if isinstance(each, CodedWords):
                assert each._tabled <= 600 + 600
            if isinstance(each, NativeWords):
                assert each._tables.size() <= 500 + 1500
            assert sum(len(state.leaps) for state in each._states.values()) <= 201
    assert out + censor.finish() == expected
    assert expected.count("<>") == len(hostile) + 3


@pytest.mark.parametrize(
    "text",
    [
        "these cretins",
        "use cretins",
        "as s",
        "455 0r",
        "4$s",
        "(on",
        "conn",
        "sec retard",
        "a.ss",
        "a, s.s",
        *("à %s (%s", "à %s:%s"),
        *("*human*", "a *mission* of", "_human_", "human_", "human*"),
    ],
)
def test_ordinary_text_is_in_no_disguise(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rule = Rule(
        id="r", words=("secret", "ass", "con", "or", "humane", "emission"), strength=Strength.CAREFUL, whole_word=True
    )
    assert run(Policy(name="p", rules=(rule,)), [f"x {text} y"])[0] == f"x {text} y"


# Forms in which words of four letters are said as well as longer ones, and others of which ordinary text is made.
SHORT_WORDS: dict[str, bool] = {
    **dict.fromkeys(("mmaarraa", "mm aa rr aa", "Mmaaarraa", "ma**r**a", "m~~ar~~a", "`ma`ra"), True),
    **dict.fromkeys(("marra", "maara", "ma-ra", "mar a", "ma_ra", "ma*r *a", "m**a r**a"), False),
    **dict.fromkeys(("6d  61  72  61", "109,\n    97,\n    114,\n    97", "m=109, a=97, r=114, a=97"), True),
    "bW Fy YQ": False,
}


@pytest.mark.parametrize(("text", "found"), SHORT_WORDS.items())
def test_short_words_are_found_where_ordinary_text_is_not_written_so(
    text: str, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    rule = Rule(id="r", words=("mara",), strength=Strength.PARANOID, edits=0, replacement="[X]")
    shown, _ = run(Policy(name="p", rules=(rule,)), list(f"x {text} y"))
    assert ("[X]" in shown) == found
