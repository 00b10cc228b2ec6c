"""A policy that a request asks for is added to that of its route, which never gets weaker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.censor.compile import compile_policy
from gateway.censor.stream import Censor
from gateway.policy.combine import combine
from gateway.policy.model import Action, Channel, ClientKey, Direction, Mode, Overflow, Policy, Route, Rule, Unknown
from tests.support.gateway import RULES, RunningGateway, config_for, error_of, question, running
from tests.support.policies import read, refused, text_of
from tests.support.upstream import Upstream as PlayedUpstream
from tests.support.upstream import completion, plain, playing, sending

SECOND = "x-portcullis-policy"
EXTRA = Policy(
    name="extra",
    on_request=True,
    rules=(
        Rule(id="colour", words=("purple",), replacement="[COLOUR]"),
        Rule(id="name", words=("Gandalf",), action=Action.BLOCK, apply_to=frozenset({Direction.INPUT})),
        Rule(id="password", words=("swordfish",), replacement="[FISH]"),
    ),
)


@asynccontextmanager
async def before(text: str, **settings: Any) -> AsyncIterator[tuple[RunningGateway, PlayedUpstream]]:
    async with playing(sending(plain(completion(text)))) as upstream:
        config = config_for(upstream.base_url, **settings)
        hidden = Policy(name="hidden", rules=EXTRA.rules)
        async with running(replace(config, policies={**config.policies, "extra": EXTRA, "hidden": hidden})) as gateway:
            yield gateway, upstream


async def test_the_rules_of_both_act() -> None:
    async with before("a purple 12MONKEYS swordfish") as (gateway, upstream):
        answer = await gateway.post(question(), {SECOND: "extra"})
        assert answer.json()["choices"][0]["message"]["content"] == "a [COLOUR] [CENSORED] [FISH]"
        assert answer.headers[SECOND] == "default+extra" and SECOND not in upstream.calls[0].request.headers
        assert error_of(await gateway.post(question("Gandalf?"), {SECOND: "extra"}), 400)["param"] == "name"
        assert error_of(await gateway.post(question("a detonator"), {SECOND: "extra"}), 400)["param"] == "prompt-stop"
        for headers in ({}, {SECOND: "default"}):
            plain_answer = await gateway.post(question("Gandalf?"), headers)
            assert plain_answer.json()["choices"][0]["message"]["content"] == "a purple [CENSORED] swordfish"
            assert plain_answer.headers[SECOND] == "default"
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_matches_total", policy="default+extra", rule="extra:password") == 1
        assert metrics.value("portcullis_requests_total", policy="default+extra") == 3


@pytest.mark.parametrize("name", ["hidden", "open", "unknown", "", "extra,default", "default+extra", "Extra"])
async def test_a_policy_that_may_not_be_asked_for(name: str) -> None:
    async with before("fine") as (gateway, upstream):
        error = error_of(await gateway.post(question(), {SECOND: name}), 400)
        assert (error["code"], error["param"]) == ("policy_not_allowed", SECOND) and not upstream.calls


@pytest.mark.parametrize("second", ["extra", "default"])
async def test_two_of_them_are_not_read_as_one(second: str) -> None:
    """A proxy that adds its own behind the client's must not be overruled."""
    async with before("fine") as (gateway, upstream):
        headers = [(SECOND, "default"), (SECOND, second)]
        answer = await gateway.client.post("/v1/chat/completions", json=question(), headers=headers)
        assert error_of(answer, 400)["code"] == "policy_not_allowed" and not upstream.calls


async def test_a_key_asks_for_what_it_may_use() -> None:
    keys = (
        ClientKey.of("sk-all", "all"),
        ClientKey.of("sk-both", "both", policies=frozenset({"default", "extra"})),
        ClientKey.of("sk-one", "one", policies=frozenset({"default"})),
    )
    async with before("purple", keys=keys) as (gateway, _):
        for key, status in (("sk-all", 200), ("sk-both", 200), ("sk-one", 400)):
            answer = await gateway.post(question(), {SECOND: "extra", "x-api-key": key})
            assert answer.status_code == status and ("purple" in answer.text) is False


