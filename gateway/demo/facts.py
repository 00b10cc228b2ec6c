"""Values in a message for a tool's arguments or a JSON schema."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import cycle

MAX_READ = 4_000  # characters of the message that are looked at
MAX_MESSAGE = 200  # characters of the message in a string
_NAME = re.compile(r'"([^"\n]{1,80})"|([A-ZÀ-ÖØ-Þ][\w-]{0,40}(?: [A-ZÀ-ÖØ-Þ][\w-]{0,40}){0,4})')
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,6})?")
_COMMON = re.compile(
    r"^(?:(?:An?|And|Are|Can|Could|Do|Does|Extract|For|From|Get|Give|Hello|Hi|How|I|In|Is|It|List|Now|Please|Show|Tell"
    r"|The|There|This|To|What|When|Where|Which|Who|Why|Will|Would|Write|You)(?: |$))+"
)


class Facts:
    """Strings and numbers out of a message, in its order and over again. With `leak`, every string is that."""

    def __init__(self, message: str, leak: str | None = None) -> None:
        message = message[:MAX_READ]
        self._message = message.casefold()
        names = [leak] if leak is not None else _names(message)
        self._strings = cycle(names or [" ".join(message.split())[:MAX_MESSAGE] or "nothing"])
        self._numbers = cycle([Decimal(number) for number in _NUMBER.findall(message)] or [None])

    def names(self, text: str) -> bool:
        """Is `text` in the message, whatever its case?"""
        return bool(text) and text.casefold() in self._message

    def string(self) -> str:
        """The next of the names in the message; without any, the message itself. Never empty."""
        return next(self._strings)

    def number(self) -> Decimal | None:
        """The next of the numbers in the message."""
        return next(self._numbers)


def _names(message: str) -> list[str]:
    """What is quoted, and runs of capitalised words without common ones at their beginning. A sentence's first word, of
    which nobody knows whether it is a name, comes last."""
    found: list[tuple[bool, str]] = []
    for match in _NAME.finditer(message):
        before = message[max(match.start() - 2, 0) : match.start()].rstrip()
        begins = match[1] is None and (not before or before[-1] in ".!?:")
        found.append((begins, match[1] or _COMMON.sub("", match[2])))
    return [name for _, name in sorted(found, key=lambda each: each[0]) if name]
