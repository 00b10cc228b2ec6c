"""A policy's constraint: what an engine is told, what is refused at load, and the check of texts in pieces."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.decode import acceptors as readers
from gateway.decode.constraints import ConstraintAcceptor, compiled, describe, structured_outputs
from gateway.policy.checks import BadPattern
from gateway.policy.model import Conflict, Constrain, Language, Violation
from tests.support.examples import examples
from tests.support.expressions import Expression, expressions, matches, texts
from tests.support.pages import ROOT, table

SECRET = "hunter2swordfish"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "born": {"type": "integer", "minimum": 1800, "maximum": 2100}},
    "required": ["name", "born"],
    "additionalProperties": False,
}
SUMS = 'start: sum\nsum: NUMBER | sum "+" NUMBER | "(" sum ")"\nNUMBER: /[0-9]/+'


def regex(pattern: str) -> Constrain:
    return Constrain(language=Language.REGEX, texts=(pattern,))


def choice(*options: str) -> Constrain:
    return Constrain(language=Language.CHOICE, texts=options)


def schema(value: dict[str, Any]) -> Constrain:
    return Constrain(language=Language.JSON_SCHEMA, texts=(json.dumps(value, ensure_ascii=False),))


def grammar(text: str) -> Constrain:
    return Constrain(language=Language.GRAMMAR, texts=(text,))


def verdict(constrain: Constrain, *pieces: str) -> tuple[int | None, bool]:
    """Where a text leaves the language, if it does, and whether it is whole."""
    reading, before = ConstraintAcceptor(compiled(constrain)), 0
    for piece in pieces:
        stands = reading.feed(piece)
        if stands is not None:
            return before + stands, reading.accepting()
        before += len(piece)
    return None, reading.accepting()


# -- what an engine is told --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constrain", "told"),
    [
        (regex("^[A-Z][a-z]+ [0-9]{4}$"), {"regex": r"[A-Z][a-z]+\u0020[0-9]{4}"}),
        (regex("(?i)no?"), {"regex": "[Nn][Oo]?"}),
        (regex("|yes|no"), {"regex": "(?:yes|no)?"}),
        (choice("yes", 'no "\n'), {"choice": ["yes", 'no "\n']}),
        (choice("yes", "", "no"), {"choice": ["yes", "no", ""]}),
        (schema({"type": "string"}), {"json": '{"type": "string"}'}),
        (
            grammar('start: "a" /[^a]/ // one'),
            {"grammar": r'start: "a" /[\u0000-\u0060b-\ud7ff\ue000-\U0010ffff]/ // one'},
        ),
    ],
    ids=lambda value: value.language if isinstance(value, Constrain) else "",
)
def test_what_an_engine_is_told(constrain: Constrain, told: dict[str, Any]) -> None:
    assert structured_outputs(constrain) == told


def test_nobody_can_change_what_the_next_request_is_told() -> None:
    structured_outputs(choice("a", "b"))["choice"].clear()
    assert structured_outputs(choice("a", "b")) == {"choice": ["a", "b"]}


def test_a_language_is_compiled_once() -> None:
    one = regex("[a-f]+")
    assert compiled(one) is compiled(replace(one, require=False, on_violation=Violation.FLAG))


@pytest.mark.parametrize(
    ("constrain", "line"),
    [
        (
            regex("[a-z]+ "),
            "constrain: regex of 7 characters, 12 when written out for an engine; "
            "on_conflict policy, on_violation block, require true",
        ),
        (
            replace(choice("yes", "no"), on_conflict=Conflict.REJECT),
            "constrain: choice of 2 texts of 2 to 3 characters; on_conflict reject, on_violation block, require true",
        ),
        (
            replace(schema({}), on_violation=Violation.FLAG, require=False),
            "constrain: json_schema of 2 characters; on_conflict policy, on_violation flag, require false",
        ),
    ],
    ids=lambda value: value.language if isinstance(value, Constrain) else "",
)
def test_a_constraint_in_one_line(constrain: Constrain, line: str) -> None:
    assert describe(constrain) == line


# -- the check ---------------------------------------------------------------------------------------------------------

READ: list[tuple[Constrain, str, int | None, bool]] = [
    (regex(r"[A-Z][a-z]+ \d{4}"), "Anna 2024", None, True),
    (regex(r"[A-Z][a-z]+ \d{4}"), "Anna 20", None, False),
    (regex(r"[A-Z][a-z]+ \d{4}"), "anna 2024", 0, False),
    (regex(r"[A-Z][a-z]+ \d{4}"), "Anna 2024.", 9, False),
    (regex("[é-ü]+😀"), "éü😀", None, True),
    (regex("[é-ü]+😀"), "éü😁", 2, False),
    (regex("ab|abcd"), "abc", None, False),
    (regex("ab|abcd"), "ab", None, True),
    (regex("^yes$|^no$"), "no", None, True),
    (choice("yes", "no", "nope"), "no", None, True),
    (choice("yes", "no", "nope"), "nop", None, False),
    (choice("yes", "no", "nope"), "nope", None, True),
    (choice("yes", "no", "nope"), "nopes", 4, False),
    (choice("yes", "no", "nope"), "maybe", 0, False),
    (regex(r"([0-9]*)?\.?[0-9]*"), "", None, True),
    (regex(r"([0-9]*)?\.?[0-9]*"), "1.50", None, True),
    (regex(r"([0-9]*)?\.?[0-9]*"), ".", None, True),
    (regex(r"([0-9]*)?\.?[0-9]*"), "1.5.", 3, False),
    (regex("^$|no"), "", None, True),
    (regex("^$|no"), "n", None, False),
    (choice("yes", "", "no"), "", None, True),
    (choice("yes", "", "no"), "no", None, True),
    (choice("yes", "", "no"), "n", None, False),
    (choice("yes", "", "no"), "x", 0, False),
    (choice("jä", "j"), "jä", None, True),
    (choice("jä", "j"), "jo", 1, False),
    (schema(PERSON), '{"name": "Ada", "born": 1815}', None, True),
    (schema(PERSON), ' {"name": "Ada", "born": 1815}', 0, False),
    (schema(PERSON), '{"name":"Ada","born":1', None, False),
    (schema(PERSON), '{"name":"Ada","born":18150', 25, False),
    (schema(PERSON), '{"born": 1815', 2, False),
    (schema(PERSON), "\t{", 0, False),
    (schema(PERSON), '{\n\t"name"\r\n :   "\\u00c4\\ud83d\\ude00\\/\x7f",\n"born":1900\n}', None, True),
    (schema(PERSON), '{"name": "a\nb"', 11, False),
    (schema(PERSON), '{"name": "\\q"', 11, False),
    (schema(PERSON), '{"name": "\\u12x', 14, False),
    (schema({"const": "a/é"}), '"a\\/\\u00E9"', None, True),
    (schema({"const": "a/é"}), '"a\\/\\u00e8"', 9, False),
    (schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "12", None, True),
    (schema({}), "\\u0031", 0, False),
    (grammar(SUMS), "(1+22)", None, True),
    (grammar(SUMS), "(1+22", None, False),
    (grammar(SUMS), "(1++", 3, False),
    (grammar('start: "straße"i /\\w/'), "STRAẞEé", None, True),
]


@pytest.mark.parametrize(("constrain", "text", "left", "whole"), READ)
def test_read_however_it_is_cut(constrain: Constrain, text: str, left: int | None, whole: bool) -> None:
    expected = left, whole
    assert verdict(constrain, text) == expected
    assert verdict(constrain, *text) == expected
    for at in range(1, len(text)):
        assert verdict(constrain, text[:at], text[at:]) == expected, at


@settings(max_examples=examples(100), deadline=None)
@given(expressions("ab😀", portable=True))
def test_as_re_reads_it(expression: Expression) -> None:
    try:
        compiled(regex(expression.ours))
    except BadPattern as refused:
        assert "no text" in refused.reason or "no character" in refused.reason
        assume(False)
        raise
    members = [text for text in texts("ab😀", 4) if matches(expression.pythons, False, text, 0, len(text))]
    for text in texts("ab😀", 3):
        left, whole = verdict(regex(expression.ours), text)
        assert whole == (text in members)
        if left is not None:
            assert not any(member.startswith(text[: left + 1]) for member in members)


def test_halves_of_a_surrogate_pair() -> None:
    smile = choice("a😀b")
    assert verdict(smile, "a\ud83d", "\ude00b") == (None, True)
    assert verdict(smile, "a\ud83d\ude00b") == (None, True)
    assert verdict(smile, "a\ud83d") == (None, False)
    assert verdict(smile, "a\ud83d", "b") == (2, False)  # the half that stood alone is another character
    assert verdict(smile, "a\ud83d", "\ude01b") == (2, False)
    assert verdict(smile, "a\ude00") == (1, False)
    for text in ("\ud83d", "\ude00"):
        assert verdict(choice("\ufffd"), text) == (None, True)


def test_characters_are_counted_as_the_censor_counts_them() -> None:
    reading = ConstraintAcceptor(compiled(choice("a😀b")))
    assert reading.feed("a\ud83d") is None and reading.characters == 1
    assert reading.feed("\ude00x") == 1 and reading.characters == 2


def test_a_text_under_a_grammar_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_PARSED", 10)
    letters = grammar('start: "é"*')
    assert verdict(letters, "é" * 5) == (None, True)
    assert verdict(letters, *"é" * 6) == verdict(letters, "é" * 6) == (5, False)


def test_several_threads_read_at_once() -> None:
    """With a cache that is emptied again and again."""
    names = regex("(?:[A-Z][a-zé]{1,9} )+[0-9]{4}")
    language: Any = compiled(names)
    language._automaton._max_cache = 5
    text = "Anna Bé Cecile " * 20
    wrong: list[tuple[int | None, bool]] = []

    def read() -> None:
        for _ in range(20):
            found = [verdict(names, *text, "2024"), verdict(names, text, "20x4")]
            wrong.extend(each for each in found if each not in ((None, True), (len(text) + 2, False)))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_several_threads_parse_at_once() -> None:
    wrong: list[tuple[int | None, bool]] = []

    def read() -> None:
        for number in range(50):
            found = verdict(schema(PERSON), '{"name": "', f"{number}", '", "born": 1815}')
            if found != (None, True):
                wrong.append(found)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED: list[tuple[Constrain, str, int | None]] = [
    (regex("a(?=b)"), "look-around is not supported: name what may stand there as a part of the match", 1),
    (regex(r"\bword"), r"\b and \B cannot be passed to a model", None),
    (regex("a^b"), "can only stand at the beginning and at the end of the whole", None),
    (regex("a+?"), "lazy quantifiers mean nothing here", 1),
    (regex("(a)\\1"), "back-references are not supported", 3),
    (regex("a{0}|$"), "no text of at least one character", None),
    (regex(r"a[^\x00-\U0010ffff]|"), "has no character that can stand in a text", None),
    (regex(r"\w{1,41}"), "ranges of characters, and 30000 are allowed: write classes such as [A-Za-z]", None),
    (regex("a{20000}"), "the pattern needs at least 20000 states, and 10000 are allowed", None),
    (regex("(?:a{1,50}){1,50}b"), "can be read in more than 250 ways at once", None),
    (regex("(?P<n>a"), "the group has no end", 0),
    (choice("a", "\ud83d"), "half a surrogate pair", None),
    (choice(""), "no text of at least one character", None),
    (schema({"type": SECRET}), "llguidance refuses it: failed to compile JSON schema: Invalid type: …", None),
    (schema({"type": "integer", "minimum": 3, "maximum": 1}), "Unsatisfiable schema", None),
    (schema({"type": "array", "uniqueItems": True}), 'Unimplemented keys: ["uniqueItems"]', None),
    (schema({"$ref": f"#/$defs/{SECRET}"}), "does not exist", None),
    (grammar(f"start: {SECRET}"), 'unknown name: "…" (line 1)', None),
    (grammar('begin: "a"'), "no start rule found", None),
    (grammar('start: start "a"'), "no text of at least one character", None),
    (grammar('start: ""'), "no text of at least one character", None),
    (grammar('root ::= "a"'), "llguidance refuses it", None),
    (grammar("start: /a.*?b/"), "lazy quantifiers mean nothing here", 10),
    (grammar(r"start: /\w{41}/"), "30000 are allowed", None),
    (grammar('start: "a"\n%ignore " "'), "%ignore is not supported", 11),
]


@pytest.mark.parametrize(("constrain", "reason", "position"), REFUSED)
def test_refused(constrain: Constrain, reason: str, position: int | None) -> None:
    with pytest.raises(BadPattern) as refused:
        compiled(constrain)
    assert reason in refused.value.reason
    assert refused.value.position == position
    assert SECRET not in str(refused.value) and SECRET not in repr(refused.value)
    assert "several rules" not in refused.value.reason


@pytest.mark.parametrize(("pattern", "reason"), table(ROOT / "docs" / "constraints.md", "refused constraints"))
def test_what_the_documentation_refuses(pattern: str, reason: str) -> None:
    with pytest.raises(BadPattern) as refused:
        compiled(regex(pattern))
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    "pattern",
    [
        r"[A-Z][a-z]+ \d{4}",
        r"\w+",
        r"\w{1,40}",
        r"(?:\w+[.])*\w+@(?:\w+[.])+[a-z]{2,}",
        r"\p{Lu}\p{Ll}+",
        "(?s).{1,500}",
        "(?:[a-z]+,){0,200}[a-z]+",
        "(?:a?){40}a{40}",
    ],
)
def test_patterns_of_practice_are_taken(pattern: str) -> None:
    compiled(regex(pattern))


def test_many_options() -> None:
    options = choice(*(f"option {number}" for number in range(20_000)))
    assert verdict(options, "option 19999") == (None, True)
    assert verdict(options, "option 20000") == (11, False)


BASE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "llguidance"):
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
from gateway.decode.constraints import ConstraintAcceptor, compiled
from gateway.policy.checks import BadPattern
from gateway.policy.model import Constrain, Language

for language, text in ((Language.REGEX, "[a-z]+"), (Language.CHOICE, "yes")):
    constrain = Constrain(language=language, texts=(text,))
    compiled(constrain)
    assert ConstraintAcceptor(compiled(constrain)).feed("yes.") == 3
for language, text in ((Language.JSON_SCHEMA, "{}"), (Language.GRAMMAR, 'start: "a"')):
    try:
        compiled(Constrain(language=language, texts=(text,)))
    except BadPattern as refused:
        print(refused.reason)
"""


def test_without_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", BASE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    reason = "needs an optional dependency: pip install -e '.[decode]'"
    assert done.stdout.splitlines() == [reason, reason]


# -- spellings of JSON -------------------------------------------------------------------------------------------------


@settings(max_examples=examples(200), deadline=None)
@given(st.text(max_size=6), st.lists(st.sampled_from(["plain", "number", "short"]), min_size=6, max_size=6))
def test_every_spelling_of_a_string_is_the_same_string(value: str, spellings: list[str]) -> None:
    written = "".join(map(_spelled, value, spellings))
    assert json.loads(f'"{written}"') == value
    assert verdict(schema({"const": value}), f'"{written}"') == (None, True)
    if value:
        assert verdict(schema({"const": value + "x"}), f'"{written}"')[0] is not None


def _spelled(char: str, how: str) -> str:
    if how == "number":
        return _numbers(char)
    return "\\/" if (char, how) == ("/", "short") else json.dumps(char, ensure_ascii=False)[1:-1]


def _numbers(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2))
