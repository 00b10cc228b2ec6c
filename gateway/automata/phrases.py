"""A streaming matcher for runs of consecutive words that another text has.

A *window* is such a run. Words are runs of letters, digits and marks; what stands between them does not count. In
scripts that are written without spaces each character is a word, and two of them count as one.

The machine takes the place of a `LiteralMachine` whose words are all windows of the text. There are as many of them as
the text has words, each `min_words` long, and a trie of them would take a second to make. So the places where words
begin are sorted by the window that begins there, as in a suffix array (Manber and Myers, 1990): the windows that begin
with the last characters read are a range of it, and that range is the state. A step finds a smaller range by bisection;
where there is none, the first word is dropped, each word at most once.
"""

from __future__ import annotations

import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from gateway.automata.literals import MAX_FOLDS, Arrival, Folded, LiteralMachine, LiteralState
from gateway.automata.states import forget
from gateway.automata.waiting import FoundLiteral, Literal, LiteralKind

MAX_TRANSITIONS = 16_384  # kept; some 350 bytes each with the states they lead to
_BETWEEN = " "  # what is between two words, whatever it was

# Kana, ideographs, and the scripts of South-East Asia.
_UNSPACED_RANGES = (
    (0x0E01, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3005, 0x3007), (0x3041, 0x30FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFD),
)  # fmt: skip


def is_unspaced(char: str) -> bool:
    """Is the character of a script that is written without spaces?"""
    return char >= "\u0e01" and any(low <= ord(char) <= high for low, high in _UNSPACED_RANGES)


class PhraseWindows:
    """The windows of a folded text, at most `longest` characters each, with the one that makes it certain.

    `text` has one space behind each word of a spaced script, and nothing else between words. A word has the weight 2, a
    character that is a word 1, and a window at least the weight `least`; `mixed`: there are both.
    """

    __slots__ = ("_ends", "_starts", "least", "longest", "mixed", "text")

    def __init__(self, folded: str, min_words: int, longest: int) -> None:
        spaced = {ord(char): _spaced(char) for char in set(folded)}
        words = folded.translate(spaced).split(_BETWEEN)
        words = [word if is_unspaced(word[0]) else word + _BETWEEN for word in words if word]
        self.text = text = "".join(words)
        begins = [0, *accumulate(map(len, words))]
        weights = [0, *accumulate(1 if is_unspaced(word[0]) else 2 for word in words)]
        self.least = 2 * min_words
        self.mixed = weights[-1] != 2 * len(words)
        windows: dict[str, int] = {}
        for at, weight in enumerate(weights):
            last = bisect_left(weights, weight + self.least)
            if last == len(weights):
                break
            if begins[last] - begins[at] <= longest:
                windows.setdefault(text[begins[at] : begins[last]].rstrip(_BETWEEN), begins[at])
        ordered = sorted(windows)
        self._starts = array("I", [windows[window] for window in ordered])
        self._ends = array("I", [windows[window] + len(window) for window in ordered])
        self.longest = max(map(len, ordered), default=0)

    def __len__(self) -> int:
        return len(self._starts)

    def window(self, number: int) -> str:
        return self.text[self._starts[number] : self._ends[number]]

    def is_complete(self, number: int, depth: int) -> bool:
        """Has the window so many characters?"""
        return self._ends[number] - self._starts[number] == depth

    def weight(self, number: int, depth: int) -> int:
        """Of the first characters of a window, a word that has begun included."""
        read = self.beginning(number, depth)
        unspaced = sum(map(is_unspaced, read)) if self.mixed else 0
        continues = read[-1] != _BETWEEN and not is_unspaced(read[-1])
        return 2 * (read.count(_BETWEEN) + continues) + unspaced

    def beginning(self, number: int, depth: int) -> str:
        start = self._starts[number]
        return self.text[start : start + depth]

    def narrowed(self, low: int, high: int, depth: int, char: str) -> tuple[int, int]:
        """Of the windows [low, high), which begin with the same `depth` characters, those that continue with `char`."""
        if low < high and self.is_complete(low, depth):
            low += 1
        text, starts = self.text, self._starts

        def next_char(number: int) -> str:
            return text[starts[number] + depth]

        numbers = range(len(starts))
        low = bisect_left(numbers, char, low, high, key=next_char)
        return low, bisect_right(numbers, char, low, high, key=next_char)

    def beginning_with(self, prefix: str) -> tuple[int, int]:
        """The windows that begin with `prefix`."""
        text, starts, ends, length = self.text, self._starts, self._ends, len(prefix)

        def beginning(number: int) -> str:
            return text[starts[number] : min(starts[number] + length, ends[number])]

        numbers = range(len(starts))
        low = bisect_left(numbers, prefix, key=beginning)
        return low, bisect_right(numbers, prefix, low, key=beginning)


def _is_letter(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char)[0] == "M"


def _spaced(char: str) -> str:
    if not _is_letter(char):
        return _BETWEEN
    return f"{_BETWEEN}{char}{_BETWEEN}" if is_unspaced(char) else char


class _Place(NamedTuple):
    """The last `depth` characters read are the beginning of the windows [low, high). `inside`: of a word that may go
    on."""

    low: int
    high: int
    depth: int
    inside: bool


class PhraseState(LiteralState):
    """`left` is whether a word may continue; `node` has no meaning."""

    __slots__ = ("place",)

    place: _Place


