"""Words that are written in disguise: spaced out, with letters repeated, replaced, escaped or encoded, or misspelt.

The words are a trie, and a position of the automaton is a node of it with what the way there leaves open: how many
edits it took, how many characters lie since the last letter, what of an encoded letter has been read. Positions are
worked out when a text first leads to them, are numbers that say all of it, and no list of them is kept; so ten thousand
words in every disguise cost their trie and what texts have met (`gateway.automata.machine`). Edits are followed as in
Schulz and Mihov's Levenshtein automata (2002), in their nondeterministic form; a transposition is one edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.automata.contexts import ALL_RIGHTS, EDGE, KINDS, OTHER, WORD_CHAR
from gateway.automata.edges import is_word_char
from gateway.automata.encodings import (
    CONTROL_SEQUENCES,
    DRAWN,
    LEET,
    MASK,
    PUNCTUATION,
    VARIANTS,
    Encoding,
    Spellings,
    ascii_form,
)
from gateway.automata.literals import Folded
from gateway.automata.machine import MAX_TRANSITIONS, CharClass, StateMachine
from gateway.automata.markup import BETWEEN, escapes
from gateway.automata.positions import Region
from gateway.automata.states import Always, Lookup
from gateway.automata.trie import ROOT
from gateway.automata.word_trie import WordSet, WordTrie

# A gap is its length, and whether it begins with a blank: of short words all are alike.
_GAP_LENGTH, _BLANK_GAP = 7, 8
MAX_GAP = 7  # characters between two letters that are spaced out; a run of blanks is one
# Shorter words need more to count as disguised, or they would be found in ordinary text: `as s` is not spaced out, of
# `4$s` one letter is too few, and in `conn` no letter is repeated.
SHORT_SPACED = 5  # all letters are spaced out alike
SHORT_MASKED = 4  # no letter is an asterisk
SHORT = 5  # two letters are as they are, and a letter comes at least three times
# States of a few positions each, of which disguises need many.
MAX_TARGETS = 160_000

_AT_EDGE = 1 << EDGE | 1 << OTHER  # what may stand beside a word character that ends a word
# What is known of a way besides its node.
_EDGED, _GAPPED, _JOINED, _PLAIN, _SECOND_PLAIN, _DOUBLED, _UNEVEN, _EXACT, _DONE, _BLANK, _MASKED = (
    1 << bit for bit in range(11)
)
_FLAGS = 11
_LINE_MARKS = frozenset(">-*+#|")
_EMPHASIS = frozenset("*_~`")
_SWAPPED = "\x02"  # then the letter that must come next
_NEW_LINE = "\n"  # in the white space of a phrase, behind a line end
ESCAPE = "\x1b"
_LINE = "\x06"  # in a gap, where a line begins
_NUMBER = "\x07"  # in a gap, behind the number of a list: as many as there are digits
_MAX_DIGITS = 3
_TWICE = "\x04"  # behind a letter that has come once more than in the word
_OFTEN = "\x05"  # and more often


@dataclass(frozen=True, slots=True, kw_only=True)
class Obfuscation:
    """How words are written: in a text, with these disguises; or, if there are `variants` (names of
    `encodings.VARIANTS`), in one of these codes only."""

    leet: bool = False
    spacing: bool = False
    repeats: bool = False
    markup: bool = False
    url: bool = False
    controls: bool = False  # of terminals, which do not show them
    variants: tuple[str, ...] = ()


class _Char(NamedTuple):
    """What the positions can tell of a character: its letters, those it may stand for, what encodings see of it."""

    plain: str
    looks_like: str
    is_sign: bool
    code: str
    gap: int  # may it lie between letters: 1; a blank: 2
    line_end: bool


class _Place(NamedTuple):
    """A position. `encoding` 0 is the text itself; in it `state` is empty, or one of the special ones above."""

    words: int
    node: int
    edits: int
    flags: int
    gap: int
    spaced: int  # characters between the first two letters that are spaced out, where all are to be as far apart
    encoding: int
    state: str


class ObfuscatedWords(StateMachine):
    """The automaton of sets of words, seen through a lens and through disguises.

    `fold` makes characters vanish that do not count at all; `letters` are those of a character, as the words have them.
    """

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
        self._sets = [WordTrie(each) for each in words]
        self._alphabet = frozenset(char for each in words for word in each.words for char in word)
        self._letters, self._disguises = letters, disguises
        # Within a text, each for one letter, and for whole words.
        self._embedded: list[Encoding] = [Spellings(DRAWN)] * disguises.leet
        if disguises.markup or disguises.url:
            self._embedded.append(escapes(markup=disguises.markup, url=disguises.url))
        if disguises.controls:
            self._embedded.append(CONTROL_SEQUENCES)
        self._encodings = [*self._embedded, *(VARIANTS[name] for name in disguises.variants)]
        self.region, self.past = Always(Region.SPAN), Always(0)
        self.owner = Lookup(lambda position: _unpack(position).words)
        self._rights = Lookup(lambda position: self._rights_of(_unpack(position)))
        self.arrives = Lookup(lambda position: ALL_RIGHTS if self._rights[position] == ALL_RIGHTS else 0)
        self.waits = Lookup(lambda position: self._waits(self._rights[position]))
        self.continues = Lookup(lambda position: ALL_RIGHTS if self._continues(_unpack(position)) else 0)
        self.goes_on = Lookup(lambda position: ALL_RIGHTS if self.waits[position] else self.continues[position])

    # -- characters ----------------------------------------------------------------------------------------------------

    def class_key(self, unit: str) -> tuple[_Char, int]:
        letters = self._letters(unit)
        char = _Char(
            plain=letters if self._alphabet.intersection(letters) else "",
            looks_like="".join(self._alphabet.intersection(LEET.get(unit, ""))) if self._disguises.leet else "",
            is_sign=unit in PUNCTUATION,
            code=ascii_form(unit) if self._encodings or unit in _LINE_MARKS else "",
            gap=0 if unit.isalnum() else 2 if unit.isspace() else 1,
            line_end=unit in "\n\r\u2028\u2029",
        )
        return char, WORD_CHAR if is_word_char(unit) else OTHER

    # -- positions -----------------------------------------------------------------------------------------------------

    def successors(self, position: int, left: int, char_class: CharClass) -> tuple[int, ...]:
        char: _Char = char_class.key
        places = self._begin(char, left) if position < 0 else self._go_on(_unpack(position), char)
        return tuple(sorted({_pack(place) for place in places if self._may_match(place)}))

    def _begin(self, char: _Char, left: int) -> Iterator[_Place]:
        edged = _EDGED if left != WORD_CHAR else 0
        for words in range(len(self._sets)):
            root = _Place(words, ROOT, 0, edged, 0, 0, 0, "")
            if not self._disguises.variants:
                yield from self._read_char(root, char)
                for at in range(1, len(char.plain)):
                    yield from self._read(root, char.plain[at:], _PLAIN)
            for encoding, each in enumerate(self._encodings, start=1):
                for letters, state in each.begin(char.code) if char.code else ():
                    if letters is not None:
                        yield from self._read_encoded(root, encoding, letters, state)
                    elif encoding > len(self._embedded) or state[0] not in BETWEEN:
                        yield root._replace(encoding=encoding, state=state)

    def _go_on(self, place: _Place, char: _Char) -> Iterator[_Place]:
        if place.flags & _DONE:
            return
        if place.encoding:
            for letters, state in (
                self._encodings[place.encoding - 1].go_on(place.state, char.code) if char.code else ()
            ):
                if letters is not None:
                    yield from self._read_encoded(place, place.encoding, letters, state)
                elif state == place.state and not char.line_end:  # passed by: a short word stands in one piece
                    yield place._replace(flags=place.flags | _GAPPED | _JOINED)
                else:
                    yield place._replace(state=state)
            return
        if place.state.startswith(_SWAPPED):
            if place.state[1:] in (char.plain, *char.looks_like):
                yield place._replace(state="")
            return
        if not place.state.startswith(_NUMBER):
            yield from self._read_char(place, char)
        for encoding, each in enumerate(self._embedded, start=1):
            for letters, state in each.begin(char.code) if char.code else ():
                if letters is None:
                    yield place._replace(encoding=encoding, state=state)
                else:
                    yield from self._read_encoded(place, encoding, letters, state)
        yield from self._skip(place, char)
        yield from self._edit(place)

    def _read_char(self, place: _Place, char: _Char) -> Iterator[_Place]:
        """The character is a letter."""
        if char.plain:
            yield from self._read(place, char.plain, _PLAIN)
        for letter in char.looks_like if place.node or not char.is_sign else "":
            for read in self._read(place, letter, _MASKED if char.code == MASK else 0):
                # At a word's end it is what it is: punctuation.
                yield read._replace(flags=read.flags & ~_EXACT) if char.is_sign else read

    def _read_encoded(self, place: _Place, encoding: int, letters: str, state: str) -> Iterator[_Place]:
        """Letters that were written in an encoding, which goes on behind them, or the text does."""
        if encoding <= len(self._embedded):
            text = place._replace(encoding=0, state="")
            folded = "".join(map(self._letters, letters))
            if self._disguises.leet and encoding == 1:
                yield from self._read(text, folded, 0)
            elif not folded:
                if text.node:
                    yield text._replace(gap=place.gap or 1)
            elif len(letters) == 1:
                char: _Char = self.char_class(letters).key
                yield from self._read_char(text, char)
                if text.node:
                    yield from self._skip(text, char)
            else:
                yield from self._read(text, folded, _PLAIN)
            return
        node, words = place.node, self._sets[place.words]
        for letter in "".join(map(self._letters, letters)):
            node = words.child(node, letter)
            if not node:
                return
        yield place._replace(node=node, flags=place.flags | _EXACT | _PLAIN, encoding=encoding, state=state)

    def _read(self, place: _Place, letters: str, flag: int) -> Iterator[_Place]:
        """All letters of one character, one after the other. A match may end before the last."""
        places = {place}
        for at, letter in enumerate(letters):
            places = {each for place in places for each in self._letter(place, letter, flag)}
            if at < len(letters) - 1:
                yield from (each._replace(flags=each.flags | _DONE) for each in places if self._rights_of(each))
        yield from places
        # One character that is several letters comes again, as a Hangul syllable.
        repeats = len(letters) > 1 and self._disguises.repeats and place.flags & _EXACT
        if repeats and self._sets[place.words].trie.path(place.node).endswith(letters):
            yield place._replace(state=_OFTEN if place.state in (_TWICE, _OFTEN) else _TWICE, gap=0)

    def _letter(self, place: _Place, letter: str, flag: int) -> list[_Place]:
        words, node = self._sets[place.words], place.node
        flags = place.flags & ~_BLANK | flag | _EXACT
        if flag & place.flags & _PLAIN:
            flags |= _SECOND_PLAIN
        if node and not place.gap:
            flags |= _JOINED
        if place.state == _TWICE and words.trie.labels[node] != letter:
            flags |= _DOUBLED
        spaced = place.spaced
        if flags & _GAPPED and words.lightest[node] < SHORT_SPACED:
            if spaced and spaced != place.gap:
                flags |= _UNEVEN
            spaced = spaced or place.gap
        came = place._replace(flags=flags, gap=0, spaced=spaced, state="")
        child = words.child(node, letter)
        if child and (node or place.flags & _EDGED or not words.needs_edge(child)):
            found = [came._replace(node=child)]
        else:
            found = []
        if node and words.trie.labels[node] == letter:
            if letter == " ":
                found.append(place._replace(flags=place.flags | flag, gap=0))
            elif self._disguises.repeats and place.flags & _EXACT:
                found.append(came._replace(state=_OFTEN if place.state in (_TWICE, _OFTEN) else _TWICE))
        if place.edits < words.set.edits:
            found += self._delete(came, node, place.edits, letter)
            edited = came._replace(edits=place.edits + 1, flags=came.flags & ~_EXACT)
            for other in words.children(node) if node else ():
                swapped, expected = words.child(other, letter), words.trie.labels[other]
                if swapped and expected != letter:
                    found.append(edited._replace(node=swapped, state=_SWAPPED + expected))
        return found

    def _delete(self, came: _Place, node: int, edits: int, letter: str) -> Iterator[_Place]:
        """The letter comes after one or more that are missing."""
        words = self._sets[came.words]
        if edits == words.set.edits:
            return
        for missing in words.children(node):
            if node == ROOT and words.needs_edge(missing) and not came.flags & _EDGED:
                continue
            child = words.child(missing, letter)
            if child:
                yield came._replace(node=child, edits=edits + 1)
            yield from self._delete(came, missing, edits + 1, letter)

    def _edit(self, place: _Place) -> Iterator[_Place]:
        """The character is one too many, or stands for another letter."""
        words = self._sets[place.words]
        if place.edits < words.set.edits:
            edited = place._replace(edits=place.edits + 1, flags=place.flags & ~_EXACT, gap=0, state="")
            yield edited
            for other in words.children(place.node):
                yield edited._replace(node=other)

    def _skip(self, place: _Place, char: _Char) -> Iterator[_Place]:
        """The character lies between two letters, or in the white space of a phrase."""
        words = self._sets[place.words]
        if char.code == ESCAPE:
            yield place  # and the rest of a sequence may be read as it is
            return
        blank = words.trie.labels[place.node] == " "
        if blank and char.line_end:
            yield place._replace(state=_NEW_LINE)
        if blank and place.state == _NEW_LINE and char.code in _LINE_MARKS:
            yield place
        if char.gap:
            yield from self._widen(place, char)
        elif place.state[:1] in (_LINE, _NUMBER) and char.code.isdigit() and len(place.state) <= _MAX_DIGITS:
            yield place._replace(state=_NUMBER + place.state[1:] + "0", gap=place.gap & _BLANK_GAP | 1)

    def _widen(self, place: _Place, char: _Char) -> Iterator[_Place]:
        """The gap goes on."""
        words = self._sets[place.words]
        blank = char.gap == 2
        gap = place.gap
        if not (gap and blank and place.flags & _BLANK):
            if gap & _GAP_LENGTH == MAX_GAP:
                return
            gap = gap + 1 if gap or not blank else _BLANK_GAP + 1
        if self._disguises.spacing and place.flags & _EDGED:
            flags = place.flags & ~_BLANK | _GAPPED | _BLANK * blank
            marked = place.state == _LINE and (blank or char.code in _LINE_MARKS)
            widened = place._replace(gap=gap, flags=flags, state=_LINE if char.line_end or marked else "")
            yield widened
            child = words.child(place.node, " ")
            if child:
                yield widened._replace(node=child)
        elif self._disguises.markup and char.code in _EMPHASIS:
            yield place._replace(gap=gap)

    # -- what can come of a position -----------------------------------------------------------------------------------

    def _may_match(self, place: _Place) -> bool:
        words = self._sets[place.words]
        longest = words.longest[place.node]
        if longest < words.set.edits_from:
            return False
        heaviest = words.heaviest[place.node]
        if self._disguises.leet and 1 < heaviest < SHORT:
            plain = bool(place.flags & _PLAIN) + bool(place.flags & _SECOND_PLAIN)
            if plain + heaviest - words.weight[place.node] < 2:
                return False
        if not self._suffices(place.flags, heaviest):
            return False
        if place.encoding and (outcomes := self._encodings[place.encoding - 1].outcomes(place.state)) is not None:
            text = place._replace(encoding=0, state="")
            return any(self._may_match(each) for letter in outcomes for each in self._letter(text, letter, 0))
        return self._continues(place) or bool(self._rights_of(place))

    @staticmethod
    def _suffices(flags: int, weight: int) -> bool:
        """May a word of this weight be written so?"""
        if flags & _GAPPED and flags & (_JOINED | _UNEVEN) and weight < SHORT_SPACED:
            return False
        return not (flags & _DOUBLED and weight < SHORT) and not (flags & _MASKED and weight < SHORT_MASKED)

    def _continues(self, place: _Place) -> bool:
        """May a further character lead on?"""
        if place.flags & _DONE:
            return False
        words = self._sets[place.words]
        if len(words.children(place.node)):
            return True
        if not place.flags & _EXACT or place.gap:
            return False
        return not place.encoding and (self._disguises.repeats or words.trie.labels[place.node] == " ")

    def _rights_of(self, place: _Place) -> int:
        """What may stand behind the position for a match to end with it."""
        words, node = self._sets[place.words], place.node
        embedded = 0 < place.encoding <= len(self._embedded)
        if not node or place.gap or embedded or not place.flags & _EXACT or not place.flags & _PLAIN:
            return 0
        rights = 0
        for end, edits in self._ends(words, node, place.edits):
            length = words.trie.length[end]
            if words.set.edits and (not edits or length < words.set.edits_from):
                continue
            doubled = _DOUBLED if place.state == _TWICE else 0
            weight = words.weight[end]
            if not place.flags & _SECOND_PLAIN and self._disguises.leet and 1 < weight < SHORT:
                continue
            if not self._suffices(place.flags | doubled, weight):
                continue
            whole = not place.encoding and (place.flags & _GAPPED or words.needs_edge(end))
            rights |= _AT_EDGE if whole else ALL_RIGHTS
        guard = words.guard[node]
        guarded = guard and not place.encoding and words.trie.length[node] >= guard
        if guarded and not words.set.spares(words.trie.path(node)):
            rights |= 1 << EDGE
        return rights

    def _ends(self, words: WordTrie, node: int, edits: int) -> Iterator[tuple[int, int]]:
        """The words that end here, or that only lack their last letters."""
        if words.ends(node):
            yield node, edits
        if edits < words.set.edits:
            for child in words.children(node):
                yield from self._ends(words, child, edits + 1)

    @staticmethod
    def _waits(rights: int) -> int:
        if not 0 < rights < ALL_RIGHTS:
            return 0
        return sum(rights << KINDS * kind for kind in range(KINDS))


def _pack(place: _Place) -> int:
    state = int.from_bytes(b"\1" + place.state.encode(), "big") if place.state else 0
    number = (((state << 8 | place.encoding) << 4 | place.spaced) << 4 | place.gap) << 4 | place.edits
    return ((number << _FLAGS | place.flags) << 32 | place.node) << 24 | place.words


def _unpack(position: int) -> _Place:
    words, position = position & 0xFFFFFF, position >> 24
    node, position = position & 0xFFFFFFFF, position >> 32
    flags, position = position & (1 << _FLAGS) - 1, position >> _FLAGS
    edits, gap, position = position & 0xF, position >> 4 & 0xF, position >> 8
    spaced, encoding, state = position & 0xF, position >> 4 & 0xFF, position >> 12
    text = state.to_bytes((state.bit_length() + 7) // 8, "big")[1:].decode() if state else ""
    return _Place(words, node, edits, flags, gap, spaced, encoding, text)
