"""Automata of words whose open ways are followed in C (`_ways.c`). `ObfuscatedWords` says what is right.

Text that was not seen before leads to new sets of positions all the time, and to determine a state for each takes
longer than everything else. So the positions are numbered, and each is followed by itself: what comes behind it with a
class of characters is asked once. Only where a text ends is there a state, which remembers where texts lead from it.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from gateway.automata import machine, obfuscation
from gateway.automata.contexts import KINDS
from gateway.automata.obfuscation import CONTROL_CODES, ObfuscatedWords
from gateway.automata.pattern_states import CharClass, Leap, OpenState, PatternState, Position
from gateway.automata.word_chars import Char as WordChar
from gateway.automata.word_places import DONE, SWAPPED, Bundle, Place
from gateway.automata.word_trie import WordTrie
from gateway.native import load_native

K = TypeVar("K", bound=Hashable)
NATIVE = load_native("gateway.automata._ways")
WAY = struct.Struct("=QII")  # the place, what has been read of a word in a code, and the beginning
_UNSIGNED = (1 << 64) - 1
_NO_TRIE, _MAX_TRIES, _MAX_NODES, _OWN = 0xFF, 32, 0x3FFFFF, 0x800000  # as in `_ways.c`

Char: TypeAlias = tuple[
    int, int, int, bytes
]  # its number, its kind, `CharClass.reads`, and the ways that begin with it


class Numbers(dict[K, int]):
    """Numbers of what is asked for, from 0 on."""

    def __init__(self, first: Iterable[K]) -> None:
        super().__init__()
        self.items_by_number: list[K] = []
        for each in first:
            self[each]

    def __missing__(self, key: K) -> int:
        number = self[key] = len(self.items_by_number)
        self.items_by_number.append(key)
        return number


class WayTables(ABC):
    """What the numbers of ways stand for; made again when there are too many. `step` is that of `_ways.Tables`."""

    def __init__(
        self,
        owners: int,
        *,
        stages: bytes = b"",
        bits: tuple[tuple[int, bytes, bytes], ...] = (),
        tries: tuple[tuple[Any, ...], ...] = (),
        weights: tuple[int, int] = (0, 0),
    ) -> None:
        asked = self._char, self._read, self._lead, self._place
        self._native = NATIVE.Tables(*asked, owners, stages, bits, tries, *weights)
        self.step: Callable[..., tuple[bytes, tuple[Any, ...], int, int] | None] = self._native.step
        self.size: Callable[[], int] = self._native.size

    @property
    def is_full(self) -> bool:
        """Is the next number too great?"""
        return False

    @abstractmethod
    def packed(self, entries: Iterable[tuple[Position, int]]) -> bytes:
        """Positions with their registers, as ways."""

    @abstractmethod
    def entries(self, packed: bytes) -> Iterator[tuple[Position, int]]:
        """The reverse."""

    @abstractmethod
    def live(self, packed: bytes) -> int:
        """The first register of a way that text is held for; -1 if there is none."""

    @abstractmethod
    def _char(self, code_point: int) -> Char | None:
        """What a character is; None if Python must say where it leads."""

    @abstractmethod
    def _read(self, row: int, symbol: int) -> tuple[int, ...]:
        """What comes of a symbol, in pairs."""

    @abstractmethod
    def _lead(self, number: int) -> Any:
        """What else is to be known of a number."""

    def _place(self, trie: int, node: int, edits: int, flags: int, skip: int, swapped: int) -> int:
        """The number of the position that is so; 0 if no match is possible from there.
        Asked only by tables that have tries."""
        raise NotImplementedError


class _PositionTables(WayTables):
    """Places are numbers of positions. Where a letter leads from most of them, C sees for itself in their tries."""

    def __init__(self, words: NativeWords) -> None:
        self._words = words
        self._positions = Numbers[Position]((words.start_position,))
        self._classes: dict[int, CharClass] = {}
        self._tries = words.tries if words.only_edits else []
        few = [each if len(each.trie.labels) <= _MAX_NODES else None for each in self._tries[:_MAX_TRIES]]
        self._trie_at = {trie: at for at, trie in enumerate(few) if trie is not None}
        weights = obfuscation.SHORT, max(obfuscation.SHORT, obfuscation.SHORT_SPACED)
        super().__init__(len(words.patterns), tries=tuple([_described(trie) for trie in few]), weights=weights)

    def packed(self, entries: Iterable[tuple[Position, int]]) -> bytes:
        return b"".join([WAY.pack(self._number(position), 0, register) for position, register in entries])

    def entries(self, packed: bytes) -> Iterator[tuple[Position, int]]:
        return ((self._position(number), register) for number, _, register in WAY.iter_unpack(packed))

    def _position(self, number: int) -> Position:
        if number < _OWN:
            return self._positions.items_by_number[number]
        place = self._at(*self._native.node(number))
        assert place is not None
        return place

    def _number(self, position: Position) -> int:
        node = self._node(position)
        return self._positions[position] if node is None else int(self._native.number(*node))

    def _node(self, position: Position) -> tuple[int, int, int, int, int, int] | None:
        """What a position is in a trie, if C can follow it there."""
        if not isinstance(position, Place) or not position.node or position.encoding or position.flags & DONE:
            return None
        trie = self._trie_at.get(position.trie)
        swapped = ord(position.state[1:]) if position.state.startswith(SWAPPED) else 0
        blank = not position.skip and position.trie.trie.labels[position.node] == " "  # not only letters lead on
        if trie is None or (not swapped and (position.state or position.gap or blank)):
            return None
        return trie, position.node, position.edits, position.flags, position.skip, swapped

    def _at(self, trie: int, node: int, edits: int, flags: int, skip: int, swapped: int) -> Place | None:
        return self._words.place(self._tries[trie], node, edits, flags, skip, SWAPPED + chr(swapped) if swapped else "")

    def live(self, packed: bytes) -> int:
        return next((register for position, register in self.entries(packed) if position.searched.holds), -1)

    def _char(self, code_point: int) -> Char | None:
        self._words.count_step()
        char_class = self._words.class_of(chr(code_point))
        if char_class is None:
            return None
        self._classes[char_class.number] = char_class
        return char_class.number, char_class.kind, char_class.reads & _UNSIGNED, self._words.letters_of(char_class)

    def _read(self, row: int, symbol: int) -> tuple[int, ...]:
        """The positions behind one, each behind a 0; behind what begins a word the symbol says what stands before."""
        self._words.count_step()
        found = self._words.successors(self._position(row), symbol % KINDS, self._classes[symbol // KINDS * KINDS])
        single = [place for each in found for place in (each.places if isinstance(each, Bundle) else (each,))]
        return tuple([number for each in single for number in (0, self._number(each))])

    def _lead(self, number: int) -> tuple[Any, ...]:
        """What is to be known of a position, and what it is in a trie."""
        of = self._positions.items_by_number[number]
        node = self._node(of) or (_NO_TRIE, 0, 0, 0, 0, 0)
        return of.onward & _UNSIGNED, of.waits, max(of.owner, 0), of.arrives, of.may_match, of.passes, node

    def _place(self, trie: int, node: int, edits: int, flags: int, skip: int, swapped: int) -> int:
        place = self._at(trie, node, edits, flags, skip, swapped)
        return 0 if place is None else self._positions[place]


def _described(trie: WordTrie | None) -> tuple[Any, ...]:
    """What C is to know of a trie."""
    if trie is None:
        return ()
    of = trie.set
    arrays = trie.trie.first, trie.length, trie.lightest, trie.heaviest, trie.longest, trie.to_end, trie.guard
    return trie.trie.labels, trie.owner, of.edits, of.edits_from, *arrays


class NativeWords(ObfuscatedWords):
    """`ObfuscatedWords` in C."""

    _tables: WayTables
    _before: tuple[PatternState, ...] = ()

    def _forget_tables(self) -> None:
        self._tables = _PositionTables(self)
        self._empty_cache()  # states know of the tables

    def _is_full(self) -> bool:
        return self._tables.size() > machine.MAX_STEPS or self._places.is_full()

    def leap(self, state: PatternState, text: str) -> Leap | None:
        if self._is_full():
            self.forget_steps()
        tables = self._tables
        if state.ways is None or state.ways[0] is not tables:
            state.ways = tables, tables.packed(state.entries)
        before = self._before or self._states_before()
        led = tables.step(state.ways[1], state.count, state.left, text, before)
        if led is None:
            return None
        ways, moves, left, waits = led
        key = tables, ways, left
        target, keep = self._states.get(key), False
        if target is None:
            keep = self._has_room()
            target = OpenState()
            target.machine, target.left, target.moves, target.ways = self, left, None, (tables, ways)
            target.targets, target.leaps = {} if keep else None, {}
            target.count, target.waits, target.live = len(moves), waits, 0 if moves else -1
            if not self._all_hold:
                target.live = tables.live(ways)
            if keep:
                self._keep(key, target, len(ways) // WAY.size)
        leap = Leap(target, moves)
        kept = len(text) <= machine.MAX_LEAP and state.targets is not None and target.targets is not None
        if kept and (keep or self._has_room()):
            self._targets += 1
            self._entries += len(moves)
            state.leaps[text] = leap
            self._grow()
        return leap

    def _states_before(self) -> tuple[PatternState, ...]:
        """The states before a beginning, by what stands there."""
        self._before = tuple([self.idle((), left) for left in range(KINDS)])
        return self._before

    def _empty_cache(self) -> None:
        super()._empty_cache()
        self._before = ()

    @cached_property
    def _all_hold(self) -> bool:
        return all(searched.holds for searched in self.patterns)

    def places(self, ways: Any) -> list[tuple[Position, int]]:
        tables, packed = ways
        return list(tables.entries(packed))

    # -- for the tables ------------------------------------------------------------------------------------------------

    def count_step(self) -> None:
        """Something is known that was not."""
        self._grow()

    @property
    def only_edits(self) -> bool:
        """Does nothing but letters lead on?"""
        seen_through = self._disguises
        return not (seen_through.spacing or seen_through.repeats or seen_through.markup or seen_through.url)

    def letters_of(self, char_class: CharClass) -> bytes:
        """The letters of a character, if nothing else of it matters: whether it is a sign, and those that it is, draws,
        looks like, and begins to draw."""
        char: WordChar = char_class.key
        begun = self._drawn_from(char)
        if not self.only_edits or begun is None or char.code in CONTROL_CODES or len(char.plain) > 1:
            return b""
        numbers = array("I", [char.is_sign + 2 * char.masks])
        for letters in (char.plain, char.draws, char.looks_like, begun):
            numbers.extend((len(letters), *map(ord, letters)))
        return numbers.tobytes()

    def _drawn_from(self, char: WordChar) -> str | None:
        """The letters that may become of what begins with a character; None if that is more than letters."""
        begun = ""
        for encoding in char.begins:
            for letters, state in self._chars.read_code(encoding, None, char.code):
                outcomes = self._encodings[encoding - 1].outcomes(state)
                if letters is not None or outcomes is None:
                    return None
                begun += outcomes
        return begun

    def place(self, trie: WordTrie, node: int, edits: int, flags: int, skip: int, state: str) -> Place | None:
        """The position that is so."""
        return self._places.at(trie, node, edits, flags, 0, 0, 0, state, skip)

    def class_of(self, char: str) -> CharClass | None:
        """None if the character is none or several."""
        folded = self.fold(char).text
        return self.char_class(folded) if len(folded) == 1 else None
