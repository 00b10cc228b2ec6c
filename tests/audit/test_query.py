"""Queries: what their files say, what is refused, and which language they ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gateway.audit.language import automaton, plugins
from gateway.audit.language.automaton import AutomatonTooLarge, intersection, literal
from gateway.audit.language.count import cardinality
from gateway.audit.query import model as query
from gateway.audit.query.load import parse_query
from gateway.audit.query.model import (
    Bounds,
    CompiledQuery,
    Decoding,
    Edits,
    Filter,
    LocalModel,
    Message,
    PrefixRegex,
    PrefixText,
    PreprocessTarget,
    Query,
    Random,
    ServedModel,
    ShortestPath,
    Synonyms,
    Tokenizations,
    UserPreprocessor,
    When,
    compile,
)
from gateway.automata.charset import CharSet
from gateway.policy.errors import ConfigError
from tests.support.languages import edited, replaced, strings, without

SECRET = "hunter2swordfish"
EVERY_KEY = """
model: {hf: ./model}                     # or {vllm: http://…/v1, name: m}
query: "My phone number is ([0-9]{3}) ([0-9]{3}) ([0-9]{4})"      # regular expression over the whole string
prefix: "My phone number is"             # string or regular expression; never eliminated by the decoding rule
decoding: {top_k: 40, temperature: 1.0, end_of_text: false, max_tokens: 32}
traversal: shortest_path                 # or random: {samples: 1000, seed: 0}
tokenizations: all                       # or canonical
preprocess: [{edits: 1, alphabet: printable_ascii, on: query}, {filter: {words: [the, a]}, when: search}]
limit: 100
"""


def read(text: str, environ: dict[str, str] | None = None) -> Query:
    return parse_query(text, "F", Path("/queries"), environ or {})


def test_a_query_is_read() -> None:
    assert read(EVERY_KEY) == Query(
        query="My phone number is ([0-9]{3}) ([0-9]{3}) ([0-9]{4})",
        prefix="My phone number is",
        model=LocalModel("/queries/model"),
        decoding=Decoding(top_k=40, temperature=1.0, end_of_text=False, max_tokens=32),
        traversal=ShortestPath(),
        tokenizations=Tokenizations.ALL,
        preprocess=(
            Edits(1, CharSet(((0x20, 0x7E),)), PreprocessTarget.QUERY, When.SEARCH),
            Filter(words=("the", "a")),
        ),
        limit=100,
        source="F",
    )


def test_everything_else_is_read_too() -> None:
    """The query's own keys are text, also where YAML takes them for something else."""
    assert read(
        """
        model: {vllm: "http://127.0.0.1:8000/v1/", name: m, api_key: "${KEY}", tokenizer: tokenizer.json}
        query: a.*
        prefix: {regex: "a(b|c)"}
        prompt: [{role: system, content: ""}, {role: user, content: Hello}]
        decoding: {top_p: 0.9, temperature: 0, end_of_text: yes}
        traversal: {random: {samples: 50, seed: 7}}
        tokenizations: canonical
        preprocess:
          - {synonyms: {doctor: [physician, medic], no: [nope]}, on: both}
          - {filter: {regex: '(?i)x\\d'}, when: compile}
          - {user: upper, on: prefix}
          - {edits: 2, alphabet: "[a-c]"}
        search: {prefixes: 5, max_nodes: 1000, batch: 8}
        """,
        {"KEY": SECRET},
    ) == Query(
        query="a.*",
        prefix=PrefixRegex("a(b|c)"),
        model=ServedModel("http://127.0.0.1:8000/v1", "m", SECRET, "tokenizer.json"),
        prompt=(Message("system", ""), Message("user", "Hello")),
        decoding=Decoding(top_p=0.9, temperature=0, end_of_text=True),
        traversal=Random(50, 7),
        tokenizations=Tokenizations.CANONICAL,
        preprocess=(
            Synonyms((("doctor", ("physician", "medic")), ("no", ("nope",))), on=PreprocessTarget.BOTH),
            Filter(pattern=r"(?i)x\d", when=When.COMPILE),
            UserPreprocessor("upper", on=PreprocessTarget.PREFIX),
            Edits(2, CharSet.of("abc")),
        ),
        bounds=Bounds(prefixes=5, max_nodes=1000, batch=8),
        source="F",
    )