async def test_moderations_and_routes_without_rules() -> None:
    routes = (Route(model="*", upstream="played", policy="open"),)
    async with before("purple", routes=routes) as (gateway, _):
        assert "[COLOUR]" in (await gateway.post(question(), {SECOND: "extra"})).text
        answer = await gateway.client.post("/v1/moderations", json={"input": "Gandalf"}, headers={SECOND: "extra"})
        assert answer.json()["results"][0]["categories"] == {"colour": False, "name": True, "password": False}


# -- combining ---------------------------------------------------------------------------------------------------------

WORDS = ("ab", "bc", "abc", "ca")
RULE = st.builds(
    Rule,
    id=st.sampled_from("rs"),
    words=st.sets(st.sampled_from(WORDS), min_size=1).map(tuple),
    action=st.sampled_from([Action.REDACT, Action.BLOCK, Action.FLAG]),
    replacement=st.just("-"),
)
POLICY = st.builds(
    lambda rules, **fields: Policy(rules=tuple({rule.id: rule for rule in rules}.values()), **fields),
    rules=st.lists(RULE, max_size=2),
    name=st.just("p"),
    mode=st.sampled_from(Mode),
)


@given(POLICY, POLICY, st.text("abcx", max_size=12))
def test_nothing_that_a_policy_takes_out_comes_back(policy: Policy, added: Policy, text: str) -> None:
    """Every word that the rules of either take out of a text is out of it under both."""
    added = replace(added, name="q")
    censor = Censor(compile_policy(combine(policy, added)).program(Direction.OUTPUT, Channel.CONTENT))
    shown = censor.feed(text) + censor.finish()
    for each in (policy, added):
        alone = Censor(compile_policy(each).program(Direction.OUTPUT, Channel.CONTENT))
        alone_shown = alone.feed(text) + alone.finish()
        for word in WORDS:
            if word in text and word not in alone_shown and each.mode is Mode.ENFORCE:
                assert word not in shown
        assert censor.blocked is not None or alone.blocked is None
        assert len(censor.matches) >= len(alone.matches) or censor.blocked is not None


def test_the_stricter_setting_holds() -> None:
    lax = Policy(name="a", max_hold=10, on_overflow=Overflow.RELEASE, unknown=Unknown.DROP, rules=RULES)
    strict = Policy(name="b", max_hold=20, on_overflow=Overflow.BLOCK, unknown=Unknown.SCAN, rules=RULES)
    for one, other in ((lax, strict), (strict, lax)):
        both = combine(one, other)
        assert (both.max_hold, both.on_overflow, both.unknown) == (20, Overflow.BLOCK, Unknown.DROP)
        assert both.rules == RULES and both.name == f"{one.name}+{other.name}"
    observing = replace(strict, mode=Mode.OBSERVE)
    both = combine(lax, observing)
    assert both.mode is Mode.ENFORCE and both.on_overflow is Overflow.RELEASE
    assert [rule.action for rule in both.rules] == [rule.action for rule in RULES] + [
        Action.FLAG for rule in RULES if rule.action is not Action.FLAG
    ]
    assert combine(observing, replace(lax, mode=Mode.OBSERVE)).mode is Mode.OBSERVE


REFUSED = {
    "pseudonymize": "rules: [{id: r, words: [x], action: pseudonymize}]",
    "rollback": "rules: [{id: r, words: [x], action: rollback}]",
    "constrain": "constrain: {regex: a}",
    "mask": "rules: [{id: r, words: [x], decode: mask}]",
}


@pytest.mark.parametrize("fields", REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_asked_for(fields: str) -> None:
    text = text_of(policies=f"{{p: {{}}, q: {{on_request: true, {fields}}}}}")
    refused(text, "policies.q.on_request", "is not possible for a policy")


def test_the_keys() -> None:
    policies = read(text_of(policies="{p: {annotate: false}, q: {on_request: true}}")).policies
    assert (policies["p"].annotate, policies["p"].on_request) == (False, False)
    assert (policies["q"].annotate, policies["q"].on_request) == (None, True)
