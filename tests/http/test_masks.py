"""Masks at the gateway: what /readyz, the metrics and the log say of them, and which requests ask for one."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gateway.app import build_app
from gateway.decode.maskfile import MaskRequestError, banned_of
from gateway.observe.log import RequestLog
from gateway.policy.model import Action, Config, Decode, Policy, Rule
from tests.support.gateway import TIMEOUT, RunningGateway, config_for, running
from tests.support.masking_server import Masking, Reply, garbage, ignoring, refusing
from tests.support.served import Served, configuration, serving, write
from tests.support.upstream import Call, Json, completion, plain, playing
from tests.support.upstream import Upstream as Played

MASKED = Rule(id="masked", words=("swordfish",), decode=Decode.MASK)
BACK = Rule(id="back", words=("listen",), action=Action.ROLLBACK)
NOT_FOLLOWED = "the server does not follow the mask; start it with --logits-processors, not with drafted tokens"


@dataclass
class Model(Masking):
    """A server that answers chats, too, unless they ask for a mask that it does not have."""

    async def play(self, call: Call) -> None:
        if call.request.target.endswith("/chat/completions"):
            try:
                self.request(call.body)
            except MaskRequestError as error:
                await call.send(refusing(str(error)))
            else:
                await call.send(plain(completion("hello")))
        else:
            await super().play(call)


def masking(*rules: Rule, reply: Reply | None = None) -> Model:
    """A server with the file that is written for a policy of these rules."""
    return Model(banned_of({"default": Policy(name="default", rules=rules)}), reply)


def config_of(base_url: str, *rules: Rule, others: dict[str, str] | None = None) -> Config:
    """Every upstream can mask."""
    made = config_for(base_url, rules=rules, others=others or {})
    return replace(made, upstreams={name: replace(each, type="vllm") for name, each in made.upstreams.items()})


@asynccontextmanager
async def before(*rules: Rule, server: Model | None = None) -> AsyncIterator[tuple[RunningGateway, Played]]:
    """A gateway with a policy of the rules, in front of a server; without one, of one that has its file."""
    async with (
        playing((server or masking(*rules)).play) as upstream,
        running(config_of(upstream.base_url, *rules)) as gateway,
    ):
        yield gateway, upstream


def chats(upstream: Played) -> list[Json]:
    return [call.body for call in upstream.calls if call.request.target.endswith("/chat/completions")]


# -- /readyz -----------------------------------------------------------------------------------------------------------


async def test_a_mask_in_force() -> None:
    async with before(MASKED) as (gateway, _):
        ready = await gateway.client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json() == {
            "status": "ready",
            "upstreams": {"played": "up"},
            "masks": {"played/default": "in force"},
        }
        metrics = await gateway.metrics()
        assert metrics.labels("portcullis_mask_in_force") == [{"upstream": "played", "policy": "default"}]
        assert metrics.value("portcullis_mask_in_force") == 1
        (line,) = await gateway.logged(1)
        assert (line["event"], line["upstream"], line["policy"]) == ("mask", "played", "default")
        assert (line["state"], line["reason"]) == ("in force", "")


async def test_a_mask_that_is_missing() -> None:
    server = masking(MASKED, reply=ignoring)
    async with before(MASKED, server=server) as (gateway, _):
        ready = await gateway.client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json() == {
            "status": "the mask of policy default is not in force at upstream played",
            "reason": NOT_FOLLOWED,
            "upstreams": {"played": "up"},
            "masks": {"played/default": "missing"},
        }
        assert (await gateway.client.head("/readyz")).status_code == 503
        assert (await gateway.client.get("/healthz")).status_code == 200
        metrics = await gateway.metrics()
        assert metrics.labels("portcullis_mask_in_force") == [{"upstream": "played", "policy": "default"}]
        assert metrics.value("portcullis_mask_in_force") == 0
        (line,) = await gateway.logged(1)
        assert (line["event"], line["state"], line["reason"]) == ("mask", "missing", NOT_FOLLOWED)
        for shown in (ready.text, metrics.text, gateway.log.getvalue()):
            assert "swordfish" not in shown
            assert server.policies["default"].digest not in shown


async def test_another_files_words_are_named_as_the_reason() -> None:
    async with before(MASKED, server=masking(replace(MASKED, words=("other",)))) as (gateway, _):
        ready = await gateway.client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["reason"].startswith("the server has other words; ")


@pytest.mark.parametrize("missing", ["first", "second"])
async def test_one_upstream_that_misses_it_is_enough(missing: str) -> None:
    servers = {name: masking(MASKED, reply=ignoring if name == missing else None) for name in ("first", "second")}
    async with playing(servers["first"].play) as first, playing(servers["second"].play) as second:
        made = config_of(first.base_url, MASKED, others={"second": second.base_url})
        async with running(made) as gateway:
            ready = await gateway.client.get("/readyz")
            assert ready.status_code == 503
            named = "played" if missing == "first" else "second"
            assert ready.json()["status"] == f"the mask of policy default is not in force at upstream {named}"
            states = {f"{name}/default": "missing" if name == named else "in force" for name in ("played", "second")}
            assert ready.json()["masks"] == states


async def test_an_upstream_that_is_down_misses_nothing() -> None:
    async with playing(masking(MASKED).play) as upstream:
        made = config_of(upstream.base_url, MASKED, others={"dead": "http://127.0.0.1:9/v1"})
        async with running(made) as gateway:
            ready = await gateway.client.get("/readyz")
            assert ready.status_code == 200
            assert ready.json()["upstreams"] == {"played": "up", "dead": "down"}
            assert ready.json()["masks"] == {"played/default": "in force", "dead/default": "unknown"}
            assert (await gateway.metrics()).value("portcullis_mask_in_force", upstream="dead") == 0


async def test_a_server_that_tells_nothing_is_not_refused() -> None:
    async with before(MASKED, server=masking(MASKED, reply=lambda _: garbage())) as (gateway, _):
        ready = await gateway.client.get("/readyz")
        assert (ready.status_code, ready.json()["masks"]) == (200, {"played/default": "unknown"})


async def test_without_masks_nothing_is_asked_and_nothing_said() -> None:
    async with before(replace(MASKED, decode=None)) as (gateway, upstream):
        ready = await gateway.client.get("/readyz")
        assert ready.json() == {"status": "ready", "upstreams": {"played": "up"}}
        assert (await gateway.metrics()).labels("portcullis_mask_in_force") == []
        assert upstream.calls == []


async def test_all_upstreams_down_goes_before_masks() -> None:
    async with running(config_of("http://127.0.0.1:9/v1", MASKED)) as gateway:
        ready = await gateway.client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "all upstreams are down")
        assert ready.json()["masks"] == {"played/default": "unknown"}


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_requests_ask_for_a_mask_that_is_in_force() -> None:
    server = masking(MASKED)
    async with before(MASKED, server=server) as (gateway, upstream):
        assert (await gateway.client.get("/readyz")).status_code == 200
        assert (await gateway.ask()).status_code == 200
        digest = server.policies["default"].digest
        arguments = {"portcullis.policy": "default", "portcullis.digest": digest}
        assert [body["vllm_xargs"] for body in chats(upstream)] == [arguments]


async def test_requests_go_without_a_mask_that_is_missing() -> None:
    async with before(MASKED, server=masking(MASKED, reply=ignoring)) as (gateway, upstream):
        assert (await gateway.client.get("/readyz")).status_code == 503
        assert (await gateway.ask()).status_code == 200
        assert [body.get("vllm_xargs") for body in chats(upstream)] == [None]


async def test_the_first_requests_do_not_wait_for_the_canary() -> None:
    server = masking(MASKED)
    server.hold = asyncio.Event()
    async with before(MASKED, server=server) as (gateway, upstream):
        assert (await gateway.ask()).status_code == 200
        assert [body["vllm_xargs"]["portcullis.policy"] for body in chats(upstream)] == ["default"]


# -- several workers, and a file that changes --------------------------------------------------------------------------


async def readiness(served: Served, status: int) -> Json:
    """What /readyz says once it has this status."""
    async with asyncio.timeout(TIMEOUT):
        while (answer := await served.client.get(f"{served.admin}/readyz")).status_code != status:
            await asyncio.sleep(0.05)
    found: Json = answer.json()
    return found


def masked_configuration(base_url: str, *words: str) -> dict[str, object]:
    rule = {"id": "masked", "words": words, "decode": "mask"}
    return configuration(
        base_url,
        upstreams={"played": {"type": "vllm", "base_url": base_url}},
        policies={"default": {"rules": [rule] if words else []}},
    )


@pytest.mark.parametrize("workers", [1, 2])
async def test_other_words_need_another_file(tmp_path: Path, workers: int) -> None:
    path, server = tmp_path / "portcullis.yaml", masking(MASKED)
    async with playing(server.play) as upstream:
        write(path, masked_configuration(upstream.base_url, "swordfish"))
        async with serving(path, "--workers", str(workers)) as served:
            assert (await readiness(served, 200))["masks"] == {"played/default": "in force"}
            metrics = await served.until(lambda metrics: metrics.value("portcullis_mask_in_force") == 1)
            assert metrics.labels("portcullis_mask_in_force") == [{"upstream": "played", "policy": "default"}]
            write(path, masked_configuration(upstream.base_url, "swordfish", "other"))
            await served.logged("reload")
            assert (await served.ask()).status_code == 200
            red = await readiness(served, 503)
            assert red["status"] == "the mask of policy default is not in force at upstream played"
            assert "restart the server" in red["reason"]
            await served.until(lambda metrics: metrics.value("portcullis_mask_in_force") == 0)
            assert [line["state"] for line in served.log if line["event"] == "mask"].count("missing") >= 1
            write(path, masked_configuration(upstream.base_url))
            await served.logged("reload", 2)
            assert "masks" not in await readiness(served, 200)
            assert (await served.metrics()).labels("portcullis_mask_in_force") == []
            assert "swordfish" not in str(served.log)


async def test_a_reload_knows_what_the_server_has_before_it_is_in_force() -> None:
    """Else the server would refuse the requests that come until the canary is answered."""
    server = masking(MASKED)
    async with playing(server.play) as upstream:
        app = build_app(config_of(upstream.base_url, MASKED), RequestLog("json", io.StringIO()))
        portcullis = app.state.portcullis
        async with app.router.lifespan_context(app):
            await portcullis.adopt(config_of(upstream.base_url, MASKED, replace(MASKED, id="other", words=("other",))))
            assert portcullis.state.current.masks.states == {"played/default": "missing"}


async def test_a_reload_that_leaves_words_alone_keeps_what_is_known(tmp_path: Path) -> None:
    path, server = tmp_path / "portcullis.yaml", masking(MASKED)
    async with playing(server.play) as upstream:
        made = masked_configuration(upstream.base_url, "swordfish")
        write(path, made)
        async with serving(path) as served:
            await readiness(served, 200)
            server.hold = asyncio.Event()  # whoever knew nothing now would learn nothing
            write(path, {**made, "limits": {"max_streams": 5000, "max_body": 1000}})
            await served.logged("reload")
            assert (await readiness(served, 200))["masks"] == {"played/default": "in force"}


async def test_a_rule_that_is_masked_from_a_reload_on(tmp_path: Path) -> None:
    path, server = tmp_path / "portcullis.yaml", masking(MASKED)
    async with playing(server.play) as upstream:
        write(path, masked_configuration(upstream.base_url))
        async with serving(path) as served:
            assert "masks" not in await readiness(served, 200)
            write(path, masked_configuration(upstream.base_url, "swordfish"))
            await served.logged("reload")
            assert (await readiness(served, 200))["masks"] == {"played/default": "in force"}
