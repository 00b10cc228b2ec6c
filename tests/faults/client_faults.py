"""What a client can do to the gateway, at every stage of a request, on a raw socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

from tests.faults.client import Client, Seen, body_of, head_of, request_of
from tests.faults.fault import Act, Counts, Fault, Trial, answered, cancelled, total
from tests.faults.speech import Speech, whole_answer
from tests.support.upstream import END, Call, chunk, delta, event, stream_head

_LEAVING = ("close", "reset")
_LEFT: Counts = {"status 400": 1, "failed: client_left": 1}  # before the body was there


async def _begins(call: Call, speech: Speech) -> None:
    await call.send(stream_head() + speech.begun)
    await call.hang()


async def _silent(call: Call, _: Speech) -> None:
    await call.hang()


async def _torrent(call: Call, speech: Speech) -> None:
    call.conversation.writer.transport.set_write_buffer_limits(high=1024)
    await call.send(stream_head())
    while not call.conversation.writer.is_closing():
        await call.send(chunk(event(delta(f"{speech.word} filler " * 200))))


async def _long(call: Call, speech: Speech) -> None:
    pieces = (chunk(event(delta(f"{number} {speech.word} " + "filler " * 300))) for number in range(200))
    await call.send(stream_head(), *pieces, speech.rest + END)


def _leaves(stage: str) -> Act:
    """The client goes at this stage, with a FIN or a reset as the seed says."""

    async def act(trial: Trial) -> None:
        how = trial.rng.choice(_LEAVING)
        place, stream = trial.world, stage != "before the head of a plain answer"
        place.stage.scene = _begins if stage.startswith("within") else _silent
        calls = len(place.stage.calls)
        client = await place.connect()
        request = request_of("any", stream=stream)
        head, _, body = request.partition(b"\r\n\r\n")
        cut = {
            "before the first byte": 0,
            "within the head": trial.rng.randrange(1, len(head)),
            "after the head": len(head) + 4,
            "within the body": len(head) + 4 + trial.rng.randrange(1, len(body)),
        }.get(stage, len(request))
        await client.send(request[:cut])
        if cut == len(request):
            while len(place.stage.calls) == calls:
                await asyncio.sleep(0.005)
        elif cut:
            await asyncio.sleep(0.1)  # the head is read before the end of the connection
        if stage.startswith("within the answer"):
            await client.reader.readuntil(b"data: ")
        client.leave(how)
        if cut == len(request):
            # The upstream is let go: it never ends by itself.
            await place.stage.calls[-1].conversation.client_left.wait()

    return act


async def _half_closes(trial: Trial) -> None:
    trial.world.stage.scene = _silent
    client = await trial.world.connect()
    await client.send(request_of("any", stream=True))
    client.writer.write_eof()
    await client.reader.read()
    client.close()


async def _reads_nothing(trial: Trial) -> None:
    trial.world.stage.scene = _torrent
    calls = len(trial.world.stage.calls)
    client = await trial.world.connect(narrow=True)
    await client.send(request_of("any", stream=True))
    while len(trial.world.stage.calls) == calls:
        await asyncio.sleep(0.005)
    while not trial.world.stage.calls[-1].conversation.writer.is_closing():
        await asyncio.sleep(0.02)
    client.reset()


async def _reads_slowly(trial: Trial) -> None:
    trial.world.stage.scene = _long
    client = await trial.world.connect(narrow=True)
    await client.send(request_of("any", stream=True))
    got = b""
    while not got.endswith(b"\r\n0\r\n\r\n"):
        got += (piece := await client.reader.read(4096))
        trial.require(piece, "the stream ended before its end")
        if not piece:
            break
        await asyncio.sleep(0.001)
    trial.require(b"[DONE]" in got, "no [DONE]")
    trial.received.append(got.decode())
    client.close()


async def _pipelines(trial: Trial) -> None:
    trial.world.stage.scene = whole_answer
    client = await trial.world.connect()
    streams = [trial.rng.random() < 0.5 for _ in range(4)]
    await client.send(b"".join(request_of("any", stream=stream) for stream in streams))
    for stream in streams:
        answer = await client.read()
        trial.got(answer)
        trial.expect("answer", answer.summary, "200 done" if stream else "200")
        trial.expect("content", answer.content, trial.speech.censored)
    client.close()


async def _pipelines_on_and_leaves(trial: Trial) -> None:
    trial.world.stage.scene = _begins
    client = await trial.world.connect()
    await client.send(request_of("any", stream=True) * 3)
    await client.reader.readuntil(b"data: ")
    client.leave(trial.rng.choice(_LEAVING))


def _raw(request: bytes, *answers: str) -> Act:
    """Bytes that are no request as it should be; the connection ends after the answers."""

    async def act(trial: Trial) -> None:
        client = await trial.world.connect()
        await client.send(request.replace(b"WORD", trial.speech.word.encode()))
        for wanted in answers:
            answer = await client.read()
            trial.got(answer)
            trial.expect("answer", answer.summary, wanted)
        trial.expect("behind it", (await client.read()).summary, "closed")
        client.close()

    return act


def _slow(what: str, clients: int, ends: str) -> Act:
    """A byte every so often until the gateway ends it, from several clients; others are served meanwhile."""

    async def one(trial: Trial) -> Seen:
        client = await trial.world.connect()
        if what == "body":
            await client.send(head_of(100_000))
        reading = asyncio.create_task(client.read())
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Note: "
        rest = iter(head) if what == "head" else iter(())
        while not reading.done():
            try:
                await client.send(bytes([next(rest, ord("x"))]))
            except ConnectionError:
                break
            await asyncio.wait({reading}, timeout=0.25)
        answer = await reading
        client.close()
        return answer

    async def act(trial: Trial) -> None:
        slow = [asyncio.create_task(one(trial)) for _ in range(clients)]
        trial.world.stage.scene = whole_answer
        trial.expect("meanwhile", (await trial.world.ask(trial)).summary, "200")
        for answer in await asyncio.gather(*slow):
            trial.got(answer)
            trial.expect("answer", answer.summary, ends)

    return act


async def _many_connect(trial: Trial) -> None:
    """Three hundred connections that say nothing, or a part of a head; others are served."""
    clients = await asyncio.gather(*(trial.world.connect() for _ in range(300)))
    for client in clients[::2]:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nX-A: " + b"a" * trial.rng.randrange(2000))
    trial.world.stage.scene = whole_answer
    trial.expect("meanwhile", (await trial.world.ask(trial)).summary, "200")
    for client in clients:
        client.leave(trial.rng.choice(_LEAVING))


async def _expects(trial: Trial) -> None:
    """Waits for 100 before it sends its body, and goes instead."""
    client = await trial.world.connect()
    await client.send(head_of(1000, "Expect: 100-continue"))
    await client.reader.readuntil(b"100 Continue\r\n\r\n")
    client.leave(trial.rng.choice(_LEAVING))


async def _reads_after_the_upstream(trial: Trial) -> None:
    """A whole answer that is larger than the system's buffers, and a client that comes back to it later."""
    trial.world.stage.scene = _long
    client = await trial.world.connect(narrow=True)
    await client.send(request_of("any"))
    await asyncio.sleep(0.5)
    wide = Client(client.reader, client.writer)
    raw = client.writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    client.reader._limit = 1 << 20  # type: ignore[attr-defined]
    answer = await wide.read()
    trial.got(answer)
    trial.expect("answer", answer.summary, "200")
    client.close()


