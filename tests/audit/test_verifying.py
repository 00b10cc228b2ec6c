"""Asked again: what counts as said still, and that nothing of it is lost when the asking is stopped."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from gateway.audit.cli.gateway_client import GatewayClient, GatewaySampling
from gateway.audit.cli.plan import Plan
from gateway.audit.cli.verify import Verification, through_gateway, through_masks
from gateway.audit.matcher import RuleMatcher
from gateway.audit.model import LanguageModel, ModelError
from gateway.audit.models.masked import MaskedModel
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Decoding, LocalModel
from gateway.audit.run.interrupts import Ended, Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.progress import FoundString
from gateway.audit.run.runner import LocalRunner, PolicyTask
from gateway.audit.searches.best_first import Result
from gateway.audit.searches.policy import prompt_query
from gateway.policy.model import DEFAULT_MAX_HOLD, Decode, Policy, Rule
from gateway.progress import ProgressMeter
from tests.support.fake_gateway import Play, choices, gateway
from tests.support.naive_search import vocabulary_of

SECRET = Rule(id="secret", words=("12MONKEYS",))


def plan_of(prompts: Sequence[str], rules: tuple[Rule, ...], max_hold: int, max_tokens: int) -> Plan:
    queries = tuple(
        prompt_query(prompt, chat=False, decoding=Decoding(max_tokens=max_tokens), limit=100, source="prompts")
        for prompt in prompts
    )
    tasks = tuple(
        PolicyTask(query=query, prompt=prompt, number=at, rules=rules, max_hold=max_hold)
        for at, (query, prompt) in enumerate(zip(queries, prompts, strict=True), start=1)
    )
    policy = Policy(name="p", rules=rules, max_hold=max_hold)
    return Plan(
        model=LocalModel("m"),
        queries=queries,
        tasks=tasks,
        shown={},
        policy=policy,
        matcher=RuleMatcher(rules, max_hold),
    )


def found_for(prompts: Iterable[str]) -> list[FoundString]:
    """What it was does not matter."""
    return [FoundString(Result("x", (0,), -1.0, 0.0, -1.0, 1, 0), {"prompt": prompt}) for prompt in prompts]


def asked(
    play: Play, prompts: Sequence[str] = ("a", "b"), rule: Rule = SECRET, max_hold: int = DEFAULT_MAX_HOLD,
    interrupts: Interrupts | None = None,
) -> tuple[Verification, list[dict[str, Any]]]:  # fmt: skip
    """Ask a gateway, once greedily and for two samples."""
    out = io.StringIO()
    lines = LineWriter(ProgressMeter(io.StringIO()), out)
    plan = plan_of(prompts, (rule,), max_hold, 8)
    with (
        gateway(play) as (url, _),
        contextlib.closing(GatewayClient(url, "m")) as gate,
        interrupts or Interrupts() as interrupts,
    ):
        verified = through_gateway(
            plan, found_for(prompts), (rule,), gate, lambda _: GatewaySampling(samples=2), lines, interrupts
        )
    return verified, [json.loads(line)["still"] for line in out.getvalue().splitlines()]


def masked(rules: tuple[Rule, ...], model: LanguageModel, plan: Plan) -> Verification:
    lines = LineWriter(ProgressMeter(io.StringIO()), io.StringIO())
    with Interrupts() as interrupts:
        return through_masks(plan, rules, LocalRunner(model), lines, interrupts, float("-inf"))


def test_what_was_said_before_a_stop_counts() -> None:
    interrupts = Interrupts()

    def play(_: str, body: dict[str, Any]) -> tuple[int, bytes]:
        if "n" in body:
            interrupts.stop()
        return choices(*["12monkeys"] * body.get("n", 1))

    verified, still = asked(play, interrupts=interrupts)
    assert (verified.still, verified.ended, len(still)) == (3, Ended.INTERRUPTED, 3)
    assert verified.summary == {"through": "gateway", "still": 3, "questions": 1, "texts": 3, "ended": "interrupted"}


def test_what_was_said_to_half_a_question_counts() -> None:
    main, over = threading.main_thread().ident, threading.Event()
    assert main is not None

    def play(_: str, body: dict[str, Any]) -> tuple[int, bytes]:
        if "n" in body:
            signal.pthread_kill(main, signal.SIGALRM)  # as when time is up
            over.wait(60)
        return choices("12monkeys")

    try:
        verified, still = asked(play)
    finally:
        over.set()
    assert (verified.still, verified.ended, len(still)) == (1, Ended.TIMEOUT, 1)
    assert verified.summary == {"through": "gateway", "still": 1, "questions": 0, "texts": 1, "ended": "timeout"}


def test_a_match_may_be_as_long_as_the_policy_lets_it() -> None:
    word = "".join(map(str, range(500)))
    rule = Rule(id="long", words=(word,))
    assert len(word) > DEFAULT_MAX_HOLD
    verified, still = asked(lambda _, body: choices(*[word] * body.get("n", 1)), ["a"], rule, len(word))
    assert (verified.still, len(still)) == (3, 3)


def test_masked_strings_may_be_as_long_as_the_policy_lets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaskedModel, "of", lambda model, *_: model)
    word = "".join(map(str, range(500)))
    rule = Rule(id="long", words=(word,))
    plan = plan_of(["a"], (rule,), len(word), 1)
    assert masked((rule,), Toy(vocabulary_of("a", word)), plan).still == 1


def test_a_masked_word_where_an_answer_is_cut_is_said() -> None:
    # No mask knows where the answer is cut, so it waits for what comes behind the word.
    rule = Rule(id="whole", words=("b",), whole_word=True, decode=Decode.MASK)
    verified = masked((rule,), Toy(vocabulary_of("a", "b")), plan_of(["a"], (rule,), DEFAULT_MAX_HOLD, 1))
    assert (verified.still, verified.summary["others"]) == (1, 0)


def test_masks_need_a_token_that_ends_a_text() -> None:
    verified = masked((SECRET,), Toy(vocabulary_of("a", ends=0)), plan_of(["a"], (SECRET,), DEFAULT_MAX_HOLD, 1))
    assert verified.ended is Ended.FAILED and isinstance(verified.error, ModelError)
