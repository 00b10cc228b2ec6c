"""Places and counters: bodies that never end, and what a failure or a cancellation at any point leaves behind."""

from __future__ import annotations

import asyncio
import io
import json
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import Message, Scope

from gateway.app import Portcullis
from gateway.limits import Decision, MemoryLimiter
from gateway.observe.log import RequestLog
from gateway.policy.model import ClientKey, Journal, Limits
from gateway.proxy import admission, relay
from gateway.proxy.accounting import RequestRecord
from gateway.proxy.asgi import MAX_INLINE
from gateway.proxy.state import PENDING_BODIES_SHARE
from tests.support.gateway import TIMEOUT, RunningGateway, before, config_for, error_of, question
from tests.support.upstream import completion, plain, playing, sending, stream

OK = sending(plain(completion("ok")))
PLACES = 50
SMALL = ClientKey.of("sk-small", "small", rpm=1, max_streams=1)
OTHER = ClientKey.of("sk-other", "other")


def as_client(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


# -- bodies that never end ---------------------------------------------------------------------------------------------


class Endless:
    """Requests whose bodies never end, and the statuses that came in answer to them."""

    def __init__(self, gateway: RunningGateway, key: str) -> None:
        self._port = httpx2.URL(gateway.url).port
        self._key = key
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def begin(self, count: int) -> None:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: {self._key}\r\n"
            writer.write(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
            self._streams.append((reader, writer))

    async def refused(self, count: int) -> list[bytes]:
        """The first `count` answers, whole."""
        reading = [asyncio.ensure_future(self._answer(reader)) for reader, _ in self._streams]
        answers = []
        try:
            async with asyncio.timeout(TIMEOUT):
                for answer in asyncio.as_completed(reading):
                    answers.append(await answer)
                    if len(answers) == count:
                        break
        finally:
            for each in reading:
                each.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        return answers

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return head + await reader.readexactly(int(length))

    def leave(self) -> None:
        for _, writer in self._streams:
            writer.transport.abort()


@asynccontextmanager
async def endless(gateway: RunningGateway, key: str) -> AsyncIterator[Endless]:
    bodies = Endless(gateway, key)
    try:
        yield bodies
    finally:
        bodies.leave()


async def active(gateway: RunningGateway) -> float:
    return (await gateway.metrics()).value("portcullis_streams_active")


async def until_active(gateway: RunningGateway, count: int) -> None:
    async with asyncio.timeout(TIMEOUT):
        while await active(gateway) != count:
            await asyncio.sleep(0.002)


LIMITED = {
    "streams": (ClientKey.of("sk-small", "small", rpm=100, max_streams=1), 1),
    "streams, at the edge": (ClientKey.of("sk-small", "small", max_streams=7), 7),
    "requests": (ClientKey.of("sk-small", "small", rpm=3), PLACES // PENDING_BODIES_SHARE),
    "tokens": (ClientKey.of("sk-small", "small", tpm=2), PLACES // PENDING_BODIES_SHARE),
    "all of them": (SMALL, 1),
    "no limit": (ClientKey.of("sk-small", "small"), PLACES // PENDING_BODIES_SHARE),
}


@pytest.mark.parametrize("case", LIMITED)
async def test_d9_bodies_that_never_end_keep_only_their_own_key_out(case: str) -> None:
    small, most = LIMITED[case]
    async with (
        before(OK, keys=(small, OTHER), limits=Limits(max_streams=PLACES)) as (gateway, _),
        endless(gateway, "sk-small") as bodies,
    ):
        await bodies.begin(PLACES)
        for answer in await bodies.refused(PLACES - most):
            assert answer.startswith(b"HTTP/1.1 429 ")
            assert b"\r\nretry-after: 1\r\n" in answer
            error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
            assert (error["code"], error["type"]) == ("rate_limit_exceeded", "streams")
            assert f"limit of {most} requests" in error["message"]
        assert await active(gateway) == most
        for _ in range(3):
            assert (await gateway.post(question(), as_client("sk-other"))).status_code == 200
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_limited_total", key="small", reason="streams") == PLACES - most
        bodies.leave()
        await until_active(gateway, 0)
        # What was refused has cost nothing.
        if small.tpm is None:
            assert (await gateway.post(question(), as_client("sk-small"))).status_code == 200


async def test_d9_every_key_is_counted_by_itself() -> None:
    async with before(OK, keys=(SMALL, replace(SMALL, name="b", digest=OTHER.digest))) as (gateway, _):
        async with endless(gateway, "sk-small") as one, endless(gateway, "sk-other") as other:
            await one.begin(2)
            await other.begin(2)
            assert len(await one.refused(1)) == len(await other.refused(1)) == 1
            await until_active(gateway, 2)
        await until_active(gateway, 0)


async def test_d9_without_keys_unfinished_bodies_may_take_every_place() -> None:
    async with before(OK, limits=Limits(max_streams=3)) as (gateway, _), endless(gateway, "") as bodies:
        await bodies.begin(3)
        await until_active(gateway, 3)
        assert error_of(await gateway.ask(), 503)["code"] == "overloaded"
        bodies.leave()
        await until_active(gateway, 0)
        assert (await gateway.ask()).status_code == 200


# -- what is left behind -----------------------------------------------------------------------------------------------


class Slow(MemoryLimiter):
    """Lets the loop turn before it counts, and before and after it gives back."""

    async def reserve(self, key: ClientKey, tokens: int) -> Decision:
        await asyncio.sleep(0)
        return self.reserve_now(key, tokens)

    async def release(self, key: ClientKey, reserved: int, used: int) -> None:
        await asyncio.sleep(0)
        self.release_now(key, used - reserved)
        await asyncio.sleep(0)


class Case:
    """A gateway in this loop, and a request that it is given as a server would."""

    def __init__(self, portcullis: Portcullis, limiter: Slow, body: bytes) -> None:
        self.gateway = portcullis.state
        self.statuses: list[int] = []
        self._app = portcullis.public
        self._limiter = limiter
        self._body = body

    def request(self) -> Coroutine[Any, Any, None]:
        half = len(self._body) // 2
        messages: list[Message] = [
            {"type": "http.request", "body": self._body[:half], "more_body": True},
            {"type": "http.request", "body": self._body[half:], "more_body": False},
        ]

        async def receive() -> Message:
            await asyncio.sleep(0)
            if messages:
                return messages.pop(0)
            await asyncio.get_running_loop().create_future()  # the client stays
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])
            await asyncio.sleep(0)

        path = "/v1/chat/completions"
        scope: Scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope |= {"scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "root_path": ""}
        scope |= {"asgi": {"version": "3.0"}, "http_version": "1.1", "headers": [(b"x-api-key", b"sk-small")]}
        return self._app(scope, receive, send)  # type: ignore[return-value]

    async def assert_nothing_is_left(self) -> None:
        async with asyncio.timeout(TIMEOUT):
            while self.held != (0, 0, 0, 0):
                await asyncio.sleep(0)

    @property
    def held(self) -> tuple[int, ...]:
        gateway = self.gateway
        upstreams = sum(gateway.current.fleet.busy.values())
        return gateway.in_flight, len(gateway.pending_bodies._counts), self._limiter.open_streams(SMALL), upstreams


@asynccontextmanager
async def case(body: bytes, answer: bytes, journal: Journal | None = None) -> AsyncIterator[Case]:
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(playing(sending(answer)))
        config = config_for(upstream.base_url, keys=(replace(SMALL, rpm=None),), journal=journal)
        portcullis = Portcullis(config, RequestLog("json", io.StringIO()))
        portcullis.state.limiter = limiter = Slow()
        await stack.enter_async_context(portcullis.public.router.lifespan_context(portcullis.public))
        yield Case(portcullis, limiter, body)


@types.coroutine
def cancelled_at(work: Coroutine[Any, Any, None], turn: int) -> Generator[Any, Any, bool]:
    """Run `work`, cancelled where it suspends for the `turn`-th time; False if it ended before that."""
    turns = 0
    step: Callable[[], Any] = lambda: work.send(None)  # noqa: E731
    try:
        while True:
            waited = step()
            turns += 1
            if turns == turn:
                step = lambda: work.throw(asyncio.CancelledError())  # noqa: E731
                continue
            step = lambda: work.send(None)  # noqa: E731
            yield waited
    except StopIteration:
        return False
    except asyncio.CancelledError:
        return True


LARGE = "word " * MAX_INLINE  # scanned in a thread
REQUESTS: dict[str, tuple[dict[str, Any], bytes]] = {
    "plain": (question(), plain(completion("ok"))),
    "stream": (question(stream=True), stream("ok")),
    "large": (question(LARGE), plain(completion("ok"))),
    "blocked": (question("detonator"), plain(completion("ok"))),
    "refused": ({"model": ""}, plain(completion("ok"))),
}


@pytest.mark.parametrize("journalled", [False, True])
@pytest.mark.parametrize("kind", REQUESTS)
async def test_d9_a_cancellation_at_any_point_leaves_nothing_behind(
    kind: str, journalled: bool, tmp_path: Path
) -> None:
    body, answer = REQUESTS[kind]
    journal = Journal(path=str(tmp_path / "journal"), key="k" * 16, required=True) if journalled else None
    async with case(json.dumps(body).encode(), answer, journal) as made:
        turn = 1
        while await cancelled_at(made.request(), turn):
            await made.assert_nothing_is_left()
            turn += 1
        await made.assert_nothing_is_left()
        assert turn > (3 if kind == "refused" else 5)
        assert made.statuses[-1] == {"blocked": 400, "refused": 400}.get(kind, 200)


class Defect(Exception):
    pass


def failing(*_: object, **__: object) -> Any:
    raise Defect


async def failing_late(*_: object, **__: object) -> Any:
    await asyncio.sleep(0)
    raise Defect


PARTS = {
    "_read": failing_late,
    "json_object": failing,
    "_routed": failing,
    "scan_cost": failing,
    "offload": failing_late,
    "_refusal": failing,
    "RequestRewriter": failing,
    "refuse": failing_late,
    "prepare_relay": failing_late,
    "RoutedRequest": failing,
    "Relay": failing,
}


@pytest.mark.parametrize("step", [*(step.__name__ for step in admission.STEPS), *PARTS])
async def test_d9_a_defect_at_any_step_leaves_nothing_behind(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = question("detonator" if step == "refuse" else "hello")
    async with case(json.dumps(body).encode(), plain(completion("ok"))) as made:
        with monkeypatch.context() as patched:
            if step == "offload":
                patched.setattr(admission, "MAX_INLINE", 0)  # what is short is not offloaded
            if step in PARTS:
                patched.setattr(RequestRecord if step == "refuse" else admission, step, PARTS[step])
            else:
                steps = (failing_late if each.__name__ == step else each for each in admission.STEPS)
                patched.setattr(admission, "STEPS", tuple(steps))
            for _ in range(3):
                with pytest.raises(Defect):
                    await made.request()
                await made.assert_nothing_is_left()
        working: Awaitable[None] = made.request()
        await working
        assert made.statuses[-1] == (400 if step == "refuse" else 200)


async def test_d9_a_defect_of_the_log_at_the_end_gives_the_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with case(json.dumps(question()).encode(), plain(completion("ok"))) as made:
        with monkeypatch.context() as patched:
            patched.setattr(made.gateway, "count_dropped", failing)
            with pytest.raises(Defect):
                await made.request()
        await made.assert_nothing_is_left()


async def test_a_defect_before_the_answer_is_read_gives_the_upstream_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with case(json.dumps(question()).encode(), plain(completion("ok"))) as made:
        with monkeypatch.context() as patched:
            patched.setattr(relay, "open_guard", failing)
            await made.request()
        assert made.statuses[-1] == 500
        await made.assert_nothing_is_left()
        await made.request()
        assert made.statuses[-1] == 200
