"""The semantics, written the most naive way that can be right: the whole text, every start, every word, and for
patterns every substring, with Python's `re` to tell whether it is in the language.

Nothing here is shared with the product but the lens and the configuration model; nothing here is fast.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, product
from typing import NamedTuple

from gateway.automata.edges import is_word_char
from gateway.censor.common_words import is_common
from gateway.censor.lens import Lens, is_mark
from gateway.censor.window import MAX_UNSEEN
from gateway.policy.model import DEFAULT_REPLACEMENT, Action, Fold, Mode, Overflow, Policy, Rule
from tests.support.compiled import lens_of
from tests.support.expressions import matches

Origins = frozenset[int]
Live = set[tuple[int, int, Origins]]  # start, order of the rule, what blanks have taken


@dataclass(frozen=True, order=True)
class Hit:
    start: int
    certain: int  # characters that must have been read; len(text) + 1 is "the end"
    end: int
    order: int
    rule: Rule = field(compare=False)
    action: Action = field(compare=False)
    overflow: bool = field(compare=False, default=False)
    taken: Origins = field(compare=False, default=frozenset())  # by blanks, besides their first character


@dataclass(frozen=True)
class Unit:
    """One folded character: where it comes from, and which of how many in an atomic expansion it is."""

    text: str
    origin: int
    inside: bool  # a match may not begin here
    more: bool  # a match may not end here
    char: str = ""  # the original character
    edge: bool = False  # whatever `text` is, a whole word may stand beside it


def units_of(text: str, lens: Lens) -> list[Unit]:
    units = []
    for origin, char in enumerate(text):
        folded, atomic, edge = lens.fold(char)
        for index, piece in enumerate(folded):
            more = index < len(folded) - 1
            units.append(Unit(piece, origin, atomic and index > 0, atomic and more, char, edge))
    return units


def joined_before(units: list[Unit], index: int) -> bool:
    """Does a word character stand before, `_` looked through?"""
    index -= 1
    while index >= 0 and units[index].text == "_":
        index -= 1
    return index >= 0 and is_word_char(units[index].text) and not units[index].edge


def joined_behind(units: list[Unit], index: int, ended: bool) -> tuple[bool | None, int]:
    """The same for what stands behind, where the fourth `_` is an edge; None while that is open; and the last unit that
    had to be seen, or the length."""
    for at in range(index, index + 4):
        if at >= len(units):
            return (False if ended else None), len(units)
        if units[at].text != "_" or at == index + 3:
            return units[at].text != "_" and is_word_char(units[at].text) and not units[at].edge, at
    raise AssertionError


NOTHING = "\ue000"  # a character of no word
LINE_ENDS = "\n\v\f\r\x85\u2028\u2029"
LINE_MARKS = ">-*+#|/\u2022"


def is_marked(word: str) -> bool:
    return word[0] in LINE_MARKS or any(f" {mark}" in word for mark in LINE_MARKS)


class Reading(NamedTuple):
    """A word read from a place on: how much of it, up to which unit, whether that is as far as the units go, and the
    units that a blank took besides the first."""

    length: int
    last: int
    reaches_end: bool
    taken: set[int]


def end_of_blank(units: list[Unit], at: int, marks: bool) -> int:
    """Behind the run of white space, and at the beginning of its lines of marks, that unit `at` begins."""
    new_line = False
    while at < len(units) and (units[at].text == " " or (new_line and units[at].text in LINE_MARKS)):
        new_line = marks and (new_line or units[at].char in LINE_ENDS)
        at += 1
    return at


def read_word(word: str, units: list[Unit], begin: int, spaces: bool) -> Reading:
    at, length, taken, last = begin, 0, set[int](), begin
    while length < len(word) and at < len(units) and units[at].text == word[length]:
        last = at
        at, length = at + 1, length + 1
        if spaces and word[length - 1] == " " and length < len(word):
            at = end_of_blank(units, last, not is_marked(word))
            taken |= set(range(last + 1, at))
    return Reading(length, last, at == len(units) and length < len(word), taken)


# What may stand behind a place, as far as `\b` and `$` can see: nothing, a word character, a line break, another one.
RIGHTS = ("", "w", "\n", " ")
LONGEST_CONTINUATION = 4  # what the patterns of the tests need to be completed


def in_language(pattern: str, text: str, begin: int, end: int) -> bool:
    """Is text[begin:end] in the pattern's language, there where it stands?"""
    return matches(pattern, False, text, begin, end)


