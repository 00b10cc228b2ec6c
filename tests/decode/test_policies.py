"""Which words of a configuration's policies a model must not say, and under which names the file has them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.decode.maskfile import BannedPolicy, WordBan, banned_of
from gateway.policy.model import Action, Decode, Fold, Mode, Policy, Rule

MASKED = Rule(id="masked", words=("swordfish", "élan"), decode=Decode.MASK, whole_word=True)
BACK = Rule(id="back", words=("listen",), action=Action.ROLLBACK, fold=frozenset({Fold.CASE}))
BOTH = Rule(id="both", words=("talk",), action=Action.ROLLBACK, decode=Decode.MASK)
PATTERN = Rule(id="pattern", pattern="a+b", action=Action.ROLLBACK)
DETECTOR = Rule(id="detector", detector="email", action=Action.ROLLBACK)
OTHER = Rule(id="other", words=("redacted",))


@pytest.mark.parametrize(
    ("rules", "entries"),
    [
        ((), {}),
        ((OTHER, PATTERN, DETECTOR), {}),
        ((OTHER, MASKED), {"p": (MASKED,)}),
        ((BACK, OTHER), {"p/exhausted": (BACK,)}),
        ((BACK, PATTERN, MASKED, OTHER), {"p": (MASKED,), "p/exhausted": (BACK, MASKED)}),
        ((BOTH, BACK), {"p": (BOTH,), "p/exhausted": (BOTH, BACK)}),
        ((BOTH, MASKED, DETECTOR), {"p": (BOTH, MASKED)}),
        ((MASKED, PATTERN), {"p": (MASKED,)}),
    ],
)
def test_entries(rules: tuple[Rule, ...], entries: dict[str, tuple[Rule, ...]]) -> None:
    found = banned_of({"p": Policy(name="p", rules=rules)})
    assert found == {name: BannedPolicy.of([WordBan.of(rule) for rule in banned]) for name, banned in entries.items()}


def test_each_policy_has_its_own() -> None:
    found = banned_of({"a": Policy(name="a", rules=(MASKED,)), "b": Policy(name="b", rules=(MASKED, BACK))})
    assert list(found) == ["a", "b", "b/exhausted"]
    assert found["a"] == found["b"] != found["b/exhausted"]


def test_what_only_observes_bans_nothing() -> None:
    assert banned_of({"p": Policy(name="p", rules=(MASKED, BACK), mode=Mode.OBSERVE)}) == {}


def test_no_word_and_no_digest_is_shown() -> None:
    found = banned_of({"p": Policy(name="p", rules=(MASKED, BACK))})
    shown = repr(found)
    assert not any(word in shown for word in ("swordfish", "élan", "listen"))
    assert not any(policy.digest in shown for policy in found.values())


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from gateway.decode.maskfile import banned_of
from gateway.policy.model import Decode, Policy, Rule
print(*banned_of({"p": Policy(name="p", rules=(Rule(id="r", words=("w",), decode=Decode.MASK),))}))
"""


def test_numpy_is_not_needed_for_the_words() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("p\n", "")
