"""Grammars in Lark's notation, written out."""

from __future__ import annotations

import pytest

from gateway.automata.regex import RegexError
from gateway.decode.constraints import WrittenOut, written_out

ANY = r"\u0000-\ud7ff\ue000-\U0010ffff"


@pytest.mark.parametrize(
    ("grammar", "text", "ranges"),
    [
        ('start: "yes" | "no"', 'start: "yes" | "no"', 0),
        ("start: /[a-c]+ x/", r"start: /[a-c]+\u0020x/", 3),
        (r"start: /a\/b/ /\// x: /c/", r"start: /a\u002fb/ /\u002f/ x: /c/", 5),
        ("start: /ab/i", "start: /[Aa][Bb]/", 4),
        ("start: /./s /^x$/is", f"start: /[{ANY}]/ /[Xx]/", 4),
        ('start: "no"i "i" /i/', 'start: /[Nn][Oo]/ "i" /i/', 5),
        (r'start: "\"\u00e9/"i', r"start: /\u0022[Éé]\u002f/", 4),
        ('start: ""i /x{0}/', 'start: "" ""', 0),
        ('start: "//" "#" "<x>" "%ignore" // "/a./" <x>\n', 'start: "//" "#" "<x>" "%ignore" // "/a./" <x>\n', 0),
        ("start: A # /./ %ignore\nA: /b/", "start: A # /./ %ignore\nA: /b/", 1),
        ('%import common.INT\nstart: INT ["x"]', '%import common.INT\nstart: INT ["x"]', 0),
        ('start: %json {"pattern": "/./"}', 'start: %json {"pattern": "/./"}', 0),
        (r'start: "\x"i', r'start: "\x"i', 0),
    ],
)
def test_written_out(grammar: str, text: str, ranges: int) -> None:
    assert written_out(grammar) == WrittenOut(text, ranges)
    assert written_out(text) == WrittenOut(text, ranges)


@pytest.mark.parametrize(
    ("grammar", "position", "reason"),
    [
        ('start: "a"\n%ignore /b/', 11, "%ignore is not supported"),
        ('start: "a" <|end|>', 11, "special tokens write no text"),
        ("start: <[12]>", 7, "special tokens write no text"),
        ('start: x\nx[max_tokens=3]: "a"', 9, "is for the sampler"),
        ('?x.2 [lazy] : "a"', 0, "is for the sampler"),
        ("start: /a/m", 10, "i and s are supported"),
        ("start: /a(?!b)/", 9, "look-around is not supported"),
        ("start: /ab??/s", 10, "lazy quantifiers mean nothing here"),
        (r"start: /a\bb/", 7, r"\b and \B cannot be passed to a model"),
        (r"start: /[\ud800]/", 7, "has no character"),
    ],
)
def test_refused(grammar: str, position: int, reason: str) -> None:
    with pytest.raises(RegexError) as refused:
        written_out(grammar)
    assert reason in refused.value.reason
    assert refused.value.position == position
