"""Every fold, and every combination, over the characters where it could go wrong."""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from itertools import combinations

import pytest

from gateway.censor.compile import fold_word
from gateway.censor.lens import Lens, is_cjk, is_ignorable, is_mark, is_unseen
from gateway.policy.model import Fold
from gateway.policy.presets import DISGUISES


def equivalent(one: str, other: str) -> bool:
    return unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)


@cache
def every_char() -> list[str]:
    return [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]


@cache
def folding() -> list[str]:
    """Characters that fold to anything but themselves are decomposable, cased or ignorable."""
    return [
        char
        for char in every_char()
        if (unicodedata.decomposition(char) or char.casefold() != char or is_ignorable(char))
        and ord(char) < 0xE0100
        and not 0x2F800 <= ord(char) <= 0x2FA1F
    ]


def sample() -> list[str]:
    """Of Hangul's 11,172 syllables, which are made by rule, a few stand for all."""
    return [*folding(), *every_char()[::997], *map(chr, range(0xAC00, 0xD7A4, 97))]


FOLDS = [fold for fold in Fold if fold not in DISGUISES]
COMBINATIONS = [frozenset(folds) for size in (0, 1, 2, 6, 7) for folds in combinations(FOLDS, size)]


def folded(text: str, *folds: Fold) -> str:
    return fold_word(text, frozenset(folds))


@pytest.mark.parametrize("folds", COMBINATIONS, ids=lambda folds: str(Lens(folds)))
def test_folding_what_is_folded_changes_nothing(folds: frozenset[Fold]) -> None:
    lens = Lens(folds)
    pieces = {piece for char in sample()[:: max(1, 4 * len(folds) - 4)] for piece in lens.fold(char).text}
    assert [piece for piece in pieces if lens.fold(piece)[:2] != (piece, False)] == []


def test_no_fold_is_exact() -> None:
    assert [char for char in sample() if folded(char) != unicodedata.normalize("NFC", char)] == []
    assert str(Lens(frozenset())) == "exact"
    assert str(Lens(frozenset(Fold) - DISGUISES)) == "case+width+accents+invisible+space+punctuation+confusables"


def test_case_is_full_case_folding() -> None:
    cased = [(folded(char, Fold.CASE), char.casefold()) for char in sample()]
    assert [(seen, plain) for seen, plain in cased if not equivalent(seen, plain)] == []
    assert folded("STRAẞE Straße ΣΟΦΟΣ σοφος ŉ", Fold.CASE) == "strasse strasse σοφοσ σοφοσ ʼn"


# Unicode derives the property: Other_Default_Ignorable, format characters and variation selectors, less interlinear
# annotation, Egyptian format controls and prepended concatenation marks.
OTHER_DEFAULT_IGNORABLE = frozenset(
    (
        *(0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0, 0xE0000),
        *(*range(0xFFF0, 0xFFF9), *range(0xE0002, 0xE0020), *range(0xE0080, 0xE0100), *range(0xE01F0, 0xE1000)),
    )
)
VISIBLE_FORMAT_CHARACTERS = frozenset(
    (
        *(*range(0xFFF9, 0xFFFC), *range(0x13430, 0x13456)),
        *(*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD),
    )
)


def default_ignorable(char: str) -> bool:
    code = ord(char)
    if code in OTHER_DEFAULT_IGNORABLE or "VARIATION SELECTOR" in unicodedata.name(char, ""):
        return True
    return unicodedata.category(char) == "Cf" and code not in VISIBLE_FORMAT_CHARACTERS


def test_invisible_is_unicodes_default_ignorable_code_point() -> None:
    candidates = [char for char in every_char() if is_ignorable(char) or unicodedata.category(char) in ("Cf", "Mn")]
    candidates += map(chr, sorted(OTHER_DEFAULT_IGNORABLE))
    wrong = [hex(ord(char)) for char in candidates if is_ignorable(char) != default_ignorable(char)]
    assert wrong == []
    assert [char for char in candidates if is_ignorable(char) and folded(char, Fold.INVISIBLE)] == []