def test_json_is_read_and_a_query_is_enough() -> None:
    assert read('{"query": "\\u00e9+", "prompt": "Say: "}') == Query(query="é+", prompt="Say: ", source="F")
    assert read("{query: a, prefix: {text: a.b}}").prefix == PrefixText("a.b")
    assert read("{query: a, model: {hf: gpt2}}").model == LocalModel("gpt2")


@pytest.mark.parametrize(
    ("text", "key_path", "reason"),
    [
        ("", "", "the file is empty; it needs at least query"),
        ("[]", "", "must be a mapping"),
        ("{}", "query", "is required"),
        ("{query: 7}", "query", "quote it"),
        ("{query: a, prefixes: b}", "prefixes", "unknown key; did you mean 'prefix'?"),
        ("{query: a, prefix: ''}", "prefix", "is empty; leave the key out"),
        (
            "{query: a, prefix: {regex: a, text: a}}",
            "prefix",
            "needs exactly one of text, regex; it has text and regex",
        ),
        ("{query: a, prefix: {like: a}}", "prefix", "needs exactly one of text, regex; it has none of them"),
        ("{query: a, prefix: [a]}", "prefix", "must be text, not a list"),
        ("{query: a, model: gpt2}", "model", "must be a mapping with keys such as hf: ./model, or vllm:"),
        ("{query: a, model: {hf: x, vllm: y}}", "model", "needs exactly one of hf, vllm; it has hf and vllm"),
        ("{query: a, model: {hf: x, name: y}}", "model.name", "unknown key"),
        ("{query: a, model: {vllm: 'http://h/v1'}}", "model.name", "is required"),
        ("{query: a, model: {vllm: 'ftp://h', name: m}}", "model.vllm", "must be an http or https URL"),
        ("{query: a, model: {vllm: 'http://h', name: m, api_key: a b}}", "model.api_key", "holds a space"),
        ("{query: a, prompt: [{role: user}]}", "prompt[0].content", "is required"),
        ("{query: a, prompt: []}", "prompt", "is an empty list"),
        ("{query: a, decoding: {top_k: 0}}", "decoding.top_k", "must be a whole number from 1"),
        ("{query: a, decoding: {top_p: 0}}", "decoding.top_p", "must be a number above 0, up to 1, not 0"),
        ("{query: a, decoding: {top_p: 1.5}}", "decoding.top_p", "must be a number from 0 to 1"),
        ("{query: a, decoding: {temperature: -1}}", "decoding.temperature", "must be a number, at least 0, not -1"),
        ("{query: a, decoding: {temperature: 1e999}}", "decoding.temperature", "must be a number, at least 0"),
        (
            "{query: a, decoding: {temperature: 1.0e-320}}",
            "decoding.temperature",
            "must be 0, or a number from 0.000001",
        ),
        (
            "{query: a, decoding: {temperature: 1.0e+300}}",
            "decoding.temperature",
            "must be 0, or a number from 0.000001",
        ),
        (f"{{query: .*, prefix: {'a' * 10_001}}}", "prefix", "has 10001 characters, and 10000 are allowed"),
        (f"{{query: a, preprocess: [{'{edits: 0}, ' * 21}]}}", "preprocess", "has 21 changes, and 20 are allowed"),
        ("{query: a, decoding: {temperature: '1'}}", "decoding.temperature", "must be a number, at least 0"),
        ("{query: a, decoding: {end_of_text: 1}}", "decoding.end_of_text", "must be true or false"),
        ("{query: a, decoding: {max_tokens: 0}}", "decoding.max_tokens", "must be a whole number from 1"),
        ("{query: a, traversal: depth_first}", "traversal", "must be shortest_path, or {random: {samples: 1000, seed"),
        ("{query: a, traversal: {random: {sample: 1}}}", "traversal.random.sample", "did you mean 'samples'?"),
        ("{query: a, traversal: {random: {seed: -1}}}", "traversal.random.seed", "must be a whole number from 0"),
        ("{query: a, tokenizations: some}", "tokenizations", "must be one of all, canonical"),
        ("{query: a, limit: 0}", "limit", "must be a whole number from 1"),
        ("{query: a, search: {batch: 100000}}", "search.batch", "must be a whole number from 1 to 4096"),
        ("{query: a, preprocess: {edits: 1}}", "preprocess", "must be a list"),
        ("{query: a, preprocess: [edits]}", "preprocess[0]", "must be a mapping with one of the keys edits, filter"),
        ("{query: a, preprocess: [{edits: 1, user: u}]}", "preprocess[0]", "it has edits and user"),
        ("{query: a, preprocess: [{edits: 6}]}", "preprocess[0].edits", "must be a whole number from 0 to 5"),
        ("{query: a, preprocess: [{edits: 1, alphabet: abc}]}", "preprocess[0].alphabet", "must be a class of charac"),
        ("{query: a, preprocess: [{edits: 1, alphabet: '[a'}]}", "preprocess[0].alphabet", "must be a class of charac"),
        (
            "{query: a, preprocess: [{edits: 1, on: prefix}]}",
            "preprocess[0].on",
            "the query has no prefix: set on: que",
        ),
        ("{query: a, preprocess: [{edits: 1, on: all}]}", "preprocess[0].on", "must be one of query, prefix, both"),
        ("{query: a, preprocess: [{edits: 1, when: now}]}", "preprocess[0].when", "must be one of compile, search"),
        ("{query: a, preprocess: [{filter: {words: [a]}, on: query}]}", "preprocess[0].on", "unknown key"),
        ("{query: a, preprocess: [{filter: [a]}]}", "preprocess[0].filter", "must be a mapping with words or regex"),
        ("{query: a, preprocess: [{filter: {words: []}}]}", "preprocess[0].filter.words", "is an empty list"),
        ("{query: a, preprocess: [{filter: {words: [7]}}]}", "preprocess[0].filter.words[0]", "quote it"),
        ("{query: a, preprocess: [{filter: {words: ['']}}]}", "preprocess[0].filter.words[0]", "is empty"),
        ("{query: a, preprocess: [{synonyms: {}}]}", "preprocess[0].synonyms", "must be a mapping of words, each with"),
        ("{query: a, preprocess: [{synonyms: {b: c}}]}", "preprocess[0].synonyms[0]", "must be a list"),
        ("{query: a, preprocess: [{synonyms: {b: [c, '']}}]}", "preprocess[0].synonyms[0][1]", "is empty"),
        ("{query: a, preprocess: [{user: 'a b'}]}", "preprocess[0].user", "must be 1 to 64 of the characters"),
        ("{query: 'a${NONE}'}", "query", "environment variable NONE is not set"),
    ],
)
def test_what_is_refused(text: str, key_path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    error = refused.value
    assert error.key_path == key_path and reason in error.reason, str(error)
    assert str(error) == ": ".join(part for part in ("F", key_path, error.reason) if part)


@pytest.mark.parametrize(
    "text",
    [
        "{query: a, model: {vllm: 'http://h', name: m, api_key: '%s x'}}",
        "{query: a, model: {vllm: 'http://user:%s@h', name: m}}",
        "{query: a, prefix: ['%s']}",
        "{query: a, preprocess: [{filter: {words: [[%s]]}}]}",
        "{query: a, preprocess: [{synonyms: {'%s': ['']}}]}",
        "{query: a, preprocess: [{synonyms: {b: ['', %s]}}]}",
        "{query: b, prefix: '%s'}",
        "{query: 'b(%s'}",
        "{query: b, prefix: {regex: '%s'}}",
        "{query: b, preprocess: [{filter: {regex: '%s('}}]}",
        "{query: '%s', preprocess: [{filter: {words: ['%s']}}]}",
    ],
)
def test_no_error_shows_a_word_a_text_or_a_key(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        compile(read(text.replace("%s", SECRET)))
    assert SECRET not in f"{refused.value} {refused.value!r} {refused.value.__cause__}"


def test_a_query_shows_neither_words_nor_keys() -> None:
    model = ServedModel("http://h", "m", api_key=SECRET)
    steps = (Filter(words=(SECRET,)), Filter(pattern=SECRET), Synonyms(((SECRET, ("b",)),)))
    assert SECRET not in repr(Query(query="a", model=model, preprocess=steps))


def test_as_many_changes_as_there_may_be_are_one_language() -> None:
    steps = (Edits(0), Filter(words=("no",)), Synonyms((("b", ("c",)),)), Edits(0, when=When.COMPILE)) * 5
    assert strings(compile(Query(query="a b", preprocess=steps)).language) == {"a b", "a c"}


# -- the language ------------------------------------------------------------------------------------------------------


def compiled(expression: str, **fields: Any) -> CompiledQuery:
    return compile(Query(query=expression, source="F", **fields))


def refused(key_path: str, reason: str, expression: str, **fields: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)) as caught:
        compiled(expression, **fields)
    assert (caught.value.source, caught.value.key_path) == ("F", key_path)


def test_a_query_without_a_prefix() -> None:
    asked = compiled("a|bc?")
    assert strings(asked.language) == {"a", "b", "bc"} and asked.prefix is None


@pytest.mark.parametrize(
    ("expression", "prefix", "found", "prefixes"),
    [
        ("The (cat|dog)", "The ", {"The cat", "The dog"}, {"The "}),
        ("The (cat|dog)", "The cat", {"The cat"}, {"The cat"}),
        ("The (cat|dog)", PrefixText("The c"), {"The cat"}, {"The c"}),
        (r"What is 2\+2\? (4|5)", "What is 2+2?", {"What is 2+2? 4", "What is 2+2? 5"}, {"What is 2+2?"}),
        ("The (man|woman) (ran|sat)", "The (man|woman)", None, {"The man", "The woman"}),
        ("The (man|woman) ran", PrefixRegex("The m?.*n"), {"The man ran", "The woman ran"}, None),
        (r"a\.b|acb", "a.", {"a.b"}, {"a."}),
        (r"a\.b|acb", PrefixRegex("a."), {"a.b", "acb"}, {"a.", "ac"}),
        ("ab?|c", PrefixRegex("a?"), {"a", "ab", "c"}, {"", "a"}),
        ("é|e", PrefixText("é"), {"é"}, {"é"}),
    ],
)
def test_prefixes(expression: str, prefix: Any, found: set[str] | None, prefixes: set[str] | None) -> None:
    asked = compiled(expression, prefix=prefix)
    assert found is None or strings(asked.language) == found
    assert asked.prefix is not None
    assert prefixes is None or strings(asked.prefix) == prefixes


def test_languages_that_are_none() -> None:
    refused("query", "has no string", "a$b")
    refused("query", "look-around is not supported: name what may stand there as a part of the match", "a(?=b)")
    refused("query", "unbalanced ')': remove it, or write \\) (at position 1)", "a)")
    refused("prefix", "no string of the query begins with it, be it text or an expression", "The cat", prefix="A")
    refused("prefix", "no string of the query begins with this text", "The cat", prefix="(")
    refused("prefix", "no string of the query begins with this text", "The cat", prefix=PrefixText("The d"))
    refused("prefix", "no string of the query begins with a match of this expression", "a", prefix=PrefixRegex("[^a]"))
    refused("prefix", "the group has no end", "a", prefix=PrefixRegex("("))
    refused("prefix", "holds half of a surrogate pair, which is no character", "a", prefix="\ud800")
    refused("preprocess[0]", "no string of the query is left", "the a", preprocess=(Filter(words=("a",)),))
    refused("preprocess[0]", "the pattern matches the empty string", "a", preprocess=(Filter(pattern="b*"),))
    refused(
        "preprocess[0]",
        "no installed package has this preprocessor",
        "a",
        preprocess=(UserPreprocessor("nobody's"),),
    )
    refused("preprocess[0]", "the alphabet has no character", "a", preprocess=(Edits(1, CharSet()),))


PREFIXED = {"expression": "(?:ab|ba) (?:ab?|c)", "prefix": PrefixRegex("ab|ba")}
PAIRS = [(first, f" {rest}") for first, rest in product(["ab", "ba"], ["a", "ab", "c"])]
WHOLE = ["".join(pair) for pair in PAIRS]


@pytest.mark.parametrize("when", When)
def test_edits_stand_where_they_are_wanted(when: When) -> None:
    def asked(on: PreprocessTarget) -> tuple[set[str], set[str]]:
        found = compiled(**PREFIXED, preprocess=(Edits(1, CharSet.of("ab"), on, when),))  # type: ignore[arg-type]
        assert found.prefix is not None
        return set(strings(found.language)), set(strings(found.prefix))

    behind = {first + rest for first, other in PAIRS for rest in edited([other], 1, "ab")}
    before = {other + rest for first, rest in PAIRS for other in edited([first], 1, "ab")}
    both_parts = set(edited(WHOLE, 1, "ab"))

    def prefixes_of(texts: Iterable[str]) -> set[str]:
        return {each for each in edited(["ab", "ba"], 1, "ab") if any(text.startswith(each) for text in texts)}

    assert asked(PreprocessTarget.QUERY) == (behind, {"ab", "ba"})
    assert asked(PreprocessTarget.PREFIX) == (before, prefixes_of(before))
    assert asked(PreprocessTarget.BOTH) == (both_parts, prefixes_of(both_parts))
    whole = compiled(PREFIXED["expression"], preprocess=(Edits(1, CharSet.of("ab")),))  # type: ignore[arg-type]
    assert strings(whole.language) == both_parts


@pytest.mark.parametrize("when", When)
def test_preprocessors_one_after_the_other(when: When) -> None:
    """Words are those of what stands behind the prefix; what they leave no string of is no prefix any more."""
    others = {"ab": ["x"]}
    steps = (
        Synonyms((("ab", ("x",)),), PreprocessTarget.BOTH, when),
        Filter(words=("a",), when=when),
        Edits(1, CharSet.of("x")),
    )
    found = compiled(**PREFIXED, preprocess=steps)  # type: ignore[arg-type]
    prefixes = replaced(["ab", "ba"], others)
    kept = without(replaced(WHOLE, others), lambda text: text.strip() == "a", prefixes)
    behind = {
        prefix + rest
        for text in kept
        for prefix in prefixes
        if text.startswith(prefix)
        for rest in edited([text.removeprefix(prefix)], 1, "x")
    }
    assert strings(found.language) == behind
    assert found.prefix is not None and strings(found.prefix) == {"ab", "ba", "x"}


def test_a_filter_sees_what_stands_behind_the_prefix() -> None:
    found = compiled("the (?:cat|the dog|dog the)", prefix="the", preprocess=(Filter(words=("the",)),))
    assert strings(found.language) == {"the cat"}


def test_prefixes_of_what_was_taken_out_are_gone() -> None:
    found = compiled("ab|ac|bd", prefix=PrefixRegex("a|b"), preprocess=(Filter(pattern="d"),))
    assert found.prefix is not None and strings(found.prefix) == {"a"}


def test_the_query_of_the_contract_is_counted() -> None:
    """Of ` ddd ddd dddd` and what is one edit away, less what has the word `a`: a letter stands alone only where an
    edit writes one before the first space."""
    plain = compile(Query(query=" [0-9]{3} [0-9]{3} [0-9]{4}", preprocess=(Edits(1),)))
    total = cardinality(plain.language)
    asked = cardinality(compile(read(EVERY_KEY)).language)
    assert total is not None and asked is not None
    taken_out = Query(
        query=" [0-9]{3} [0-9]{3} [0-9]{4}",
        preprocess=(Edits(1), Filter(pattern=r"(?:^|[^\w])(?:the|a)(?:$|[^\w])")),
    )
    assert asked == cardinality(compile(taken_out).language)
    assert total - asked == 10**10


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (
            "(?:a{1000}){1000}",
            "the pattern needs at least 1000000 states, and 100000 are allowed: use fewer or smaller",
        ),
        ("a?" * 4000, "steps between its states, and 2000000 are allowed"),
        ("(" * 200, "groups are nested deeper than 100 levels"),
        ("a" * 20_000, "the pattern has 20000 characters"),
        (r"(a)\1", "back-references are not supported"),
        ("a*?", "lazy quantifiers mean nothing here"),
    ],
)
def test_hostile_expressions_are_refused(expression: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="F: query: ") as caught:
        compiled(expression)
    assert reason in caught.value.reason and "divide it among" not in caught.value.reason