@lru_cache(1000)
def continuations(alphabet: str) -> list[str]:
    return ["".join(it) for length in range(LONGEST_CONTINUATION + 1) for it in product(alphabet, repeat=length)]


def letters_of(pattern: str) -> str:
    """Those that a pattern names, and one of each kind besides that it can tell apart."""
    named = {char for char in re.sub(r"\\[A-Za-z]", "", pattern) if char.isalnum() or not char.isascii()}
    besides = ("0" if r"\d" in pattern else "") + ("\n" if "m:" in pattern or "\n" in pattern else "")
    return "".join(sorted(named | set("a. ") | set(besides)))


@lru_cache(100_000)
def may_go_on(pattern: str, folded: str, begin: int) -> bool:
    """Is there a text behind `folded` with which a match from `begin` becomes certain?"""
    for more in continuations(letters_of(pattern)):
        whole = folded + more
        verdicts = [in_language(pattern, whole + right, begin, len(whole)) for right in RIGHTS]
        if any(verdicts) and (more or not all(verdicts)):
            return True
    return False


def as_python(rule: Rule) -> str:
    """The pattern in Python's dialect, where `$` without (?m) also stands before a last newline."""
    assert rule.pattern is not None
    _, flags, pattern = re.split(r"^(?:\(\?([im]+)\))?", rule.pattern)
    flags = "".join(sorted({*(flags or ""), *("i" if Fold.CASE in rule.fold else "")}))
    if "m" not in flags:
        pattern = pattern.replace("$", r"\Z")
    return f"(?{flags}:{pattern})" if flags else pattern


def partly_composed(word: str) -> set[str]:
    """Every letter of a word's with some of the marks in it, as one character."""
    apart = unicodedata.normalize("NFD", word)
    return {
        composed
        for base in apart
        for marks in range(3)
        for chosen in combinations([char for char in apart if char != base], marks)
        if len(composed := unicodedata.normalize("NFC", base + "".join(chosen))) == 1
    }


def could_become(begin: str, target: str) -> bool:
    """Is what is written a part of it? Marks may come in another order."""
    left = list(target)
    for char in unicodedata.normalize("NFD", begin):
        if char not in left:
            return False
        left.remove(char)
    return True


def with_hyphens(word: str) -> set[str]:
    choices = [
        " -" if char == " " and 0 < at < len(word) - 1 and not {word[at - 1], word[at + 1]} & set(LINE_MARKS) else char
        for at, char in enumerate(word)
    ]
    return {"".join(each) for each in product(*choices)}


@lru_cache(10_000)
def spellings(word: str, folds: frozenset[Fold]) -> list[str]:
    """Every text that is canonically equivalent and can be seen through the lens, with blanks within it as they are
    or as hyphens."""
    lens = lens_of(folds)
    target = unicodedata.normalize("NFD", word)
    pieces = {each for each in {*target, *partly_composed(word)} if all(lens.fold(char).text == char for char in each)}
    found, open_ends = set[str](), {""}
    while open_ends:
        longer = {begin + piece for begin in open_ends for piece in pieces}
        sized = {each for each in longer if len(unicodedata.normalize("NFD", each)) <= len(target)}
        found |= {each for each in sized if unicodedata.normalize("NFD", each) == target}
        open_ends = {each for each in sized if could_become(each, target)}
    if Fold.SPACE not in lens.folds:
        return sorted(found | {word})
    return sorted({form for each in found | {word} for form in with_hyphens(each)})


SEQUENCE = re.compile("\x1b(?:\\[[ -?]*([@-~]|$)?|[\\]PX^_](?s:[^\x07\x1b]*)(\x07|$|\x1b\\\\?)?|[ -/]+[0-~]?|[0-~])")


