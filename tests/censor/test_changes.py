"""Offsets of the original, found in what came out."""

from __future__ import annotations

from gateway.censor.changes import MAX_CHANGES, Changes
from gateway.censor.compile import compile_policy
from gateway.censor.stream import Censor
from gateway.policy.model import Channel, Direction, Policy, Rule


def censored(text: str, *rules: Rule) -> tuple[str, Changes | None]:
    censor = Censor(compile_policy(Policy(name="p", rules=rules)).program(Direction.OUTPUT, Channel.CONTENT))
    return "".join([*map(censor.feed, text), censor.finish()]), censor.changes


def test_every_character_that_stays_is_found_again() -> None:
    given = "a ana b xyz ananá c ananana"
    for rules in ([Rule(id="r", words=("ana", "xy"))], [Rule(id="r", words=("ana",), mask="*", replacement="")]):
        shown, changes = censored(given, *rules)
        assert changes is not None
        kept = [at for at in range(len(given)) if not changes.overlap(at, at + 1)]
        assert "".join(given[at] for at in kept) == shown.replace("[REDACTED]", "").replace("*", "")
        assert all(shown[at + changes.shift(at)] == given[at] for at in kept)
    assert censored("nothing", Rule(id="r", words=("ana",)))[1] is None


def test_spans_that_touch_are_one() -> None:
    changes = Changes()
    changes.add(2, 4, 1)
    changes.add(4, 6, 5)
    assert (changes.shift(1), changes.shift(6)) == (0, 5) and changes.end_at(6) and not changes.end_at(4)
    assert changes.overlap(1, 3) and changes.overlap(5, 9) and changes.overlap(4, 4)
    assert not changes.overlap(0, 2) and not changes.overlap(6, 7) and not changes.overlap(2, 2)


def test_beyond_the_bound_nothing_is_known() -> None:
    changes = Changes()
    for at in range(MAX_CHANGES + 1):
        changes.add(10 * at, 10 * at + 1, at)
    last = 10 * MAX_CHANGES
    assert (
        not changes.overlap(last - 1, last)
        and changes.overlap(last - 1, last + 1)
        and changes.overlap(last + 5, last + 6)
    )


def test_places_in_replacements_that_touch_are_told_apart() -> None:
    shown, changes = censored("x 12a3 ab", Rule(id="r", words=("12", "a", "3"), replacement="[RR]"))
    assert changes is not None and shown == "x [RR][RR][RR] [RR]b"
    assert [changes.moved(at) for at in range(10)] == [0, 1, 2, 6, 6, 10, 14, 15, 19, 20]
    changes = Changes()
    for at in range(MAX_CHANGES + 1):
        changes.add(10 * at, 10 * at + 1, at)
    assert changes.moved(10 * MAX_CHANGES) == 10 * MAX_CHANGES + MAX_CHANGES - 1
    assert changes.moved(10 * MAX_CHANGES + 1) is None
