"""The semantics, written the most naive way that can be right: the whole text, every start, every word, and for
patterns every substring, with Python's `re` to tell whether it is in the language.

Nothing here is shared with the product but the lens and the configuration model; nothing here is fast.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product

from gateway.automata.literals import is_word_char
from gateway.censor.common_words import is_common
from gateway.censor.lens import Lens, is_cjk, is_mark
from gateway.censor.window import MAX_UNSEEN
from gateway.policy.model import DEFAULT_REPLACEMENT, Action, Fold, Mode, Overflow, Policy, Rule
from tests.support.compiled import lens_of
from tests.support.expressions import matches


@dataclass(frozen=True, order=True)
class Hit:
    start: int
    certain: int  # characters that must have been read; len(text) + 1 is "the end"
    end: int
    order: int
    rule: Rule = field(compare=False)
    action: Action = field(compare=False)
    overflow: bool = field(compare=False, default=False)


@dataclass(frozen=True)
class Unit:
    """One folded character: where it comes from, and which of how many in an atomic expansion it is."""

    text: str
    origin: int
    inside: bool  # a match may not begin here
    more: bool  # a match may not end here


def units_of(text: str, lens: Lens) -> list[Unit]:
    units = []
    for origin, char in enumerate(text):
        folded, atomic = lens.fold(char)
        for index, piece in enumerate(folded):
            units.append(Unit(piece, origin, atomic and index > 0, atomic and index < len(folded) - 1))
    return units


def word_char_at(units: list[Unit], index: int) -> bool:
    return 0 <= index < len(units) and is_word_char(units[index].text)


def needs_edge(char: str) -> bool:
    return is_word_char(char) and not is_cjk(char)


# What may stand behind a place, as far as `\b` and `$` can see: nothing, a word character, a line end, another one.
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


class Oracle:
    def __init__(self, policy: Policy, max_unseen: int = MAX_UNSEEN) -> None:
        self.policy = policy
        self.max_unseen = max_unseen

    def in_window(self, rule: Rule, text: str, start: int) -> bool:
        """May a match of the rule reach from `start` to the end of `text`?"""
        lens = lens_of(rule.fold)
        seen = sum(1 for char in text[start:] if lens.fold(char).text)
        return seen <= self.policy.max_hold and len(text) - start - seen <= self.max_unseen

    def action(self, rule: Rule) -> Action:
        return Action.FLAG if self.policy.mode is Mode.OBSERVE else rule.action

    def words(self, rule: Rule) -> list[str]:
        lens = lens_of(rule.fold)
        return list(dict.fromkeys(form for word in rule.words for form in self.spellings(lens.fold_word(word), lens)))

    def spellings(self, word: str, lens: Lens) -> list[str]:
        """With each voiced kana in one piece or two."""
        forms = [{char, unicodedata.normalize("NFD", char)} if char in "ガバパ" else {char} for char in word]
        return ["".join(form) for form in product(*forms)] if Fold.WIDTH in lens.folds else [word]

    def guard(self, rule: Rule, word: str) -> int:
        if rule.guard_tail is not None:
            return rule.guard_tail
        return next(k for k in range(len(word) + 1) if k * 10 >= len(word) * 6) if rule.secret else 0

    def candidates(self, text: str, ended: bool) -> tuple[list[Hit], set[tuple[int, int]]]:
        """All certain matches of the whole text, and the (start, rule order) that are live at its end."""
        hits: set[Hit] = set()
        live: set[tuple[int, int]] = set()
        for order, rule in enumerate(self.policy.rules):
            units = units_of(text, lens_of(rule.fold))
            action = self.action(rule)
            if rule.pattern is not None:
                found, alive = self.pattern_candidates(rule, order, text, ended)
                hits |= found
                live |= alive
                continue
            for word in self.words(rule):
                for begin in range(len(units)):
                    if units[begin].inside:
                        continue
                    if rule.whole_word and needs_edge(word[0]) and word_char_at(units, begin - 1):
                        continue
                    there = "".join(unit.text for unit in units[begin : begin + len(word)])
                    start = units[begin].origin
                    if there != word:
                        at_end = begin + len(there) == len(units) and word.startswith(there)
                        if at_end and action is not Action.FLAG:
                            live.add((start, order))
                            guard = self.guard(rule, word)
                            spared = rule.secret and rule.guard_tail is None and is_common(there)
                            if ended and guard and len(there) >= guard and not spared:
                                hits.add(Hit(start, len(text) + 1, units[-1].origin + 1, order, rule, action))
                        continue
                    last = begin + len(word) - 1
                    if units[last].more:
                        continue
                    end = units[last].origin + 1
                    if not (rule.whole_word and needs_edge(word[-1])):
                        hits.add(Hit(start, end, end, order, rule, action))
                    elif last + 1 < len(units):
                        if not word_char_at(units, last + 1):
                            hits.add(Hit(start, units[last + 1].origin + 1, end, order, rule, action))
                    elif ended:
                        hits.add(Hit(start, len(text) + 1, end, order, rule, action))
                    elif action is not Action.FLAG:
                        live.add((start, order))
        first: dict[tuple[int, int, int], Hit] = {}
        for hit in sorted(hits):
            first.setdefault((hit.start, hit.end, hit.order), hit)
        return sorted(first.values()), live

    def pattern_candidates(
        self, rule: Rule, order: int, text: str, ended: bool
    ) -> tuple[set[Hit], set[tuple[int, int]]]:
        hits: set[Hit] = set()
        live: set[tuple[int, int]] = set()
        action, pattern = self.action(rule), as_python(rule)
        units = units_of(text, lens_of(rule.fold - {Fold.CASE}))
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
                live.add((first.origin, order))
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
                wanted = live | {(hit.start, hit.order) for hit in fresh if hit.action is not Action.FLAG}
                rules = self.policy.rules
                left = {
                    (start, order)
                    for start, order in wanted
                    if not self.in_window(rules[order], text[:now], start)
                    and self.in_window(rules[order], text[: now - 1], start)
                }
                fresh = [hit for hit in fresh if self.in_window(hit.rule, text[:now], hit.start)]
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
                fresh = [hit for hit in fresh if self.in_window(hit.rule, text, hit.start)]
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
        if block not in kept:
            report.append((block.rule.id, block.start, block.end, Action.BLOCK))
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
            lines += [(rule.id, hit.start, hit.end, hit.action) for hit in alone]
            for run in self.clusters([hit for hit in own if rule.pattern is not None and not hit.overflow]):
                lines.append((rule.id, run[0].start, max(hit.end for hit in run), run[0].action))
        return lines

    def released(self, text: str) -> str:
        """What must have come out when `text` is what has arrived so far and more may come."""
        _, live = self.candidates(text, ended=False)
        kept, block, _ = self.history(text + "\0")
        kept = [hit for hit in kept if hit.certain <= len(text)]
        if block is not None and block.certain <= len(text):
            return self.whole(text + "\0")[0]
        starts = [start for start, order in live if self.in_window(self.policy.rules[order], text, start)]
        return self.render(text, [hit for hit in kept if hit.action is Action.REDACT], min(starts, default=len(text)))
