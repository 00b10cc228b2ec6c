"""Lists of numbers in requests: what they spell is read, and under unknown names they are `unknown`."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.guard.prompt import BadRequest, guard_prompt
from gateway.policy.model import Action, Direction, Mode, Unknown
from tests.support.guard_client import WORD, policy, rule

INPUT = frozenset({Direction.INPUT})
CODES = [ord(char) for char in f"a {WORD}"]
CLEAN = [ord(char) for char in "harmless"]


def guarded(given: Any, **body: Any) -> tuple[dict[str, Any], Any]:
    found = guard_prompt(body, compile_policy(given))
    return body, found


@pytest.mark.parametrize("name", ["output_ids", "context", "bytes", "stop_token_ids"])
@pytest.mark.parametrize("codes", [CODES, [float(code) for code in CODES], list(f"é {WORD}".encode())])
def test_a_list_that_spells_a_match_is_emptied_wherever_it_stands(name: str, codes: list[int]) -> None:
    message = {"role": "user", "content": "x", name: codes, "deeper": [{name: [CLEAN, codes]}]}
    body, found = guarded(policy(rule(apply_to=INPUT)), messages=[message], **{name: codes, "clean": CLEAN})
    assert body == {
        "messages": [{"role": "user", "content": "x", name: [], "deeper": [{name: [CLEAN, []]}]}],
        name: [],
        "clean": CLEAN,
    }
    assert found.rule is None and len(found.scanned.matches) == 1 and found.scanned.matches[0].count == 3


def test_a_list_that_spells_what_is_blocked_blocks() -> None:
    _, found = guarded(policy(rule(action=Action.BLOCK, apply_to=INPUT)), messages=[], bytes=CODES)
    assert found.rule is not None and found.rule.id == "r"


def test_a_list_under_an_unknown_name_is_what_the_policy_says() -> None:
    given = {"messages": [{"role": "user", "context": CLEAN}], "stop_token_ids": CLEAN}
    body, _ = guarded(policy(rule(apply_to=INPUT), unknown=Unknown.DROP), **given)
    assert body == {"messages": [{"role": "user", "context": []}], "stop_token_ids": CLEAN}
    _, found = guarded(policy(rule(apply_to=INPUT), unknown=Unknown.REFUSE), messages=[], context=CLEAN)
    assert isinstance(found.refusal, BadRequest)
    observed = policy(rule(apply_to=INPUT), unknown=Unknown.REFUSE, mode=Mode.OBSERVE)
    body, found = guarded(observed, messages=[], context=CODES)
    assert body["context"] == CODES and found.refusal is None and len(found.scanned.matches) == 1


def test_scores_and_vectors_are_left_alone() -> None:
    body, _ = guarded(policy(rule("12", apply_to=INPUT), unknown=Unknown.DROP), messages=[], scores=[0.12, -1.5])
    assert body["scores"] == [0.12, -1.5]
