"""Banned words as masks over a model's next token: exact, for every way to spell a word in tokens.

    compiler = MaskCompiler(tokens, end_tokens)        # once for each tokenizer
    mask = compiler.compile([WordBan.of(rule)])    # once for each policy
    state = mask.start()
    logits[mask.row(state)] = -inf                     # before each token
    state = mask.advance(state, token)                 # after it

The text of an answer whose tokens are chosen so holds no match of the rules as `gateway.censor` finds them. There are
three exceptions, for which the censor stands behind: where a mask is `exhausted` only the end of the text is left,
though it may make a waiting word certain; a text that is cut where `last` was not set ends with an edge; and a caller
whose own constraints leave nothing beside the mask may have to ignore it.

On the safe side: under `accents` a word that begins with a vowel or final letter of Hangul is also found inside a
syllable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gateway.automata.edges import is_word_char
from gateway.censor.lens import Lens
from gateway.decode.folded_vocabulary import Flags, FoldedVocabulary, Ids
from gateway.decode.lens_mask import Edges, LensMask, LensState, Sets
from gateway.decode.maskfile import WordBan as WordBan
from gateway.policy.model import Fold

# What a mask keeps of the states that it has met: 32 MB of token ids, and sets of flags of which there are few.
MAX_KEPT_IDS = 4_000_000
MAX_KEPT_STATES = 20_000
MAX_KEPT_STEPS = 50_000  # some 15 MB
MAX_SHARED = 64

MaskState = tuple[LensState, ...]  # one for each lens; a plain value, to be kept and compared


@dataclass(frozen=True, slots=True)
class Forbidden:
    """The tokens that must not come next: those flagged in `BanMask.shared[shared]` and those in `tokens` (token ids).

    `ranges`: as how many ranges of the sorted vocabulary `tokens` was found. `exhausted`: only the tokens that end the
    text are left, since every other was forbidden.
    """

    shared: int
    tokens: Ids
    ranges: int
    exhausted: bool


class BanMask:
    """The words of one policy over one vocabulary. States are its caller's; a mask may serve any number of texts.

    `shared` grows with the kinds of states met, up to `MAX_SHARED` arrays of `width` flags, and never changes
    otherwise.
    """

    def __init__(self, lenses: Sequence[LensMask], end_tokens: frozenset[int], width: int) -> None:
        self.width = width
        self.end_tokens = np.array(sorted(end_tokens), dtype=np.int64)
        self._lenses = tuple(lenses)
        nothing, only_end = np.zeros(width, dtype=np.bool_), np.ones(width, dtype=np.bool_)
        only_end[self.end_tokens] = False
        self.shared: list[Flags] = [nothing, only_end]
        self.only_end = Forbidden(1, self.end_tokens[:0], 0, exhausted=True)
        # Tokens that neither write nor end lead nowhere: to leave only them is to leave nothing.
        self._idle = np.setdiff1d(lenses[0].vocabulary.silent, self.end_tokens)
        self._shared_of: dict[tuple[Sets, ...], int] = {}
        self._known: dict[tuple[MaskState, bool], Forbidden] = {}
        self._steps: dict[tuple[MaskState, int], MaskState] = {}
        self._kept_ids = 0

    def start(self) -> MaskState:
        """The state before any text."""
        return tuple(lens.start() for lens in self._lenses)

    def advance(self, state: MaskState, token: int) -> MaskState:
        """The state after a token, forbidden or not."""
        # Texts come back to few states, by tokens of which some are frequent.
        reached = self._steps.get((state, token))
        if reached is None:
            reached = tuple(lens.advance(at, token) for lens, at in zip(self._lenses, state, strict=True))
            if len(self._steps) >= MAX_KEPT_STEPS:
                self._steps.clear()
            self._steps[state, token] = reached
        return reached

    def feed(self, state: MaskState, data: bytes) -> MaskState:
        """The state after some bytes of text: what a resumed answer holds already."""
        return tuple(lens.feed(at, data) for lens, at in zip(self._lenses, state, strict=True))

    def forbidden(self, state: MaskState, last: bool = False) -> Forbidden:
        """The forbidden next tokens; `last`: the text is cut after the next token."""
        known = self._known.get((state, last))
        if known is None:
            known = self._compute(state, last)
            self._kept_ids += len(known.tokens)
            if self._kept_ids > MAX_KEPT_IDS or len(self._known) >= MAX_KEPT_STATES:
                self._known.clear()
                self._kept_ids = len(known.tokens)
            self._known[state, last] = known
        return known

    def row(self, state: MaskState, last: bool = False, out: Flags | None = None) -> Flags:
        """The same as `width` flags, into `out` if it is given."""
        forbidden = self.forbidden(state, last)
        if out is None:
            out = self.shared[forbidden.shared].copy()
        else:
            np.copyto(out, self.shared[forbidden.shared])
        out[forbidden.tokens] = True
        return out

    def _compute(self, state: MaskState, last: bool) -> Forbidden:
        found = [lens.forbidden(at, last) for lens, at in zip(self._lenses, state, strict=True)]
        ranges = [
            lens.vocabulary.order[begin:end]
            for lens, parts in zip(self._lenses, found, strict=True)
            for begin, end in parts.ranges
        ]
        tokens = np.concatenate([np.zeros(0, dtype=np.int64), *ranges, *(parts.singles for parts in found)])
        shared, others = self._share(tuple(parts.sets for parts in found))
        if others is not None:
            tokens = np.union1d(tokens, others)
        flags = self.shared[shared].copy()
        flags[tokens] = True
        flags[self._idle] = True
        if flags.all():
            return self.only_end
        return Forbidden(shared, tokens, len(ranges), exhausted=False)

    def _share(self, sets: tuple[Sets, ...]) -> tuple[int, Ids | None]:
        """The number of the flags for these sets; or 0 and the same as ids, when no more flags are kept."""
        number = self._shared_of.get(sets)
        if number is not None:
            return number, None
        flags = np.zeros(self.width, dtype=np.bool_)
        for lens, each in zip(self._lenses, sets, strict=True):
            flags |= lens.shared(each)
        if any(each.pending for each in sets):
            flags[self.end_tokens] = True
        if len(self.shared) >= MAX_SHARED:
            return 0, np.flatnonzero(flags)
        flags.setflags(write=False)
        self.shared.append(flags)
        self._shared_of[sets] = len(self.shared) - 1
        return self._shared_of[sets], None


class MaskedAnswer:
    """The tokens of one answer. `kept`: the tokens it had before it was resumed; `limit`: so many tokens may
    follow; `not_first`: ids forbidden as the first of them.

    A token that the server does not report (a placeholder below 0) makes the answer `lost`: its text is unknown, and
    all that may follow is its end.
    """

    __slots__ = ("_limit", "_not_first", "_state", "count", "lost", "mask")

    def __init__(
        self, mask: BanMask, kept: Sequence[int] = (), limit: int | None = None, not_first: Sequence[int] = ()
    ) -> None:
        self.mask = mask
        self._limit = limit
        self._not_first: Ids = np.array([token for token in not_first if token < mask.width], dtype=np.int64)
        self._state = mask.start()
        self.count = 0
        self.lost = False
        self.add(kept)
        self.count = 0

    def add(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        for token in tokens:
            if token < 0:
                self.lost = True
            else:
                self._state = self.mask.advance(self._state, token)
        self.count += len(tokens)

    def forbidden(self) -> tuple[Forbidden, Ids]:
        """The forbidden next tokens: by the mask, and other token ids."""
        if self.lost:
            return self.mask.only_end, self._not_first[:0]
        last = self._limit is not None and self.count + 1 >= self._limit
        return self.mask.forbidden(self._state, last), self._not_first[: 0 if self.count else None]


class MaskCompiler:
    """Makes masks for one tokenizer, whose vocabulary is folded once for each lens.

    `tokens[i]`: the bytes that token `i` adds to the text, None for one that adds none. `width`: the number of logits
    in a row, where that is more. Raises ValueError if there is no end token, or one that is no token.
    """

    def __init__(self, tokens: Sequence[bytes | None], end_tokens: Iterable[int], width: int | None = None) -> None:
        self.width = len(tokens) if width is None else width
        self.end_tokens = frozenset(end_tokens)
        if not self.end_tokens:
            raise ValueError("a mask needs the tokens that end a text: without them it could leave nothing")
        for token in self.end_tokens:
            if not 0 <= token < self.width:
                raise ValueError(f"end token {token}: the vocabulary has {self.width} tokens")
        self._tokens = [None if number in self.end_tokens else data for number, data in enumerate(tokens)]
        self._folded: dict[frozenset[Fold], FoldedVocabulary] = {}

    def compile(self, banned: Iterable[WordBan]) -> BanMask:
        """Raises ValueError if a word is empty through its lens, or if nothing is banned."""
        by_lens: dict[frozenset[Fold], dict[str, Edges]] = {}
        for each in banned:
            words = by_lens.setdefault(each.fold, {})
            lens = Lens(each.fold)
            for word in each.words:
                text = lens.fold_word(word)
                if not text:
                    raise ValueError(f"a banned word is empty when seen through the lens {lens}: remove it")
                edges = Edges(each.whole_word and is_word_char(text[0]), each.whole_word and is_word_char(text[-1]))
                # The stricter of two: without an edge it is found wherever it would be with one.
                words[text] = edges if text not in words else min(edges, words[text])
        if not by_lens:
            raise ValueError("a mask needs at least one banned word")
        lenses = [LensMask(self._vocabulary(fold), words) for fold, words in by_lens.items()]
        return BanMask(lenses, self.end_tokens, self.width)

    def _vocabulary(self, fold: frozenset[Fold]) -> FoldedVocabulary:
        if fold not in self._folded:
            self._folded[fold] = FoldedVocabulary(self._tokens, Lens(fold), self.width)
        return self._folded[fold]
