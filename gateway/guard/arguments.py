"""Tool-call arguments: one string on the wire, and many texts in it."""

from __future__ import annotations

from gateway.censor.compile import CompiledRule
from gateway.guard.texts import Ledger, Text
from gateway.policy.model import Channel
from gateway.wire.jsontext import JsonText


class JsonArguments:
    """Tool-call arguments: JSON text whose strings and numbers are texts of their own (§4.15)."""

    __slots__ = ("_choice", "_json", "_last", "_ledger")

    def __init__(self, ledger: Ledger, choice: int | None = None) -> None:
        self._ledger = ledger
        self._choice = choice
        self._last: Text | None = None
        self._json = JsonText(self._open)

    def _open(self) -> Text:
        self._last = self._ledger.open(Channel.TOOL_ARGUMENTS, self._choice)
        return self._last

    def feed(self, text: str) -> str:
        return self._json.feed(text)

    def finish(self) -> str:
        return self._json.finish()

    def abandon(self) -> str:
        if self._last is not None:
            self._last.abandon()
        return self._json.close()

    @property
    def rule(self) -> CompiledRule | None:
        return self._last.rule if self._last is not None and self._json.blocked else None
