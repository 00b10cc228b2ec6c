"""Incremental acceptors: does a text, read character by character, belong to a language?

A language is a regular expression, a choice, a JSON schema or a grammar. It is compiled once and shared by all texts;
an acceptor is for one of them.
"""

from __future__ import annotations

import json
import re
import threading
from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from gateway.automata.bytes import ByteAutomaton, ByteState
from gateway.automata.positions import Positions
from gateway.policy.checks import BadPattern
from gateway.surrogates import join_surrogates
from gateway.version import missing_part

if TYPE_CHECKING:
    import llguidance

MAX_PARSED = 1 << 18  # bytes of a text under a schema or grammar; the parser keeps a hundred for each
MAX_REASON = 300  # characters of a reason by llguidance
MAX_WAYS = 250  # in which a text can be read at once
TRIED_LENGTH, TRIED_CHARACTERS = 200, 32

_AMBIGUOUS = (
    "some texts can be read in more than {} ways at once: leave out counts of what is itself counted, as in "
    "(?:a{{1,9}}){{1,9}}"
)
_NO_TEXT = "no text of at least one character belongs to the language: an answer could not be given"
_SURROGATE = re.compile("[\ud800-\udfff]")
_HEX = frozenset("0123456789abcdefABCDEF")
_DELETE = "\x7f"


class LanguageAcceptor(Protocol):
    """Reads one text in the language, character by character."""

    def read(self, text: str) -> int:
        """Read on; how many characters of `text` came before the one with which no text of the language can begin.
        Nothing may be read after that one."""

    def accepting(self) -> bool:
        """Is what was read a text of the language?"""


class CompiledLanguage(Protocol):
    """A language, to be shared by all texts, in several threads."""

    def acceptor(self) -> LanguageAcceptor: ...


# -- regular expressions and choices -----------------------------------------------------------------------------------


class RegexLanguage:
    """The automaton works states out when they are first needed, which one thread at a time may do."""

    def __init__(self, expression: Positions) -> None:
        self._automaton = ByteAutomaton([expression])
        self._lock = threading.Lock()
        if not self._automaton.arcs(self.start().entries):
            raise BadPattern(_NO_TEXT, None)
        _refuse_ambiguous(self._automaton, expression)

    def start(self) -> ByteState:
        with self._lock:
            return self._automaton.start()

    def step(self, state: ByteState, byte: int) -> ByteState:
        """A step that is not kept yet."""
        with self._lock:
            return self._automaton.step(state, byte)

    def acceptor(self) -> LanguageAcceptor:
        return _ByteAcceptor(self)


def _refuse_ambiguous(automaton: ByteAutomaton, expression: Positions) -> None:
    """Raises `BadPattern` if a text is found that can be read in too many ways at once, each of which takes time. It is
    looked for greedily, with the first characters of some ranges."""
    lows = {low: None for chars in dict.fromkeys(expression.sets) for low, _ in chars.ranges}
    chars = [chr(low).encode("utf-8", "replace") for low in islice(lows, TRIED_CHARACTERS)]
    state = automaton.start()
    for _ in range(TRIED_LENGTH):
        state = max((automaton.walk(state, char) for char in chars), key=lambda after: len(after.entries))
        if len(state.entries) > MAX_WAYS:
            raise BadPattern(_AMBIGUOUS.format(MAX_WAYS), None)


class _ByteAcceptor:
    __slots__ = ("_automaton", "_state")

    def __init__(self, automaton: RegexLanguage) -> None:
        self._automaton = automaton
        self._state = automaton.start()

    def read(self, text: str) -> int:
        state = self._state
        data = text.encode()
        for at, byte in enumerate(data):
            target = state.get(byte)
            state = self._automaton.step(state, byte) if target is None else target
            if not state.entries:
                return _characters_before(data, at)
        self._state = state
        return len(text)

    def accepting(self) -> bool:
        return self._state.accepting


def _characters_before(data: bytes, at: int) -> int:
    """How many characters end before the byte at `at`."""
    return len(data[:at].decode(errors="ignore"))


