"""The positions of words in disguise: a node of their trie with what the way there leaves open, and what comes of it.

Ways between which no later text can tell are one position: what matters only to short words is left out where all
words below the node are long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gateway.automata.contexts import ALL_RIGHTS, EDGE, KINDS, OTHER
from gateway.automata.pattern_states import Position
from gateway.automata.positions import Region
from gateway.automata.trie import ROOT
from gateway.automata.word_trie import WordTrie, letter_bits

# What is known of a way besides its node.
EDGED, GAPPED, JOINED, PLAIN, SECOND_PLAIN, DOUBLED, UNEVEN, EXACT, DONE, BLANK, MASKED, STARRED, APART, SINGLE = (
    1 << bit for bit in range(14)
)
SWAPPED = "\x02"  # then the letter that must come next
NEW_LINE = "\n"  # in the white space of a phrase, behind a line break
LINE = "\x06"  # in a gap, where a line begins
NUMBER = "\x07"  # in a gap, behind the number of a list: as many as there are digits
TWICE = "\x04"  # behind a letter that has come once more than in the word
OFTEN = "\x05"  # and more often
# A gap is its length, and whether it begins with a blank: of short words all are alike.
GAP_LENGTH, BLANK_GAP = 7, 8
SHORT_MASKED = 4  # in shorter words no letter is an asterisk, and nothing interrupts a code
SHORT_MARKED = 4  # in shorter words all letters are apart, whatever is between them
SHORT_REPEATED = 3  # in shorter words it is not enough that all letters come twice
SHORT_DENSE = 4  # shorter words are in ordinary text, if that is read as Base64 or Base32
MAX_PLACES = 100_000  # of some 700 bytes, with their steps
_AT_EDGE = 1 << EDGE | 1 << OTHER  # what may stand beside a word character that ends a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Obfuscation:
    """How words are written: in a text, with these disguises; or, if there are `variants` (names of
    `codes.VARIANTS` and `STACKED`), in one of these codes only."""

    leet: bool = False
    spacing: bool = False
    repeats: bool = False
    markup: bool = False
    url: bool = False
    controls: bool = False  # of terminals, which do not show them
    variants: tuple[str, ...] = ()
    charsets: bool = False  # codes of other charsets than UTF-8, for letters that are not ASCII's


# The trie, the node, edits, flags, gap, spaced, encoding, state and skip of a place.
_Key = tuple[WordTrie, int, int, int, int, int, int, str, int]


class Place(Position):
    """A position of an automaton of words.

    `gap`: characters since the last letter; `spaced`: those between the first two letters that are spaced out, where
    all are to be as far apart. `encoding` 0 is the text itself; in it `state` is empty, or one of the special ones
    above. With `skip`, it is all nodes so many letters below `node`: those letters are replaced by others.
    """

    __slots__ = ("edits", "encoding", "flags", "gap", "node", "skip", "spaced", "state", "trie")

    def __init__(self, key: _Key, rights: int, *, continues: bool) -> None:
        trie, self.node, self.edits, self.flags, self.gap, self.spaced, self.encoding, self.state, self.skip = key
        self.trie = trie
        # As `super` does, but there are very many of them.
        self.owner, self.searched, self.region, self.past = trie.owner, trie.set, Region.SPAN, 0
        self.arrives = ALL_RIGHTS if rights == ALL_RIGHTS else 0
        self.waits = rights * _EVERY_KIND if rights < ALL_RIGHTS else 0
        self.continues = ALL_RIGHTS if continues else 0
        self.may_match = ALL_RIGHTS if continues or self.waits else 0
        self.passes = continues and not rights
        self.onward = -1
        if self.state.startswith(SWAPPED):
            self.onward = letter_bits(self.state[1:])
        elif (self.node or self.skip) and not self.encoding and not self.state and self.edits == trie.set.edits:
            self.onward = trie.onward(self.node, self.skip)
        self.steps = {}


_EVERY_KIND = sum(1 << KINDS * kind for kind in range(KINDS))


class Bundle(Position):
    """All places behind the first character of a match from which more is needed: they live for as long, and there are
    many of them behind most characters of a hostile text."""

    __slots__ = ("places",)

    places: tuple[Place, ...]


def bundled(led: Iterable[Place | None]) -> tuple[Position, ...]:
    """The positions behind the first character of a match."""
    found: list[Position] = []
    by_owner: dict[int, list[Place]] = {}
    for place in distinct(led):
        if place.passes:
            by_owner.setdefault(place.owner, []).append(place)
        else:
            found.append(place)
    for owner, places in by_owner.items():
        bundle = Bundle(owner, places[0].searched, arrives=0, waits=0, continues=ALL_RIGHTS)
        bundle.places = tuple(places)
        found.append(bundle)
    return tuple(found)


def distinct(led: Iterable[Place | None]) -> tuple[Place, ...]:
    return tuple(dict.fromkeys(filter(None, led)))


class Places:
    """The places that texts have led to, each once: `place` is None for one from which no match is possible.

    `short_spaced` and `short`: words below these weights need more to count as spaced out, and as disguised.
    `embedded`: so many encodings are of letters within a text. When there are too many places `forget` is called, and
    they are made again.
    """

    def __init__(self, disguises: Obfuscation, embedded: int, short_spaced: int, short: int) -> None:
        self._disguises, self._embedded = disguises, embedded
        codes = enumerate(disguises.variants, embedded + 1)
        self.dense = frozenset(encoding for encoding, name in codes if "base" in name)
        self._short_spaced, self._short = short_spaced, short
        self._known: dict[_Key, Place | None] = {}

    def __iter__(self) -> Iterator[Place]:
        return filter(None, list(self._known.values()))

    def is_full(self) -> bool:
        return len(self._known) > MAX_PLACES

    def clear(self) -> None:
        self._known.clear()

    def root(self, trie: WordTrie, flags: int) -> Place:
        """The place before the first letter, which is not one of a text's."""
        return Place((trie, ROOT, trie.missing, flags, 0, 0, 0, "", 0), 0, continues=True)

    def at(
        self,
        trie: WordTrie,
        node: int,
        edits: int,
        flags: int,
        gap: int = 0,
        spaced: int = 0,
        encoding: int = 0,
        state: str = "",
        skip: int = 0,
    ) -> Place | None:
        lightest, disguises = trie.lightest[node], self._disguises
        if not disguises.spacing:
            flags &= ~(JOINED | UNEVEN | EDGED) if node or disguises.variants else ~(JOINED | UNEVEN)
        elif lightest >= self._short_spaced:
            flags &= ~(JOINED | UNEVEN | APART)
            gap &= GAP_LENGTH
            spaced = 0
        if lightest >= self._short:
            flags &= ~(SECOND_PLAIN | DOUBLED | SINGLE)
            if state in (TWICE, OFTEN):
                state = ""
        if disguises.variants and lightest >= SHORT_MASKED:
            flags &= ~MASKED
        return self._at((trie, node, edits, flags, gap, spaced, encoding, state, skip))

    def interruption(self, encoding: int) -> int:
        """The flag of a way on which other characters stand within a code: of a dense one more letters are needed."""
        return DOUBLED if encoding in self.dense else MASKED

    def encoded(self, place: Place, encoding: int, state: str) -> Place | None:
        """The same place, within an encoding."""
        return self._at(
            (place.trie, place.node, place.edits, place.flags, place.gap, place.spaced, encoding, state, place.skip)
        )

    def _at(self, key: _Key) -> Place | None:
        if key in self._known:
            return self._known[key]
        encoding, skip = key[6], key[8]
        rights = 0 if skip or 0 < encoding <= self._embedded else self._rights(key)
        continues = self._continues(key)
        place = Place(key, rights, continues=continues) if (rights or continues) and self._fits(key) else None
        return self._known.setdefault(key, place)

    def _fits(self, key: _Key) -> bool:
        """Is a word below long enough to be written so?"""
        trie, node, _, flags, *_ = key
        if trie.longest[node] < trie.set.edits_from:
            return False
        heaviest = trie.heaviest[node]
        if heaviest >= self._short and heaviest >= self._short_spaced:
            return True
        if self._disguises.leet and 1 < heaviest < self._short:
            plain = bool(flags & PLAIN) + bool(flags & SECOND_PLAIN)
            if plain + heaviest - trie.weight[node] < 2:
                return False
        return self._suffices(flags, heaviest)

    def _suffices(self, flags: int, weight: int) -> bool:
        """May a word of this weight be written so?"""
        uneven = flags & GAPPED and flags & (JOINED | UNEVEN) and weight < self._short_spaced
        if uneven and (flags & APART or weight < SHORT_MARKED):
            return False
        in_part = self._disguises.variants or flags & SINGLE or weight < SHORT_REPEATED
        if flags & DOUBLED and weight < self._short and in_part:
            return False
        return not (flags & MASKED and weight < SHORT_MASKED)

    def _continues(self, key: _Key) -> bool:
        """Can a further character continue the word?"""
        trie, node, _, flags, gap, _, encoding, _, skip = key
        if flags & DONE:
            return False
        if skip:
            return trie.longest[node] - trie.length[node] > skip
        if trie.trie.first[node] < trie.trie.first[node + 1]:
            return True
        if not flags & EXACT or gap:
            return False
        return not encoding and (self._disguises.repeats or trie.trie.labels[node] == " ")

    def _rights(self, key: _Key) -> int:
        """What may follow the position for a match to end with it."""
        trie, node, edits, flags, gap, _, encoding, state, _ = key
        if not node or gap or not flags & EXACT or not flags & PLAIN or (flags & STARRED and not flags & MASKED):
            return 0
        rights = 0
        if trie.to_end[node] <= trie.set.edits - edits:
            for end, made in self._ends(trie, node, edits):
                length = trie.length[end]
                if trie.set.edits and (not made or length < trie.set.edits_from):
                    continue
                doubled = DOUBLED if state == TWICE else 0 if state else SINGLE
                weight = trie.weight[end]
                if encoding in self.dense and weight < SHORT_DENSE:
                    continue
                if not flags & SECOND_PLAIN and self._disguises.leet and 1 < weight < self._short:
                    continue
                if not self._suffices(flags | doubled, weight):
                    continue
                whole = not encoding and (flags & GAPPED or trie.needs_edge(end))
                rights |= _AT_EDGE if whole else ALL_RIGHTS
        guard = trie.guard[node]
        if guard and not encoding and trie.length[node] >= guard and not trie.spares(node):
            rights |= 1 << EDGE
        return rights

    def _ends(self, trie: WordTrie, node: int, edits: int) -> Iterator[tuple[int, int]]:
        """The words that end here, or that only lack their last letters."""
        if trie.ends(node):
            yield node, edits
        if edits < trie.set.edits:
            for child in trie.children(node):
                yield from self._ends(trie, child, edits + 1)
