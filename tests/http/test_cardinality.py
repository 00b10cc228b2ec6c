"""What clients and upstreams choose makes no series of metrics and no field of the log, however much of it there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.examples import examples
from tests.support.gateway import Metrics, RunningGateway, before, question
from tests.support.upstream import END, Call, chunk, completion, delta, event, plain, stream_head

CLIENT_KEY = "sk-of-a-client"
LONGEST_LINE = 2048  # characters of the log
STATUSES = 200  # 400 to 599: others of an upstream are no error statuses, and become 502


def _series(metrics: Metrics) -> set[tuple[str, ...]]:
    """Statuses apart, of which there are so many and no more."""
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()) if name != "status"))
        for family in metrics.families
        for sample in family.samples
    }


def _fields(gateway: RunningGateway) -> set[str]:
    lines = gateway.log.getvalue().splitlines()
    assert max(map(len, lines)) < LONGEST_LINE
    return {name for line in lines for name in json.loads(line)}


async def _play(call: Call) -> None:
    """An answer in which everything that an upstream may choose is what the prompt says."""
    new = call.body["messages"][-1]["content"]
    kind, _, number = new.partition("-")
    label = {"id": new, "model": new, "system_fingerprint": new, "service_tier": new, new: new}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, f"{new}_tokens": 1, "total_tokens": 2}
    match kind:
        case "status":
            error = {"message": new, "type": new, "code": new, "param": new}
            await call.send(plain({"error": error, new: new}, 400 + int(number), f"x-{new}: {new}"))
        case "plain":
            answer = completion(new)
            answer["choices"][0]["message"] |= {new: new, "role": new}
            await call.send(plain(answer | label | {"usage": usage}))
        case "events":
            odd: list[Any] = [{"type": new, "event": new}, {"error": {"message": new, "code": new, "type": new}}]
            spoken = [{**delta(new), **label}, {"choices": [{"index": 0, "delta": {new: new}, "finish_reason": new}]}]
            await call.send(stream_head(), *(chunk(event(each)) for each in [*spoken, *odd]), END)


def _hostile(number: int) -> Iterator[tuple[str, str, dict[str, str], dict[str, Any]]]:
    """Method, path, headers and body of requests with new values everywhere; a long one among them."""
    new = f"new{number}-" + "x" * (5000 * (number % 3 == 0))
    own = {"authorization": f"Bearer {CLIENT_KEY}", "user-agent": new, "x-request-id": new, f"x-{number}": new}
    chat = "/v1/chat/completions"
    yield "POST", chat, {**own, "authorization": f"Bearer {new}"}, question("plain-1")
    yield "POST", chat, {**own, "x-portcullis-policy": new}, question("plain-1")
    yield "POST", chat, {**own, "traceparent": new, "x-portcullis-annotate": new}, question(f"plain-{number}")
    yield "POST", chat, own, question(f"plain-{number}", **{new: new, "user": new, "metadata": {new: new}})
    yield "POST", chat, own, {**question(f"plain-{number}"), "model": new}
    yield "POST", chat, own, {**question(f"plain-{number}"), "tools": [{"type": new, new: {"name": new}}]}
    yield "POST", f"{chat}?{new}={new}", own, question(f"events-{number}", stream=True)
    yield "POST", f"/openai/deployments/{new[:200]}/chat/completions", own, question(f"plain-{number}")
    yield "POST", f"/v1/{new[:200]}", own, question()
    yield "GET", f"/v1/models/{new[:200]}", own, {}
    yield "GET", f"/v1/responses/resp_{number}", own, {}
    yield f"NEW{number}", chat, own, {}


async def _attack(gateway: RunningGateway, number: int) -> None:
    for method, path, headers, body in _hostile(number):
        await gateway.client.request(method, path, headers=headers, content=json.dumps(body).encode())
    for status in range(number * 9 % 200, number * 9 % 200 + 9):
        await gateway.post(question(f"status-{status}"), {"authorization": f"Bearer {CLIENT_KEY}"})


async def test_neither_clients_nor_upstreams_make_series_or_fields() -> None:
    async with before(_play, keys=(CLIENT_KEY,)) as (gateway, _):
        await _attack(gateway, 0)
        await _attack(gateway, 1)
        series, fields = _series(await gateway.metrics()), _fields(gateway)
        for number in range(2, 2 + examples(12)):
            await _attack(gateway, number)
        metrics = await gateway.metrics()
        assert _series(metrics) == series
        assert _fields(gateway) == fields
        statuses = {each["status"] for each in metrics.labels("portcullis_requests_total")}
        assert {"200", "400", "401", "404", "405"} < statuses and len(statuses) <= STATUSES + 2
        assert "new" not in metrics.text
