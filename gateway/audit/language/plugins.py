"""Preprocessors from installed packages, by entry point."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points

from gateway.audit.language.automaton import Dfa, DfaView, LazyDfa, Numbered, PrunedDfa, Regex, intersection
from gateway.audit.language.prefix_language import Change
from gateway.audit.language.preprocess import ANYTHING

GROUP = "portcullis.preprocessors"


class PreprocessorError(ValueError):
    """A preprocessor is not installed, cannot be loaded, fails, or returns no automaton."""


def _adapted(given: Dfa) -> Dfa:
    """An automaton from a package; states that it reports as not live are dead here."""

    def live(state: int) -> int | None:
        return state if state and given.live(state) else None

    def transitions(state: int) -> Iterator[tuple[int, int, int | None]]:
        return ((byte, byte, live(given.step(state, byte))) for byte in range(256))

    return Numbered(live(given.start), transitions, given.accepting)


def load_preprocessor(name: str) -> Change:
    """The preprocessor that an installed package names so in the entry point group `portcullis.preprocessors`: a
    function that takes an automaton and gives one. What it gives needs no `arcs`; of its strings, those that are UTF-8
    count.

    Raises PreprocessorError, and so does the function if it fails or gives something else.
    """
    known = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        named = ", ".join(sorted(known)) or "there are none"
        raise PreprocessorError(f"no installed package has this preprocessor in {GROUP}; known: {named}")
    try:
        function = known[name].load()
    except Exception as error:
        raise PreprocessorError(f"the preprocessor cannot be loaded: {type(error).__name__}") from error
    if not callable(function):
        raise PreprocessorError("the preprocessor is not a function")

    def change(automaton: Dfa) -> Dfa:
        try:
            given = function(automaton)
        except Exception as error:
            raise PreprocessorError(f"the preprocessor fails: {type(error).__name__}") from error
        if isinstance(given, LazyDfa | PrunedDfa | DfaView):
            return given
        if not all(hasattr(given, part) for part in ("start", "step", "accepting", "live")):
            raise PreprocessorError("the preprocessor returns no automaton with start, step, accepting and live")
        return intersection(_adapted(given), Regex(ANYTHING))

    return change
