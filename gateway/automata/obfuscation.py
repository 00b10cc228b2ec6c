"""Words that are written in disguise: spaced out, with letters repeated, replaced, escaped or encoded, or misspelt.

The words are a trie, and a position of the automaton is a node of it with what the way there leaves open: how many
edits it took, how many characters lie since the last letter, what of an encoded letter has been read. Positions are
computed when a text first leads to them; so ten thousand words in every disguise cost their trie and what texts have
met (`gateway.automata.machine`). Edits are followed as in Schulz and Mihov's Levenshtein automata (2002), in their
nondeterministic form; a transposition is one edit.

What a hostile text costs is the number of positions that it keeps alive, so there are as few as can be: a letter that
stands for another one leads to one position, whichever letter it replaces, and a word without its first letters is
one of a second trie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log10

from gateway.automata.contexts import OTHER, WORD_CHAR
from gateway.automata.edges import is_word_char
from gateway.automata.encodings import CONTROLS, ESCAPE, NEXT
from gateway.automata.literals import Folded
from gateway.automata.machine import MAX_TRANSITIONS, StateMachine
from gateway.automata.markup import BETWEEN
from gateway.automata.pattern_states import CharClass, Position
from gateway.automata.trie import ROOT
from gateway.automata.word_chars import LINE_MARKS, Char, WordChars
from gateway.automata.word_places import (
    APART,
    BLANK,
    BLANK_GAP,
    DONE,
    DOUBLED,
    EDGED,
    EXACT,
    GAP_LENGTH,
    GAPPED,
    JOINED,
    LINE,
    MASKED,
    NEW_LINE,
    NUMBER,
    OFTEN,
    PLAIN,
    SECOND_PLAIN,
    SINGLE,
    STARRED,
    SWAPPED,
    TWICE,
    UNEVEN,
    Bundle,
    Obfuscation,
    Place,
    Places,
    bundled,
    distinct,
)
from gateway.automata.word_trie import WordSet, WordTrie, letter_bits

__all__ = ["ObfuscatedWords", "Obfuscation"]

MAX_GAP = 7  # characters between two letters that are spaced out; a run of blanks is one
# Shorter words need more to count as disguised, or they would be found in ordinary text: `as s` is not spaced out, of
# `4$s` one letter is too few, and in `conn` no letter is repeated.
SHORT_SPACED = 5  # all letters are spaced out alike
SHORT = 5  # two letters are as they are, and a letter comes at least three times
# States of a few positions each, of which disguises need many.
MAX_TARGETS = 160_000
# What a character of hostile text that was never seen before costs, in 2 microseconds: of disguises, of codes, and with
# 1 and 2 edits of a thousand words. With edits, ten times as many words cost so much again for each edit.
DISGUISES_COST, CODES_COST, EDITS_COST = 40, 150, (80, 240)

ANY_LETTER = 1 << 62  # leads on where more than letters does
_MAX_DIGITS = 3
_EMPHASIS = frozenset("*_~`")
_STRONG = frozenset("*~`")  # emphasis that is not also a part of names
_ITEM_MARKS = LINE_MARKS | {"(", "["}  # what may stand before the number of a list
CONTROL_CODES = frozenset({ESCAPE, *CONTROLS.values()})

Led = list[Place | None]  # places that a character leads to; None: none from which a match is possible


class ObfuscatedWords(StateMachine):
    """The automaton of sets of words, seen through a lens and through disguises.

    `fold` makes characters vanish that do not count at all; `letters` are those of a character, as the words have them.
    """

    looks_behind = False  # an edge is looked for where a match begins, and else waited for

    def __init__(
        self,
        words: Sequence[WordSet],
        disguises: Obfuscation,
        fold: Callable[[str], Folded],
        letters: Callable[[str], str],
        max_transitions: int = 2 * MAX_TRANSITIONS,
    ) -> None:
        super().__init__(fold, max_transitions, MAX_TARGETS)
        self.patterns = words
        self._disguises = disguises
        self._chars = chars = WordChars(words, disguises, letters)
        self._encodings, self._embedded = chars.encodings, chars.embedded
        self._places = Places(disguises, self._embedded, SHORT_SPACED, SHORT)
        self.cost = _cost(words, disguises)
        self.tries = [trie for owner, each in enumerate(words) for trie in tries_of(each, owner)]
        self._roots = [self._places.root(trie, 0) for trie in self.tries if not trie.edged]
        self._edged_roots = [self._places.root(trie, EDGED) for trie in self.tries]
        self._forget_tables()

    def positions(self) -> Iterable[Position]:
        return self._places

    def forget_steps(self) -> None:
        """Empty the cache of places, too; states keep those that cursors are at."""
        super().forget_steps()
        self._places.clear()
        self._forget_tables()

    def _forget_tables(self) -> None:
        """Empty what else is known of steps."""

    def class_key(self, unit: str) -> tuple[Char, int]:
        return self._chars.key(unit), WORD_CHAR if is_word_char(unit) else OTHER

    def successors(self, position: Position, left: int, char_class: CharClass) -> tuple[Position, ...]:
        char: Char = char_class.key
        if self._places.is_full():
            self.forget_steps()
        if isinstance(position, Place):
            return distinct(self._step(position, char))
        if isinstance(position, Bundle):
            return distinct(led for place in position.places for led in self._step(place, char))
        return bundled(self._start(char, left))

    def reads(self, key: Char) -> int:
        spaced = key.gap and (self._disguises.spacing or self._disguises.markup)
        much = key.begins or spaced or key.code in CONTROL_CODES or self._disguises.variants
        return -1 if much else letter_bits(key.plain + key.looks_like + key.draws) | ANY_LETTER

    def _start(self, char: Char, left: int) -> Led:
        roots = self._roots if left == WORD_CHAR or self._disguises.variants else self._edged_roots
        return [led for root in roots for led in self._read_first(root, char)]

    def _read_first(self, root: Place, char: Char) -> Led:
        led: Led = []
        if not self._disguises.variants:
            led += self._read_char(root, char)
            for at in range(1, len(char.plain)):
                led += self._read(root, char.plain[at:], PLAIN)
        for encoding in (*char.begins, *range(self._embedded + 1, len(self._encodings) + 1)):
            led += self._read_encoded(root, encoding, None, char.code)
        return led

    def _step(self, place: Place, char: Char) -> Led:
        if place.encoding:
            return self._read_encoded(place, place.encoding, place.state, char.code)
        if not place.node and not place.skip:
            return self._read_first(place, char)
        if place.flags & DONE:
            return []
        if place.state.startswith(SWAPPED):
            comes = place.state[1:] in (char.plain, *char.looks_like, *char.draws)
            return [self._places.at(place.trie, place.node, place.edits, place.flags)] if comes else []
        led = self._read_char(place, char) if not place.state.startswith(NUMBER) else []
        for encoding in char.begins:
            led += self._read_encoded(place, encoding, None, char.code)
        if char.gap or place.state.startswith((LINE, NUMBER)):
            led += self._skip(place, char)
        if place.edits < place.trie.set.edits:
            led += self._edit(place)
        return led

    def _read_char(self, place: Place, char: Char) -> Led:
        """Read a letter."""
        led = self._read(place, char.plain, PLAIN) if char.plain else []
        for letter in char.draws:
            led += self._read(place, letter, PLAIN)
        # At a word's beginning or end a sign is what it is: punctuation; but a mask may be there if another is within.
        for letter in char.looks_like if place.node or not char.is_sign else char.looks_like if char.masks else "":
            read = self._read(place, letter, (MASKED if place.node else STARRED) if char.masks else 0)
            ends = not char.is_sign or (char.masks and place.flags & MASKED)
            led += read if ends else [self._inexact(each) for each in read if each]
        return led

    def _inexact(self, place: Place) -> Place | None:
        flags = place.flags & ~EXACT
        return self._places.at(
            place.trie, place.node, place.edits, flags, place.gap, place.spaced, 0, place.state, place.skip
        )

    def _read_encoded(self, place: Place, encoding: int, begun: str | None, code: str) -> Led:
        """A character in an encoding, which continues behind it, or the text does."""
        led: Led = []
        for letters, state in self._chars.read_code(encoding, begun, code):
            if letters is None:
                if encoding > self._embedded:
                    led.append(self._coded(place, encoding, state, code))
                elif not place.node and state[0] in BETWEEN:
                    continue
                elif not self._chars.looks_ahead[encoding - 1] or self._may_become(place, encoding, state):
                    led.append(self._places.encoded(place, encoding, state))
            elif encoding <= self._embedded:
                led += self._read_embedded(place, encoding, letters)
            elif letters or place.node:  # what stands for nothing before the first letter belongs to no match
                node = place.node
                for letter in letters:
                    node = place.trie.child(node, letter)
                    if not node:
                        break
                else:
                    # A character that is none or several letters makes no short word of a number.
                    flags = place.flags | EXACT | PLAIN | DOUBLED * (len(letters) != 1)
                    led.append(self._places.at(place.trie, node, place.edits, flags, 0, 0, encoding, state))
        return led

    def _coded(self, place: Place, encoding: int, state: str, code: str) -> Place | None:
        """Read a character of an unfinished code. Other characters may interrupt it, but not in a short word."""
        if state != place.state or code in "\r\n" or NEXT in state:
            return self._places.encoded(place, encoding, state)
        flags = place.flags | self._places.interruption(encoding)
        return self._places.at(place.trie, place.node, place.edits, flags, 0, 0, encoding, state)

    def _may_become(self, place: Place, encoding: int, state: str) -> bool:
        """May what has begun become a letter that leads on?"""
        text, outcomes = self._text(place, place.gap), self._encodings[encoding - 1].outcomes(state) or ""
        return text is not None and any(any(self._letter(text, letter, 0)) for letter in outcomes)

    def _text(self, place: Place, gap: int) -> Place | None:
        """The place in the text at which an encoded letter began."""
        if not place.node or (not place.encoding and gap == place.gap and not place.state):
            return place
        return self._places.at(place.trie, place.node, place.edits, place.flags, gap, place.spaced, 0, "", place.skip)

    def _read_embedded(self, place: Place, encoding: int, letters: str) -> Led:
        if not letters:  # what is written stands for nothing
            if place.node:
                return [self._text(place, place.gap or 1)]
            # Its last character hides the edge before the word.
            edged = self._disguises.spacing and place.flags & EDGED
            return [self._places.at(place.trie, ROOT, place.edits, place.flags)] if edged else []
        text = self._text(place, place.gap)
        if text is None:
            return []
        if self._disguises.leet and encoding == 1:
            return self._read(text, letters, 0)
        if len(letters) > 1:
            return self._read(text, letters, PLAIN)
        char: Char = self.char_class(letters).key
        led = self._read_char(text, char)
        return [*led, *self._skip(text, char)] if text.node else led

    def _read(self, place: Place, letters: str, flag: int) -> Led:
        """All letters of one character, one after the other. A match may end before the last."""
        return self._letter(place, letters, flag) if len(letters) == 1 else list(self._read_each(place, letters, flag))

    def _read_each(self, place: Place, letters: str, flag: int) -> Iterator[Place | None]:
        places: dict[Place, None] = {place: None}
        for at, letter in enumerate(letters):
            places = dict.fromkeys(led for each in places for led in self._letter(each, letter, flag) if led)
            if at < len(letters) - 1:
                for each in places:
                    if each.arrives or each.waits:
                        flags = each.flags | DONE
                        yield self._places.at(each.trie, each.node, each.edits, flags, 0, each.spaced, 0, each.state)
        yield from places
        # One character that is several letters comes again, as a Hangul syllable.
        repeats = self._disguises.repeats and place.flags & EXACT
        if repeats and place.trie.trie.path(place.node).endswith(letters):
            often = OFTEN if place.state in (TWICE, OFTEN) else TWICE
            yield self._places.at(place.trie, place.node, place.edits, place.flags, 0, place.spaced, 0, often)

    def _letter(self, place: Place, letter: str, flag: int) -> Led:
        trie, node, edits, skip, at = place.trie, place.node, place.edits, place.skip, self._places.at
        flags = place.flags & ~BLANK | flag | EXACT
        if flag & place.flags & PLAIN:
            flags |= SECOND_PLAIN
        repeated = flags
        if node and not place.gap:
            flags |= JOINED
        same = node > ROOT and not skip and trie.trie.labels[node] == letter
        if node > ROOT and not same and not place.gap:
            flags |= self._times(place)
        spaced = place.spaced
        if flags & GAPPED and trie.lightest[node] < SHORT_SPACED:
            if spaced and spaced != place.gap:
                flags |= UNEVEN
            spaced = spaced or place.gap
        found: Led = []
        if skip:
            found = [at(trie, below, edits, flags, 0, spaced) for below in trie.descendants(node, skip + 1, letter)]
        elif (child := trie.child(node, letter)) and (
            node or place.flags & EDGED or trie.missing or not trie.needs_edge(child)
        ):
            found.append(at(trie, child, edits, flags, 0, spaced))
        if same:
            if letter == " ":
                found.append(at(trie, node, edits, place.flags | flag, 0, place.spaced, 0, place.state))
            elif self._disguises.repeats and place.flags & EXACT:
                often = OFTEN if place.state in (TWICE, OFTEN) else TWICE
                found.append(at(trie, node, edits, repeated if not place.gap else flags, 0, spaced, 0, often))
        if node and edits < trie.set.edits:
            # Behind one letter or more that are missing, or before the letter that should stand before it.
            for missing in range(1, trie.set.edits - edits + 1):
                for below in trie.descendants(node, skip + 1 + missing, letter):
                    found.append(at(trie, below, edits + missing, flags, 0, spaced))
            for below in trie.descendants(node, skip + 2, letter):
                expected = trie.trie.labels[trie.parent(below)]
                if expected != letter:
                    found.append(at(trie, below, edits + 1, flags & ~EXACT, 0, spaced, 0, SWAPPED + expected))
        return found

    def _times(self, place: Place) -> int:
        """The flag of a letter that has come once or twice, behind it."""
        if not self._disguises.repeats or place.state == OFTEN:
            return 0
        return DOUBLED if place.state == TWICE else SINGLE

    def _edit(self, place: Place) -> Led:
        """The character is one too many, or stands for another letter."""
        trie, node, skip, at = place.trie, place.node, place.skip, self._places.at
        edits, flags = place.edits + 1, place.flags & ~EXACT
        led = [at(trie, node, edits, flags, 0, place.spaced, 0, "", each) for each in (skip, skip + 1)]
        if trie.has_blanks:  # of which there may be several
            led += [at(trie, below, edits, flags, 0, place.spaced) for below in trie.descendants(node, skip + 1, " ")]
        return led

    def _skip(self, place: Place, char: Char) -> Iterator[Place | None]:
        """The character lies between two letters, or in the white space of a phrase."""
        if char.code in CONTROL_CODES:
            yield place  # and the rest of a sequence may be read as it is
            return
        if place.skip:
            return
        trie, node, edits, flags, gap, spaced = (
            place.trie, place.node, place.edits, place.flags, place.gap, place.spaced,
        )  # fmt: skip
        blank = trie.trie.labels[node] == " "
        if blank and char.line_end:
            yield self._places.at(trie, node, edits, flags, gap, spaced, 0, NEW_LINE)
        if blank and place.state == NEW_LINE and char.code in LINE_MARKS:
            yield place
        if char.gap:
            yield from self._widen(place, char)
        elif place.state[:1] in (LINE, NUMBER) and char.code.isdigit() and len(place.state) <= _MAX_DIGITS:
            numbered = NUMBER + place.state[1:] + "0"
            yield self._places.at(trie, node, edits, flags & ~BLANK, gap & BLANK_GAP | 1, spaced, 0, numbered)

    def _widen(self, place: Place, char: Char) -> Iterator[Place | None]:
        """Extend a gap."""
        trie, node, edits, gap, spaced = place.trie, place.node, place.edits, place.gap, place.spaced
        blank = char.gap == 2
        if not (gap and blank and place.flags & BLANK):
            if gap & GAP_LENGTH == MAX_GAP:
                return
            gap = gap + 1 if gap or not blank else BLANK_GAP + 1
        if self._disguises.spacing and place.flags & EDGED:
            flags = place.flags & ~BLANK | GAPPED | BLANK * blank | (0 if place.gap else self._times(place))
            if not (self._disguises.markup and char.code in _STRONG):
                flags |= APART
            marked = place.state == LINE and (blank or char.code in _ITEM_MARKS)
            state = LINE if char.line_end or marked else ""
            yield self._places.at(trie, node, edits, flags, gap, spaced, 0, state)
            if child := trie.child(node, " "):
                yield self._places.at(trie, child, edits, flags, gap, spaced, 0, state)
        elif self._disguises.markup and char.code in _EMPHASIS:
            yield self._places.at(trie, node, edits, place.flags, gap, spaced, 0, place.state)


def _cost(words: Sequence[WordSet], disguises: Obfuscation) -> int:
    edits = max((each.edits for each in words), default=0)
    if not edits:
        return CODES_COST if disguises.variants else DISGUISES_COST
    thousands = sum(len(each.words) for each in words) / 1000
    return round(EDITS_COST[edits - 1] * (1 + edits * log10(max(thousands, 1))))


def tries_of(words: WordSet, owner: int) -> Iterator[WordTrie]:
    """The trie of the words, and those of what is left of them where their first letters are missing."""
    yield WordTrie(words, owner)
    for missing in range(1, words.edits + 1):
        for edged in (True, False) if words.whole else (None,):
            trie = WordTrie(words, owner, missing, edged)
            if trie:
                yield trie
