"""Alignment of an edited string with the nearest string of a language: the positions of the edits.

Levenshtein's distance to a language, with its way: characters of the string on one side, states of the automaton on the
other, and steps that cost one where the two do not agree (Wagner 1974).
"""

from __future__ import annotations

from collections import deque

from gateway.audit.language.automaton import Dfa, walk
from gateway.audit.language.preprocess import Characters

MAX_MET = 50_000  # pairs of a position and a state

_Pair = tuple[int, int]


def edited_at(language: Dfa, text: str, most: int) -> tuple[int, ...] | None:
    """The positions of the edits, in characters from the beginning; of a deletion, where the character is missing. None
    for more than `most` edits, or if `MAX_MET` is exceeded."""
    if not language.start:
        return None
    characters = Characters(language)
    pieces = [char.encode() for char in text]
    begin = (0, language.start)
    cost = {begin: 0}
    came_from: dict[_Pair, tuple[_Pair, int | None]] = {}
    waiting = deque([begin])
    while waiting:
        pair = waiting.popleft()
        at, state = pair
        if at == len(pieces) and language.accepting(state):
            return _places(came_from, pair)
        steps: list[tuple[_Pair, int]] = []
        if at < len(pieces):
            if target := walk(language, state, pieces[at]):
                steps.append(((at + 1, target), 0))
            steps.append(((at + 1, state), 1))
        if cost[pair] < most:
            after = sorted(characters.after(state))
            steps += [((at, target), 1) for target in after]
            steps += [((at + 1, target), 1) for target in after if at < len(pieces)]
        for target_pair, price in steps:
            total = cost[pair] + price
            if total > most or total >= cost.get(target_pair, most + 1):
                continue
            if len(cost) >= MAX_MET:
                return None
            cost[target_pair] = total
            came_from[target_pair] = pair, at if price else None
            if price:
                waiting.append(target_pair)
            else:
                waiting.appendleft(target_pair)
    return None


def _places(came_from: dict[_Pair, tuple[_Pair, int | None]], pair: _Pair) -> tuple[int, ...]:
    found: list[int] = []
    while pair in came_from:
        pair, place = came_from[pair]
        if place is not None:
            found.append(place)
    return tuple(reversed(found))
