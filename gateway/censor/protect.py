"""The conversation before an answer, and the automata made of it (docs/semantics.md, protected prompts).

A service sends the same system prompt with each request, so its automaton is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gateway.automata.phrases import PhraseMachine, PhraseWindows
from gateway.censor.lens import Lens
from gateway.policy.model import Rule

# Characters, as the request has them and as the rule sees them. The automaton of so many takes a third of a second to
# make and 3 MB to keep, while it is made up to 60 MB.
MAX_PROTECTED = 262_144
MAX_PROMPTS = 16  # of each rule, that are kept


@dataclass(frozen=True, slots=True)
class Conversation:
    """`system`: the texts of the system and developer messages, all of a request in one, and a second time if a rule
    for prompts changed them. `answers`: what the assistant's messages say, in order, as one text."""

    system: tuple[str, ...] = ()
    answers: str = ""


class PromptTooLong(ValueError):
    """A system prompt that is too long to be protected."""

    def __init__(self) -> None:
        super().__init__(f"The system prompt has more than {MAX_PROTECTED} characters, too many to protect it.")


class ProtectedPrompt:
    """A rule with `protect`, whose matches have the tag `tag`. `holds`: text is held back for it; `longest`: no match
    has more characters, with the one that makes it certain."""

    def __init__(self, rule: Rule, tag: int, holds: bool, longest: int) -> None:
        self._lens = Lens(rule.fold)
        self._min_words = rule.min_words
        self._tag = tag
        self._holds = holds
        self._longest = longest
        self._kept = lru_cache(MAX_PROMPTS)(self._build)

    def machine(self, system: str) -> PhraseMachine | None:
        """The automaton of a system prompt; None for one that has fewer words than count. Raises `PromptTooLong`."""
        if len(system) > MAX_PROTECTED:
            raise PromptTooLong
        return self._kept(system)

    def _build(self, system: str) -> PhraseMachine | None:
        fold = self._lens.fold
        folded = system.translate({ord(char): fold(char).text for char in set(system)})
        if len(folded) > MAX_PROTECTED:
            raise PromptTooLong
        windows = PhraseWindows(folded, self._min_words, self._longest)
        return PhraseMachine(windows, fold, self._tag, self._holds) if len(windows) else None
