"""Which of an answer's tokens wrote which part of its text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.decode.rollback import TokenOffsets

if TYPE_CHECKING:
    from gateway.automata.vocabulary import Vocabulary


class AnswerTokens:
    """Token ids of a prompt and its answer: `reasoning` before the text, then those of the text, in `spelled`.

    `prompt` is None until the upstream has returned it.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.prompt: list[int] | None = None
        self.spelled = TokenOffsets(vocabulary)
        self._vocabulary = vocabulary
        self._reasoning: list[int] = []
        self._undecided: list[int] = []  # not known yet whether they belong to the text
        self._started = False
        self._ahead = ""  # written by tokens that have arrived, not yet in the upstream's text

    @property
    def count(self) -> int:
        """Of the answer."""
        return len(self._reasoning) + len(self._undecided) + len(self.spelled.tokens)

    def count_before(self, place: int) -> int:
        """Tokens of the answer before a token of the text."""
        return len(self._reasoning) + place

    @property
    def all(self) -> tuple[int, ...]:
        """Prompt and answer, to resume from."""
        assert self.prompt is not None
        return (*self.prompt, *self._reasoning, *self.spelled.tokens)

    def align(self, tokens: list[int], text: str, *, others: bool) -> bool:
        """Add the tokens of an event with its text; `others`: it has text of another channel.

        False if the tokens do not write the text: then no position in it can be assigned to a token.
        """
        if not self._started:
            tokens, self._undecided = self._undecided + tokens, []
            if not text:
                known = self._reasoning if others else self._undecided
                known += tokens
                return True
            start = self._start_of(tokens, text) if self._reasoning or others else 0
            if start is None:
                return False
            self._reasoning, tokens = self._reasoning + tokens[:start], tokens[start:]
            self._started = True
        elif others:
            return False
        self._ahead += "".join(map(self.spelled.add, tokens))
        if not self._ahead.startswith(text):
            return False
        self._ahead = self._ahead[len(text) :]
        return True

    def cut(self, place: int) -> int:
        """Drop the text's tokens from `place` on; returns how many."""
        dropped = len(self.spelled.tokens) - place
        self.spelled.cut(place)
        self._ahead = ""
        return dropped

    def _start_of(self, tokens: list[int], text: str) -> int | None:
        """The first of the tokens behind the reasoning that writes `text`."""
        for start in range(len(tokens)):
            spelled = TokenOffsets(self._vocabulary)
            if "".join(map(spelled.add, tokens[start:])).startswith(text):
                return start
        return None
