"""Streamed JSON text: what comes out is right, and the same, whole, character by character and under every cut."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.surrogates import join_surrogates
from gateway.wire.jsongrammar import MAX_BARE, MAX_DEPTH
from gateway.wire.jsontext import JsonText as ThreeTexts
from gateway.wire.jsontext import TextCensor


def JsonText(new_text: Callable[[], TextCensor]) -> ThreeTexts:
    return ThreeTexts(lambda _: new_text(), new_text, new_text)


WORD = "42x"
REPLACEMENT = '"\n#'


class Identity:
    changed = False
    blocked = False

    def feed(self, text: str) -> str:
        assert text, "an empty piece is nobody's business"
        return text

    def finish(self) -> str:
        return ""


class Replacing:
    """Replaces WORD, the digits 77 and the letters of `null`; holds a text to its end."""

    blocked = False

    def __init__(self) -> None:
        self._text = ""
        self.changed = False

    def feed(self, text: str) -> str:
        self._text += text
        return ""

    def finish(self) -> str:
        replaced = censored(self._text)
        self.changed = replaced != self._text
        return replaced


def censored(text: str) -> str:
    return text.replace(WORD, REPLACEMENT).replace("77", REPLACEMENT).replace("null", REPLACEMENT)


class Blocking:
    """Blocks at `stop` and lets out what is before it; holds only what may still become `stop`."""

    changed = False

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._held = ""
        self.blocked = False

    def feed(self, text: str) -> str:
        assert not self.blocked, "nothing is asked of a censor that blocked"
        text = self._held + text
        if self._stop in text:
            self.blocked = True
            return text[: text.index(self._stop)]
        hold = next(n for n in range(len(self._stop) - 1, -1, -1) if text.endswith(self._stop[:n]))
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def finish(self) -> str:
        assert not self.blocked, "nothing is asked of a censor that blocked"
        return self._held


class BlockingAtEnd(Replacing):
    """Blocks only when the text is over, as a whole word at the end of a text does."""

    def finish(self) -> str:
        before, found, _ = self._text.partition("7")
        self.blocked = bool(found)
        return before


def streamed(pieces: list[str], new_text: Callable[[], TextCensor]) -> str:
    scanner = JsonText(new_text)
    return "".join([scanner.feed(piece) for piece in pieces]) + scanner.finish()


def streamed_every_way(text: str, new_text: Callable[[], TextCensor]) -> str:
    whole = streamed([text], new_text)
    assert streamed(list(text), new_text) == whole
    for cut in range(len(text)):
        assert streamed([text[:cut], "", text[cut:]], new_text) == whole, f"cut at {cut}"
    return whole


# name: (text, what a censor that replaces makes of it)
REPLACED = {
    "nothing": ("", ""),
    "object": ('{"a": ["b", 1, true, null]}', '{"a": ["b", 1, true, null]}'),
    "whitespace": (' \t\r\n{ "a" : [ ] , "b" : { } } \n', ' \t\r\n{ "a" : [ ] , "b" : { } } \n'),
    "value": ('{"a":"a42xb"}', '{"a":"a\\"\\n#b"}'),
    "key": ('{"42x":1}', '{"\\"\\n#":1}'),
    "the literal null is no text": ('[null,"null"]', '[null,"\\"\\n#"]'),
    "number": ("[77,1775,-1.5e+77,7]", '["\\"\\n#","1\\"\\n#5","-1.5e+\\"\\n#",7]'),
    "number at the end": ("77", '"\\"\\n#"'),
    "numbers are apart": ("[7,7]", "[7,7]"),
    "numbers with whitespace": ("[77 ,\n7\n]", '["\\"\\n#" ,\n7\n]'),
    "escapes": (r'"\u0034\u0032\u0078 \"\\\/\b\f\n\r\t\u00e9"', '"\\"\\n# \\"\\\\/\\b\\f\\n\\r\\té"'),
    "escaped surrogate pair": (r'"\ud83d\ude00"', '"😀"'),
    "escaped lone surrogates": (r'"\ud83d,\ude00\ud83d\ud83d\n\ud83d"', '"\ufffd,\ufffd\ufffd\ufffd\\n\ufffd"'),
    "escaped pair after half a pair": (r'"\ud83d\ud83d\ude00"', '"\ufffd😀"'),
    "raw surrogate pair": ('"\ud83d\ude00"', '"😀"'),
    "raw lone surrogates": ('"\ud83d,\ude00\ud83d', '"\ufffd,\ufffd\ufffd'),
    "raw control characters": ('"a\nb\0\x1f\x7f\u2028"', '"a\\nb\\u0000\\u001f\x7f\u2028"'),
    "cut string": ('{"a":"42', '{"a":"42'),
    "cut string with the word": ('{"a":"42x', '{"a":"\\"\\n#'),
    "cut key": ('{"42x', '{"\\"\\n#'),
    "cut escapes are dropped": (r'"42x\u00', '"\\"\\n#'),
    "cut surrogate pair": (r'"\ud83d\ude', '"\ufffd'),
    "cut number": ("[77", '["\\"\\n#"'),
    "cut number with whitespace": ("[7 ", "[7 "),
    "cut literal": ("[tru", "[tru"),
    "beginning of a number": ("[-", "[-"),
    "beginning of a number with the word": ("[77.", "[" + REPLACEMENT + "."),
    "literal at the end": ("[false", "[false"),
    "not JSON": ("say 42x and null", "say " + REPLACEMENT + " and " + REPLACEMENT),
    "not JSON after a string": ('["42x" 42x"', '["\\"\\n#" ' + REPLACEMENT + '"'),
    "a number is still whole when the text stops being JSON": ("[1,42x,2]", "[1," + REPLACEMENT + ",2]"),
    "even after whitespace": ("[7 7]", "[7 7]"),
    "a literal too": ("[null null]", "[" + REPLACEMENT + " " + REPLACEMENT + "]"),
    "more after the value": ('{"a":1} 42x', '{"a":1} ' + REPLACEMENT),
    "more after a number": ("77,7", REPLACEMENT + ",7"),
    "more after a string": ('"a""42x"', '"a""' + REPLACEMENT + '"'),
    "bad escape": (r'{"a":"42x\x42x","b":1}', '{"a":"\\"\\n#\\x' + REPLACEMENT + '","b":1}'),
    "bad escape after half a pair": (r'"\ud83d\q', '"\ufffd\\q'),
    "bad hex": (r'"\u12g4 42x"', r'"\u12g4 ' + REPLACEMENT + '"'),
    "escape cut by a quote": (r'"\u12" 42x', r'"\u12" ' + REPLACEMENT),
    "raw surrogates in plain text": ("\ud83d\ude00\ud83d", "😀\ufffd"),
    "wrong bracket": ('["42x"}42x', '["\\"\\n#"}' + REPLACEMENT),
    "trailing comma": ("[1,]77", "[1,]" + REPLACEMENT),
    "key without quotes": ("{42x:1}", "{" + REPLACEMENT + ":1}"),
    "missing colon": ('{"a" 77}', '{"a" ' + REPLACEMENT + "}"),
    "number as key": ("{77:1}", "{" + REPLACEMENT + ":1}"),
    "number before a colon": ("[77:1]", "[" + REPLACEMENT + ":1]"),
    "leading zero": ("[077]", "[0" + REPLACEMENT + "]"),
    "NaN": ("[NaN,77]", "[NaN," + REPLACEMENT + "]"),
    "other digits": ("[٧,77]", "[٧," + REPLACEMENT + "]"),
    "other whitespace": ("[\u00a077]", "[\u00a0" + REPLACEMENT + "]"),
    "incomplete number": ("[1e,77]", "[1e," + REPLACEMENT + "]"),
    "deepest": ("[" * MAX_DEPTH + "77" + "]" * MAX_DEPTH, "[" * MAX_DEPTH + '"\\"\\n#"' + "]" * MAX_DEPTH),
    "too deep": ("[" * MAX_DEPTH + '["\\u0034"', "[" * MAX_DEPTH + '["\\u0034"'),
}


@pytest.mark.parametrize(("text", "expected"), REPLACED.values(), ids=REPLACED)
def test_replaced(text: str, expected: str) -> None:
    assert streamed_every_way(text, Replacing) == expected


@pytest.mark.parametrize("text", ["[" + "1" * MAX_BARE + ",2]", "[1" + " " * (MAX_BARE - 1) + ",2]"])
def test_longest_number(text: str) -> None:
    scanner = JsonText(Identity)
    assert scanner.feed(text[: MAX_BARE + 1]) == "["
    assert scanner.feed(text[MAX_BARE + 1 :]) == text[1:]


@pytest.mark.parametrize("text", ["[" + "1" * (MAX_BARE + 1) + ',"\\u0034"]', "[1" + " " * MAX_BARE + ',"\\u0034"]'])
def test_longer_number_is_plain_text(text: str) -> None:
    assert streamed([text], Identity) == text
    assert streamed(list(text), Identity) == text
    scanner = JsonText(Identity)
    assert scanner.feed(text[: MAX_BARE + 2]) == text[: MAX_BARE + 2]


# name: (text, what is left when "stop" or 99 blocks); every one parses
BLOCKED = {
    "value": ('{"a":["b","see stop now"],"c":1}', '{"a":["b","see "]}'),
    "key": ('[{"a":1,"bstop":2}]', '[{"a":1,"b":null}]'),
    "top": ('"stop"', '""'),
    "plain text": ("[1, see stop now]", "[1, see "),
    "after half a pair": (r'["\ud83d\u0073top"]', '["\ufffd"]'),
}


@pytest.mark.parametrize(("text", "expected"), BLOCKED.values(), ids=BLOCKED)
def test_blocked(text: str, expected: str) -> None:
    assert streamed_every_way(text, lambda: Blocking("stop")) == expected


# name: (text, what is left when 99 blocks)
BLOCKED_NUMBERS = {
    "number": ("[1,99,2]", "[1,null]"),
    "first number": ("[[99,2]]", "[[]]"),
    "member": ('{"a":{"b":99}}', '{"a":{"b":null}}'),
    "top": ("99", "null"),
    "with a beginning": ('{"a":199}', '{"a":"1"}'),
    "whitespace after it is held and dropped": ("[99 ]", "[]"),
    "at the end": ("[1,99", "[1,null]"),
    "at the end with a beginning": ("[1,199 ", '[1,"1"]'),
    "in a literal's place": ("[tru99", "[tru"),
}


@pytest.mark.parametrize(("text", "expected"), BLOCKED_NUMBERS.values(), ids=BLOCKED_NUMBERS)
def test_blocked_number(text: str, expected: str) -> None:
    assert streamed_every_way(text, lambda: Blocking("99")) == expected


BLOCKED_AT_END = {
    "string": ('["a","b7",1]', '["a","b"]'),
    "key": ('{"b7":1}', '{"b":null}'),
    "cut string": ('["b7', '["b"]'),
    "number": ("[17,1]", '["1"]'),
    "bad escape": (r'["b7\q"]', '["b"]'),
    "plain text": ("b7", "b"),
}


@pytest.mark.parametrize(("text", "expected"), BLOCKED_AT_END.values(), ids=BLOCKED_AT_END)
def test_blocked_at_the_end_of_a_text(text: str, expected: str) -> None:
    assert streamed_every_way(text, BlockingAtEnd) == expected


def test_half_a_pair_that_blocks() -> None:
    assert streamed_every_way(r'["\ud83d",1]', lambda: Blocking("\ufffd")) == '[""]'


def test_blocked_says_so_and_stays_silent() -> None:
    scanner = JsonText(lambda: Blocking("stop"))
    assert scanner.feed('{"a":"sto') == '{"a":"'
    assert not scanner.blocked
    assert scanner.feed('p","b":"') == '"}'
    assert scanner.blocked
    assert scanner.feed('more"}') == scanner.finish() == scanner.close() == ""


def test_released_at_once() -> None:
    scanner = JsonText(Identity)
    assert [scanner.feed(piece) for piece in ('{"a', '":', ' "b', "\\", 'n\\u00e9c"', ", ", '"d":1', "2", "}")] == [
        '{"a', '":', ' "b', "", '\\néc"', ", ", '"d":', "", "12}",
    ]  # fmt: skip


def test_a_run_reaches_the_censor_in_one_piece() -> None:
    pieces: list[str] = []

    class Recording(Identity):
        def feed(self, text: str) -> str:
            pieces.append(text)
            return text

    streamed([r'{"key":["a\nb\u00e9\ud83d\ude00c", "d', 'e"]}'], Recording)
    assert pieces == ["key", "a\nbé😀c", "d", "e"]


# name: (text, what closes it)
CLOSED = {
    "start": ("", "null"),
    "array": ("[", "]"),
    "array and a held number": ("[12", "]"),
    "array after a value": ("[1,{}", "]"),
    "array after a comma": ("[[],", "null]"),
    "object": ('[{"a":{', "}}]"),
    "object after a comma": ('{"a":1,', '"":null}'),
    "key": ('{"a', '":null}'),
    "after a key": ('{"a"', ":null}"),
    "after a colon": ('{"a":', "null}"),
    "held literal": ('{"a": tru', "null}"),
    "string": ('{"a":"b', '"}'),
    "string and a held escape": ('{"a":"b\\u00', '"}'),
    "complete": ('{"a":[]}', ""),
    "plain text": ("see [", ""),
}


@pytest.mark.parametrize(("text", "closing"), CLOSED.values(), ids=CLOSED)
def test_closed_from_outside(text: str, closing: str) -> None:
    scanner = JsonText(Identity)
    released = scanner.feed(text)
    assert scanner.close() == closing
    if "see" not in text:
        json.loads(released + closing)
    assert not scanner.blocked
    assert scanner.feed("}") == scanner.finish() == scanner.close() == ""


class Number(str):
    """A number's literal text."""


def refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def parsed(text: str) -> object:
    return json.loads(
        text, object_pairs_hook=list, parse_int=Number, parse_float=Number, parse_constant=refuse, strict=False
    )


def oracle(value: object) -> object:
    match value:
        case Number():
            replaced = censored(value)
            return value if replaced == value else replaced
        case str():
            return censored(join_surrogates(value))
        case list() | tuple():
            return type(value)(oracle(item) for item in value)
        case _:
            return value


def joined(value: object) -> object:
    match value:
        case Number():
            return value
        case str():
            return join_surrogates(value)
        case list() | tuple():
            return type(value)(joined(item) for item in value)
        case _:
            return value


FRAGMENTS = ["42x", "4", "2x", "77", "7", "null", '"', "\\", "/", "\n", "\0", "é", "😀", "\u2028", "stop", "\ud83d"]
words = st.lists(st.sampled_from(FRAGMENTS) | st.characters(codec="utf-8"), max_size=5).map("".join)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([77, 1775, 7.7, 1e77, -77])
documents = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=10,
)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    value = draw(documents)
    return json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 0, 2, "\t"])))


@given(json_texts())
def test_a_censor_that_changes_nothing_changes_nothing(text: str) -> None:
    assert parsed(streamed_every_way(text, Identity)) == joined(parsed(text))


