"""Where the events of an endpoint have their text, of both endpoints that are steered."""

from __future__ import annotations

from typing import Any, Protocol

from gateway.wire.chat import Json


class Shape(Protocol):
    """Where an endpoint's events have their text."""

    def text(self, choice: Json) -> Any:
        """None if there is no place for text."""

    def put(self, choice: Json, text: str) -> None: ...

    def others(self, choice: Json) -> bool:
        """Is there other text in it, of another channel?"""

    def empty(self, choice: Json) -> bool:
        """Would nothing be told if it were left out, its text being empty?"""

    def choice(self, text: str) -> Json:
        """One of our own making."""


class ChatShape:
    def text(self, choice: Json) -> Any:
        delta = choice.get("delta")
        return delta.get("content") if isinstance(delta, dict) else None

    def put(self, choice: Json, text: str) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            delta["content"] = text
        else:
            choice["delta"] = {"content": text}

    def others(self, choice: Json) -> bool:
        delta = choice.get("delta")
        return isinstance(delta, dict) and any(value for name, value in delta.items() if name not in _TOLD)

    def empty(self, choice: Json) -> bool:
        delta = choice.get("delta")
        return isinstance(delta, dict) and delta.keys() <= {"content"}

    def choice(self, text: str) -> Json:
        return {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}


class CompletionsShape:
    def text(self, choice: Json) -> Any:
        return choice.get("text")

    def put(self, choice: Json, text: str) -> None:
        choice["text"] = text

    def others(self, choice: Json) -> bool:
        return False

    def empty(self, choice: Json) -> bool:
        return True

    def choice(self, text: str) -> Json:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": None}


_TOLD = frozenset({"content", "role"})
CHAT, COMPLETIONS = ChatShape(), CompletionsShape()
