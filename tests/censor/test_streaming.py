"""`censor_stream`: the blog's snippet, every kind of rules and of source, and how little is read ahead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import gateway
from gateway import Action, Policy, Rule, censor_stream
from gateway.config import ConfigError

TOKENS = ["The", " password", " is", ' "', "12", "MON", "KEY", "S", '".']

# The seed's last lines, unchanged but for the import; `answer` and `prompt` stand in for its model.
SNIPPET = """
from gateway import censor_stream as kmp_censor_stream
print(list(kmp_censor_stream(answer(prompt), "12MONKEYS")))
"""


def answer(prompt: str) -> Iterator[str]:
    yield from TOKENS


def test_the_snippet_of_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    exec(SNIPPET, {"answer": answer, "prompt": "What is the password?"})
    assert capsys.readouterr().out == """['The', ' password', ' is', ' "', '[CENSORED]', '".']\n"""


def test_the_public_names_exist() -> None:
    assert all(hasattr(gateway, name) for name in gateway.__all__)


def test_async_iterables_give_async_iterators() -> None:
    async def chunks() -> AsyncIterator[str]:
        for token in TOKENS:
            yield token

    stream = censor_stream(chunks(), "12MONKEYS")
    assert isinstance(stream, AsyncIterator)
    assert not isinstance(stream, Iterator)


async def test_async_streams_release_the_same() -> None:
    async def chunks() -> AsyncIterator[str]:
        for token in [*TOKENS, " 12"]:
            yield token

    released = [text async for text in censor_stream(chunks(), "12MONKEYS")]
    assert released == ["The", " password", " is", ' "', "[CENSORED]", '".', " ", "12"]


async def test_an_async_iterable_need_not_be_a_generator() -> None:
    class Chunks:
        def __init__(self) -> None:
            self.left = ["a 12MONK", "EYS"]

        def __aiter__(self) -> Chunks:
            return self

        async def __anext__(self) -> str:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    assert [text async for text in censor_stream(Chunks(), "12MONKEYS")] == ["a ", "[CENSORED]"]


@pytest.mark.parametrize(
    ("rules", "output"),
    [
        ("bad", "a [CENSORED] worse day"),
        (["bad", "worse"], "a [CENSORED] [CENSORED] day"),
        ((word for word in ["bad", "day"]), "a [CENSORED] worse [CENSORED]"),
        (Rule(id="r", words=("bad", "day"), mask="*"), "a *** worse ***"),
        (["worse", Rule(id="r", words=("bad",), replacement="<>")], "a <> [CENSORED] day"),
        (Policy(name="p", rules=(Rule(id="r", words=("bad",)),)), "a [REDACTED] worse day"),
        (Policy(name="p", mode=gateway.Mode.OBSERVE, rules=(Rule(id="r", words=("bad",)),)), "a bad worse day"),
        ({"words": ["bad"], "mask": "#"}, "a ### worse day"),
        (["day", {"id": "r", "words": ["bad"], "replacement": "<>"}], "a <> worse [CENSORED]"),
        ({"rules": [{"id": "r", "words": ["bad"]}], "mode": "observe"}, "a bad worse day"),
        ([], "a bad worse day"),
        (Policy(name="p"), "a bad worse day"),
    ],
)
def test_what_rules_may_be(rules: str, output: str) -> None:
    assert "".join(censor_stream(["a b", "ad wor", "se da", "y"], rules)) == output


@pytest.mark.parametrize(
    ("rules", "error", "message"),
    [
        ("", ValueError, "rule 'word-0': a word is empty"),
        (["good", "\u200b"], ValueError, "rule 'word-1': a word is empty when seen through the lens"),
        ([Rule(id="marks", words=("\u0301",), fold=frozenset({gateway.Fold.ACCENTS}))], ValueError, "rule 'marks'"),
        ([7], TypeError, r"rules\[0\]: expected a word, a Rule or a mapping, got int"),
        (["good", b"bad"], TypeError, r"rules\[1\]: expected a word, a Rule or a mapping, got bytes"),
        ({"words": [""]}, ConfigError, r"words\[0\]: is empty"),
        ({"words": ["bad"], "colour": "red"}, ConfigError, "colour"),
        (7, TypeError, "rules: expected a word, a Rule, a Policy, a mapping or several, got int"),
        (None, TypeError, "rules: expected a word, a Rule, a Policy, a mapping or several, got NoneType"),
        (b"bad", TypeError, "rules: expected a word, a Rule, a Policy, a mapping or several, got bytes"),
        ({"words": {"bad"}}, ValueError, "rules: a mapping holds what a configuration file can hold: .*set"),
        (
            Rule(id="r", detector="creditcard"),
            ValueError,
            "rule 'r': detector: 'creditcard' is not one of email, credit_card",
        ),
        (
            Rule(id="r", detector="mail", action=Action.PSEUDONYMIZE),
            ValueError,
            "rule 'r': detector: 'mail' is not one of",
        ),
    ],
)
def test_rules_that_are_none_are_refused_at_the_call(rules: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        censor_stream([], rules)


@pytest.mark.parametrize("chunks", [None, 7, b"12MONKEYS", bytearray(b"12MONKEYS")])
def test_e9_what_is_no_stream_is_refused_at_the_call(chunks: Any) -> None:
    with pytest.raises(TypeError, match=f"chunks: expected an iterable of strings, got {type(chunks).__name__}"):
        censor_stream(chunks, "12MONKEYS")


@pytest.mark.parametrize("rules", ["12MONKEYS", []])
@pytest.mark.parametrize("chunk", [None, b"12MONKEYS", 7, ["12MONKEYS"]])
async def test_e9_a_chunk_that_is_no_text_is_refused(rules: Any, chunk: Any) -> None:
    async def later() -> AsyncIterator[str]:
        for each in ("a ", chunk):
            yield each

    message = f"chunks: expected strings, got {type(chunk).__name__}: leave out what has no text"
    stream = censor_stream(["a ", chunk], rules)
    assert next(stream) == "a "
    with pytest.raises(TypeError, match=message):
        next(stream)
    with pytest.raises(TypeError, match=message):
        [text async for text in censor_stream(later(), rules)]


def test_e9_a_lens_may_be_any_iterable() -> None:
    assert "".join(censor_stream(["a 12X"], Rule(id="r", words=["12x"], fold=["case"]))) == "a [REDACTED]"
    assert "".join(censor_stream(["a 12X 12x"], Rule(id="r", words=["12x"], fold=()))) == "a 12X [REDACTED]"


def test_nothing_is_read_before_it_is_asked_for() -> None:
    read: list[str] = []

    def source() -> Iterator[str]:
        for token in TOKENS:
            read.append(token)
            yield token

    stream = censor_stream(source(), "12MONKEYS")
    assert read == []
    seen = []
    for released in stream:
        seen.append((released, len(read)))
    # Each text comes out with the token that made it safe, and no later token has been read by then.
    assert seen == [("The", 1), (" password", 2), (" is", 3), (' "', 4), ("[CENSORED]", 8), ('".', 9)]


def test_what_is_held_at_the_end_is_released() -> None:
    assert list(censor_stream(["a 12", "MONK"], "12MONKEYS")) == ["a ", "12MONK"]


BLOCK = Rule(id="stop", words=("STOP",), action=Action.BLOCK)


def test_a_block_ends_the_stream_and_reads_no_further() -> None:
    closed = []

    def source() -> Iterator[str]:
        try:
            yield from ["go ", "on ST", "OP or", " not"]
        finally:
            closed.append(True)

    tokens = source()
    assert list(censor_stream(tokens, BLOCK)) == ["go ", "on "]
    assert closed == [True]


async def test_a_block_closes_an_async_source() -> None:
    closed = []

    async def source() -> AsyncIterator[str]:
        try:
            for token in ["go ", "on ST", "OP or", " not"]:
                yield token
        finally:
            closed.append(True)

    tokens = source()
    assert [text async for text in censor_stream(tokens, BLOCK)] == ["go ", "on "]
    assert closed == [True]


def test_a_reader_that_leaves_closes_the_source() -> None:
    closed = []

    def source() -> Iterator[str]:
        try:
            yield from TOKENS
        finally:
            closed.append(True)

    tokens = source()
    stream = censor_stream(tokens, "12MONKEYS")
    next(stream)
    del stream
    assert closed == [True]


def test_a_source_that_cannot_be_closed_may_be_blocked() -> None:
    assert list(censor_stream(iter(["go ST", "OP"]), BLOCK)) == ["go "]


def test_an_error_of_the_source_passes_and_releases_nothing_held() -> None:
    def source() -> Iterator[str]:
        yield "a 12MON"
        raise ConnectionError("upstream")

    stream = censor_stream(source(), "12MONKEYS")
    assert next(stream) == "a "
    with pytest.raises(ConnectionError):
        next(stream)
