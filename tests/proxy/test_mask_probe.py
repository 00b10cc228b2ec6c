"""Probes of servers that mask, that do not, that have other words, and that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gateway.decode.maskfile import BannedPolicy, banned_of
from gateway.policy.model import Decode, Rule
from gateway.proxy.steering.mask_probe import (
    IN_FORCE,
    NO_PROMPT,
    NOT_FOLLOWED,
    SLOW,
    UNREADABLE,
    MaskProbe,
    MaskProbes,
    MaskState,
    MaskStatus,
    wanted_masks,
)
from gateway.proxy.upstreams.client import PROBE_TTL, UpstreamClient
from tests.support.mask_rules import BACK, MASKED, OTHER, banning, config_of
from tests.support.masking_server import (
    PAIR,
    Masking,
    Reply,
    asked,
    garbage,
    ignoring,
    only_with_masks,
    refusing,
)
from tests.support.scripted_server import on_both_loops
from tests.support.upstream import Upstream as Played
from tests.support.upstream import plain, playing


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here is on this machine; a proxy in the environment is not meant for it."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NO_PROXY", "*")


@dataclass
class Bench:
    """A server, the masks of a policy that is to be masked there, and a clock of their own."""

    server: Masking
    upstream: Played
    client: UpstreamClient
    masks: MaskProbes
    heard: list[tuple[str, MaskStatus]] = field(default_factory=list)
    now: float = 0.0

    async def look(self) -> MaskStatus:
        """The verdict of a canary that is sent now."""
        self.now += PROBE_TTL + 1
        await self.masks.refresh()
        (canary,) = self.canaries
        if canary.task is not None:
            await asyncio.wait((canary.task,))
        return canary.status

    @property
    def canaries(self) -> list[MaskProbe]:
        return list(self.masks._probes.values())


@asynccontextmanager
async def bench(*rules: Rule, reply: Reply | None = None, timeout: float = 30.0, **route: Any) -> AsyncIterator[Bench]:
    server = Masking(banned_of(config_of(*(rules or (MASKED,))).policies), reply)
    async with playing(server.play) as upstream:
        config = config_of(*(rules or (MASKED,)), base_url=upstream.base_url, **route)
        client = UpstreamClient(config.upstreams["local"], upstream.base_url, 10)
        made = Bench(server, upstream, client, MaskProbes())

        def hear(canary: MaskProbe) -> None:
            made.heard.append((canary.mask.entry, canary.status))

        made.masks = MaskProbes.build(
            wanted_masks(config), {"local": client}, None, hear, clock=lambda: made.now, timeout=timeout
        )
        try:
            yield made
        finally:
            await made.masks.close()
            await client.close()


# -- servers -----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_server_that_has_the_mask() -> None:
    async with bench() as made:
        assert await made.look() == IN_FORCE
        digest = made.server.policies["strict"].digest
        request = made.masks.request("local", "strict")
        assert request is not None
        assert (request.policy, request.digest, request.kept, request.not_first) == ("strict", digest, 0, ())
        assert made.masks.request("local", "other") is made.masks.request("other", "strict") is None
        assert made.masks.states == {"local/strict": "in force"}
        assert made.masks.missing is None
        assert made.heard == [("strict", IN_FORCE)]
        learning, first, second = made.upstream.calls
        assert asked(learning) == (None, None, None)
        assert asked(first) == ([*PAIR], "strict", [PAIR[0]])
        assert asked(second) == ([*PAIR], "strict", [PAIR[1]])
        for call in made.upstream.calls:
            assert call.body["max_tokens"] == 1
            assert call.body["model"] == "gpt-test"  # which the server lists


@on_both_loops
async def test_what_is_learned_is_remembered() -> None:
    async with bench(model="tiny") as made:
        assert [await made.look() for _ in range(3)] == [IN_FORCE] * 3
        assert [asked(call)[1] for call in made.upstream.calls] == [None, *["strict"] * 6]
        assert {call.body["model"] for call in made.upstream.calls} == {"tiny"}
        assert made.heard == [("strict", IN_FORCE)]


MISSING: dict[str, tuple[Reply, str]] = {
    "ignores": (ignoring, NOT_FOLLOWED.reason),
    "no file": (
        only_with_masks(refusing("this server has no masks: start it with PORTCULLIS_MASKS=FILE")),
        "the server was started without a file of masks; start it with PORTCULLIS_MASKS=FILE",
    ),
    "refuses": (only_with_masks(refusing("swordfish")), "the server refuses a request with a mask"),
    "unprocessable": (only_with_masks(plain({}, 422)), "the server refuses a request with a mask"),
}


@pytest.mark.parametrize("case", MISSING)
@on_both_loops
async def test_a_server_without_the_mask(case: str) -> None:
    reply, reason = MISSING[case]
    async with bench(reply=reply) as made:
        assert await made.look() == MaskStatus(MaskState.MISSING, reason)
        assert made.masks.request("local", "strict") is None
        assert made.masks.states == {"local/strict": "missing"}
        assert made.masks.missing is made.canaries[0]
        assert made.heard == [("strict", MaskStatus(MaskState.MISSING, reason))]


@pytest.mark.parametrize(
    ("policies", "reason"),
    [
        (
            {"strict": banning("others")},
            "the server has other words; write the file again with `portcullis masks` and restart the server",
        ),
        (
            {"other": banning("swordfish")},
            "the server's file has no such policy; write it again with `portcullis masks` and restart the server",
        ),
    ],
)
@on_both_loops
async def test_a_server_with_another_file(policies: dict[str, BannedPolicy], reason: str) -> None:
    async with bench() as made:
        made.server.policies = policies
        verdict = await made.look()
        assert verdict == MaskStatus(MaskState.MISSING, reason)
        assert "swordfish" not in verdict.reason


UNKNOWN: dict[str, tuple[Reply, MaskStatus]] = {
    "no JSON": (lambda _: garbage(), UNREADABLE),
    "no tokens of the prompt": (lambda _: garbage(b'{"choices": [{"token_ids": [7]}]}'), UNREADABLE),
    "one token": (lambda _: plain({"choices": [{"prompt_token_ids": [7], "token_ids": [7]}]}), UNREADABLE),
    "no tokens of the answer": (only_with_masks(plain({"choices": [{"text": "x"}]})), UNREADABLE),
    "too much": (lambda _: garbage(b" " * (2 << 20)), UNREADABLE),
    "no such path": (lambda _: plain({}, 404), MaskStatus(MaskState.UNKNOWN, "the server answers with status 404")),
    "refuses everything": (
        lambda _: plain({}, 400),
        MaskStatus(MaskState.UNKNOWN, "the server answers with status 400"),
    ),
    "fails": (only_with_masks(plain({}, 500)), MaskStatus(MaskState.UNKNOWN, "the server answers with status 500")),
    "is busy": (only_with_masks(plain({}, 429)), SLOW),
    "no HTTP": (lambda _: b"garbage\r\n\r\n", UNREADABLE),
}


@pytest.mark.parametrize("case", UNKNOWN)
@on_both_loops
async def test_a_server_that_does_not_tell(case: str) -> None:
    """Requests ask for the mask until it is known to be missing."""
    reply, verdict = UNKNOWN[case]
    async with bench(reply=reply) as made:
        assert made.masks.request("local", "strict") is not None
        assert await made.look() == verdict
        assert made.masks.states == {"local/strict": "unknown"}
        assert made.masks.request("local", "strict") is not None
        assert made.masks.missing is None


@on_both_loops
async def test_a_server_that_is_down_misses_nothing() -> None:
    config = config_of(MASKED)  # nobody listens there
    client = UpstreamClient(config.upstreams["local"], config.upstreams["local"].base_url, 10)
    masks = MaskProbes.build(wanted_masks(config), {"local": client})
    await masks.refresh()
    assert masks.states == {"local/strict": "unknown"}
    assert masks.missing is None
    await masks.close()
    await client.close()


@on_both_loops
async def test_a_server_that_is_slow() -> None:
    async with bench(timeout=0.1) as made:
        made.server.hold = asyncio.Event()
        assert await made.look() == SLOW
        assert made.masks.states == {"local/strict": "unknown"}
        assert made.masks.request("local", "strict") is not None


@pytest.mark.parametrize("reply", [None, ignoring])
@on_both_loops
async def test_a_server_that_becomes_slow(reply: Reply | None) -> None:
    async with bench(reply=reply) as made:
        known = await made.look()
        made.server.hold = asyncio.Event()
        made.canaries[0]._timeout = 0.1
        assert await made.look() == known
        assert len(made.heard) == 1
        assert len(made.upstream.calls) > 3


@on_both_loops
async def test_a_policy_that_bans_every_prompt() -> None:
    async with bench(Rule(id="r", words=("o", "3", "+"), decode=Decode.MASK)) as made:
        assert await made.look() == NO_PROMPT
        assert made.upstream.calls == []
        assert made.masks.request("local", "strict") is not None


# -- over time ---------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_those_who_ask_at_once_share_a_canary() -> None:
    async with bench() as made:
        made.now += PROBE_TTL + 1
        impatient = asyncio.create_task(made.masks.refresh())
        await asyncio.sleep(0)
        patient = [asyncio.create_task(made.masks.refresh()) for _ in range(5)]
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.gather(*patient)
        assert made.masks.states == {"local/strict": "in force"}
        await made.masks.refresh()
        assert len(made.upstream.calls) == 3


@on_both_loops
async def test_only_the_first_canary_is_waited_for() -> None:
    async with bench() as made:
        await made.look()
        made.server.hold, made.server.reply = asyncio.Event(), ignoring
        made.now += PROBE_TTL + 1
        await made.masks.refresh()
        assert made.masks.states == {"local/strict": "in force"}
        made.server.hold.set()
        (canary,) = made.canaries
        assert canary.task is not None
        await asyncio.wait((canary.task,))
        assert made.masks.states == {"local/strict": "missing"}


@on_both_loops
async def test_verdicts_change_both_ways() -> None:
    async with bench() as made:
        right = made.server.policies
        verdicts = []
        for policies in (right, {}, right):
            made.server.policies = policies
            verdicts.append((await made.look()).state)
        assert verdicts == ["in force", "missing", "in force"]
        assert [verdict.state for _, verdict in made.heard] == verdicts
        # Another server may be there after that, so its tokens are learned again.
        assert [asked(call)[1] for call in made.upstream.calls].count(None) == 2


@on_both_loops
async def test_a_reload_that_changes_words_asks_anew() -> None:
    async with bench() as made:
        assert await made.look() == IN_FORCE
        clients = {"local": made.client}
        same = MaskProbes.build(wanted_masks(config_of(MASKED)), clients, made.masks)
        assert same.states == {"local/strict": "in force"}
        other = MaskProbes.build(wanted_masks(config_of(MASKED, OTHER)), clients, same)
        assert other.states == {"local/strict": "unknown"}
        await same.close(besides=other)
        await other.refresh()
        assert other.states == {"local/strict": "missing"}
        gone = MaskProbes.build(wanted_masks(config_of()), clients, other)
        assert gone.states == {}
        assert gone.pairs == ()
        await other.close(besides=gone)


@on_both_loops
async def test_another_connection_is_another_server() -> None:
    async with bench() as made:
        assert await made.look() == IN_FORCE
        client = UpstreamClient(made.client.upstream, made.client.base_url, 11)
        fresh = MaskProbes.build([each.mask for each in made.canaries], {"local": client}, made.masks)
        assert fresh.states == {"local/strict": "unknown"}
        await fresh.close()
        await client.close()


@on_both_loops
async def test_what_is_let_go_says_nothing_more() -> None:
    async with bench() as made:
        made.server.hold = asyncio.Event()
        made.now += PROBE_TTL + 1
        made.masks.start()
        async with asyncio.timeout(30):
            while not made.upstream.calls:
                await asyncio.sleep(0)
        await made.masks.close()
        assert made.heard == []
        assert made.canaries[0].task is not None
        assert made.canaries[0].task.cancelled()


@on_both_loops
async def test_a_canary_that_fails_leaves_nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as made:
        assert await made.look() == IN_FORCE

        def fail(*_: object) -> None:
            raise KeyError("swordfish")

        monkeypatch.setattr("gateway.proxy.steering.mask_probe.status_of", fail)
        assert await made.look() == MaskStatus(MaskState.UNKNOWN, "the probe failed: KeyError")
        monkeypatch.undo()
        assert await made.look() == IN_FORCE


# -- when rollback is exhausted ----------------------------------------------------------------------------------------


def masks_of(*rules: Rule) -> MaskProbes:
    config = config_of(*rules)
    client = UpstreamClient(config.upstreams["local"], config.upstreams["local"].base_url, 1)
    return MaskProbes.build(wanted_masks(config), {"local": client})


def verdict_for(masks: MaskProbes, entry: str, verdict: MaskStatus) -> None:
    masks._probes["local", entry].status = verdict


def test_the_second_entry_is_for_rollback() -> None:
    masks = masks_of(MASKED, BACK)
    assert masks.exhausted("local", "strict") is None
    verdict_for(masks, "strict", IN_FORCE)
    assert masks.exhausted("local", "strict") is None
    verdict_for(masks, "strict/exhausted", IN_FORCE)
    exhausted, always = masks.exhausted("local", "strict"), masks.request("local", "strict")
    assert exhausted is not None
    assert always is not None
    assert (exhausted.policy, always.policy) == ("strict/exhausted", "strict")
    assert exhausted.digest != always.digest
    assert masks.exhausted("other", "strict") is masks.exhausted("local", "other") is None


def test_a_policy_without_a_second_entry_has_one_for_both() -> None:
    masks = masks_of(replace(BACK, decode=Decode.MASK))
    assert masks.exhausted("local", "strict") is None
    verdict_for(masks, "strict", IN_FORCE)
    assert masks.exhausted("local", "strict") == masks.request("local", "strict")


def test_rollback_alone_does_without() -> None:
    masks = masks_of(BACK)
    verdict_for(masks, "strict/exhausted", NOT_FOLLOWED)
    assert masks.request("local", "strict") is None
    assert masks.exhausted("local", "strict") is None
    assert masks.states == {"local/strict/exhausted": "missing"}
    assert masks.missing is None
    verdict_for(masks, "strict/exhausted", IN_FORCE)
    assert masks.exhausted("local", "strict") is not None
    assert masks.request("local", "strict") is None
