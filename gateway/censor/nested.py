"""A text with texts within it: the strings of JSON, or a text as its escapes decode (semantics rule 15).

A match in an inner text, or in one within that, is one of the outer characters that spell it. So there is one queue of
clusters and one report, whatever was seen through: what is in two of the texts counts once, nothing that was inserted
is read again, and what no match wants comes out as it was spelled. The scanners are in `gateway.censor.inner`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gateway.censor.compile import CompiledRule, Program
from gateway.censor.inner import NestedScanner
from gateway.censor.releaser import Releaser
from gateway.censor.scanner import Scanner
from gateway.censor.stream import Censor
from gateway.inner_texts import InnerReader, Opened
from gateway.policy.model import Action
from gateway.surrogates import join_next

_Write = Callable[[str], str]


class _NestedReleaser(Releaser):
    """Writes replacements as the text around them is written."""

    __slots__ = ("_write", "nested")

    def __init__(self, write: _Write, gathers: bool) -> None:
        super().__init__(gathers)
        self.nested: NestedScanner | None = None
        self._write = write

    def _characters(self, start: int, end: int) -> int:
        return end - start if self.nested is None else self.nested.characters(start, end)

    def _insert(self, replacement: str, out: list[str]) -> None:
        for _ in range(0 if self.nested is None else self.nested.levels.depth_at(self._cover)):
            replacement = self._write(replacement)
        super()._insert(replacement, out)


class NestedCensor(Censor):
    """A text whose inner texts `reader` finds; with `opened` one is open from the beginning. `write` escapes once what
    is written in an inner text.

    The inner texts are scanned beside the outer one, and only where some are: while the reader is idle this is a
    `Censor`, and until it has once not been there is no scanner for them. A pseudonym takes the place only of what is
    spelled as it is.
    """

    __slots__ = ("_nested", "_outer", "_passing", "_reader", "_write")

    def __init__(
        self,
        program: Program,
        reader: InnerReader,
        write: _Write,
        *,
        opened: Opened | None = None,
        gathers: bool = False,
    ) -> None:
        self._write = write
        self._reader = reader
        super().__init__(program, releaser=_NestedReleaser(write, gathers))
        self._outer = self._scanner
        self._nested = None if opened is None else self._nest(opened)
        self._passing = False
        self._places = set()

    def feed(self, text: str) -> str:
        if self._passing and "`" not in text:
            return Censor.feed(self, text)  # `super()` would cost a tenth of it
        if self.ended:
            return ""
        if self._nested is None and self._reader.passes(text):
            self._passing = True
            return Censor.feed(self, text)
        text, high = join_next(self._high, text)
        self._high = ""
        out: list[str] = []
        nested = self._enter()
        assert self._program is not None
        at, size = 0, self._program.piece
        while at < len(text) and not self.ended:
            length = nested.read(text, at, min(len(text), at + size))
            out.append(super().feed(text[at : at + length]))
            at += length
        self._leave(nested)
        self._high = high
        return "".join(out)

    def quick_scanner(self) -> tuple[Scanner, int] | None:
        """None, too, while an inner text is open; a backtick may open one."""
        return super().quick_scanner() if self._passing else None

    def feed_exempt(self, text: str) -> str:
        out = self._end_surrogate()
        if self.ended or not text:
            return out
        assert self._program is not None
        size = self._program.piece
        nested = self._enter()
        nested.skip(len(text), self._program.max_hold + self._program.max_unseen)
        for at in range(0, len(text), size):
            nested.skip_piece()
            out += super().feed(text[at : at + size])
        self._leave(nested)
        return out

    def finish(self) -> str:
        out = self._end_surrogate()
        if self._nested is not None or not self._passing:
            self._enter()
        return out + super().finish()

    def look_again(self) -> None:
        self._enter()

    def _nest(self, opened: Opened | None = None) -> NestedScanner:
        assert self._program is not None
        nested = NestedScanner(self._program, self._reader, opened)
        nested.follow(self._outer)
        assert isinstance(self.releaser, _NestedReleaser)
        self._nested = self.releaser.nested = nested
        return nested

    def _enter(self) -> NestedScanner:
        """Scan the inner texts, too."""
        nested = self._nested or self._nest()
        if self._passing:
            nested.continue_from(self._outer)
            self._passing = False
        self._scanner = nested
        return nested

    def _leave(self, nested: NestedScanner) -> None:
        nested.end_piece()
        self._passing = nested.passing and not self.ended
        if self._passing:
            self._outer.continue_from(nested)
            self._scanner = self._outer

    # -- what a match does ---------------------------------------------------------------------------------------------

    def _report_runs(self, ended: bool = False) -> None:
        nested = self._nested
        for run in self._scanner.pop_runs(ended) if nested is None else nested.pop_all_runs(self.scanned, ended):
            self._report_run(run)

    def _replace(self, start: int, end: int, certain: int, rule: CompiledRule) -> None:
        nested = self._nested
        token = None if nested is None else nested.token
        if token is not None and token.start <= start and end <= token.end:
            text = rule.replacement if rule.mask is None else rule.mask * (token.end - token.start)
            text = f'"{self._write(text)}"'
            for _ in range(token.depth):
                text = self._write(text)
            start, end = token.start, token.end
            rule = replace(rule, action=Action.REDACT, replacement=text, mask=None)
        elif rule.action is Action.PSEUDONYMIZE and nested is not None and (start, end) in nested.spelled:
            rule = replace(rule, action=Action.REDACT)
        super()._replace(start, end, certain, rule)

    def _block(self, start: int, rule: CompiledRule) -> str:
        out = super()._block(start, rule)
        closing = "" if self._nested is None else self._nested.levels.closing_at(start, self._write)
        self.releaser.inserted += len(closing)
        return out + closing
