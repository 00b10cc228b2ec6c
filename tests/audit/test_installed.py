"""Preprocessors of packages that are installed."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from gateway.audit.language import plugins
from gateway.audit.language.automaton import Dfa, Regex, intersection, literal
from gateway.audit.language.plugins import PreprocessorError, load_preprocessor
from tests.support.languages import accepts, every_state_is_live, language, strings


class Evens:
    """Texts of an even number of bytes; state 3 cannot be completed, and there are no arcs."""

    start = 1

    def step(self, state: int, byte: int) -> int:
        return {0: 0, 1: 2, 2: 1, 3: 3}[state] if byte != 0x21 else 3

    def accepting(self, state: int) -> bool:
        return state == 1

    def live(self, state: int) -> bool:
        return state in (1, 2)


def installed(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    """Entry points whose functions are attributes of this module."""
    for name, function in functions.items():
        monkeypatch.setitem(globals(), f"_{name}", function)
    points = [EntryPoint(name, f"{__name__}:_{name}", plugins.GROUP) for name in functions]
    points.append(EntryPoint("broken", f"{__name__}:_nothing_has_this_name", plugins.GROUP))
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == plugins.GROUP else [])


def test_a_preprocessor_of_a_users(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, evens=lambda automaton: intersection(automaton, Regex("(?s)(?:..)*")))
    assert strings(load_preprocessor("evens")(language({"a", "ab", "字字", "abc"}))) == {"ab", "字字"}


def test_an_automaton_that_only_knows_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all that it accepts are texts."""
    installed(monkeypatch, evens=lambda automaton: Evens())
    evens = load_preprocessor("evens")(literal("a"))
    assert every_state_is_live(evens)
    for text in (b"", b"ab", "é".encode(), "é字a".encode(), b"a!", b"\xff\xff", b"\xc3\x28", b"abc"):
        expected = len(text) % 2 == 0 and b"!" not in text and text.decode(errors="replace").isprintable()
        assert accepts(evens, text) == (expected and "\ufffd" not in text.decode(errors="replace")), text


def test_preprocessors_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(automaton: Dfa) -> Dfa:
        raise KeyError("a secret")

    installed(monkeypatch, text="no function", nothing=lambda automaton: None, fails=fails)
    with pytest.raises(
        PreprocessorError,
        match=r"no installed package has this preprocessor in portcullis\.preprocessors; known: br",
    ):
        load_preprocessor("other")
    with pytest.raises(PreprocessorError, match="cannot be loaded: AttributeError"):
        load_preprocessor("broken")
    with pytest.raises(PreprocessorError, match="is not a function"):
        load_preprocessor("text")
    with pytest.raises(PreprocessorError, match="returns no automaton"):
        load_preprocessor("nothing")(literal("a"))
    with pytest.raises(PreprocessorError, match=r"the preprocessor fails: KeyError$"):
        load_preprocessor("fails")(literal("a"))