@given(json_texts())
def test_a_censor_sees_each_token_as_a_text_of_its_own(text: str) -> None:
    assert repr(parsed(streamed_every_way(text, Replacing))) == repr(oracle(parsed(text)))


@given(json_texts(), st.sampled_from(["stop", "7", "42x", "null", "\n", '"', "é", "\ufffd", "1", "-", "e"]))
def test_blocked_json_is_json(text: str, stop: str) -> None:
    json.loads(streamed_every_way(text, lambda: Blocking(stop)))


@given(json_texts(), st.integers(0, 200))
def test_json_closed_anywhere_is_json(text: str, length: int) -> None:
    scanner = JsonText(Identity)
    json.loads(scanner.feed(text[:length]) + scanner.close())


TOKENS = ["true", "null", "42x", "77", '"a"', "\\ud83d", "\\ude00", "\ud83d", "\ude00", *'{}[],:"\\ \n-+.eE017utfn']
garbage = st.lists(st.sampled_from(TOKENS) | st.characters(), max_size=15).map("".join)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(json_texts())
    start = draw(st.integers(0, len(text)))
    return text[:start] + draw(garbage) + text[start + draw(st.integers(0, 3)) :]


@given(garbage | mutated(), st.sampled_from(["7", "42x", "null", "a", "\\"]))
def test_any_text_comes_out_the_same_however_it_is_cut(text: str, stop: str) -> None:
    streamed_every_way(text, Identity)
    streamed_every_way(text, Replacing)
    streamed_every_way(text, BlockingAtEnd)
    streamed_every_way(text, lambda: Blocking(stop))


@given(garbage | mutated())
def test_whatever_is_not_structure_passes_a_censor(text: str) -> None:
    class Swallowing(Identity):
        changed = True

        def feed(self, text: str) -> str:
            return ""

    left = streamed([text], Swallowing)
    for literal in ("true", "false", "null"):
        left = left.replace(literal, "")
    assert not left.strip('{}[],:" \t\r\n')


@given(garbage | mutated())
def test_what_the_standard_library_reads_is_read(text: str) -> None:
    try:
        value = parsed(join_surrogates(text))
    except ValueError:
        return
    assert repr(parsed(streamed([text], Replacing))) == repr(oracle(value))
