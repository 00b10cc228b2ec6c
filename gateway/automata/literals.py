"""A streaming multi-word matcher (Aho-Corasick), over the characters as they were written.

The textbook machine for many words is Aho and Corasick's (1975): for every text the longest suffix that begins some
word. `gateway.automata.trie` has it in flat arrays, and with it what a minimal hold needs: how much of the end of a
text is still *live*. The machine here is determinised lazily on top of it:

* a `LiteralState` stands for everything the past can still mean: the longest suffix that begins a word, whether a word
  character stands before it, and the words that ended just now and wait for their right edge;
* where that suffix ends with a blank, further white space is nothing, and behind a line break so are the marks that
  begin lines (`>`, `-`). So a blank of a word takes a run of them, and text outside the words pays nothing for it;
* its transitions are keyed by the *original* character. Folding, whole-word edges and characters that become several
  or none are computed when a transition is taken, and cost nothing once it is kept;
* one in a few of the transitions that are computed is kept, in a bounded cache. What comes often is soon there, and
  text that never comes again, as a hostile one would be, leaves little behind. A full cache is emptied: that costs
  time, never correctness.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from gateway.automata.edges import EMPHASIS, is_word_char
from gateway.automata.states import forget
from gateway.automata.trie import AS_BEFORE, ROOT, Trie, sorted_words
from gateway.automata.waiting import MAX_EMPHASIS, FoundLiteral, reach_of, waited
from gateway.automata.waiting import Literal as Literal
from gateway.automata.waiting import LiteralKind as LiteralKind
from gateway.native import load_native

# Some 350 bytes each with the states they lead to, so that text made to fill a machine's cache costs it 35 MB.
MAX_TRANSITIONS = 100_000
MAX_FOLDS = 4096
# Of the walks that leave the kept transitions, one in so many is kept: while the cache is young, and later.
KEPT_ONE_IN_EARLY, KEPT_ONE_IN = 2, 16
LINE_ENDS = frozenset("\n\v\f\r\x85\u2028\u2029")
# Folded characters that begin a line of a list, quotation, heading, table or comment.
LINE_MARKS = frozenset(">-*+#|/\u2022")


class Folded(NamedTuple):
    """A character through a lens: `text` may be empty or longer than one; a match may not begin or end inside an
    `atomic` expansion. An `edge` may stand beside a whole word whatever its `text`."""

    text: str
    atomic: bool = False
    edge: bool = False


class Arrival(NamedTuple):
    """What is remarkable about the character that led to a state: `width` folded characters, words now certain."""

    width: int
    atomic: bool
    found: tuple[FoundLiteral, ...]


class LiteralState(dict[str, "LiteralState"]):
    """A state *is* the table of its kept transitions: `state[char]`, a `KeyError` for any other.

    `node` of the trie is the longest folded suffix that begins a word, `left` whether a word character precedes it,
    `pending` the words that ended just now and wait for their right edge. `new_line`: the suffix ends with a blank that
    has a line break in it. `live` is the folded length of the longest suffix that may become, or already is and waits
    as, a word that holds; negative while `LiteralMachine.live` has not worked it out. `arrival` is None for the usual
    case: one folded character, no word certain.
    """

    __slots__ = ("arrival", "left", "live", "new_line", "node", "pending")

    node: int
    left: bool
    pending: tuple[FoundLiteral, ...]
    new_line: bool
    live: int
    arrival: Arrival | None


class _Units(dict[str, str | None]):
    """Characters and what each folds to; None for one that becomes none or several, or is an edge."""

    __slots__ = ("_fold",)

    def __init__(self, fold: Callable[[str], Folded]) -> None:
        super().__init__()
        self._fold = fold

    def __missing__(self, char: str) -> str | None:
        text, _, edge = self._fold(char)
        unit = text if len(text) == 1 and not edge else None
        if len(self) < MAX_FOLDS:
            self[char] = unit
        return unit


_Key = tuple[int, bool, tuple[FoundLiteral, ...], Arrival | None, bool]


class LiteralMachine:
    """The automaton of a set of words seen through one lens.

    `words`: of each folded word, the kinds it is looked for as; kept, and not to be changed. `fold` maps an original
    character to its folded form. `longest` is the length of the longest word, folded, `reach` with what must be seen
    behind it. With `spaces`, a blank of a word takes runs of white space, and behind line breaks `line_marks`. At most
    `max_transitions` are kept. Raises ValueError without words and for an empty one.
    """

    __slots__ = ("__dict__", "_tables")  # a slot is read faster from C

    def __init__(
        self,
        words: Mapping[str, tuple[LiteralKind, ...]],
        fold: Callable[[str], Folded],
        max_transitions: int = MAX_TRANSITIONS,
        *,
        spaces: bool = False,
        line_marks: frozenset[str] = LINE_MARKS,
    ) -> None:
        if not words or "" in words:
            raise ValueError("a machine needs at least one word, and no empty one")
        self.longest = max(map(len, words))
        self._fold = lru_cache(MAX_FOLDS)(fold)
        self._units = _Units(self._fold)
        self._words = words
        self._texts = texts = sorted_words(words)
        free, edged = bytearray(len(texts)), bytearray(len(texts))
        # Without whole words the distinction would only double the states.
        self._edges = waits = False
        for at, text in enumerate(texts):
            for kind in words[text]:
                self._edges = self._edges or kind.left
                waits = waits or kind.right
                if kind.holds:
                    (edged if kind.left else free)[at] = 1
        self._edges_hold = 1 in edged
        self.reach = self.longest + (MAX_EMPHASIS + 1 if waits else 0)
        self._trie = trie = Trie(texts, bytes(free), bytes(edged), is_word_char if self._edges else None, EMPHASIS)
        self._spaces = spaces and " " in trie.labels
        self._line_marks = line_marks
        # Where `walk` has to look closer: words end, or a blank does, which takes what follows it.
        self._closer: Sequence[int] = trie.out
        if self._spaces:
            self._closer = bytes(end > 0 or label == " " for end, label in zip(trie.out, trie.labels, strict=True))
        self._shortest_guard = min(
            (kind.guard for kinds in words.values() for kind in kinds if kind.holds and kind.guard),
            default=0,
        )
        self._states: dict[int | _Key, LiteralState] = {}
        self._transitions = 0
        self._max_transitions = max_transitions
        self._kept_one_in = KEPT_ONE_IN_EARLY
        self._countdown = 0
        self._tables: object = None  # what `_walk.c` makes of the trie

    def start(self) -> LiteralState:
        """The state before any text; the beginning of a text is an edge."""
        return self._state(ROOT, False, (), None)

    def step(self, state: LiteralState, char: str) -> LiteralState:
        """The state after one character."""
        target = state.get(char)
        if target is not None:
            return target
        folded = self._fold(char)
        if len(folded.text) != 1 or state.pending or (folded.edge and self._edges):
            target = self._step_folded(state, char, folded)
        elif self._spaces and self._is_in_blank(state, folded.text):
            new_line = state.new_line or char in LINE_ENDS
            target = self._state(state.node, state.left, (), Arrival(0, False, ()), new_line)
        else:
            node, left = self._trie.step(state.node, state.left, folded.text)
            if self._trie.out[node]:
                target = self._step_folded(state, char, folded)
            else:
                target = self._state(node, left, (), None, self._is_new_line(node, char))
        self._keep(state, char, target)
        return target

    def _is_in_blank(self, state: LiteralState, unit: str) -> bool:
        """Does this character extend the blank that the longest suffix ends with?"""
        if not state.node or self._trie.labels[state.node] != " ":
            return False
        return unit == " " or (state.new_line and unit in self._line_marks)

    def _is_new_line(self, node: int, char: str) -> bool:
        return self._spaces and char in LINE_ENDS and node != ROOT and self._trie.labels[node] == " "

    def walk(self, state: LiteralState, text: str) -> LiteralState | None:
        """The state after a text of which some transition is not kept; None where only single steps will do, because
        a character folds to none or several, or ends a word.

        Most times no state is made on the way.
        """
        if state.pending or state.new_line:
            return None
        self._countdown -= 1
        keep = self._countdown < 0
        if keep:
            self._countdown = self._kept_one_in - 1
        trie, units, states, node, left = self._trie, self._units, self._states, state.node, state.left
        labels, first, fail, root, closer, before = (
            trie.labels, trie.first, trie.fail, trie.root, self._closer, trie.before,
        )  # fmt: skip
        find = labels.find
        for char in text:
            unit = units[char]
            if unit is None:
                return None
            # What `Trie.step` does, without the calls.
            while node:
                child = find(unit, first[node], first[node + 1])
                if child > 0:
                    node = child
                    break
                if unit == " " and labels[node] == " " and self._spaces:
                    return None
                if before[node] != AS_BEFORE:
                    left = before[node] != 0
                node = fail[node]
            else:
                node = root.get(unit, ROOT)
                if not node and unit != EMPHASIS:
                    left = self._edges and is_word_char(unit)
            if closer[node] and (trie.out[node] or char in LINE_ENDS):
                return None
            if keep:
                target = states.get(2 * node + left)
                if target is None:
                    target = self._state(node, left, (), None)
                if char not in state:
                    self._keep(state, char, target)
                state = target
        if keep:
            return state
        known = states.get(2 * node + left)
        return self._state(node, left, (), None, keep=False) if known is None else known

    def _keep_state(self, node: int, left: bool) -> LiteralState:
        """The state of a node that a walk leads to, kept as a transition would be."""
        self._count_kept()
        return self._state(node, left, (), None)

    def _keep(self, state: LiteralState, char: str, target: LiteralState) -> None:
        self._count_kept()
        state[char] = target

    def _count_kept(self) -> None:
        self._transitions += 1
        if self._transitions > self._max_transitions // 16:
            self._kept_one_in = KEPT_ONE_IN
            if self._transitions > self._max_transitions:
                forget(self._states)
                self._transitions = 0

    def _step_folded(self, state: LiteralState, char: str, folded: Folded) -> LiteralState:
        """The step where something is remarkable: words end, or wait, or a character folds to none or several."""
        text, atomic, edge = folded
        if not text:
            return self._state(state.node, state.left, state.pending, Arrival(0, False, ()), state.new_line)
        node, left, pending = state.node, state.left, state.pending
        found: list[FoundLiteral] = []
        back = len(text)
        for unit in text:
            certain, pending = waited(pending, unit, edge)
            found += [FoundLiteral(literal, ended + back) for literal, ended in certain]
            back -= 1
            node, left = self._trie.step(node, left, unit)
            if edge and not node:
                left = False
            ended = [] if atomic and back else self._ending(node, left)
            found += [FoundLiteral(literal, back) for literal in ended if not literal.kind.right]
            pending += tuple(FoundLiteral(literal, 0) for literal in ended if literal.kind.right)
        if found or len(text) != 1:
            arrival = Arrival(len(text), atomic, tuple(found))
            return self._state(node, left, pending, arrival, self._is_new_line(node, char))
        return self._state(node, left, pending, None, self._is_new_line(node, char))

    def hides(self, char: str) -> bool:
        """Does the lens remove this character?"""
        return not self._fold(char).text

    def length(self, state: LiteralState) -> int:
        """Folded length of the longest suffix that begins a word, or is one that waits."""
        longest = self._trie.length[state.node]
        return max([longest, *map(reach_of, state.pending)]) if state.pending else longest

    def live(self, state: LiteralState) -> int:
        """`state.live`, computed on first use."""
        if state.live < 0:
            state.live = next(self.live_lengths(state), 0)
        return state.live

    def live_lengths(self, state: LiteralState, at_most: int | None = None) -> Iterator[int]:
        """Folded lengths, descending, of the suffixes that some continuation or the end could complete into a word
        that holds."""
        return (length for _, length, _ in self._live(state) if at_most is None or length <= at_most)

    def wanted(self, state: LiteralState, longer_than: int) -> Iterator[tuple[int, set[int]]]:
        """Of the live suffixes longer than `longer_than` folded characters, descending, the length, and the tags
        of the words that they are held for."""
        for node, length, at_edge in self._live(state):
            if length <= longer_than:
                return
            tags = {
                word.kind.tag for word, back in state.pending if word.kind.holds and len(word.text) + back == length
            }
            if node:
                beginning = self.completions(self._trie.path(node), at_edge)
                tags |= {word.kind.tag for word in beginning if len(word.text) > length}
            yield length, tags

    def _live(self, state: LiteralState) -> Iterator[tuple[int, int, bool]]:
        """Of the suffixes that begin a word, those that may become, or wait to be, a word that holds. `ROOT` is the
        node of one that waits and of which no word is more."""
        trie = self._trie
        waiting = sorted({reach_of(each) for each in state.pending if each.literal.kind.holds})
        for node, at_edge in trie.suffixes(state.node, state.left):
            length = trie.length[node]
            while waiting and waiting[-1] > length:
                yield ROOT, waiting.pop(), False
            is_waiting = bool(waiting) and waiting[-1] == length
            if is_waiting:
                waiting.pop()
            if is_waiting or trie.live[node] == length or (at_edge and trie.edged[node]):
                yield node, length, at_edge
        for length in reversed(waiting):
            yield ROOT, length, False

    def beginnings(self, state: LiteralState) -> Iterator[tuple[Literal, int]]:
        """Words that hold, of which at least `guard` characters, but not all, end the text; with that length."""
        if not self._shortest_guard:
            return
        for node, at_edge in self._trie.suffixes(state.node, state.left):
            length = self._trie.length[node]
            if length < self._shortest_guard:
                return
            for literal in self.completions(self._trie.path(node), at_edge):
                guard = literal.kind.guard
                if guard and guard <= length < len(literal.text) and length not in literal.kind.spared:
                    yield literal, length

    def completions(self, prefix: str, at_edge: bool) -> Iterator[Literal]:
        """The words that hold and begin with `prefix`."""
        texts = self._texts
        for at in range(bisect_left(texts, prefix), len(texts)):
            if not texts[at].startswith(prefix):
                return
            for kind in self._words[texts[at]]:
                if kind.holds and (at_edge or not kind.left):
                    yield Literal(texts[at], kind)

    def _ending(self, node: int, left: bool) -> list[Literal]:
        """The words that end here and whose left edge is right, shortest first."""
        trie = self._trie
        path = trie.path(node)
        ended: list[Literal] = []
        node = trie.out[node]
        while node:
            begin = len(path) - trie.length[node]
            blocked = trie.standing(path, begin, left)
            text = path[begin:]
            ended[:0] = (Literal(text, kind) for kind in self._words[text] if not (kind.left and blocked))
            node = trie.out[trie.fail[node]]
        return ended

    def _state(
        self,
        node: int,
        left: bool,
        pending: tuple[FoundLiteral, ...],
        arrival: Arrival | None,
        new_line: bool = False,
        keep: bool = True,
    ) -> LiteralState:
        # Almost all states differ by their node alone.
        plain = arrival is None and not pending and not new_line
        key = 2 * node + left if plain else (node, left, pending, arrival, new_line)
        state = self._states.get(key)
        if state is None:
            state = LiteralState()
            state.node, state.left, state.pending, state.arrival, state.new_line = (
                node,
                left,
                pending,
                arrival,
                new_line,
            )
            state.live = -1 if pending or self._edges_hold else self._trie.live[node]
            if keep:
                self._states[key] = state
        return state


# What says what is right, and what `_walk.c` takes the place of.
WALK_IN_PYTHON = LiteralMachine.walk
_NATIVE = load_native("gateway.automata._walk")
if _NATIVE is not None:
    LiteralMachine.walk = _NATIVE.method_of(LiteralMachine)  # type: ignore[method-assign]