class ChoiceLanguage:
    """A sorted list of texts: those with a common prefix are neighbours."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        if any(_SURROGATE.search(text) for text in texts):
            raise BadPattern("half a surrogate pair is in no text: write the whole character", None)
        if not any(texts):
            raise BadPattern(_NO_TEXT, None)
        self.texts = sorted(texts)

    def acceptor(self) -> LanguageAcceptor:
        return _ChoiceAcceptor(self.texts)


class _ChoiceAcceptor:
    __slots__ = ("_at", "_begin", "_end", "_texts")

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._begin, self._end = 0, len(texts)
        self._at = 0

    def read(self, text: str) -> int:
        for at, char in enumerate(text):
            self._begin = bisect_left(self._texts, char, self._begin, self._end, key=self._next)
            self._end = bisect_right(self._texts, char, self._begin, self._end, key=self._next)
            if self._begin == self._end:
                return at
            self._at += 1
        return len(text)

    def _next(self, option: str) -> str:
        return option[self._at : self._at + 1]

    def accepting(self) -> bool:
        return len(self._texts[self._begin]) == self._at  # the shortest stands first


# -- schemas and grammars ----------------------------------------------------------------------------------------------


_END = 256


@lru_cache(1)
def _bytes_as_tokens() -> llguidance.LLTokenizer:
    from gateway.automata.vocabulary import Vocabulary
    from gateway.decode.grammar import tokenizer_of

    return tokenizer_of(Vocabulary([*(bytes([byte]) for byte in range(256)), None], end=[_END]))


class GrammarLanguage:
    """What llguidance parses, `grammar` in its dialect of Lark; `source` is what the operator wrote."""

    def __init__(self, grammar: str, source: str, *, is_json: bool = False) -> None:
        try:
            import llguidance

            tokenizer = _bytes_as_tokens()
        except ImportError:
            raise BadPattern(missing_part("decode"), None) from None
        self._is_json = is_json
        self._root = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
        if self._root.is_error():
            raise BadPattern(_refusal(self._root.get_error(), source, of_lines=not is_json), None)
        if not any(self._root.deep_copy().compute_bitmask()[: _END // 8]):
            raise BadPattern(_NO_TEXT, None)

    def acceptor(self) -> LanguageAcceptor:
        parsing = _GrammarAcceptor(self._root.deep_copy())
        return _JsonAcceptor(parsing) if self._is_json else parsing


def json_language(schema: str) -> GrammarLanguage:
    whole = json.loads(schema)
    given = whole.get("x-guidance")
    options = {"whitespace_flexible": True, "coerce_one_of": True}
    whole["x-guidance"] = {**(given if isinstance(given, dict) else {}), **options}
    return GrammarLanguage(f"start: %json {json.dumps(whole)}", schema, is_json=True)


class _GrammarAcceptor:
    """A text that is too long, or too much for the parser, counts as one that has left the language."""

    __slots__ = ("_left", "_matcher")

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher
        self._left = MAX_PARSED

    def read(self, text: str) -> int:
        data = text.encode()
        taken = self._matcher.try_consume_tokens(list(data[: self._left]))
        self._left -= taken
        return len(text) if taken == len(data) else _characters_before(data, taken)

    def accepting(self) -> bool:
        return self._matcher.is_accepting()


class JsonSpelling:
    """JSON text in one of its spellings, character by character, for a parser that knows only that: inside a string a
    writer may choose `/` or `\\/`, `é` or `\\u00e9`. What is no JSON stays what it is not."""

    __slots__ = ("_high", "_in_string", "_pending")

    def __init__(self) -> None:
        self._in_string = False
        self._pending = ""  # an escape that is not complete
        self._high = ""  # half a surrogate pair, escaped, that may be followed by the other half

    def passes(self, text: str) -> bool:
        """Is this piece spelled as it should be? If so it counts as fed."""
        if self._pending or self._high or "\\" in text or _DELETE in text:
            return False
        self._in_string ^= text.count('"') % 2 == 1
        return True

    def feed(self, char: str) -> str:
        """What is certain to come next in the one spelling, possibly nothing."""
        if not self._in_string:
            self._in_string = char == '"'
            return char
        if self._pending:
            return self._escaped(char)
        if char == "\\":
            self._pending = char
            return ""
        before = self._alone()
        if char == '"':
            self._in_string = False
            return before + char
        return before + _plain(char)

    def _escaped(self, char: str) -> str:
        pending = self._pending + char
        self._pending = ""
        if len(pending) == 2 and char != "u":
            return self._alone() + ("/" if char == "/" else pending)
        if len(pending) > 2 and char not in _HEX:
            return self._alone() + pending  # no escape: for the parser to refuse
        if len(pending) < 6:
            self._pending = pending
            return ""
        return self._numbered(chr(int(pending[2:], 16)))

    def _numbered(self, unit: str) -> str:
        if self._high and "\udc00" <= unit <= "\udfff":
            pair = join_surrogates(self._high + unit)
            self._high = ""
            return pair
        before = self._alone()
        if "\ud800" <= unit <= "\udbff":
            self._high = unit
            return before
        return before + _plain("\ufffd" if "\udc00" <= unit <= "\udfff" else unit, numbered=True)

    def _alone(self) -> str:
        alone = "\ufffd" if self._high else ""
        self._high = ""
        return alone


def _plain(char: str, *, numbered: bool = False) -> str:
    """How a character of a string is written, where it was not escaped or was `numbered`."""
    if char == _DELETE:
        return "\\u007f"
    return json.dumps(char, ensure_ascii=False)[1:-1] if numbered else char


class _JsonAcceptor:
    """JSON has several spellings of a string, of which the parser reads one."""

    __slots__ = ("_parsing", "_spelling")

    def __init__(self, parsing: _GrammarAcceptor) -> None:
        self._parsing = parsing
        self._spelling = JsonSpelling()

    def read(self, text: str) -> int:
        if self._spelling.passes(text):
            return self._parsing.read(text)
        for at, char in enumerate(text):
            spelled = self._spelling.feed(char)
            if self._parsing.read(spelled) != len(spelled):
                return at
        return len(text)

    def accepting(self) -> bool:
        return self._parsing.accepting()


_KEYWORDS = frozenset(
    {
        *("if", "then", "else", "not", "type", "enum", "const", "contains", "minContains", "maxContains", "format"),
        *("uniqueItems", "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties", "minimum"),
        *("unevaluatedItems", "additionalItems", "maximum", "pattern", "patternProperties", "multipleOf", "start"),
    }
)


def _refusal(error: str, source: str, *, of_lines: bool) -> str:
    """The reason of llguidance without the words of the source, which may come from the environment."""
    first, _, _ = error.partition("\n")
    place = re.match(r"(?:at )?([0-9]+)\([0-9]+\): ", first)
    if place is not None:
        first = first[place.end() :]
    secret = set(re.findall(r"\w+", source)) - _KEYWORDS
    shown = re.sub(r"\w+", lambda word: "…" if word[0] in secret else word[0], first)[:MAX_REASON]
    line = f" (line {place[1]})" if place is not None and of_lines else ""
    return f"llguidance refuses it: {shown}{line}"
