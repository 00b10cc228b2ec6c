"""Where to cut, what to ban, when to give up; and how near that keeps to what the model would say without the word."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.decode.generate import Finish, Rollback, generate
from gateway.decode.rollback import Attempts, Caps, token_of
from gateway.decode.vocabulary import Vocabulary
from gateway.policy.model import Rule
from loadtest import distributions
from tests.support.examples import examples

UNLIMITED = Caps(per_position=10**6, per_answer=10**6)


def after(ledger: Attempts, *matches: tuple[int, int]) -> Attempts:
    for position, token in matches:
        following = ledger.after_match(position, token)
        assert following is not None
        ledger = following
    return ledger


# -- decisions ---------------------------------------------------------------------------------------------------------


def test_the_model_draws_again_once_and_then_tokens_are_banned() -> None:
    once = after(Attempts(), (3, 7))
    assert once.banned(3) == frozenset()
    assert after(once, (3, 7)).banned(3) == {7}
    assert after(once, (3, 8)).banned(3) == {8}
    assert after(once, (3, 7), (3, 8)).banned(3) == {7, 8}
    assert after(once, (3, 7)).banned(2) == after(once, (3, 7)).banned(4) == frozenset()


def test_at_temperature_0_tokens_are_banned_at_once() -> None:
    assert after(Attempts(at_once=True), (3, 7), (3, 8)).banned(3) == {7, 8}


def test_bans_of_later_positions_are_dropped_when_an_earlier_one_changes() -> None:
    ledger = after(Attempts(at_once=True), (2, 1), (5, 7), (9, 8))
    assert (ledger.banned(2), ledger.banned(5), ledger.banned(9)) == ({1}, {7}, {8})
    cut = after(ledger, (5, 6))
    assert (cut.banned(2), cut.banned(5), cut.banned(9)) == ({1}, {6, 7}, frozenset())
    # What was tried is dropped with it: the model draws again there before anything is banned.
    assert after(Attempts(), (5, 7), (2, 1), (5, 7)).banned(5) == frozenset()


def test_a_dead_end_is_banned_at_once() -> None:
    ledger = Attempts().after_dead_end(4, 9)
    assert ledger is not None
    assert ledger.banned(4) == {9}


def test_caps_for_a_position_and_for_the_answer() -> None:
    ledger = after(Attempts(Caps(per_position=2, per_answer=4)), (1, 5), (1, 5))
    assert ledger.after_match(1, 6) is None
    assert ledger.after_dead_end(1, 6) is None
    ledger = after(ledger, (3, 5), (3, 5))
    assert ledger.rollbacks == 4
    assert ledger.after_match(7, 5) is None
    # A position counts again behind a text that has changed.
    assert after(Attempts(Caps(2, 9)), (3, 5), (3, 5), (1, 5), (3, 5), (3, 5)).rollbacks == 5


PARTS = st.lists(
    st.sampled_from([b"a", "é".encode(), "日".encode(), "😀".encode(), b"\xff", b"\x80", b"\xe6\x97", b"\xf0\x9f"])
)


@settings(max_examples=examples(500), deadline=None)
@given(PARTS, st.lists(st.integers(0, 20)))
def test_a_match_begins_in_the_token_of_its_first_byte(parts: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(parts)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[begin:end] for begin, end in pairwise(edges)]
    begin = 0
    for char in range(len(whole.decode("utf-8", "replace"))):
        token = next(place for place, end in enumerate(edges[1:]) if begin < end)
        assert token_of(pieces, char) == token
        lengths = (size for size in (4, 3, 2) if begin + size <= len(whole))
        begin += next((size for size in lengths if len(whole[begin : begin + size].decode("utf-8", "replace")) == 1), 1)
    with pytest.raises(IndexError):
        token_of(pieces, len(whole.decode("utf-8", "replace")))


# -- the distribution of answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "drawn_to, published",
    [(6.0, (0.77, 0.195, 0.046, 0.027)), (60.0, (0.48, 0.476, 0.088, 0.072))],
    ids=["77 % are clean", "48 % are clean"],
)
def test_rollback_is_four_times_nearer_to_the_exact_distribution_than_a_mask_of_the_last_token(
    drawn_to: float, published: tuple[float, ...]
) -> None:
    """`published`: docs/decode.md, mean over the models: clean, masked, banned at once, drawn again."""
    rows = []
    mask = distributions.ban_mask(5)
    for seed in range(5):
        model = distributions.random_model(seed, size=5, drawn_to=(1, drawn_to, drawn_to))
        share, true = distributions.without_word(model, 6)
        masked = distributions.distance(distributions.masked(model, 6, mask), true)
        banned = distributions.distance(distributions.rolled_back(model, 6, Attempts(UNLIMITED, at_once=True)), true)
        drawn_again = distributions.distance(distributions.rolled_back(model, 6, Attempts(UNLIMITED)), true)
        assert masked > 4 * drawn_again
        rows.append((share, masked, banned, drawn_again))
    mean = np.mean(rows, axis=0)
    assert mean == pytest.approx(published, abs=0.005)
    assert mean[1] > 4 * mean[2] > 4 * mean[3]


class Branches:
    """Draws every way there is to draw: as many runs as there are ways, each with its probability."""

    def __init__(self) -> None:
        self.ways: list[tuple[list[int], float]] = [([], 1.0)]

    def next(self) -> None:
        self.way, self.share = self.ways.pop()
        self.at = 0

    def __call__(self, probabilities: np.ndarray) -> int:
        if self.at == len(self.way):
            first, *others = np.flatnonzero(probabilities).tolist()
            self.ways += [([*self.way, other], self.share * probabilities[other]) for other in others]
            self.way = [*self.way, first]
            self.share *= probabilities[first]
        self.at += 1
        return self.way[self.at - 1]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_loop_has_the_distribution_of_its_decisions(temperature: float) -> None:
    vocabulary = Vocabulary([b"a", b"b", b"c", None], end=[3])
    model = distributions.random_model(1, size=3, drawn_to=(1, 4, 4))

    def log_probabilities(prefixes: list[tuple[int, ...]]) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log([[*distributions.next_token(model, prefix), 0.0] for prefix in prefixes])

    rollback = Rollback((Rule(id="word", words=("abc",), fold=frozenset()),), UNLIMITED)
    branches = Branches()
    said = np.zeros((3,) * 4)
    while branches.ways:
        branches.next()
        answer = generate(
            log_probabilities,
            [],
            vocabulary,
            rollback=rollback,
            max_tokens=4,
            temperature=temperature,
            choose=branches,
        )
        assert answer.finish is Finish.LENGTH and "abc" not in answer.text
        said[answer.tokens] += branches.share
    powers = {place: steps ** (1 / temperature) for place, steps in model.items()}
    normalized = {place: steps / steps.sum() for place, steps in powers.items()}
    expected = distributions.rolled_back(normalized, 4, Attempts(UNLIMITED))
    assert said.sum() == pytest.approx(1)
    assert distributions.distance(said, expected) < 1e-9
