"""The automata of rules whose words are found in disguise, in codes, and with edits (semantics rules 11 and 13)."""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from gateway.automata import native_words
from gateway.automata.coded_words import CodedWords
from gateway.automata.codes import STACKED
from gateway.automata.encodings import CONTROLS, ESCAPE
from gateway.automata.literals import Folded
from gateway.automata.native_codes import NativeCodedWords
from gateway.automata.native_words import NativeWords
from gateway.automata.obfuscation import ObfuscatedWords, Obfuscation
from gateway.automata.word_trie import WordSet
from gateway.censor.common_words import is_common
from gateway.censor.lens import Lens, lens_of
from gateway.policy.model import DISGUISES, Fold, Rule, Variant
from gateway.policy.presets import EDITS_FROM

# What two letters are drawn for, in words of at least so many letters: shorter ones would be in ordinary text.
DRAWN_AS, DRAWN_FROM = {"m": "rn", "d": "cl"}, 7
_LEFT_OUT_FROM = 5  # letters of a word of which hyphens and apostrophes may be missing
_LEFT_OUT = str.maketrans("", "", " -'")
_ROT5 = str.maketrans("0123456789", "5678901234")  # for digits what ROT13 is for letters
_APART = 4  # letters of a word that are drawn or not, each by itself
# One automaton for all codes: in which a text may be depends on its last few characters, whatever the code.
_CODES = tuple(name for name in Variant if name not in (Variant.REVERSE, Variant.ROT13))


def disguises_of(rule: Rule) -> Iterator[tuple[Obfuscation, int]]:
    """The automata besides that of the words as they are: what each sees through, and how many edits."""
    disguises = Obfuscation(
        leet=Fold.LEET in rule.fold,
        spacing=Fold.SPACING in rule.fold,
        repeats=Fold.REPEATS in rule.fold,
        markup=Fold.MARKUP in rule.fold,
        url=Fold.URL in rule.fold,
        controls=Fold.INVISIBLE in rule.fold,
    )
    if rule.fold & DISGUISES:
        yield disguises, 0
    if rule.edits:
        yield Obfuscation(leet=disguises.leet, controls=disguises.controls), rule.edits
    if codes := tuple(code.value for code in _CODES if code in rule.variants):
        stacked = tuple(name for name in STACKED if rule.variants.issuperset(name.split()))
        yield Obfuscation(variants=codes + stacked, charsets=not all(map(str.isascii, rule.words))), 0


def obfuscated(folds: frozenset[Fold], disguises: Obfuscation, words: list[WordSet]) -> ObfuscatedWords:
    lens = lens_of(folds)
    kept = frozenset({ESCAPE, *(CONTROLS if disguises.controls else ())})

    def fold(char: str) -> Folded:
        # What stands for nothing vanishes; what it stands for else, encodings may read as it is.
        return Folded(char if char in kept or lens.fold(char).text else "")

    automaton: type[ObfuscatedWords] = CodedWords if disguises.variants else ObfuscatedWords
    if native_words.NATIVE is not None:
        automaton = NativeCodedWords if disguises.variants else NativeWords
    return automaton(words, disguises, fold, lambda char: lens.fold(char).text)


def word_set(
    rule: Rule,
    order: int,
    holds: bool,
    disguises: Obfuscation,
    edits: int,
    guards: Callable[[int], int],
    spares: Callable[[str], bool],
) -> WordSet:
    """The rule's words for one automaton. Raises ValueError as `folded_words` does."""
    lens = lens_of(rule.fold - DISGUISES)
    words = dict.fromkeys(spelling for word in folded_words(rule, lens) for spelling in lens.spellings(word))
    if edits:  # a letter that is folded to several (ß) is one where it is changed, missing or exchanged
        words |= dict.fromkeys("".join(map(partial(_one_letter, lens), _composed(word))) for word in rule.words)
    if disguises.leet and not edits:
        words |= dict.fromkeys(drawn for word in list(words) for drawn in _drawn(word))
    if disguises.spacing or disguises.variants:
        words |= dict.fromkeys(each for word in list(words) for each in _unspaced(word, bool(disguises.variants)))
    return WordSet(
        words=list(words),
        tag=order,
        holds=holds,
        whole=rule.whole_word,
        edits=edits,
        edits_from=EDITS_FROM.get(edits, 0),
        accepts=_is_uncommon if edits and rule.spares_common else None,
        guards=guards,
        # With `repeats`, `princess` is also `princes` whose last letter comes twice.
        spares=(lambda text: spares(text) or spares(text + text[-1:])) if disguises.repeats else spares,
    )


def _drawn(word: str) -> Iterator[str]:
    """The word with some of its letters drawn with two others; of more than a few all."""
    letters = [(char, DRAWN_AS[char]) if char in DRAWN_AS else (char,) for char in word]
    count = sum(len(each) > 1 for each in letters)
    if len(word) < DRAWN_FROM or not count:
        return
    if count > _APART:
        letters = [each[-1:] for each in letters]
    found = map("".join, product(*letters))
    yield from (each for each in found if each != word and _is_uncommon(each))


def _one_letter(lens: Lens, char: str) -> str:
    folded = lens.fold(char).text
    return folded if len(folded) < 2 else char.lower()


def _composed(word: str) -> str:
    return unicodedata.normalize("NFC", word)


def _unspaced(word: str, coded: bool) -> Iterator[str]:
    """The word without its blanks, and without the hyphens and apostrophes that may be left out, in a code without all
    that is no letter or digit."""
    for joined in (word.replace(" ", ""), "".join(filter(str.isalnum, word)) if coded else word.translate(_LEFT_OUT)):
        if joined and (coded or joined == word.replace(" ", "") or len(joined) >= _LEFT_OUT_FROM):
            yield joined


def folded_words(rule: Rule, lens: Lens) -> dict[str, str]:
    """The words to look for, each with the word of the rule that it stands for. Raises ValueError for an empty one."""
    found: dict[str, str] = {}
    for word in rule.words:
        for folded in lens.cases(word):
            if not folded:
                raise ValueError(f"rule {rule.id!r}: a word is empty when seen through the lens {lens}")
            found[folded] = folded
        if not rule.variants:
            continue
        word = _composed(word)
        changed = [word]
        if Variant.REVERSE in rule.variants:
            changed += [word[::-1], " ".join(part[::-1] for part in word.split(" "))]
        if Variant.ROT13 in rule.variants:
            shifted = [codecs.encode(each, "rot13") for each in changed]
            changed += [*shifted, *(each.translate(_ROT5) for each in shifted)]
        for other in filter(_is_uncommon, changed[1:]):  # `putes` reversed is `setup`
            found.setdefault(lens.fold_word(other), lens.fold_word(word))
    return found


def _is_uncommon(text: str) -> bool:
    """Is the text something else than common words?"""
    return not all(map(is_common, text.lower().split()))
