"""Masks against the most naive statement of what they mean: decode, fold, search, look at the edges."""

from __future__ import annotations

import codecs
import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from gateway.automata.edges import is_word_char
from gateway.decode.lens_mask import _joined
from gateway.decode.masks import BanMask, MaskCompiler, MaskState, WordBan
from gateway.policy.model import DEFAULT_FOLD, Fold, Rule
from tests.support.compiled import lens_of
from tests.support.decode_routes import BANNED, LEAKS, ROUTES, TOKENS, token_bytes

EXACT: frozenset[Fold] = frozenset()
ALL = frozenset(Fold)
STATES = 150  # met in each case; small vocabularies have fewer


def words(*texts: str, fold: frozenset[Fold] = DEFAULT_FOLD, whole_word: bool = False) -> WordBan:
    return WordBan(words=texts, fold=fold, whole_word=whole_word)


# -- the oracle --------------------------------------------------------------------------------------------------------


def certain(banned: Iterable[WordBan], data: bytes, ended: bool) -> set[tuple[str, str, int]]:
    """The matches that are certain in a text of bytes; `ended`: its end counts as an edge."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)
    found: set[tuple[str, str, int]] = set()
    for rule in banned:
        lens = lens_of(rule.fold)
        units: list[str] = []
        inner: set[int] = set()
        for char in text:
            folded, atomic, _ = lens.fold(char)
            if atomic:
                inner |= set(range(len(units) + 1, len(units) + len(folded)))
            units += folded
        whole = "".join(units)
        for word in map(lens.fold_word, rule.words):
            for begin in range(len(whole) - len(word) + 1):
                end = begin + len(word)
                if not whole.startswith(word, begin) or {begin, end} & inner:
                    continue
                if rule.whole_word and is_letter(word[0]) and begin and is_word_char(whole[begin - 1]):
                    continue
                if rule.whole_word and is_letter(word[-1]):
                    if end == len(whole) and not ended:
                        continue
                    if end < len(whole) and is_word_char(whole[end]):
                        continue
                found.add((str(lens), word, begin))
    return found


def is_letter(char: str) -> bool:
    return is_word_char(char)


def naive(banned: Sequence[WordBan], tokens: Sequence[bytes | None], said: bytes, last: bool) -> list[bool]:
    """For each token: does it make a match certain? The end of the text is the token None."""
    before = certain(banned, said, ended=False)
    return [
        bool(certain(banned, said + (token or b""), ended=last or token is None) - before)
        for token in tokens
    ]  # fmt: skip


# -- vocabularies ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """The last token ends the text."""

    name: str
    tokens: tuple[bytes | None, ...]
    banned: tuple[WordBan, ...]

    def mask(self) -> BanMask:
        return MaskCompiler(self.tokens, [len(self.tokens) - 1]).compile(self.banned)


def pieces(*texts: str | bytes) -> tuple[bytes | None, ...]:
    return (*(text.encode() if isinstance(text, str) else text for text in texts), None)


def single_bytes(text: str) -> list[bytes]:
    return [bytes([byte]) for byte in dict.fromkeys(text.encode())]


ABC = pieces("a", "b", "c", "ab", "bc", "abc", "ca", "bab", "cab", "abab", "xabx")
WORDY = pieces(
    "cat", "c", "at", "s", " ", " cat", "cat ", ".", "a", "t", "t.", "cat cat", " concat", "_", "ca", "1", ""
)
CUT = pieces("é", "e", b"\xc3", b"\xa9", b"\xa9t", b"t\xc3", "t", b"\xa9\xc3", b"\xff", " ", b"\xa9 t", "ét\u0301")
EMOJI = pieces(*single_bytes("😀ﬁß"), b"\x9f\x98", b"\x98\x80!", "a", "s", "😀", "f", "i", b"\xf0\x9f", "ss")
PLUS = pieces("c", "+", "++", "c+", " ", "d", "+d", "c++ ")
KOREAN = pieces("가", "나", "난", "\u1100", "\u1161", "\u1102", "\u1161나", b"\xea\xb0", b"\x80", "가난", " ")
PIECES = pieces(" ", " pass", "pass", "word", " p", "a", "s", "ss", "w", "ord", "ＰＡ", "\u200b", "\u00ad", "PASS", "W")

CASES = [
    Case("overlapping words", ABC, (words("abab", "bc"),)),
    Case("a word in a word", ABC, (words("ab", "cabab", "b"),)),
    Case("whole words", WORDY, (words("cat", whole_word=True),)),
    Case("whole words and parts", WORDY, (words("cat", whole_word=True), words("s.", "at c"))),
    Case("the same word both ways", WORDY, (words("cat", whole_word=True), words("cat"))),
    Case("a whole word with one edge", PLUS, (words("c++", whole_word=True),)),
    Case("cut characters", CUT, (words("ét", "été", fold=EXACT),)),
    Case("cut characters, whole words", CUT, (words("ét", "t", whole_word=True, fold=EXACT),)),
    Case("cut characters, without accents", CUT, (words("et", "te", fold=ALL),)),
    Case("characters of four bytes", EMOJI, (words("😀a", "!a"),)),
    Case("characters that fold to two", EMOJI, (words("sss", "fis", "ass"),)),
    Case("characters that fold to two, whole", EMOJI, (words("ss", "fi", whole_word=True),)),
    Case("syllables in letters", KOREAN, (words("가나", "나", fold=ALL),)),
    Case("syllables, whole", KOREAN, (words("가나", fold=ALL, whole_word=True), words("가 ", fold=EXACT))),
    Case("invisible and wide", PIECES, (words("password"),)),
    Case("invisible and wide, whole", PIECES, (words("password", "pa", whole_word=True),)),
    Case("two lenses", PIECES, (words("PASS", fold=EXACT), words("word", whole_word=True), words("ssw", fold=ALL))),
    Case("the replacement character at the end", CUT, (words("t\ufffd", fold=EXACT),)),
    Case("the replacement character in the middle", CUT, (words("t\ufffdt", "é\ufffd ", fold=EXACT),)),
    Case("the replacement character at the beginning", CUT, (words("\ufffdt", fold=EXACT),)),
    Case("the replacement character, whole", CUT, (words("t\ufffdt", fold=EXACT, whole_word=True),)),
    Case("the replacement character", CUT, (words("\ufffd", "t\ufffdt", fold=EXACT), words("t", whole_word=True))),
]  # fmt: skip


def random_case(seed: int) -> Case:
    chance = random.Random(seed)
    alphabet = chance.choice(["ab ", "aé ", "aß.s", "x가나 ", "aA😀", "e\u0301é_"])
    fold = chance.choice([EXACT, DEFAULT_FOLD, ALL])

    def text(longest: int) -> str:
        return "".join(chance.choices(alphabet, k=chance.randint(1, longest)))

    encoded = [text(4).encode() for _ in range(12)]
    # Cut somewhere, characters included: what byte-level merges leave.
    cut = [whole[chance.randrange(len(whole)) :] for whole in encoded] + [whole[:-1] for whole in encoded if whole[1:]]
    tokens = dict.fromkeys([*single_bytes(alphabet), *encoded, *cut])
    banned = tuple(
        words(*{text(3) for _ in range(2)}, fold=fold, whole_word=chance.random() < 0.5) for _ in range(2)
    )  # fmt: skip
    usable = [each for each in banned if all(lens_of(fold).fold_word(word) for word in each.words)]
    return Case(f"random {seed}", (*tokens, None), tuple(usable) or (words("a", fold=fold),))


def states(mask: BanMask, tokens: Sequence[bytes | None]) -> dict[MaskState, bytes]:
    """The states that can be reached, forbidden tokens included, each with one text that leads there."""
    known = {mask.start(): b""}
    waiting = deque(known)
    while waiting and len(known) < STATES:
        state = waiting.popleft()
        for number, token in enumerate(tokens):
            reached = mask.advance(state, number)
            if reached not in known:
                known[reached] = known[state] + (token or b"")
                waiting.append(reached)
    return known


def spellings(tokens: Sequence[bytes | None], text: bytes) -> Iterable[tuple[int, ...]]:
    """Every way to write `text` in tokens."""
    if not text:
        yield ()
    for number, token in enumerate(tokens):
        if token and text.startswith(token):
            for rest in spellings(tokens, text[len(token) :]):
                yield (number, *rest)


def is_blocked(mask: BanMask, route: Iterable[int]) -> bool:
    state = mask.start()
    for token in route:
        if mask.row(state)[token]:
            return True
        state = mask.advance(state, token)
    return False


@pytest.mark.parametrize("last", [False, True], ids=["", "last"])
@pytest.mark.parametrize("case", [*CASES, *map(random_case, range(40))], ids=lambda case: case.name)
def test_every_state(case: Case, last: bool) -> None:
    mask = case.mask()
    for state, said in states(mask, case.tokens).items():
        expected = naive(case.banned, case.tokens, said, last)
        writing = [flag for token, flag in zip(case.tokens, expected, strict=True) if token or token is None]
        if all(writing):
            assert mask.forbidden(state, last) is mask.only_end
            expected = [token is not None for token in case.tokens]
        wrong = [
            token
            for token, flag, right in zip(case.tokens, mask.row(state, last), expected, strict=True)
            if flag != right
        ]
        assert not wrong, said


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_resumed_answer_is_where_it_was(case: Case) -> None:
    mask = case.mask()
    chance = random.Random(1)
    for _ in range(50):
        route = chance.choices(range(len(case.tokens)), k=6)
        state = mask.start()
        for token in route:
            state = mask.advance(state, token)
        said = b"".join(case.tokens[token] or b"" for token in route)
        assert mask.feed(mask.start(), said) == state
        cut = chance.randrange(len(said) + 1)
        assert mask.feed(mask.feed(mask.start(), said[:cut]), said[cut:]) == state


@pytest.mark.parametrize("case", [*CASES, *map(random_case, range(40))], ids=lambda case: case.name)
def test_sampled_answers_are_clean(case: Case) -> None:
    mask = case.mask()
    chance = random.Random(2)
    for _ in range(20):
        state, said, exhausted = mask.start(), b"", False
        for step in range(12):
            last = step == 11
            exhausted = mask.forbidden(state, last) is mask.only_end
            allowed = [token for token, flag in enumerate(mask.row(state, last)) if not flag]
            token = chance.choice(allowed)
            text = case.tokens[token]
            if text is None:
                break
            said += text
            state = mask.advance(state, token)
        assert exhausted or not certain(case.banned, said, ended=True)


# -- the published table -----------------------------------------------------------------------------------------------

SENTENCEPIECE = tuple(token_bytes(piece) for piece in TOKENS)
BYTE_LEVEL = tuple(
    dict.fromkeys(
        [bytes([byte]) for byte in range(256)] + [text for token in SENTENCEPIECE for text in (token, token[1:])]
    )
)


@pytest.fixture(scope="module", params=[SENTENCEPIECE, BYTE_LEVEL], ids=["sentencepiece", "byte-level"])
def tokens(request: pytest.FixtureRequest) -> tuple[bytes | None, ...]:
    return (*(token for token in request.param if token), None)


def masked(tokens: tuple[bytes | None, ...]) -> BanMask:
    return MaskCompiler(tokens, [len(tokens) - 1]).compile([words(*BANNED)])


def test_the_published_routes() -> None:
    mask = masked((*SENTENCEPIECE, None))
    numbers = {piece: number for number, piece in enumerate(TOKENS)}
    assert len(ROUTES) == 140 and len(TOKENS) == 56
    for route in (*ROUTES, *LEAKS):
        assert is_blocked(mask, [numbers[piece] for piece in route]), route


def test_every_other_spelling(tokens: tuple[bytes | None, ...]) -> None:
    mask = masked(tokens)
    found = 0
    for word in BANNED:
        for text in (word, " " + word, word.upper(), "t" + word, word + "u"):
            for route in spellings(tokens, text.encode()):
                found += 1
                assert is_blocked(mask, route), route
    assert found > len(ROUTES)


def test_other_words_are_left_alone(tokens: tuple[bytes | None, ...]) -> None:
    mask = masked(tokens)
    for text in ("tal", "liste", "fuck yo", "tall list", " t a l k"):
        routes = list(spellings(tokens, text.encode()))
        assert routes or "a l" in text
        assert not any(is_blocked(mask, route) for route in routes), text


# -- ways out, and errors ----------------------------------------------------------------------------------------------


def test_the_end_is_always_left() -> None:
    mask = MaskCompiler([b"ab", b" ", b"", None, None], [4]).compile([words("ab", whole_word=True), words("ba")])
    state = mask.advance(mask.start(), 0)
    assert mask.forbidden(state).exhausted
    assert mask.row(state).tolist() == [True, True, True, True, False]


def test_e14_ranges_that_touch_are_one() -> None:
    assert list(_joined([(5, 7), (0, 2), (2, 3), (6, 6), (3, 3)])) == [(0, 3), (5, 7)]
    assert list(_joined([])) == []


def test_rows_are_longer_than_vocabularies() -> None:
    mask = MaskCompiler([b"a", b"b", None], [2], width=8).compile([words("ab")])
    state = mask.advance(mask.start(), 0)
    assert mask.row(state).tolist() == [False, True] + [False] * 6
    assert mask.advance(state, 7) == state


def test_many_states_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.decode.masks.MAX_KEPT_STATES", 2)
    monkeypatch.setattr("gateway.decode.masks.MAX_KEPT_STEPS", 3)
    monkeypatch.setattr("gateway.decode.masks.MAX_SHARED", 2)
    monkeypatch.setattr("gateway.decode.lens_mask.MAX_HEADED", 1)
    for case in (CASES[4], CASES[7]):
        mask = case.mask()
        for state, said in states(mask, case.tokens).items():
            if not mask.forbidden(state).exhausted:
                assert mask.row(state).tolist() == naive(case.banned, case.tokens, said, False)
            assert len(mask._known) <= 2 and len(mask._steps) <= 3
            assert mask._kept_ids == sum(len(kept.tokens) for kept in mask._known.values())
            assert all(lens._headed.cache_info().currsize <= 1 for lens in mask._lenses)
        assert len(mask.shared) == 2


def test_e14_many_ids_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.decode.masks.MAX_KEPT_IDS", 6)
    mask = CASES[0].mask()
    kept: list[int] = []
    for state in states(mask, CASES[0].tokens):
        size = len(mask.forbidden(state).tokens)
        kept.append(sum(len(each.tokens) for each in mask._known.values()))
        assert kept[-1] == mask._kept_ids <= max(6, size)
    assert max(kept) > 3 and any(after < before for before, after in pairwise(kept))


@pytest.mark.parametrize(
    ("end", "banned", "message"),
    [
        ([], [words("a")], "needs the tokens that end a text"),
        ([3], [words("a")], "end token 3: the vocabulary has 2 tokens"),
        ([1], [], "at least one banned word"),
        ([1], [words("\u200b")], "empty when seen through the lens"),
    ],
)
def test_errors(end: list[int], banned: list[WordBan], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskCompiler([b"a", None], end).compile(banned)


def test_only_words_are_masked() -> None:
    assert WordBan.of(Rule(id="a", words=("b",), whole_word=True)) == words("b", whole_word=True)
    with pytest.raises(ValueError, match="rule 'a': only words can be masked"):
        WordBan.of(Rule(id="a", pattern="b+"))


def test_words_are_not_shown() -> None:
    assert "swordfish" not in repr(words("swordfish"))
