"""Words in codes, read without a determinised state for each character.

In prose each letter is a digit of Base64, of Base32 and of codes in codes, so that some twenty ways are open at any time,
and which ones depends on the last four or five characters: text that is new leads to new states all the time, and what
is worked out for one of them seldom serves again. So the ways are followed together that are at the same place in the
same code, through tables that are soon complete: what a character comes to there (`_CodePlace`), and which words go on
with a letter (`_Spot`). Only where a text ends is there a determinised state, which remembers where texts lead from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from gateway.automata.literals import Folded
from gateway.automata.machine import MAX_LEAP
from gateway.automata.obfuscation import ObfuscatedWords, Obfuscation
from gateway.automata.pattern_states import CharClass, Leap, PatternState, Position
from gateway.automata.word_places import DOUBLED, EXACT, PLAIN, Bundle, Place
from gateway.automata.word_trie import WordSet

MAX_READ = 100_000  # entries of tables, some 200 bytes each


class _Spot:
    """A node of a trie with the flags of the way there, and what is known of where letters `led`; None: to no word.

    `place`: one that is so; of all codes that are alike in which words they may have. `complete`: a match is certain.
    """

    __slots__ = ("complete", "led", "place")

    def __init__(self, place: Place) -> None:
        self.place, self.complete = place, bool(place.arrives)
        self.led: dict[str | None, _Spot | None] = {}  # None: where other characters within a code do


class _CodePlace:
    """What of a code's letter has been read, with what is known of how characters `read` there: as letters that are
    complete, or None, and what has been read behind them. `places`: of each spot here."""

    __slots__ = ("encoding", "places", "read", "state")

    def __init__(self, encoding: int, state: str) -> None:
        self.encoding, self.state = encoding, state
        self.read: dict[str, tuple[tuple[str | None, _CodePlace], ...]] = {}
        self.places: dict[_Spot, Place] = {}


_Live: TypeAlias = dict[_CodePlace, dict[_Spot, int]]  # the ways that are open, each with its earliest beginning


class _Begun:
    """The `positions` behind the first character of a match, with what is known of where a second one `led`: most ways
    end there. None: a match is certain."""

    __slots__ = ("led", "positions")

    def __init__(self, positions: tuple[Position, ...]) -> None:
        self.positions = positions
        self.led: dict[str, tuple[tuple[_CodePlace, _Spot], ...] | None] = {}


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
        self._forget_tables()

    def forget_steps(self) -> None:
        """Empty the tables, too."""
        super().forget_steps()
        self._forget_tables()

    def _forget_tables(self) -> None:
        self._spots: dict[Place, _Spot] = {}
        self._code_places: dict[tuple[int, str], _CodePlace] = {}
        self._begun: dict[CharClass, _Begun] = {}
        self._read = 0

    def leap(self, state: PatternState, text: str) -> Leap | None:
        """As of any machine; what is longer than texts that are remembered is made of several."""
        if len(text) > MAX_LEAP:
            return self._joined(state, text)
        if self._read > MAX_READ or self._places.is_full():
            self.forget_steps()
        count, left = state.count, state.left
        live, begun, at = self._ways(state), None, 0
        lefts: list[int] = []
        for at, char in enumerate(text, count):
            folded = self.fold(char).text
            if len(folded) != 1:
                return None
            char_class = self.char_class(folded)
            code = char_class.key.code
            after = self._follow_ways(live, code)
            if after is None:
                return None
            if begun is not None:
                ways = begun.led[code] if code in begun.led else self._second(begun, code)
                if ways is None:
                    return None
                for place, spot in ways:
                    known = after.get(place)
                    if known is None:
                        after[place] = {spot: at - 1}
                    elif spot not in known:
                        after[place] = {**known, spot: at - 1}
            lefts.append(left)
            begun = self._begun.get(char_class) or self._first(char_class, left)
            live, left = after, char_class.kind
        return self._keep_leap(state, text, live, begun, lefts, left)

    def _joined(self, state: PatternState, text: str) -> Leap | None:
        target, moves = state, [(register, None) for register in range(state.count)]
        for at in range(0, len(text), MAX_LEAP):
            part = text[at : at + MAX_LEAP]
            leap = target.leaps.get(part) or self.leap(target, part)
            if leap is None:
                return None
            target = leap.state
            moves = [moves[of] if before is None else (at + of, before) for of, before in leap.moves]
        return Leap(target, tuple(moves))

    def _ways(self, state: PatternState) -> _Live:
        live: _Live = {}
        for position, register in zip(state.positions, state.registers, strict=True):
            for place, spot in self._ways_at(position):
                live.setdefault(place, {}).setdefault(spot, register)  # the earliest comes first
        return live

    def _ways_at(self, position: Position) -> Iterator[tuple[_CodePlace, _Spot]]:
        for each in position.places if isinstance(position, Bundle) else (position,):
            assert isinstance(each, Place)
            place = self._code_place(each.encoding, each.state)
            spot = self._spot(each, each.node, each.flags)
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
                if letters is None and (target is not place or code in "\r\n"):
                    led = spots
                else:
                    led = {}
                    for spot, start in spots.items():
                        to = spot.led[letters] if letters in spot.led else self._led(spot, letters)
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

    def _first(self, char_class: CharClass, left: int) -> _Begun:
        self._count()
        begun = self._begun[char_class] = _Begun(self.after(self.start_position, left, char_class))
        return begun

    def _second(self, begun: _Begun, code: str) -> tuple[tuple[_CodePlace, _Spot], ...] | None:
        self._count()
        live: _Live = {}
        for position in begun.positions:
            for place, spot in self._ways_at(position):
                live.setdefault(place, {})[spot] = 0
        led = self._follow_ways(live, code)
        ways = None if led is None else tuple([(place, spot) for place, spots in led.items() for spot in spots])
        begun.led[code] = ways
        return ways

    def _readings(self, place: _CodePlace, code: str) -> tuple[tuple[str | None, _CodePlace], ...]:
        self._count()
        found = self._chars.read_code(place.encoding, place.state, code)
        read = place.read[code] = tuple([(letters, self._code_place(place.encoding, state)) for letters, state in found])
        return read

    def _led(self, spot: _Spot, letters: str | None) -> _Spot | None:
        self._count()
        place, node = spot.place, spot.place.node
        if letters is None:
            to = self._spot(place, node, place.flags | DOUBLED)
        else:
            to = None
            for letter in letters:
                node = place.trie.child(node, letter)
                if not node:
                    break
            if node:
                # A character that is none or several letters makes no short word of a number.
                to = self._spot(place, node, place.flags | EXACT | PLAIN | DOUBLED * (len(letters) != 1))
        spot.led[letters] = to
        return to

    def _spot(self, like: Place, node: int, flags: int) -> _Spot | None:
        place = self._places.at(like.trie, node, like.edits, flags, 0, 0, self._alike[like.encoding])
        if place is None:
            return None
        return self._spots.get(place) or self._spots.setdefault(place, _Spot(place))

    def _code_place(self, encoding: int, state: str) -> _CodePlace:
        known = self._code_places.get((encoding, state))
        return known or self._code_places.setdefault((encoding, state), _CodePlace(encoding, state))

    def _count(self) -> None:
        self._read += 1
        self._grow()

    # -- states --------------------------------------------------------------------------------------------------------

    def _keep_leap(
        self, state: PatternState, text: str, live: _Live, begun: _Begun | None, lefts: Sequence[int], left: int
    ) -> Leap:
        found: list[tuple[int, Position]] = []
        for at, spots in live.items():
            for spot, start in spots.items():
                place = at.places.get(spot) or self._place(at, spot)
                found.append((start, place))
        found.sort(key=_start_of)
        newest = state.count + len(text) - 1
        if begun is not None:
            found += [(newest, position) for position in begun.positions]
        starts: dict[int, int] = {}
        registers = tuple([starts.setdefault(start, len(starts)) for start, _ in found])
        keep = self._has_room()
        target = self.state(tuple([position for _, position in found]), registers, left, None, keep=keep)
        leap = Leap(target, tuple([self._move(start, state.count, lefts) for start in starts]))
        if keep and state.targets is not None and target.targets is not None:
            self._targets += 1
            self._entries += len(starts)
            state.leaps[text] = leap
            self._grow()
        return leap

    def _move(self, start: int, count: int, lefts: Sequence[int]) -> tuple[int, PatternState | None]:
        return (start, None) if start < count else (start - count, self.idle((), lefts[start - count]))

    def _place(self, at: _CodePlace, spot: _Spot) -> Place:
        place = self._places.encoded(spot.place, at.encoding, at.state)
        assert place is not None
        at.places[spot] = place
        return place


def _start_of(found: tuple[int, Position]) -> int:
    return found[0]