def unseen_from(text: str, begin: int) -> set[int]:
    """What a terminal does not show of a text, if the sequences before `begin` are none."""
    unseen: set[int] = set()
    at = begin
    while at < len(text):
        found = SEQUENCE.match(text, at)
        end = found.end() if found else at + (text[at] == "\x1b")
        if found and found[2] == "\x1b" and end < len(text):
            end -= 1  # a string that another sequence breaks off
        unseen |= set(range(at, end))
        at = max(end, at + 1)
    return unseen


class Oracle:
    def __init__(self, policy: Policy, max_unseen: int = MAX_UNSEEN) -> None:
        self.policy = policy
        self.max_unseen = max_unseen

    def in_window(self, rule: Rule, text: str, start: int, taken: Origins) -> bool:
        """May a match of the rule reach from `start` to the end of `text`?"""
        lens = lens_of(rule.fold)
        seen = sum(1 for at in range(start, len(text)) if at not in taken and lens.fold(text[at]).text)
        return seen <= self.policy.max_hold and len(text) - start - seen <= self.max_unseen

    def action(self, rule: Rule) -> Action:
        return Action.FLAG if self.policy.mode is Mode.OBSERVE else rule.action

    def words(self, rule: Rule) -> list[str]:
        lens = lens_of(rule.fold)
        return list(dict.fromkeys(form for word in rule.words for form in spellings(lens.fold_word(word), rule.fold)))

    def guard(self, rule: Rule, word: str) -> int:
        if rule.guard_tail is not None:
            return rule.guard_tail
        return next(k for k in range(len(word) + 1) if k * 10 >= len(word) * 6) if rule.secret else 0

    def candidates(self, text: str, ended: bool) -> tuple[list[Hit], Live]:
        """All certain matches of the whole text, and the (start, rule order) that are live at its end."""
        hits: set[Hit] = set()
        live: Live = set()
        for order, rule in enumerate(self.policy.rules):
            found, alive = self.candidates_of(rule, order, text, ended)
            hits |= found
            live |= alive
        first: dict[tuple[int, int, int], Hit] = {}
        for hit in sorted(hits):
            first.setdefault((hit.start, hit.end, hit.order), hit)
        return sorted(first.values()), live

    def candidates_of(self, rule: Rule, order: int, text: str, ended: bool) -> tuple[set[Hit], Live]:
        if rule.pattern is not None:
            return self.pattern_candidates(rule, order, text, ended)
        hits: set[Hit] = set()
        live: Live = set()
        units = units_of(text, lens_of(rule.fold))
        hidden = [unseen_from(text, at) for at in range(len(text)) if text[at] == "\x1b"]
        for vanished in [set[int](), *(hidden if Fold.INVISIBLE in rule.fold else [])]:
            found, alive = self.read_candidates(
                rule, order, text, ended, [unit for unit in units if unit.origin not in vanished]
            )
            hits |= {replace(hit, taken=hit.taken | vanished) for hit in found}
            live |= {(start, tag, taken | vanished) for start, tag, taken in alive}
        return hits, live

    def read_candidates(
        self, rule: Rule, order: int, text: str, ended: bool, units: list[Unit]
    ) -> tuple[set[Hit], Live]:
        hits: set[Hit] = set()
        live: Live = set()
        action = self.action(rule)
        spaces = Fold.SPACE in rule.fold
        for word in self.words(rule):
            passed = set[int]()  # of a blank that the word begins with
            for begin in range(len(units)):
                if units[begin].inside or begin in passed:
                    continue
                if rule.whole_word and is_word_char(word[0]) and joined_before(units, begin):
                    continue
                start = units[begin].origin
                read = read_word(word, units, begin, spaces)
                if spaces and word[0] == " " == units[begin].text:
                    passed |= set(range(begin + 1, end_of_blank(units, begin, not is_marked(word))))
                taken = frozenset(units[at].origin for at in read.taken)
                end = units[read.last].origin + 1
                if read.length < len(word):
                    if read.reaches_end and action is not Action.FLAG:
                        live.add((start, order, taken))
                        guard = self.guard(rule, word)
                        spared = rule.secret and rule.guard_tail is None and is_common(word[: read.length])
                        if ended and guard and read.length >= guard and not spared:
                            hits.add(Hit(start, len(text) + 1, end, order, rule, action, taken=taken))
                    continue
                if units[read.last].more:
                    continue
                if not (rule.whole_word and is_word_char(word[-1])):
                    hits.add(Hit(start, end, end, order, rule, action, taken=taken))
                    continue
                joined, seen = joined_behind(units, read.last + 1, ended)
                if joined is None:
                    if action is not Action.FLAG:
                        live.add((start, order, taken))
                elif not joined:
                    certain = len(text) if seen == len(units) else units[seen].origin
                    hits.add(Hit(start, certain + 1, end, order, rule, action, taken=taken))
        return hits, live

    def pattern_candidates(self, rule: Rule, order: int, text: str, ended: bool) -> tuple[set[Hit], Live]:
        hits: set[Hit] = set()
        live: Live = set()
        action, pattern = self.action(rule), as_python(rule)
        units = units_of(text, lens_of(rule.fold - {Fold.CASE, Fold.SPACE}))
        folded = "".join(unit.text for unit in units)
        for begin, first in enumerate(units):
            if first.inside:
                continue
            for end in range(begin + 1, len(units) + 1):
                if units[end - 1].more:
                    continue
                here = Hit(first.origin, 0, units[end - 1].origin + 1, order, rule, action)
                if all(in_language(pattern, folded[:end] + right, begin, end) for right in RIGHTS):
                    hits.add(replace(here, certain=here.end))
                elif end < len(units):
                    if in_language(pattern, folded, begin, end):
                        hits.add(replace(here, certain=units[end].origin + 1))
                elif ended and in_language(pattern, folded, begin, end):
                    hits.add(replace(here, certain=len(text) + 1))
            if action is not Action.FLAG and may_go_on(pattern, folded, begin):
                live.add((first.origin, order, frozenset()))
                if ended and rule.guard_tail and len({it.origin for it in units[begin:]}) >= rule.guard_tail:
                    hits.add(Hit(first.origin, len(text) + 1, units[-1].origin + 1, order, rule, action))
        return hits, live

    def history(self, text: str) -> tuple[list[Hit], Hit | None, int]:
        """Matches in force, the block if any, and overflows; character by character (semantics rules 5 and 8)."""
        everything, _ = self.candidates(text, ended=True)
        kept: list[Hit] = []
        overflows = 0
        for now in range(1, len(text) + 2):
            at_end = now == len(text) + 1
            fresh = [hit for hit in everything if hit.certain == now]
            blocks: list[Hit] = []
            if not at_end:
                _, live = self.candidates(text[:now], ended=False)
                wanted = live | {(hit.start, hit.order, hit.taken) for hit in fresh if hit.action is not Action.FLAG}
                rules = self.policy.rules
                left = {
                    (start, order)
                    for start, order, taken in wanted
                    if not self.in_window(rules[order], text[:now], start, taken)
                    and self.in_window(rules[order], text[: now - 1], start, taken)
                }
                fresh = [hit for hit in fresh if self.in_window(hit.rule, text[:now], hit.start, hit.taken)]
                if left:
                    overflows += 1
                if self.policy.on_overflow is Overflow.RELEASE:
                    left = {(start, order) for start, order in left if rules[order].secret}
                if left:
                    edge, order = min(left)
                    rule = rules[order]
                    if self.policy.on_overflow is Overflow.BLOCK:
                        blocks.append(Hit(edge, now, now - 1, order, rule, Action.BLOCK))
                    else:
                        if rule.action is not Action.REDACT:
                            rule = replace(rule, action=Action.REDACT, replacement=DEFAULT_REPLACEMENT, mask=None)
                        kept.append(Hit(edge, now, now - 1, order, rule, Action.REDACT, overflow=True))
            else:
                fresh = [hit for hit in fresh if self.in_window(hit.rule, text, hit.start, hit.taken)]
            if blocks:
                return kept, blocks[0], overflows
            kept += fresh
            blocks = [hit for hit in fresh if hit.action is Action.BLOCK]
            if blocks:
                return kept, min(blocks, key=lambda hit: (hit.start, hit.order)), overflows
        return kept, None, overflows

    def clusters(self, hits: list[Hit]) -> list[list[Hit]]:
        clusters: list[list[Hit]] = []
        reach = -1
        for hit in sorted(hits):
            if clusters and hit.start < reach:
                clusters[-1].append(hit)
                reach = max(reach, hit.end)
            else:
                clusters.append([hit])
                reach = hit.end
        return clusters

    def render(self, text: str, hits: list[Hit], upto: int) -> str:
        """The text before `upto`, with every cluster that begins at or before `upto` as its replacement."""
        out, at = "", 0

        def clean(to: int) -> str:
            return "".join(text[index] for index in range(at, to) if index not in dropped)

        dropped: set[int] = set()
        for hit in hits:
            if lens_of(hit.rule.fold).drops_marks:
                index = hit.end
                while index < len(text) and is_mark(text[index]):
                    dropped.add(index)
                    index += 1
        for cluster in self.clusters(hits):
            start, end = cluster[0].start, max(hit.end for hit in cluster)
            if start > upto:
                break
            out += clean(start)
            winner = min(cluster)
            out += winner.rule.mask * (end - start) if winner.rule.mask else winner.rule.replacement
            at = end
        return out + clean(max(upto, at))

    def whole(self, text: str) -> tuple[str, list[tuple[str, int, int, Action]], bool]:
        """What comes out of the whole text, the report, and whether it was blocked."""
        kept, block, _ = self.history(text)
        report = self.report(kept)
        if block is None:
            redacts = [hit for hit in kept if hit.action is Action.REDACT]
            return self.render(text, redacts, len(text)), report, False
        if block not in kept:  # an overflow; a match at its place is one with it
            place = block.rule.id, block.start, block.end
            report = [*(line for line in report if line[:3] != place), (*place, Action.BLOCK)]
        redacts = [
            hit
            for hit in kept
            if hit.action is Action.REDACT and (hit.certain < block.certain or hit.start < block.start)
        ]
        return self.render(text, redacts, block.start), report, True

    def report(self, hits: list[Hit]) -> list[tuple[str, int, int, Action]]:
        """Words one by one; of a pattern its maximal runs of overlapping matches (semantics rule 10)."""
        lines = []
        for order, rule in enumerate(self.policy.rules):
            own = sorted(hit for hit in hits if hit.order == order)
            # What an overflow redacts is no match of the pattern: it is reported by itself.
            alone = [hit for hit in own if rule.pattern is None or hit.overflow]
            # Nor is it reported where the rule has a match at that very place.
            matched = {(hit.start, hit.end) for hit in alone if not hit.overflow}
            alone = [hit for hit in alone if not hit.overflow or (hit.start, hit.end) not in matched]
            lines += [(rule.id, hit.start, hit.end, hit.action) for hit in alone]
            for run in self.clusters([hit for hit in own if rule.pattern is not None and not hit.overflow]):
                lines.append((rule.id, run[0].start, max(hit.end for hit in run), run[0].action))
        return list(dict.fromkeys(lines))  # an overflow and a match at one place are one

    def released(self, text: str) -> str:
        """What must have come out when `text` is what has arrived so far and more may come."""
        _, live = self.candidates(text, ended=False)
        kept, block, _ = self.history(text + NOTHING)
        kept = [hit for hit in kept if hit.certain <= len(text)]
        if block is not None and block.certain <= len(text):
            return self.whole(text + NOTHING)[0]
        rules = self.policy.rules
        starts = [start for start, order, taken in live if self.in_window(rules[order], text, start, taken)]
        return self.render(text, [hit for hit in kept if hit.action is Action.REDACT], min(starts, default=len(text)))