class PhraseMachine:
    """The automaton of a text's windows seen through one lens, as `LiteralMachine` is of words. `tag` is that of their
    rule; without `holds` no text is held back for them. At most `max_transitions` are kept."""

    def __init__(
        self,
        windows: PhraseWindows,
        fold: Callable[[str], Folded],
        tag: int,
        holds: bool,
        max_transitions: int = MAX_TRANSITIONS,
    ) -> None:
        self._windows = windows
        self._fold = lru_cache(MAX_FOLDS)(fold)
        self._tag = tag
        self._holds = holds
        self._root = _Place(0, len(windows), 0, inside=False)
        self._states: dict[tuple[_Place, Arrival | None], PhraseState] = {}
        self._transitions = 0
        self._max_transitions = max_transitions
        self.longest = self.reach = windows.longest

    def start(self) -> LiteralState:
        """The state before any text."""
        return self._state(self._root, None)

    def step(self, state: LiteralState, char: str) -> LiteralState:
        """The state after one character."""
        target = state.get(char)
        if target is None:
            target = self._stepped(state, char)
            self._transitions += 1
            if self._transitions > self._max_transitions:
                forget(self._states)
                self._transitions = 0
            state[char] = target
        return target

    def walk(self, state: LiteralState, text: str) -> LiteralState | None:
        """The state after a text; None where only single steps will do, because something in it is remarkable."""
        for char in text:
            state = self.step(state, char)
            if state.arrival is not None:
                return None
        return state

    def length(self, state: LiteralState) -> int:
        """Folded length of the longest suffix that begins a window."""
        return _place_of(state).depth

    def hides(self, char: str) -> bool:
        """Terminal sequences are read as they are: they only stand between words."""
        return False

    def live(self, state: LiteralState) -> int:
        return state.live

    def live_lengths(self, state: LiteralState, at_most: int | None = None) -> Iterator[int]:
        """Folded lengths, descending, of the suffixes that some continuation or the end could make a window."""
        if not self._holds:
            return
        place = _place_of(state)
        while place.depth:
            if at_most is None or place.depth <= at_most:
                yield place.depth
            place = self._shorter(place)

    def wanted(self, state: LiteralState, longer_than: int) -> Iterator[tuple[int, set[int]]]:
        """The live suffixes longer than `longer_than` characters, each with the tag of the rule."""
        for length in self.live_lengths(state):
            if length <= longer_than:
                return
            yield length, {self._tag}

    def beginnings(self, state: LiteralState) -> Iterator[tuple[Literal, int]]:
        """No beginning is guarded."""
        return iter(())

    def _stepped(self, state: LiteralState, char: str) -> LiteralState:
        place = _place_of(state)
        text, atomic, _ = self._fold(char)
        units = [self._unit(unit) for unit in text]
        width, found = 0, list[tuple[Literal, int]]()
        for unit in units:
            inside = place.inside
            if unit == _BETWEEN:
                added = _BETWEEN if inside else ""
            else:
                added = _BETWEEN + unit if inside and is_unspaced(unit) else unit
            # Between words of which no match is under way it does not matter how characters are counted.
            width += len(added) or not place.depth
            for position, each in enumerate(added, width - len(added)):
                if each == _BETWEEN:
                    found += ((literal, position) for literal in self._complete_windows(place))
                place = self._advanced(place, each)
                if is_unspaced(each):
                    found += ((literal, position + 1) for literal in self._complete_windows(place))
                    while place.depth and self._windows.is_complete(place.low, place.depth):
                        place = self._shorter(place)
        if width == 1 and not found:
            return self._state(place, None)
        ends = tuple(FoundLiteral(literal, width - end) for literal, end in found)
        return self._state(place, Arrival(width, atomic, ends))

    def _unit(self, unit: str) -> str:
        return unit if _is_letter(unit) else _BETWEEN

    def _advanced(self, place: _Place, unit: str) -> _Place:
        inside = unit != _BETWEEN and not is_unspaced(unit)
        while True:
            low, high, depth, _ = place
            if depth or not place.inside:
                low, high = self._windows.narrowed(low, high, depth, unit)
                if low < high:
                    return _Place(low, high, depth + 1, inside)
            if not depth:
                return self._root._replace(inside=inside)
            place = self._shorter(place)

    def _shorter(self, place: _Place) -> _Place:
        """The longest proper suffix that begins at a word and begins a window."""
        read = self._windows.beginning(place.low, place.depth)
        while read:
            first = 1 if is_unspaced(read[0]) else read.find(_BETWEEN) + 1 or len(read)
            read = read[first:]
            low, high = self._windows.beginning_with(read)
            if read and low < high:
                return _Place(low, high, len(read), place.inside)
        return self._root._replace(inside=place.inside)

    def _complete_windows(self, place: _Place) -> Iterator[Literal]:
        """The windows that have been read whole. Several end with the same word only if words count differently."""
        windows = self._windows
        while place.depth:
            if windows.is_complete(place.low, place.depth):
                yield Literal(windows.window(place.low), LiteralKind(self._tag, holds=self._holds))
            if not windows.mixed or windows.weight(place.low, place.depth) < windows.least:
                return
            place = self._shorter(place)

    def _state(self, place: _Place, arrival: Arrival | None) -> PhraseState:
        state = self._states.get((place, arrival))
        if state is None:
            state = self._states[place, arrival] = PhraseState()
            state.place, state.arrival = place, arrival
            state.node, state.left, state.new_line = 0, place.inside, False
            state.pending = tuple(FoundLiteral(literal, 0) for literal in self._complete_windows(place))
            state.live = place.depth if self._holds else 0
        return state


def _place_of(state: LiteralState) -> _Place:
    assert isinstance(state, PhraseState)
    return state.place


WordMachine: TypeAlias = LiteralMachine | PhraseMachine
