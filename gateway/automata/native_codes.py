"""Words in codes, followed in C (`_ways.c`). `CodedWords` says what is right.

There a way is a place in a code and what of a word has been read, and so it is here. But a code is a chain of stages,
each of which reads what the one before has read: digits of Base64 become bytes, those perhaps digits again, and in the
end letters. A way has a row for each of them, and what a character leads to is known of each row by itself. So there
are few tables, and they are soon complete: of Base64 in Base64 a hundred rows and not ten thousand places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.automata.coded_words import CodedWords, Spot
from gateway.automata.contexts import EDGE
from gateway.automata.encodings import NEXT, PADDING, PASSED, AnyOf, BitEncoding, Decoded, Encoding, Reading, Stacked
from gateway.automata.native_words import WAY, Char, NativeWords, Numbers, WayTables
from gateway.automata.pattern_states import CharClass, Position
from gateway.automata.word_places import Bundle, Place

_ROW, _STAGES = 16, 3  # bits of a row, and rows of a place
_BETWEEN = 1 << _ROW - 1  # in the number of a row: between two letters
_MAX_ROWS = _BETWEEN - 1000  # a text leads to some more before they are forgotten
# In `_ways.c`: kinds of stages, rows of codes of bits, and what a symbol is to those.
_ASKED, _UTF_8, _BITS = range(1, 4)
_OF_UTF_8 = 0x10000
_FIRST_DIGITS, _ESCAPED = 64, 0x4000
# Of each kind of beginning of a character in UTF-8: the first row, the first byte's mark, how many bytes are behind it.
_UTF_8_ROWS = (1, 0xC0, 0), (33, 0xE0, 0), (49, 0xE0, 1), (1073, 0xF0, 0), (1081, 0xF0, 1), (1593, 0xF0, 2)
_NO_DIGIT, _PADDED, _PASSED = 64, 65, 128
_REPLACED = ord("?")
COMPLETE = 0xFFFFFFFF


class _Stage:
    """One of the encodings that are read one after the other. `codes`: it reads characters of the text, not letters of
    the stage before; `letters`: what it yields is those of the words. `decodes`: only what its bytes become."""

    def __init__(self, encoding: Encoding, codes: bool, letters: bool) -> None:
        self.encoding, self.codes, self.letters = encoding, codes, letters
        self.decodes = encoding if isinstance(encoding, Decoded) and not codes else None
        self.utf_8 = self.decodes is not None and self.decodes.charset == "utf-8"
        self.rows: dict[str, int] = {}

    @property
    def key(self) -> tuple[object, bool, bool]:
        """The same for stages that are alike."""
        return self.decodes.charset if self.decodes else self.encoding, self.codes, self.letters

    def read(self, state: str, char: str) -> Iterable[Reading]:
        if self.decodes is not None:
            return self.decodes.decode(state, char)
        return self.encoding.step(state, char) if state else self.encoding.start(char)


class _Chain(NamedTuple):
    """A code as stages. `prefix`: of its states, where it is one of several in one encoding."""

    number: int  # of the encoding
    prefix: str
    encoding: Encoding
    stages: list[_Stage]


class _CodeTables(WayTables):
    """What the numbers of ways stand for; made again when there are too many."""

    def __init__(self, words: NativeCodedWords, encodings: Iterable[Encoding]) -> None:
        self._words = words
        stages: dict[tuple[object, bool, bool], _Stage] = {}
        bits = Numbers[BitEncoding](())
        self._chains: list[_Chain] = []
        kinds = bytearray()
        for number, encoding in enumerate(encodings, 1):
            for prefix, each in _alternatives(encoding):
                of_this = list(_stages(each))
                chain = _Chain(number, prefix, each, [])
                for at, encoding_of in enumerate(of_this):
                    stage = _Stage(encoding_of, at == 0, at == len(of_this) - 1)
                    stage = stages.setdefault(stage.key, stage)
                    chain.stages.append(stage)
                    if isinstance(encoding_of, BitEncoding):
                        kinds.append(_BITS + bits[encoding_of])
                    else:
                        kinds.append(_UTF_8 if stage.utf_8 else _ASKED)
                kinds += bytes(_STAGES - len(of_this))
                self._chains.append(chain)
        self._utf_8 = next((stage for stage in stages.values() if stage.utf_8), None)
        self._rows: list[tuple[_Stage, str]] = []
        self._spots = Numbers[Spot | None]((None,))
        self._letters = Numbers[str | None]((None,))
        self._codes = Numbers[str](map(chr, range(128)))
        tables = tuple(map(_bits, bits))
        super().__init__(len(words.patterns), stages=bytes(kinds), bits=tables)

    @property
    def is_full(self) -> bool:
        return len(self._rows) > _MAX_ROWS

    def packed(self, entries: Iterable[tuple[Position, int]]) -> bytes:
        """Positions with their registers, as ways."""
        return b"".join(
            [
                WAY.pack(place, spot, register)
                for position, register in entries
                for place, spot in self._ways_at(position)
            ]
        )

    def entries(self, packed: bytes) -> Iterator[tuple[Place, int]]:
        """The reverse."""
        for place, number, register in WAY.iter_unpack(packed):
            chain = self._chains[place >> _ROW * _STAGES]
            rows = [place >> _ROW * at & 0xFFFF for at in range(len(chain.stages))]
            states = map(self._state, chain.stages, rows)
            spot = self._spots.items_by_number[number]
            assert spot is not None
            yield self._words.encoded(spot, chain.number, chain.prefix + _joined(chain.encoding, states)), register

    def live(self, packed: bytes) -> int:
        spots = self._spots.items_by_number
        held = (register for _, number, register in WAY.iter_unpack(packed) if _holds(spots[number]))
        return next(held, -1)

    def _ways_at(self, position: Position) -> Iterator[tuple[int, int]]:
        for each in position.places if isinstance(position, Bundle) else (position,):
            assert isinstance(each, Place)
            spot = self._words.spot_at(each, each.node, each.flags)
            if spot is not None:
                yield from ((place, self._spots[spot]) for place in self._places(each.encoding, each.state))

    def _places(self, number: int, state: str) -> Iterator[int]:
        for at, chain in enumerate(self._chains):
            if chain.number == number and state.startswith(chain.prefix):
                states = _split(chain.encoding, state[len(chain.prefix) :])
                rows = [self._row(stage, each) for stage, each in zip(chain.stages, states, strict=True)]
                yield sum(row << _ROW * stage for stage, row in enumerate(rows)) | at << _ROW * _STAGES

    def _row(self, stage: _Stage, state: str) -> int:
        if isinstance(stage.encoding, BitEncoding):
            return _bits_row(state)
        if stage.utf_8:
            return _utf_8_row(state)
        row = stage.rows.get(state)
        if row is None:
            row = stage.rows[state] = len(self._rows) | (_BETWEEN if NEXT in state else 0)
            self._rows.append((stage, state))
        return row

    def _state(self, stage: _Stage, row: int) -> str:
        if isinstance(stage.encoding, BitEncoding):
            return _bits_state(row)
        return _utf_8_state(row) if stage.utf_8 else self._rows[row & ~_BETWEEN][1]

    # -- what is asked -------------------------------------------------------------------------------------------------

    def _char(self, code_point: int) -> Char | None:
        self._words.count_entry()
        found = self._words.first(chr(code_point))
        if found is None:
            return None
        char_class, positions = found
        ways = self.packed([(position, 0) for position in positions])
        return self._codes[char_class.key.code], char_class.kind, 0, ways

    def _read(self, row: int, symbol: int) -> tuple[int, ...]:
        """What a symbol comes to: letters, or 0, each with the row behind it."""
        self._words.count_entry()
        if symbol & _OF_UTF_8 and self._utf_8:
            stage, state = self._utf_8, _utf_8_state(row)
        else:
            stage, state = self._rows[row & ~_BETWEEN]
        char = self._codes.items_by_number[symbol] if stage.codes else chr(symbol & 0xFF)
        found: list[int] = []
        for letters, rest in stage.read(state, char):
            if letters is None:
                found += 0, self._row(stage, rest)
            elif not stage.letters:  # bytes; as `Decoded` has it, what is none is replaced
                found += 1 + (ord(letters) if letters <= "\xff" else _REPLACED), self._row(stage, rest)
            elif (seen := self._words.in_words(letters)) is not None:
                found += self._letters[seen], self._row(stage, rest)
        return tuple(found)

    def _lead(self, number: int, letters: int = 0) -> int:
        """Where letters lead in a word; 0 if to none, or COMPLETE."""
        spot = self._spots.items_by_number[number]
        assert spot is not None
        led = self._words.led_to(spot, self._letters.items_by_number[letters])
        return 0 if led is None else COMPLETE if led.complete else self._spots[led]


class NativeCodedWords(NativeWords, CodedWords):
    """`CodedWords` in C."""

    def _forget_tables(self) -> None:
        CodedWords._forget_tables(self)
        self._tables = _CodeTables(self, self._encodings)

    def _is_full(self) -> bool:
        return CodedWords._is_full(self) or self._tables.is_full

    def first(self, char: str) -> tuple[CharClass, tuple[Position, ...]] | None:
        """The character's class, and the positions that it leads to from the start; None if a match is certain, or the
        character is none or several."""
        folded = self.fold(char).text
        if len(folded) != 1:
            return None
        char_class = self.char_class(folded)
        positions = self.after(self.start_position, EDGE, char_class)
        return None if any(position.arrives for position in positions) else (char_class, positions)

    def encoded(self, spot: Spot, encoding: int, state: str) -> Place:
        """The position at which so much of a word and of a code has been read."""
        place = self._places.encoded(spot.place, encoding, state)
        assert place is not None
        return place

    def in_words(self, letters: str) -> str | None:
        """The letters as the words have them; None if no word has."""
        return self._chars.in_words(letters)


def _holds(spot: Spot | None) -> bool:
    return spot is not None and spot.place.searched.holds


def _alternatives(encoding: Encoding) -> Iterator[tuple[str, Encoding]]:
    """The encodings that are chains of their own, each with what its states begin with."""
    if isinstance(encoding, AnyOf) and any(_is_chain(each) for each in encoding.encodings):
        yield from ((str(number), each) for number, each in enumerate(encoding.encodings))
    else:
        yield "", encoding


def _is_chain(encoding: Encoding) -> bool:
    return isinstance(encoding, Stacked) or (
        isinstance(encoding, Decoded) and isinstance(encoding.encoded, BitEncoding)
    )


def _stages(encoding: Encoding) -> Iterator[Encoding]:
    if isinstance(encoding, Stacked):
        yield from _stages(encoding.outer)
        yield from _stages(encoding.inner)
    else:
        if isinstance(encoding, Decoded) and _is_chain(encoding):
            yield encoding.encoded
        yield encoding


def _split(encoding: Encoding, state: str) -> Iterator[str]:
    """The state of each stage."""
    if isinstance(encoding, Stacked):
        outer, _, inner = state.partition("\0")
        yield from _split(encoding.outer, outer)
        yield from _split(encoding.inner, inner)
    elif _is_chain(encoding):
        begun, _, digits = state.partition(":")
        yield from (digits, begun)
    else:
        yield state


def _joined(encoding: Encoding, states: Iterator[str]) -> str:
    """The reverse."""
    if isinstance(encoding, Stacked):
        outer = _joined(encoding.outer, states)
        return f"{outer}\0{_joined(encoding.inner, states)}"
    if _is_chain(encoding):
        digits, begun = next(states), next(states)
        return f"{begun}:{digits}" if digits else ""
    return next(states)


def _bits(encoding: BitEncoding) -> tuple[int, bytes, bytes]:
    """What is to be known of a code of bits."""
    signs = bytearray([_NO_DIGIT] * 256)
    for char in map(chr, range(128)):
        digit = encoding.values.get(char, _PADDED if char == PADDING else _NO_DIGIT)
        signs[ord(char)] = digit | _PASSED * (char in PASSED)
    return encoding.width, bytes(encoding.counts), bytes(signs)


def _bits_row(state: str) -> int:
    if state.endswith("\\"):
        return _bits_row(state[:-1]) | _ESCAPED
    before, _, value = state.partition(",")
    return _FIRST_DIGITS + (1 << int(before)) + int(value) if before else 1 + int(value) if value else 0


def _bits_state(row: int) -> str:
    if row & _ESCAPED:
        return _bits_state(row & ~_ESCAPED) + "\\"
    if row <= _FIRST_DIGITS:
        return f",{row - 1}" if row else ""
    rest = (row - _FIRST_DIGITS).bit_length() - 1
    return f"{rest},{row - _FIRST_DIGITS - (1 << rest)}"


def _utf_8_row(state: str) -> int:
    begun = bytes.fromhex(state)
    for first, mark, behind in _UTF_8_ROWS if begun else ():
        if behind == len(begun) - 1 and mark == (begun[0] & 0xF0 if begun[0] >= 0xE0 else 0xC0):
            value = begun[0] ^ mark
            for byte in begun[1:]:
                value = value << 6 | byte & 0x3F
            return first + value
    return 0


def _utf_8_state(row: int) -> str:
    if not row:
        return ""
    first, mark, behind = next(kind for kind in reversed(_UTF_8_ROWS) if kind[0] <= row)
    value = row - first
    bytes_behind = [0x80 | value >> 6 * at & 0x3F for at in reversed(range(behind))]
    return bytes([mark | value >> 6 * behind, *bytes_behind]).hex()