def test_invisible_is_controls_and_noncharacters_besides() -> None:
    kept = [char for char in every_char() if (char < "\U00020000" or ord(char) & 0xFFFF > 0xFFF0) and is_unseen(char)]
    besides = {char for char in kept if not default_ignorable(char)}
    noncharacters = {
        chr(code)
        for code in [*range(0xFDD0, 0xFDF0), *(0x10000 * at + 0xFFFE + end for at in range(17) for end in (0, 1))]
    }
    controls = {char for char in map(chr, range(0xA0)) if unicodedata.category(char) == "Cc"} - set("\t\n\v\f\r\x85")
    assert besides == noncharacters | controls | set("\ufff9\ufffa\ufffb")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("１２ＭＯＮ", "12MON"),
        ("ﬁ ﬀ ﬃ", "fi ff ffi"),
        ("① ⑫ Ⅷ ㎏ ℡", "1 12 VIII kg TEL"),
        ("ｶﾅ ㄱ", "カナ \u1100"),
        ("𝐀𝒷𝔠 𝟘", "Abc 0"),
        ("x² ª", "x2 a"),
        ("\u00a0\u3000", "  "),
        ("é각ǖΩ", "é각ǖΩ"),
        ("ẛ", "ṡ"),
        ("\u00a8\u00b4\u037a", "\u00a8\u00b4\u037a"),
    ],
)
def test_width_gives_what_a_form_stands_for(text: str, plain: str) -> None:
    assert folded(text, Fold.WIDTH) == plain


def test_width_never_splits_a_canonical_composition() -> None:
    canonical = [
        char
        for char in folding()
        if unicodedata.decomposition(char) and not unicodedata.decomposition(char).startswith("<")
    ]
    only_canonical = [
        char for char in canonical if unicodedata.normalize("NFKD", char) == unicodedata.normalize("NFD", char)
    ]
    assert [char for char in only_canonical if not equivalent(folded(char, Fold.WIDTH), char)] == []
    assert [char for char in map(chr, range(0xAC00, 0xD7A4, 97)) if folded(char, Fold.WIDTH) != char] == []


def test_width_leaves_no_composition_apart() -> None:
    changed = [plain for char in sample() if (plain := folded(char, Fold.WIDTH)) != char]
    assert [plain for plain in changed if not unicodedata.is_normalized("NFC", plain)] == []


def test_accents_leave_no_mark_and_nothing_canonically_composed() -> None:
    for char in sample():
        plain = folded(char, Fold.ACCENTS)
        assert not any(map(is_mark, plain))
        assert plain == unicodedata.normalize("NFD", plain)
    assert folded("éèñÅỆ각ø\u0301", Fold.ACCENTS) == "eenAE\u1100\u1161\u11a8ø"


def test_a_composed_character_folds_like_its_decomposition() -> None:
    lens = Lens(frozenset(Fold))
    assert [
        char for char in folding() if lens.fold_word(char) != lens.fold_word(unicodedata.normalize("NFD", char))
    ] == []


def test_folds_combine() -> None:
    assert folded("Ｅ\u0301Ⓢ\u200bﬅ", *Fold) == "esst"


@pytest.mark.parametrize(
    ("char", "folds", "atomic"),
    [
        ("각", {Fold.ACCENTS}, True),
        ("각", set(Fold), True),
        ("각", {Fold.WIDTH}, False),
        ("ß", set(Fold), False),
        ("ﬁ", set(Fold), False),
        ("é", set(Fold), False),
        ("\u200b", set(Fold), False),
    ],
)
def test_only_canonical_decompositions_are_atomic(char: str, folds: set[Fold], atomic: bool) -> None:
    assert Lens(frozenset(folds)).fold(char).atomic == atomic


def test_cjk_is_written_without_spaces() -> None:
    assert all(map(is_cjk, "漢字かなカナㄅ가ᄀｶﾀ々〇𠀀"))
    assert not any(map(is_cjk, "aéΩж1_ 。、！\u0e01ا"))
