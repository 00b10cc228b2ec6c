"""The automata of words in C find what they find in Python: the same ways, from the same beginnings, at every cut."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.automata import native_words
from gateway.automata.obfuscation import ObfuscatedWords
from gateway.automata.pattern_states import Leap, PatternState, Position
from gateway.automata.word_places import Bundle, Place
from gateway.censor.compile import compile_policy
from gateway.policy.model import Channel, Direction, Policy, Rule, Strength
from tests.support.examples import examples
from tests.support.native import native_module

NATIVE = native_module("gateway.automata._ways")
WORDS = ("secret", "swordfish", "Grünewald", "a blank", "ass", "con", "e5")
MISSPELT = ("swordfishes", "sword fishes", "Grünewaldstraße", "password123", "passwordless", "Mississippi")
pytestmark = pytest.mark.skipif(NATIVE is None, reason="there is no compiler")


def machines(native: bool, **keys: Any) -> list[ObfuscatedWords]:
    rule = Rule(**{"id": "r", "words": WORDS, "strength": Strength.PARANOID} | keys)
    with patch.object(native_words, "NATIVE", NATIVE if native else None):
        program = compile_policy(Policy(name="p", rules=(rule,))).program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    return [each for each in program.patterns if isinstance(each, ObfuscatedWords)]


@lru_cache(1)
def both() -> list[tuple[ObfuscatedWords, ObfuscatedWords]]:
    keys: tuple[dict[str, Any], ...] = ({}, {"words": MISSPELT, "edits": 2, "whole_word": True}, {"secret": True})
    return [each for of in keys for each in zip(machines(True, **of), machines(False, **of), strict=True)]


Beginning = tuple[int, int]  # the offset, and what stands before it


def seen(state: PatternState, registers: Sequence[Beginning]) -> dict[tuple[object, ...], Beginning]:
    """The earliest beginning of each place; those are other objects in the other machine."""
    found: dict[tuple[object, ...], Beginning] = {}
    for position, register in state.entries:
        for each in places(position):
            key = each.trie.trie.path(each.node), each.trie.missing, each.trie.edged, each.edits, each.flags, each.gap
            found.setdefault((*key, each.spaced, each.encoding, each.state, each.skip), registers[register])
    return found


def places(position: Position) -> tuple[Place, ...]:
    if isinstance(position, Bundle):
        return position.places
    assert isinstance(position, Place)
    return (position,)


def moved(leap: Leap, registers: Sequence[Beginning], offset: int) -> list[Beginning]:
    return [registers[of] if before is None else (offset + of, before.left) for of, before in leap.moves]


def codes() -> Iterator[str]:
    for word in MISSPELT:
        for at in range(len(word)):
            yield from (word[:at] + word[at + 1 :], word[:at] + "x" + word[at:], word[:at] + "4s" + word[at + 2 :])
            yield word[:at] + word[at + 1 : at + 2] + word[at : at + 1] + word[at + 2 :]
    for word in WORDS:
        data = word.encode()
        yield from (word, base64.b64encode(data).decode(), base64.b32encode(data).decode(), data.hex(" "))
        yield from (base64.b64encode(base64.b64encode(data)).decode(), base64.b64encode(data.hex().encode()).decode())
        yield from (
            base64.b64encode(data).hex(),
            " ".join(map(str, data)),
            base64.b64encode(word.encode("utf-16-le")).decode(),
        )
        yield from (" ".join(map(oct, data)), "".join(f"\\u{ord(char):04x}" for char in word), word.upper())


TEXTS = st.lists(
    st.one_of(
        st.sampled_from([code[begin:] for code in codes() for begin in range(3)]),
        st.text("aAsScC5=+/ \n\\nr-.,:\0\x1b\x9bé\u200b0x", max_size=6),
        st.sampled_from(["alfa sierra", ".- ... ...", "7\n", "sierra  sierra", "\u00c3\u00bc", "w0", "0x6", "e", "_s"]),
        # Line breaks as they are escaped, also within a code in a code; letters that are no code's, and other signs.
        st.sampled_from([r"c2\nVj", r"\nc2\r\nVj", "Y1xuMlZqY1xubVYw", "73 é 65", "63, c 72"]),
    ),
    max_size=6,
).map("".join)


@given(TEXTS, st.randoms(use_true_random=False))
@settings(max_examples=examples(300))
def test_a_text_leads_to_the_same_ways(text: str, source: random.Random) -> None:
    pieces = []
    while text:
        size = source.choice((1, 1, 2, 3, 4, 5, 20))
        pieces.append(text[:size])
        text = text[size:]
    for each in both():
        states, registers, offset = [machine.start() for machine in each], [list[Beginning]() for _ in each], 0
        for piece in pieces:
            leaps = [machine.leap(state, piece) for machine, state in zip(each, states, strict=True)]
            if None in leaps:
                assert leaps == [None, None]
                states, registers = [machine.start() for machine in each], [[], []]
            else:
                registers = [moved(leap, old, offset) for leap, old in zip(leaps, registers, strict=True) if leap]
                states = [leap.state for leap in leaps if leap]
                in_c, in_python = map(seen, states, registers)
                assert in_c == in_python
                assert registers == [sorted(of) for of in registers]
                assert [state.live for state in states] == [0 if in_c else -1] * 2
                assert states[0].left == states[1].left and states[0].waits == states[1].waits
            offset += len(piece)
