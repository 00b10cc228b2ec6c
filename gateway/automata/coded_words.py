"""Words in codes, read without a determinised state for each character.

In prose each letter is a digit of Base64, of Base32 and of codes in codes, so that some twenty paths are open at any
time, and which ones depends on the last four or five characters: new text leads to new states all the time, and what
is computed for one of them is seldom used again. So the paths that are at the same place in the same code are
followed together, through tables that are soon complete: what a character comes to there (`_CodePlace`), and which
words continue with a letter (`Spot`). Only where a text ends is there a determinised state, which remembers where
texts lead from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from gateway.automata.encodings import NEXT
from gateway.automata.literals import Folded
from gateway.automata.machine import MAX_LEAP
from gateway.automata.obfuscation import ObfuscatedWords, Obfuscation
from gateway.automata.pattern_states import CharClass, Leap, OpenState, PatternState, Position
from gateway.automata.word_places import DOUBLED, EXACT, PLAIN, Bundle, Place
from gateway.automata.word_trie import WordSet

MAX_TABLED = 100_000  # entries of tables, some 300 bytes each
ENTRIES_OF_A_WAY = 3  # a state's way takes as much as so many positions of other automata
LONGEST_THREAD = 4  # characters


class Spot:
    """A node of a trie with the flags of the way there, and what is known of where letters `led`; None: to no word.

    `place`: one that is so; of all codes that are alike in which words they may have. `complete`: a match is certain.
    """

    __slots__ = ("complete", "led", "place")

    def __init__(self, place: Place) -> None:
        self.place, self.complete = place, bool(place.arrives)
        self.led: dict[str | None, Spot | None] = {}  # None: where other characters within a code do


class _CodePlace:
    """What of a code's letter has been read, with what is known of how characters `read` there: as letters that are
    complete, or None, and what has been read behind them. `places`: of each spot here. `between`: two letters, where
    any number of signs may stand."""

    __slots__ = ("between", "encoding", "places", "read", "state")

    def __init__(self, encoding: int, state: str) -> None:
        self.encoding, self.state, self.between = encoding, state, NEXT in state
        self.read: dict[str, tuple[tuple[str | None, _CodePlace], ...]] = {}
        self.places: dict[Spot, Place] = {}


_Way: TypeAlias = tuple[_CodePlace, Spot]
_Live: TypeAlias = dict[_CodePlace, dict[Spot, int]]  # ways that are open, each with its earliest beginning


class _Thread:
    """The ways from one beginning, so many characters behind it, with what is known of where a further one `led`; None:
    a match is certain. Most end in these characters, and which do is known for most texts. `begun`: positions of the
    first character."""

    __slots__ = ("begun", "led", "length", "ways")

    def __init__(self, ways: tuple[_Way, ...], length: int, begun: tuple[Position, ...] = ()) -> None:
        self.ways, self.length, self.begun = ways, length, begun
        self.led: dict[str, _Thread | None] = {}


class _Open(NamedTuple):
    """The ways that are open in a state: those of short threads, each with its beginning, and `others`. Beginnings are
    numbers below `numbered`, the later the greater, whose registers are in `register_of`."""

    threads: Sequence[tuple[_Thread, int]]
    others: _Live
    register_of: Mapping[int, int]
    numbered: int


class CodedWords(ObfuscatedWords):
    """The automaton of words in codes."""

    def __init__(
        self,
        words: Sequence[WordSet],
        disguises: Obfuscation,
        fold: Callable[[str], Folded],
        letters: Callable[[str], str],
    ) -> None:
        super().__init__(words, disguises, fold, letters)
        codes = {encoding: encoding in self._places.dense for encoding in range(1, len(self._encodings) + 1)}
        alike = {dense: encoding for encoding, dense in codes.items()}
        self._alike = {encoding: alike[dense] for encoding, dense in codes.items()}

    def _forget_tables(self) -> None:
        self._spots: dict[Place, Spot] = {}
        self._code_places: dict[tuple[int, str], _CodePlace] = {}
        self._begun: dict[CharClass, _Thread | None] = {}  # None: a match is certain
        self._tabled = 0
        self._empty_cache()  # states know of the tables

    def leap(self, state: PatternState, text: str) -> Leap | None:
        """As of any machine; what is longer than texts that are remembered is made of several."""
        if len(text) > MAX_LEAP:
            return self._joined(state, text)
        if self._is_full():
            self.forget_steps()
        threads, others, register_of, count = state.ways or self._open(state)
        left, lefts = state.left, list[int]()
        for at, char in enumerate(text, count):
            folded = self.fold(char).text
            if len(folded) != 1:
                return None
            char_class = self.char_class(folded)
            code = char_class.key.code
            after = self._follow_ways(others, code)
            if after is None:
                return None
            kept: list[tuple[_Thread, int]] = []
            for thread, start in threads:
                led = thread.led[code] if code in thread.led else self._further(thread, code)
                if led is None:
                    return None
                if led.length < LONGEST_THREAD:
                    if led.ways:
                        kept.append((led, start))
                    continue
                for place, spot in led.ways:
                    known = after.get(place)
                    if known is None:
                        after[place] = {spot: start}
                    elif spot not in known:  # what is known began before
                        after[place] = {**known, spot: start}
            begun = self._begun[char_class] if char_class in self._begun else self._first(char_class, left)
            if begun is None:
                return None
            if begun.ways:
                kept.append((begun, at))
            lefts.append(left)
            threads, others, left = kept, after, char_class.kind
        return self._keep_leap(state, text, _Open(threads, others, register_of, count), lefts, left)

    def _is_full(self) -> bool:
        return self._tabled > MAX_TABLED or self._places.is_full()

    def _joined(self, state: PatternState, text: str) -> Leap | None:
        target = state
        moves: list[tuple[int, PatternState | None]] = [(register, None) for register in range(state.count)]
        for at in range(0, len(text), MAX_LEAP):
            part = text[at : at + MAX_LEAP]
            leap = target.leaps.get(part) or self.leap(target, part)
            if leap is None:
                return None
            target = leap.state
            moves = [moves[of] if before is None else (at + of, before) for of, before in leap.moves]
        return Leap(target, tuple(moves))

    def _open(self, state: PatternState) -> _Open:
        others: _Live = {}
        for position, register in zip(state.positions, state.registers, strict=True):
            for place, spot in self._ways_at(position):
                others.setdefault(place, {}).setdefault(spot, register)  # the earliest comes first
        return _Open((), others, {register: register for register in range(state.count)}, state.count)

    def _ways_at(self, position: Position) -> Iterator[tuple[_CodePlace, Spot]]:
        for each in position.places if isinstance(position, Bundle) else (position,):
            assert isinstance(each, Place)
            place = self._code_place(each.encoding, each.state)
            spot = self.spot_at(each, each.node, each.flags)
            if spot is not None:
                place.places.setdefault(spot, each)
                yield place, spot

    def _follow_ways(self, live: _Live, code: str) -> _Live | None:
        """Where ways lead with a character; None if a match is certain."""
        after: _Live = {}
        for place, spots in live.items():
            readings = place.read.get(code)
            if readings is None:
                readings = self._readings(place, code)
            for letters, target in readings:
                if letters is None and (target is not place or place.between or code in "\r\n"):
                    led = spots
                else:
                    led = {}
                    for spot, start in spots.items():
                        to = spot.led[letters] if letters in spot.led else self.led_to(spot, letters)
                        if to is not None:
                            if to.complete:
                                return None
                            if start < led.get(to, start + 1):
                                led[to] = start
                    if not led:
                        continue
                known = after.get(target)
                if known is not None:
                    led = {**led, **{spot: start for spot, start in known.items() if start < led.get(spot, start + 1)}}
                after[target] = led
        return after

    # -- tables --------------------------------------------------------------------------------------------------------

    def _first(self, char_class: CharClass, left: int) -> _Thread | None:
        self.count_entry()
        positions = self.after(self.start_position, left, char_class)
        ways = tuple([way for position in positions for way in self._ways_at(position)])
        certain = any(spot.complete for _, spot in ways)
        begun = self._begun[char_class] = None if certain else _Thread(ways, 1, positions)
        return begun

    def _further(self, thread: _Thread, code: str) -> _Thread | None:
        self.count_entry()
        live: _Live = {}
        for place, spot in thread.ways:
            live.setdefault(place, {})[spot] = 0
        after = self._follow_ways(live, code)
        led = None
        if after is not None:
            ways = tuple([(place, spot) for place, spots in after.items() for spot in spots])
            led = _Thread(ways, thread.length + 1)
        thread.led[code] = led
        return led

    def _readings(self, place: _CodePlace, code: str) -> tuple[tuple[str | None, _CodePlace], ...]:
        self.count_entry()
        found = self._chars.readings(place.encoding, place.state, code)
        read = place.read[code] = tuple(
            [(letters, self._code_place(place.encoding, state)) for letters, state in found]
        )
        return read

    def led_to(self, spot: Spot, letters: str | None) -> Spot | None:
        self.count_entry()
        place, node = spot.place, spot.place.node
        if letters is None:
            to = self.spot_at(place, node, place.flags | self._places.interruption(place.encoding))
        else:
            to = None
            for letter in letters:
                node = place.trie.child(node, letter)
                if not node:
                    break
            if node:
                # A character that is none or several letters makes no short word of a number.
                to = self.spot_at(place, node, place.flags | EXACT | PLAIN | DOUBLED * (len(letters) != 1))
        spot.led[letters] = to
        return to

    def spot_at(self, like: Place, node: int, flags: int) -> Spot | None:
        place = self._places.at(like.trie, node, like.edits, flags, 0, 0, self._alike[like.encoding])
        if place is None:
            return None
        return self._spots.get(place) or self._spots.setdefault(place, Spot(place))

    def _code_place(self, encoding: int, state: str) -> _CodePlace:
        known = self._code_places.get((encoding, state))
        return known or self._code_places.setdefault((encoding, state), _CodePlace(encoding, state))

    def count_entry(self) -> None:
        self._tabled += 1
        self._grow()

    # -- states --------------------------------------------------------------------------------------------------------

    def _keep_leap(self, state: PatternState, text: str, ways: _Open, lefts: Sequence[int], left: int) -> Leap:
        threads, others, known, count = ways
        starts = {start for _, start in threads}
        for spots in others.values():
            starts.update(spots.values())
        register_of = {start: register for register, start in enumerate(sorted(starts))}
        key = (
            tuple([(thread, register_of[start]) for thread, start in threads]),
            tuple([(at, spot, register_of[start]) for at, spots in others.items() for spot, start in spots.items()]),
            left,
        )
        target = self._states.get(key)
        keep = target is None and self._has_room()
        if target is None:
            target = self._made(_Open(threads, others, register_of, count + len(text)), left, key if keep else None)
        moves = [
            (known[start], None) if start < count else (start - count, self.idle((), lefts[start - count]))
            for start in register_of
        ]
        leap = Leap(target, tuple(moves))
        if state.targets is not None and target.targets is not None and (keep or self._has_room()):
            self._targets += 1
            self._entries += len(moves)
            state.leaps[text] = leap
            self._grow()
        return leap

    def _made(self, ways: _Open, left: int, key: tuple[object, ...] | None) -> PatternState:
        state = OpenState()
        state.machine, state.left, state.moves, state.ways = self, left, None, ways
        state.targets, state.leaps = None if key is None else {}, {}
        state.count, state.waits, state.live = len(ways.register_of), 0, 0 if ways.register_of else -1
        if self._guards or not all(searched.holds for searched in self.patterns):
            for position, _ in state.entries:
                state.waits |= position.waits
            state.live = next((register for position, register in state.entries if position.searched.holds), -1)
        if key is not None:
            self._keep(key, state, ENTRIES_OF_A_WAY * (len(ways.threads) + sum(map(len, ways.others.values()))))
        return state

    def places(self, ways: _Open) -> list[tuple[Position, int]]:
        """Each position with its register, the earliest first."""
        found: list[tuple[int, Position]] = [
            (ways.register_of[start], at.places.get(spot) or self._place(at, spot))
            for at, spots in ways.others.items()
            for spot, start in spots.items()
        ]
        for thread, start in ways.threads:
            positions = thread.begun or [self._place(at, spot) for at, spot in thread.ways]
            found += [(ways.register_of[start], position) for position in positions]
        return [(position, register) for register, position in sorted(found, key=_register)]

    def _place(self, at: _CodePlace, spot: Spot) -> Place:
        place = self._places.encoded(spot.place, at.encoding, at.state)
        assert place is not None
        at.places[spot] = place
        return place


def _register(found: tuple[int, Position]) -> int:
    return found[0]
