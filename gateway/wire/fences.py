"""JSON in content that was not requested as JSON: where the content itself, or a fenced block of it, begins as JSON."""

from __future__ import annotations

from enum import Enum, auto

from gateway.inner_texts import Piece, Step
from gateway.wire.jsonreader import MAX_NESTED, STARTS, JsonReader

MAX_INFO = 64  # characters behind the backticks of a fence
_SPACES = " \t\n\r"
_BRACKETS = "{["  # what JSON begins with that nothing announced
_FENCE = 3  # backticks


def may_hold_json(text: str) -> bool:
    """May a `ContentReader` find JSON in a whole content?"""
    return "`" in text or text.lstrip(_SPACES)[:1] in ("{", "[")


class _FenceMode(Enum):
    IDLE = auto()
    FENCE = auto()  # among backticks
    INFO = auto()  # behind those of a fence, in its line
    VALUE = auto()  # before the first character that is no space


_QUIET = (_FenceMode.IDLE, _FenceMode.VALUE)


class ContentReader:
    """The JSON of a content, until it stops being JSON: from the first character on that is no space, and likewise in
    each block fenced by three backticks or more, if these are followed by `json` or by nothing."""

    __slots__ = ("_backticks", "_info", "_json", "_mode", "_starts")

    def __init__(self) -> None:
        self._mode = _FenceMode.VALUE
        self._starts = _BRACKETS
        self._backticks = 0
        self._info = ""
        self._json: JsonReader | None = None

    @property
    def idle(self) -> bool:
        return self._mode is _FenceMode.IDLE and self._json is None

    def passes(self, text: str) -> bool:
        first = text.lstrip(_SPACES)[:1]
        if not (first and self._json is None and self._mode in _QUIET) or first in self._starts or "`" in text:
            return False
        self._mode = _FenceMode.IDLE
        return True

    def read(self, text: str, at: int, end: int) -> Piece | None:
        if self._json is not None:
            piece = self._json.read(text, at, end)
            if piece is not None:
                return piece
            self._json = None
        start = self._search(text, at, end)
        if self._json is not None and start == at:
            return self._json.read(text, at, end)
        return Piece(start - at)

    def skip(self) -> bool:
        self._mode = _FenceMode.IDLE
        if self._json is not None and not self._json.skip():
            self._json = None
        return self._json is not None

    def finish(self) -> tuple[Step, ...]:
        return () if self._json is None else self._json.finish()

    def _search(self, text: str, at: int, end: int) -> int:
        """Where JSON begins, or the end."""
        while at < end:
            if self._mode is _FenceMode.IDLE:
                found = text.find("`", at, end)
                if found < 0:
                    return end
                at = found
            if self._begins(text[at]):
                self._mode = _FenceMode.IDLE
                self._json = JsonReader(self._starts, MAX_NESTED + 1)
                return at
            at += 1
        return end

    def _begins(self, char: str) -> bool:
        """Does JSON begin with this character?"""
        if self._mode is _FenceMode.VALUE:
            if char in _SPACES:
                return False
            if char in self._starts:
                return True
            self._mode = _FenceMode.IDLE
        if char == "`":
            self._backticks = self._backticks + 1 if self._mode is _FenceMode.FENCE else 1
            self._mode = _FenceMode.FENCE
            return False
        if self._mode is _FenceMode.FENCE:
            self._mode, self._info = (_FenceMode.INFO, "") if self._backticks >= _FENCE else (_FenceMode.IDLE, "")
        if self._mode is _FenceMode.INFO:
            return self._read_info(char)
        return False

    def _read_info(self, char: str) -> bool:
        is_json = self._info.lstrip().casefold().startswith("json")
        if char == "\n" or char in _BRACKETS:
            fits = is_json or not self._info.strip()
            self._mode = _FenceMode.VALUE if fits else _FenceMode.IDLE
            self._starts = STARTS if is_json else _BRACKETS
            return fits and char in _BRACKETS
        self._info += char
        if len(self._info) > MAX_INFO:
            self._mode = _FenceMode.IDLE
        return False