def faults() -> Iterator[Fault]:
    def fault(
        name: str, does: str, gets: str, act: Act, counts: Counts, *, sample: bool = False, slow: bool = False
    ) -> Fault:
        return Fault(name, "client", does, gets, act, counts, sample, slow)

    nothing: Counts = {}
    for stage, counts in {
        "before the first byte": nothing,
        "within the head": nothing,
        "after the head": _LEFT,
        "within the body": _LEFT,
        "before the head of a plain answer": cancelled(),
        "before the head of a stream": cancelled(),
        "within the answer": cancelled(status=200),
    }.items():
        yield fault(f"leaves {stage}", f"leaves {stage}", "–", _leaves(stage), counts, sample="answer" in stage)
    yield fault(
        "half-closes",
        "closes its half of the connection behind its request",
        "closed",
        _half_closes,
        cancelled(),
        sample=True,
    )
    yield fault(
        "reads nothing",
        "reads nothing of a stream without end",
        "reset",
        _reads_nothing,
        cancelled("client does not read", 200),
        sample=True,
    )
    yield fault(
        "reads slowly", "reads 4 KiB at a time of half a megabyte", "200 done", _reads_slowly, answered(), sample=True
    )
    yield fault(
        "comes back", "reads nothing of a whole answer for a while", "200", _reads_after_the_upstream, answered()
    )
    yield fault("pipelines", "sends four requests at once", "200 each", _pipelines, answered(4), sample=True)
    yield fault(
        "pipelines and leaves",
        "sends three, leaves within the first answer",
        "–",
        _pipelines_on_and_leaves,
        cancelled(status=200),
    )
    yield fault("waits for 100", "asks for 100 Continue, leaves", "100", _expects, _LEFT)
    yield fault(
        "three hundred at once",
        "connects, sends nothing or half a head",
        "others: 200",
        _many_connect,
        answered(),
        sample=True,
    )
    body = body_of("any")
    yield fault(
        "two lengths",
        "sends two lengths",
        "400",
        _raw(head_of(3, "Content-Length: 9") + body, "400 invalid_http"),
        {"status 400": 1, "failed: invalid_http": 1},
    )
    yield fault(
        "length and chunks",
        "sends a length and chunks, a word behind",
        "400",
        _raw(head_of(3, "Transfer-Encoding: chunked") + b"0\r\n\r\nWORD", "400 invalid_http"),
        {"status 400": 1, "failed: invalid_http": 1},
        sample=True,
    )
    yield fault(
        "no HTTP",
        "sends something else",
        "400",
        _raw(b"WORD WORD\r\n\r\n", "400 invalid_http"),
        {"status 400": 1, "failed: invalid_http": 1},
    )
    yield fault(
        "a large head",
        "sends 100 KiB of headers",
        "431",
        _raw(head_of(3, "X-Word: WORD" + "x" * 100_000), "431 head_too_large"),
        {"status 431": 1, "failed: head_too_large": 1},
    )
    yield fault(
        "a large body",
        "says that a gigabyte comes",
        "413",
        _raw(head_of(1 << 30) + b"WORD" * 100, "413 request_too_large"),
        {"status 413": 1, "failed: request_too_large": 1},
    )
    yield fault(
        "slow heads",
        "20 clients send a head a byte at a time",
        "closed after 30 s",
        _slow("head", 20, "closed"),
        answered(),
        slow=True,
    )
    yield fault(
        "slow bodies",
        "20 clients send a body a byte at a time",
        "408 after 60 s",
        _slow("body", 20, "408 request_timeout"),
        total(answered(), {"status 408": 20, "failed: request_timeout": 20}),
        slow=True,
    )
