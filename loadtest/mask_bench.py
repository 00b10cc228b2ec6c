"""Masks of banned words over large vocabularies: time to compile, time a row, ranges a mask; each checked.

    python -m loadtest.mask_bench

A vocabulary has the shape of a model's: the 256 bytes, words of a made-up language, their beginnings and ends, most of
them with a space before, some in capitals. The banned words are concatenations of two to four of its tokens, the
hardest case: every such word is spelled in many ways, and its rests are beginnings of many tokens. The texts that the
rows follow walk into banned words all the time, and never take a forbidden token.

`first` is a row with its update where the state was not met before, `later` where it was. Every mask of a sample of
states is compared with what feeding the token's text would do: a wrong answer fails, however fast.
"""

from __future__ import annotations

import codecs
import random
import sys
from dataclasses import dataclass
from itertools import product
from statistics import median
from time import thread_time_ns

import numpy as np

from gateway.automata.edges import is_word_char
from gateway.censor.lens import Lens
from gateway.decode.masks import BanMask, MaskCompiler, MaskState, WordBan
from gateway.policy.model import DEFAULT_FOLD

VOCABULARIES = (2_000, 32_000, 128_000)
WORDS = (10, 1_000)
STEPS = 4_000
PASSES = 3
SAMPLED_STATES = 25
LOOK_BACK = 100
SAMPLED_TOKENS = 300  # allowed ones, and as many forbidden ones

ROW_US, COMPILE_S = 10.0, 1.0  # what a row and a list may take
STEP_MS = 10.0  # a decoding step of a served model
BATCHES = (16, 64)

