"""Which masks requests ask for, and what a probe's answers mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.decode.maskfile import BannedPolicy
from gateway.policy.model import Config, Mode, Policy, Route, Rule, Upstream
from gateway.proxy.steering.mask_probe import (
    DOWN,
    IN_FORCE,
    NOT_FOLLOWED,
    NOT_PROBED,
    PROMPTS,
    SLOW,
    UNREADABLE,
    MaskState,
    MaskStatus,
    ProbeAnswer,
    pair_of,
    prompt_for,
    read_answer,
    read_model,
    status_of,
    updated,
    wanted_masks,
)
from tests.support.mask_rules import BACK, MASKED, banning, config_of
from tests.support.masking_server import (
    PAIR,
)


@pytest.mark.parametrize(
    ("prompt", "pair"),
    [((1, 2, 3), (2, 3)), ((1, 3, 3, 3), (1, 3)), ((3, 3), None), ((3,), None), ((), None)],
)
def test_two_tokens_that_differ(prompt: tuple[int, ...], pair: tuple[int, int] | None) -> None:
    assert pair_of(prompt) == pair


def said(*tokens: int) -> ProbeAnswer:
    return ProbeAnswer(200, (1, 2), tokens)


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ([said(12), said(11)], IN_FORCE),
        ([said(11), said(11)], NOT_FOLLOWED),
        ([said(12), said(12)], NOT_FOLLOWED),
        ([said(11), said(12)], NOT_FOLLOWED),
        ([said(12), said(99)], NOT_FOLLOWED),
        ([said(12), said()], UNREADABLE),
        ([said(12, 11), said(11)], UNREADABLE),
        ([ProbeAnswer(429)], SLOW),
        ([said(12), ProbeAnswer(503)], SLOW),
        ([ProbeAnswer(500)], MaskStatus(MaskState.UNKNOWN, "the server answers with status 500")),
        ([ProbeAnswer(404)], MaskStatus(MaskState.UNKNOWN, "the server answers with status 404")),
        ([said(12), ProbeAnswer(400)], MaskStatus(MaskState.MISSING, "the server refuses a request with a mask")),
    ],
)
def test_verdicts(answers: list[ProbeAnswer], verdict: MaskStatus) -> None:
    assert status_of(PAIR, answers) == verdict


def test_slowness_changes_nothing_that_is_known() -> None:
    assert updated(IN_FORCE, SLOW) == IN_FORCE
    assert updated(NOT_FOLLOWED, SLOW) == NOT_FOLLOWED
    assert updated(NOT_PROBED, SLOW) == updated(DOWN, SLOW) == SLOW
    assert updated(IN_FORCE, DOWN) == DOWN
    assert updated(SLOW, IN_FORCE) == IN_FORCE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"choices": {}}',
        b'{"choices": []}',
        b'{"choices": [7]}',
        b'{"choices": [{"token_ids": 7, "prompt_token_ids": ["a"]}]}',
        b'{"choices": [{"token_ids": [true], "prompt_token_ids": [1.0]}]}',
        b"\xff",
    ],
)
def test_answers_that_tell_nothing(body: bytes) -> None:
    assert read_answer(200, body) == ProbeAnswer(200)
    assert read_model(200, body) is None


def test_the_first_model_of_a_list() -> None:
    assert read_model(200, b'{"data": [{"id": "a"}, {"id": "b"}]}') == "a"
    assert read_model(200, b'{"data": [{"id": 7}]}') is None
    assert read_model(500, b'{"data": [{"id": "a"}]}') is None


def test_a_prompt_without_a_banned_word() -> None:
    first, second, third, fourth = PROMPTS
    assert prompt_for(banning("swordfish")) == first
    assert prompt_for(banning("UPON A")) == second
    # A token may be a part of a word, and the last one of an answer ends it.
    assert prompt_for(banning("tim", whole_word=True)) == second
    assert prompt_for(banning(" Once")) == second
    assert prompt_for(banning("o")) == third
    assert prompt_for(banning("o", "3")) == fourth
    assert prompt_for(banning("o", "3", "+")) is None
    both = BannedPolicy.of([*banning("o").banned, *banning("3").banned])
    assert prompt_for(both) == fourth


# -- what is wanted ----------------------------------------------------------------------------------------------------


def entries(config: Config) -> list[tuple[str, str, str | None]]:
    return [(each.upstream, each.entry, each.model) for each in wanted_masks(config)]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((), []),
        ((replace(MASKED, decode=None),), []),
        ((MASKED,), ["strict"]),
        ((BACK,), ["strict/exhausted"]),
        ((MASKED, BACK), ["strict", "strict/exhausted"]),
    ],
)
def test_which_masks_are_wanted(rules: tuple[Rule, ...], expected: list[str]) -> None:
    assert [entry for _, entry, _ in entries(config_of(*rules))] == expected


def test_what_only_observes_wants_none() -> None:
    config = config_of(MASKED)
    seen = replace(config, policies={"strict": replace(config.policies["strict"], mode=Mode.OBSERVE)})
    assert wanted_masks(seen) == ()


@pytest.mark.parametrize(
    ("route", "model"),
    [
        ({"model": "*"}, None),
        ({"model": "tiny-[ab]"}, None),
        ({"model": "tiny"}, "tiny"),
        ({"model": "*", "rename": "served"}, "served"),
    ],
)
def test_which_model_is_asked(route: dict[str, str], model: str | None) -> None:
    assert entries(config_of(MASKED, **route)) == [("local", "strict", model)]


def test_every_upstream_of_every_route_once() -> None:
    upstreams = {name: Upstream(name=name, type="vllm") for name in ("a", "b")}
    upstreams["far"] = Upstream(name="far", base_url="http://127.0.0.1:9/v1")
    policies = {name: Policy(name=name, rules=(MASKED,)) for name in ("strict", "unused")}
    routes = (
        Route(model="x-*", upstream="far", others=("a", "b"), policy="strict"),
        Route(model="y", upstream="b", policy="strict"),
        Route(model="z", upstream="b", policy="strict"),
    )
    config = Config(upstreams=upstreams, routes=routes, policies=policies)
    # The first route that says which model it asks for is the one that counts.
    assert entries(config) == [("a", "strict", None), ("b", "strict", "y")]