def test_what_is_too_large_to_work_out_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MAX_WORKED_OUT", 100)
    later = compiled("The quick brown fox", preprocess=(Edits(2),))
    assert later.language.start
    reason = "the language needs more than 100 states: ask for fewer edits, count less, list fewer alternatives, or "
    reason += "narrow the pattern; or set when: search, to compute only what the search reaches"
    refused("preprocess[0]", reason, "The quick brown fox", preprocess=(Edits(2, when=When.COMPILE),))


def test_what_shows_later_to_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = compiled("(?:The quick brown fox jumps over the lazy dog[.] ){9}", preprocess=(Edits(2),))
    monkeypatch.setattr(automaton, "MAX_STATES", 2000)
    with pytest.raises(AutomatonTooLarge, match="more than 2,000 states"):
        cardinality(asked.language)


def test_what_a_preprocessor_raises_names_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "u"

        def load(self) -> object:
            return lambda given: intersection(given, literal(json.dumps(None)))

    monkeypatch.setattr(plugins, "entry_points", lambda group: [Point()])
    assert strings(compiled("null|a", preprocess=(UserPreprocessor("u"),)).language) == {"null"}
    refused("preprocess[1]", "no string of the query is left", "a", preprocess=(Edits(0), UserPreprocessor("u")))