Walk = list[tuple[MaskState, int]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds for the vocabulary (once for a tokenizer and lens) and for the list; microseconds a row; mean and most
    ranges of a mask; wrong flags among those compared. Times are the processor's, so that others on it do not count."""

    tokens: int
    words: int
    whole: bool
    fold_s: float
    compile_s: float
    first_us: float
    later_us: float
    mean_ranges: float
    most_ranges: int
    compared: int
    wrong: int

    @property
    def fault(self) -> str:
        if self.wrong:
            return f"{self.wrong} wrong flags"
        if self.later_us > ROW_US:
            return f"more than {ROW_US:.0f} us a row"
        return f"more than {COMPILE_S:.0f} s to compile" if self.compile_s > COMPILE_S else ""


def vocabulary(size: int) -> list[bytes | None]:
    """Tokens in bytes; the last one ends the text."""
    chance = random.Random(size)
    syllables = [
        a + b for a in "bcdfghklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "ou", "st", "é")
    ]
    tokens = dict.fromkeys(bytes([byte]) for byte in range(256))
    while len(tokens) < size - 1:
        text = "".join(chance.choices(syllables, k=chance.choice((1, 1, 2, 2, 3, 4))))
        text = text.title() if chance.random() < 0.15 else text
        text = text[chance.randrange(2) :] if chance.random() < 0.3 else text
        tokens[(" " * (chance.random() < 0.6) + text).encode()] = None
    # What merges over bytes leave: characters cut in two.
    cut = [b"\xc3", b"\xa9", b"e\xc3", b"\xa9 n", b"\xe4\xbd", b"\xa0", b"\xf0\x9f\x98", b"\x80\xf0\x9f"]
    return [*dict.fromkeys([*list(tokens)[: size - 1 - len(cut)], *cut]), None]


def listed(tokens: list[bytes | None], count: int) -> tuple[str, ...]:
    """Banned words: concatenations of tokens, of five letters at least, since shorter ones would ban half of them."""
    chance = random.Random(count)
    whole = [token.decode() for token in tokens[256:-1] if token and token.decode("utf-8", "ignore").encode() == token]
    found: dict[str, None] = {}
    while len(found) < count:
        word = "".join(chance.choices(whole, k=chance.choice((2, 2, 3, 4)))).strip()
        if len(word) >= 5:
            found[word] = None
    return tuple(found)


def walk(mask: BanMask, tokens: list[bytes | None], routes: list[list[int]]) -> Walk:
    """States with the token taken there: half of the time along a banned word, until its mask says no."""
    chance = random.Random(len(routes))
    taken: Walk = []
    state = mask.start()
    while len(taken) < STEPS:
        if mask.forbidden(state).exhausted:
            state = mask.start()  # the text ends, the next one begins
        route = chance.choice(routes) if chance.random() < 0.5 else [chance.randrange(len(tokens) - 1)]
        for token in route:
            if mask.row(state)[token]:
                break
            taken.append((state, token))
            state = mask.advance(state, token)
    return taken[:STEPS]


def spelled(tokens: list[bytes | None], banned: tuple[str, ...]) -> list[list[int]]:
    """One way to spell each word after a space, a token at random among those that fit."""
    chance = random.Random(0)
    numbers = {token: number for number, token in enumerate(tokens) if token}
    routes: list[list[int]] = []
    for word in banned:
        rest, route = word.encode(), [numbers[b" "]]
        while rest:
            fitting = [length for length in range(1, len(rest) + 1) if rest[:length] in numbers]
            length = chance.choice(fitting)
            route.append(numbers[rest[:length]])
            rest = rest[length:]
        routes.append(route)
    return routes


def rows_us(mask: BanMask, taken: Walk) -> float:
    """Microseconds a row, of the processor: its mask as flags, and the update after its token."""
    out = np.empty(mask.width, dtype=np.bool_)
    begin = thread_time_ns()
    for state, token in taken:
        mask.row(state, out=out)
        mask.advance(state, token)
    return (thread_time_ns() - begin) / len(taken) / 1000


def copy_us(width: int) -> float:
    """Microseconds that copying a row's flags takes alone: what the machine allows at best."""
    flags, out = np.zeros(width, dtype=np.bool_), np.empty(width, dtype=np.bool_)
    begin = thread_time_ns()
    for _ in range(STEPS):
        np.copyto(out, flags)
    return (thread_time_ns() - begin) / STEPS / 1000


def compare(
    mask: BanMask, tokens: list[bytes | None], banned: tuple[str, ...], whole: bool, taken: Walk
) -> tuple[int, int]:
    """How many flags were compared with a search in the text itself, and how many were wrong."""
    chance = random.Random(1)
    lens = Lens(DEFAULT_FOLD)
    folded = {lens.fold_word(word) for word in banned}
    compared = wrong = 0
    for index in chance.sample(range(len(taken)), SAMPLED_STATES):
        # Every token has a byte at least, so no word that is still possible began further back.
        begin = index
        while begin and taken[begin][0] != mask.start() and index - begin < LOOK_BACK:
            begin -= 1
        said = b"".join(tokens[token] or b"" for _, token in taken[begin:index])
        before = len(lens.fold_word(_text(said)))
        flags = mask.row(taken[index][0])
        hit = np.flatnonzero(flags[:-1])
        for token in {*chance.sample(range(len(tokens) - 1), SAMPLED_TOKENS), *hit[:SAMPLED_TOKENS].tolist()}:
            text = lens.fold_word(_text(said + (tokens[token] or b"")))
            wrong += bool(flags[token]) != any(_certain(text, word, whole, before) for word in folded)
            compared += 1
    return compared, wrong


def _text(data: bytes) -> str:
    """Without the character at the end that is not finished."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def _certain(text: str, word: str, whole: bool, before: int) -> bool:
    """Is the word in the text, certain not before its last token, which begins at `before` or one earlier?"""
    at = text.find(word, max(0, before - 1 - len(word)))
    while at >= 0 and whole:
        end = at + len(word)
        if (not at or not is_word_char(text[at - 1])) and end < len(text) and not is_word_char(text[end]):
            return True
        at = text.find(word, at + 1)
    return at >= 0


def measure(size: int, count: int, whole: bool) -> Timing:
    tokens = vocabulary(size)
    banned = listed(tokens, count)
    rule = WordBan(words=banned, fold=DEFAULT_FOLD, whole_word=whole)
    compiler = MaskCompiler(tokens, [len(tokens) - 1])
    begin = thread_time_ns()
    compiler.compile([WordBan(words=("\N{SNOWMAN}",), fold=DEFAULT_FOLD)])
    folded = thread_time_ns()
    mask = compiler.compile([rule])
    compiled = thread_time_ns()
    taken = walk(mask, tokens, spelled(tokens, banned))
    ranges = [mask.forbidden(state).ranges for state, _ in taken]
    fresh = compiler.compile([rule])
    first = rows_us(fresh, taken)
    later = median(rows_us(fresh, taken) for _ in range(PASSES))
    compared, wrong = compare(mask, tokens, banned, whole, taken)
    return Timing(
        tokens=size,
        words=count,
        whole=whole,
        fold_s=(folded - begin) / 1e9,
        compile_s=(compiled - folded) / 1e9,
        first_us=first,
        later_us=later,
        mean_ranges=sum(ranges) / len(ranges),
        most_ranges=max(ranges),
        compared=compared,
        wrong=wrong,
    )


def main() -> int:
    print("tokens   words  whole  fold s  compile s  first us  later us  ranges mean/most  compared  wrong")
    timings: list[Timing] = []
    for size, count, whole in product(VOCABULARIES, WORDS, (False, True)):
        timing = measure(size, count, whole)
        timings.append(timing)
        print(
            f"{size:7,}  {count:5,}  {'yes' if whole else 'no':>5}  {timing.fold_s:6.2f}  {timing.compile_s:9.2f}  "
            f"{timing.first_us:8.1f}  {timing.later_us:8.1f}  {timing.mean_ranges:8.1f} /{timing.most_ranges:6,}  "
            f"{timing.compared:8,}  {timing.wrong:5}  {timing.fault}",
            flush=True,
        )
    print(f"of a row, {copy_us(VOCABULARIES[-1]):.1f} us are the copying of {VOCABULARIES[-1]:,} flags")
    worst = max(timing.later_us for timing in timings)
    for batch in BATCHES:
        share = batch * worst / 1000 / STEP_MS
        print(f"{batch} rows: {share:.1%} of a decoding step of {STEP_MS:.0f} ms")
    return int(any(timing.fault for timing in timings))


if __name__ == "__main__":
    sys.exit(main())
