"""Languages listed string by string, and the naive meaning of what preprocessors do to them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from hypothesis import strategies as st

from gateway.audit.language.automaton import Dfa, Regex, reachable_states
from gateway.audit.language.preprocess import edits
from gateway.automata.charset import CharSet

Words = frozenset[str]


def levenshtein(one: str, other: str) -> int:
    """Levenshtein's, by the textbook."""
    row = list(range(len(other) + 1))
    for at, char in enumerate(one, start=1):
        before, row = row, [at]
        for to, wanted in enumerate(other, start=1):
            row.append(min(before[to] + 1, row[-1] + 1, before[to - 1] + (char != wanted)))
    return row[-1]


def language(words: Iterable[str]) -> Dfa:
    """The automaton of some texts, by way of an alternation."""
    return Regex("|".join("".join(f"\\U{ord(char):08x}" for char in word) for word in sorted(words)))


def strings(automaton: Dfa, longest: int = 100) -> Words:
    """All strings of at most so many bytes. That none comes twice is asserted, and that all are UTF-8."""
    found = list(_strings(automaton, longest))
    assert len(found) == len(set(found))
    return frozenset(text.decode() for text in found)


def _strings(automaton: Dfa, longest: int) -> Iterator[bytes]:
    waiting = [(automaton.start, b"")] if automaton.start else []
    while waiting:
        state, text = waiting.pop()
        if automaton.accepting(state):
            yield text
        if len(text) < longest:
            for low, high, target in automaton.arcs(state):
                waiting += ((target, text + bytes([byte])) for byte in range(low, high + 1))


def accepts(automaton: Dfa, text: bytes) -> bool:
    """Step by step."""
    state = automaton.start
    for byte in text:
        state = automaton.step(state, byte)
    return automaton.accepting(state)


def words_of(alphabet: str, longest: int = 4, most: int = 4) -> st.SearchStrategy[Words]:
    return st.frozensets(st.text(alphabet, max_size=longest), min_size=1, max_size=most)


# -- what preprocessors mean -------------------------------------------------------------------------------------------


def edited(words: Iterable[str], most: int, alphabet: str) -> Words:
    """By the definition: one edit after the other, of every string that there is so far."""
    found = frozenset(words)
    for _ in range(most):
        found |= {each for word in found for each in edited_once(word, alphabet)}
    return found


def edited_once(word: str, alphabet: str) -> Iterator[str]:
    for at in range(len(word) + 1):
        yield from (word[:at] + char + word[at:] for char in alphabet)
        if at < len(word):
            yield word[:at] + word[at + 1 :]
            yield from (word[:at] + char + word[at + 1 :] for char in alphabet)


def distance(one: str, other: str, alphabet: str) -> float:
    """How many edits make `other` of `one`, with what is written in out of the alphabet: the textbook's recursion."""

    @cache
    def left(i: int, j: int) -> float:
        if i == len(one) and j == len(other):
            return 0
        ways = [float("inf")]
        if i < len(one):
            ways.append(1 + left(i + 1, j))
        if j < len(other) and other[j] in alphabet:
            ways.append(1 + left(i, j + 1))
        if i < len(one) and j < len(other):
            if one[i] == other[j]:
                ways.append(left(i + 1, j + 1))
            elif other[j] in alphabet:
                ways.append(1 + left(i + 1, j + 1))
        return min(ways)

    return left(0, 0)


def is_word_char(char: str) -> bool:
    """Chinese characters are written without edges."""
    return char == "_" or (unicodedata.category(char)[0] in "LNM" and not "\u4e00" <= char <= "\u9fff")


def stands_whole(text: str, at: int, word: str) -> bool:
    """Does the whole word stand there?"""
    end = at + len(word)
    if text[at:end] != word:
        return False
    left = at == 0 or not (is_word_char(word[0]) and is_word_char(text[at - 1]))
    right = end == len(text) or not (is_word_char(word[-1]) and is_word_char(text[end]))
    return left and right


def holds(text: str, words: Iterable[str]) -> bool:
    return any(stands_whole(text, at, word) for word in words for at in range(len(text)))


def without(texts: Iterable[str], is_unwanted: Callable[[str], bool], prefixes: Iterable[str] = ("",)) -> Words:
    prefixes = frozenset(prefixes)
    return frozenset(
        text
        for text in texts
        if not any(is_unwanted(text[len(prefix) :]) for prefix in prefixes if text.startswith(prefix))
    )


def replaced(texts: Iterable[str], others: Mapping[str, Iterable[str]]) -> Words:
    """Every choice of occurrences that do not overlap."""

    def rest(text: str, at: int) -> Iterator[str]:
        if at == len(text):
            yield ""
            return
        yield from (text[at] + more for more in rest(text, at + 1))
        for word, options in others.items():
            if stands_whole(text, at, word):
                yield from (option + more for more in rest(text, at + len(word)) for option in options)

    return frozenset(each for text in texts for each in rest(text, 0))


def edits_in(alphabet: str, most: int) -> Callable[[Dfa], Dfa]:
    return lambda automaton: edits(automaton, most, CharSet.of(alphabet))


def every_state_is_live(automaton: Dfa) -> bool:
    """Backwards from the ends, over all that can be reached."""
    states = reachable_states(automaton, 10_000)
    useful = {state for state in states if automaton.accepting(state)}
    while True:
        more = {state for state in states if any(target in useful for *_, target in automaton.arcs(state))} - useful
        if not more:
            return useful == set(states) and all(map(automaton.live, states))
        useful |= more
