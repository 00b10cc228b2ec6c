"""Preprocessors: edits, filters and synonyms as lazy transformations of automata.

They chain in any order, since each takes an automaton and returns one. Those of packages are loaded by `plugins`.

An automaton's strings are UTF-8, so its live states are of two kinds, between characters and within one, and which it
is shows in the bytes that lead on.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import NamedTuple

from gateway.audit.language.automaton import Dfa, LazyDfa, PrunedDfa, Regex, walk, zip_arcs
from gateway.automata import charset
from gateway.automata.bytes import DONE, NOTHING, Tail, Utf8, disjoint
from gateway.automata.charset import ANY, CharSet
from gateway.automata.edges import CJK_RANGES, is_raised, is_word_char
from gateway.automata.positions import positions
from gateway.automata.regex import EMPTY, Alternation, Chars, Concat, Node, Repeat, parse

MAX_WORD = 100  # characters
PRINTABLE_ASCII = CharSet(((0x20, 0x7E),))

_CONTINUATION = range(0x80, 0xC0)  # bytes that begin no character


class Characters:
    """Reads an automaton by characters in place of bytes."""

    def __init__(self, automaton: Dfa) -> None:
        self._automaton = automaton
        self.between = cache(self._between)
        self.after = cache(self._after)

    def _between(self, state: int) -> bool:
        """Is the live state one between two characters?"""
        arcs = self._automaton.arcs(state)
        return self._automaton.accepting(state) or any(low not in _CONTINUATION for low, *_ in arcs)

    def _after(self, state: int) -> tuple[int, ...]:
        """The states after one character, whichever it is."""
        found = dict.fromkeys(target for *_, target in self._automaton.arcs(state))
        waiting = [target for target in found if not self.between(target)]
        while waiting:
            for *_, target in self._automaton.arcs(waiting.pop()):
                if target not in found:
                    found[target] = None
                    if not self.between(target):
                        waiting.append(target)
        return tuple(filter(self.between, found))


# -- edits -------------------------------------------------------------------------------------------------------------


class _Edits(LazyDfa[frozenset[int]]):
    """The Levenshtein automaton of a language (after Schulz and Mihov 2002): a state is a set of places, each with the
    fewest edits that lead there.

    A place is a state of the language with what is still to come of a character that was written in, after which the
    language stands there. Places have numbers; a number times `_width`, plus the edits, is one entry of a key.
    """

    def __init__(self, automaton: Dfa, most: int, alphabet: Tail) -> None:
        self._automaton, self._width, self._alphabet = automaton, most + 1, alphabet
        self._characters = Characters(automaton)
        self._places: list[tuple[int, Tail]] = []
        self._numbers_of: dict[tuple[int, Tail], int] = {}
        self._read = cache(self._steps)
        self._edited = cache(self._edited_steps)
        self._deleted = cache(self._deletions)
        begin = {self._place(automaton.start, DONE): 0}
        super().__init__(self._entries_of(self._with_deletions(begin)) if automaton.start else None)

    def _place(self, state: int, rest: Tail) -> int:
        number = self._numbers_of.setdefault((state, rest), len(self._places))
        if number == len(self._places):
            self._places.append((state, rest))
        return number

    def _steps(self, place: int) -> list[tuple[int, int, int]]:
        state, rest = self._places[place]
        if rest is not DONE:
            return [(low, high, self._place(state, left)) for low, high, left in rest.arcs]
        return [(low, high, self._place(target, DONE)) for low, high, target in self._automaton.arcs(state)]

    def _edited_steps(self, place: int) -> list[tuple[int, int, int]]:
        """Those that write a character in, before the next one or in its place."""
        state, _ = self._places[place]
        targets = (state, *self._characters.after(state)) if self._is_editable(place) else ()
        return [(low, high, self._place(target, left)) for low, high, left in self._alphabet.arcs for target in targets]

    def _deletions(self, place: int) -> list[int]:
        targets = self._characters.after(self._places[place][0]) if self._is_editable(place) else ()
        return [self._place(target, DONE) for target in targets]

    def _is_editable(self, place: int) -> bool:
        state, rest = self._places[place]
        return rest is DONE and self._characters.between(state)

    def _with_deletions(self, places: dict[int, int]) -> dict[int, int]:
        """With what deletions lead to."""
        for edits in range(self._width - 1):
            for place in [place for place, fewest in places.items() if fewest == edits]:
                for target in self._deleted(place):
                    _keep_fewest(places, target, edits + 1)
        return places

    def _entries_of(self, places: dict[int, int]) -> frozenset[int]:
        return frozenset(place * self._width + edits for place, edits in places.items())

    def _transitions(self, key: frozenset[int]) -> Iterator[tuple[int, int, frozenset[int]]]:
        pieces: dict[tuple[int, int], dict[int, int]] = {}
        for entry in key:
            place, edits = divmod(entry, self._width)
            for low, high, target in self._read(place):
                _keep_fewest(pieces.setdefault((low, high), {}), target, edits)
            if edits + 1 < self._width:
                for low, high, target in self._edited(place):
                    _keep_fewest(pieces.setdefault((low, high), {}), target, edits + 1)
        for found in pieces.values():
            self._with_deletions(found)
        for low, high, parts in disjoint(pieces):
            merged = dict(parts[0])
            for part in parts[1:]:
                for place, edits in part.items():
                    _keep_fewest(merged, place, edits)
            yield low, high, self._entries_of(merged)

    def _is_accepting(self, key: frozenset[int]) -> bool:
        places = (self._places[entry // self._width] for entry in key)
        return any(rest is DONE and self._automaton.accepting(state) for state, rest in places)


def _keep_fewest(places: dict[int, int], place: int, edits: int) -> None:
    if places.get(place, edits) >= edits:
        places[place] = edits


def edits(automaton: Dfa, most: int, alphabet: CharSet = PRINTABLE_ASCII) -> Dfa:
    """What comes from a string of the language by at most so many insertions, deletions and substitutions of
    characters. What is written in is of the alphabet; what is removed can be any character.

    Raises ValueError if the alphabet has no character that a text can hold.
    """
    tail = Utf8().encoded(alphabet)
    if tail is NOTHING:
        raise ValueError("the alphabet has no character that a text can hold")
    return _Edits(automaton, most, tail)


# -- filters -----------------------------------------------------------------------------------------------------------


_Filtered = tuple[int, int, frozenset[tuple[int, int]]]


class _WithoutForbidden(LazyDfa[_Filtered]):
    """A state is one of the language, one of the prefix while one can still be read, and where the search for matches
    stands behind each prefix, in two automata over texts: `now` accepts one that ends with a match, if the text ends
    there; `before` one that had a match before its last character."""

    def __init__(self, automaton: Dfa, now: Dfa, before: Dfa, prefix: Dfa | None) -> None:
        self._automaton, self._now, self._before = automaton, now, before
        self._prefix = prefix = Regex(EMPTY) if prefix is None else prefix
        super().__init__(self._after(automaton.start, prefix.start, frozenset()))

    def _after(self, state: int, prefix: int, searches: frozenset[tuple[int, int]]) -> _Filtered | None:
        if not state or any(self._before.accepting(search) for _, search in searches):
            return None
        if self._prefix.accepting(prefix):
            searches |= {(self._now.start, self._before.start)}
        return state, prefix, searches

    def _transitions(self, key: _Filtered) -> Iterator[tuple[int, int, _Filtered | None]]:
        state, prefix, searches = key
        order = list(searches)
        rows = [self._prefix.arcs(prefix)]
        rows += [self._now.arcs(search) for search, _ in order]
        rows += [self._before.arcs(search) for _, search in order]
        for low, high, targets in zip_arcs(self._automaton.arcs(state), *rows):
            found = targets[2:]
            pairs = zip(found[: len(order)], found[len(order) :], strict=True)
            yield low, high, self._after(targets[0], targets[1], frozenset(pairs))

    def _is_accepting(self, key: _Filtered) -> bool:
        state, _, searches = key
        return self._automaton.accepting(state) and not any(self._now.accepting(search) for search, _ in searches)

    def _size(self, key: _Filtered) -> int:
        return 1 + len(key[2])


def without_words(automaton: Dfa, words: Iterable[str], prefix: Dfa | None = None) -> Dfa:
    """The language without the strings in which one of the words stands behind a prefix, as a whole word: neither
    neighbour is a letter, digit, mark or `_`, as in a rule with `whole_word`.

    What stands behind the prefix is a text of its own, with an edge on either side. Without `prefix` it is the whole
    string. Raises ValueError for a word that is empty or longer than `MAX_WORD`.
    """
    by_edges: dict[tuple[bool, bool], list[str]] = {}
    for word in sorted({*words}):
        if not 0 < len(word) <= MAX_WORD:
            raise ValueError(f"a word has {len(word)} characters, and 1 to {MAX_WORD} are allowed")
        by_edges.setdefault((is_word_char(word[0]), is_word_char(word[-1])), []).append(word)
    other = Chars(~_word_chars())
    found: list[Node] = []
    followed: list[Node] = []
    for (left, right), same in by_edges.items():
        before = Repeat(Concat((ANYTHING, other)), 0, 1) if left else ANYTHING
        found.append(Concat((before, _any_of(same))))
        followed.append(Concat((found[-1], other if right else Chars(ANY))))
    return PrunedDfa(_WithoutForbidden(automaton, Regex(*found), Regex(*followed), prefix))


def without_matches(automaton: Dfa, pattern: str, prefix: Dfa | None = None) -> Dfa:
    """The language without the strings in which a match of the pattern stands behind a prefix; as `without_words`.
    Raises RegexError, also for a pattern that matches the empty string."""
    tree = parse(pattern)
    positions(tree)
    found = Concat((ANYTHING, tree))
    return PrunedDfa(_WithoutForbidden(automaton, Regex(found), Regex(Concat((found, Chars(ANY)))), prefix))


ANYTHING = Repeat(Chars(ANY), 0, None)


def _any_of(words: list[str]) -> Node:
    """An expression of sorted words, in which those that begin alike do so together."""
    parts: list[Node] = []
    while words[0] and all(word[:1] == words[0][0] for word in words):
        parts.append(Chars(CharSet.of(words[0][0])))
        words = [word[1:] for word in words]
    options: list[Node] = [] if words[0] else [EMPTY]
    for first, same in groupby((word for word in words if word), key=lambda word: word[0]):
        options.append(Concat((Chars(CharSet.of(first)), _any_of([word[1:] for word in same]))))
    if len(options) > 1:
        parts.append(Alternation(tuple(options)))
    return Concat(tuple(parts))


@cache
def _word_chars() -> CharSet:
    """The characters of which `is_word_char` holds."""
    codes = range(charset.LAST + 1)
    marks = (code for code in codes if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    raised = (code for code in codes if is_raised(chr(code)))
    words = charset.WORD | CharSet.within((code, code) for code in marks)
    return words - CharSet.within((code, code) for code in raised) - CharSet.within(CJK_RANGES)


@cache
def _word_tail() -> Tail:
    return Utf8().encoded(_word_chars())


# -- synonyms ----------------------------------------------------------------------------------------------------------


class _SynonymState(NamedTuple):
    """Where the language stands in a string, and what is still to be written before it continues.

    Within a character, `tail` is what is left of it if it is one of a word, else `NOTHING`. Between two, `in_word`: the
    last one was; `edge`: none such may come next. `written` is the rest of a synonym.
    """

    state: int
    tail: Tail
    in_word: bool
    edge: bool
    written: bytes


class _Jump(NamedTuple):
    """A word of which a synonym may be written: does it begin, and end, with a character of a word? Then none such may
    stand before it, or behind it."""

    word: bytes
    left: bool
    right: bool
    others: tuple[bytes, ...]


class _Synonyms(LazyDfa[frozenset[_SynonymState]]):
    def __init__(self, automaton: Dfa, jumps: list[_Jump]) -> None:
        self._automaton, self._jumps = automaton, jumps
        self._characters = Characters(automaton)
        self._word = _word_tail()
        self._landings = cache(self._landings_from)
        self._steps = cache(self._steps_from)
        super().__init__(
            self._with_synonyms([_SynonymState(automaton.start, DONE, False, False, b"")] if automaton.start else [])
        )

    def _landings_from(self, state: int) -> list[tuple[_Jump, int]]:
        """The words that can be read from a state, and the states behind them."""
        found = ((jump, walk(self._automaton, state, jump.word)) for jump in self._jumps)
        return [(jump, target) for jump, target in found if target]

    def _with_synonyms(self, places: Iterable[_SynonymState]) -> frozenset[_SynonymState] | None:
        """With the synonyms that can be written."""
        found = set(places)
        for place in list(found):
            if place.written or not self._characters.between(place.state):
                continue
            for jump, target in self._landings(place.state):
                if not (jump.left and (place.in_word or place.edge)):
                    found.update(_SynonymState(target, DONE, jump.right, jump.right, other) for other in jump.others)
        return frozenset(found) or None

    def _transitions(self, key: frozenset[_SynonymState]) -> Iterator[tuple[int, int, frozenset[_SynonymState] | None]]:
        pieces: dict[tuple[int, int], list[_SynonymState]] = {}
        for place in key:
            for low, high, target in self._steps(place):
                pieces.setdefault((low, high), []).append(target)
        for low, high, found in disjoint(pieces):
            yield low, high, self._with_synonyms(target for piece in found for target in piece)

    def _steps_from(self, place: _SynonymState) -> list[tuple[int, int, _SynonymState]]:
        if place.written:
            return [(place.written[0], place.written[0], place._replace(written=place.written[1:]))]
        tail = self._word if self._characters.between(place.state) else place.tail
        # What belongs to no word is read beside the words' characters.
        in_word = [(low, high, number) for number, (low, high, _) in enumerate(tail.arcs, 1)]
        read = [
            (low, high, self._read(place, target, tail.arcs[number - 1][2] if number else NOTHING))
            for low, high, (target, number) in zip_arcs(self._automaton.arcs(place.state), in_word)
        ]
        return [(low, high, target) for low, high, target in read if target is not None]

    def _read(self, place: _SynonymState, state: int, tail: Tail) -> _SynonymState | None:
        if not self._characters.between(state):
            return place._replace(state=state, tail=tail)
        if tail is DONE and place.edge:
            return None
        return _SynonymState(state, DONE, tail is DONE, False, b"")

    def _is_accepting(self, key: frozenset[_SynonymState]) -> bool:
        return any(not place.written and self._automaton.accepting(place.state) for place in key)


def synonyms(automaton: Dfa, words: Mapping[str, Iterable[str]]) -> Dfa:
    """What comes from a string of the language when any of the words in it, as whole words, are replaced by one of
    their others each. What is written is not replaced again.

    Raises ValueError for a text that is empty or longer than `MAX_WORD`.
    """
    jumps = []
    for word, others in words.items():
        others = tuple(dict.fromkeys(others))
        for text in (word, *others):
            if not 0 < len(text) <= MAX_WORD:
                raise ValueError(f"a word has {len(text)} characters, and 1 to {MAX_WORD} are allowed")
        jumps.append(
            _Jump(word.encode(), is_word_char(word[0]), is_word_char(word[-1]), tuple(map(str.encode, others)))
        )
    return PrunedDfa(_Synonyms(automaton, jumps))
