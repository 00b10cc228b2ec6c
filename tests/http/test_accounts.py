"""What is accounted: the metrics after known traffic, one log line for each request, and no text in either."""

from __future__ import annotations

import pytest

from gateway.policy.model import Overflow, Rule
from tests.support.gateway import BLOCKED_WORD, PASSWORD, UPSTREAM_KEY, Metrics, RunningGateway, before, question
from tests.support.upstream import Call, completion, event, http, plain, sending, stream, stream_head
from tests.support.upstream import chunk as http_chunk

CLIENT_KEY = "sk-of-a-client"
KEY = {"authorization": f"Bearer {CLIENT_KEY}"}


async def play(call: Call) -> None:
    said = call.body["messages"][-1]["content"]
    if "fail" in said:
        await call.send(plain({"error": {"message": f"{PASSWORD} {UPSTREAM_KEY}"}}, 429))
    elif "html" in said:
        await call.send(http(200, f"<html>{PASSWORD} {UPSTREAM_KEY}".encode(), "text/html"))
    elif "odd" in said:
        await call.send(stream_head() + http_chunk(event([PASSWORD]) + event("x") + b"data: [DONE]\n\n") + b"0\r\n\r\n")
    elif call.body.get("stream"):
        await call.send(stream("It is 12", "MONKEYS, dragon. ", "FORBIDDEN rest" if "block" in said else "End 12"))
    else:
        await call.send(plain(completion(f"It is {PASSWORD}.")))


async def some_traffic(gateway: RunningGateway) -> int:
    """One request of each kind; how many there were."""
    requests = [
        question("hello"),
        question("hello", stream=True),
        question("Voldemort", stream=True),
        question("block", stream=True),
        question("detonator"),
        question("fail"),
        question("fail", stream=True),
        question("html"),
        question("html", stream=True),
        question(model=f"no-{PASSWORD}", stream="no"),
    ]
    for body in requests:
        await gateway.post(body, KEY)
    await gateway.post(question(), {"authorization": f"Bearer {PASSWORD}"})
    await gateway.client.get(f"/v1/{PASSWORD}", headers=KEY)
    await gateway.client.get(f"/v1/models/{PASSWORD}", headers=KEY)
    await gateway.client.request("PATCH", "/v1/chat/completions", headers=KEY)
    return len(requests) + 4


async def test_known_traffic_is_counted() -> None:
    async with before(play, keys=(CLIENT_KEY,)) as (gateway, _):
        await some_traffic(gateway)
        metrics = await gateway.metrics()

        def requests(status: str, **labels: str) -> float:
            return metrics.value("portcullis_requests_total", status=status, path="/v1/chat/completions", **labels)

        assert requests("200", policy="default", route="*") == 4 + 1  # an HTML answer to a stream ends in its own error
        assert requests("429", policy="default", route="*") == 2
        assert requests("502", policy="default", route="*") == 1
        assert requests("400", policy="default", route="*") == 1
        assert requests("400", policy="none", route="none") == 1
        assert requests("401", policy="none", route="none") == 1

        def matches(rule: str, action: str, channel: str = "content") -> float:
            labels = {"policy": "default", "rule": rule, "action": action, "channel": channel}
            return metrics.value("portcullis_matches_total", **labels)

        assert matches("password", "redact") == 4
        assert matches("notable", "flag") == 3
        assert matches("stop", "block") == 1
        assert matches("prompt-name", "redact") == 1
        assert matches("prompt-stop", "block") == 1
        assert matches("password", "redact", "other") == 2  # in the errors

        metrics.assert_covered()
        assert metrics.value("portcullis_replaced_chars_total", channel="content") == 4 * 9 + len("Voldemort")
        assert metrics.value("portcullis_withheld_chars_total", channel="content") >= len(BLOCKED_WORD)
        assert metrics.value("portcullis_upstream_errors_total", upstream="played", kind="status") == 2
        assert metrics.value("portcullis_upstream_errors_total", upstream="played") >= 3
        assert metrics.value("portcullis_streams_active") == 0
        assert metrics.value("portcullis_upstream_up", upstream="played") == 1


@pytest.mark.parametrize(
    ("events", "kind"),
    [(event({"error": {"message": "no"}}), "error_event"), (event("x") + b"data: {half\n\n", "protocol")],
)
async def test_an_answer_that_breaks_off_is_no_success(events: bytes, kind: str) -> None:
    async with before(sending(stream_head() + http_chunk(events) + b"0\r\n\r\n")) as (gateway, _):
        await gateway.post(question(stream=True))
        line = (await gateway.logged(1))[0]
        assert (line["outcome"], line["error"]) == ("failed", kind)
        assert (await gateway.metrics()).value("portcullis_upstream_errors_total", kind=kind) == 1


async def test_exact_characters_of_one_stream() -> None:
    async with before(sending(stream("It is 12", "MONKEYS, so 12MON"))) as (gateway, _):
        await gateway.stream("Voldemort!")
        metrics = await gateway.metrics()

        def chars(what: str) -> float:
            return metrics.value(f"portcullis_{what}_chars_total", channel="content")

        prompt, answer = "Voldemort!", "It is 12MONKEYS, so 12MON"
        assert chars("scanned") == len(prompt) + len(answer)
        assert chars("replaced") == len("Voldemort") + len(PASSWORD)
        assert chars("forwarded") == chars("scanned") - chars("replaced")
        assert chars("withheld") == 0


async def test_every_metric_of_this_version_is_there() -> None:
    async with before(play, keys=(CLIENT_KEY,)) as (gateway, _):
        await some_traffic(gateway)
        await gateway.post(question("odd", stream=True), KEY)
        metrics = await gateway.metrics()
        for name, labels in {
            "requests_total": {"path", "route", "policy", "status"},
            "matches_total": {"policy", "rule", "action", "channel"},
            "scanned_chars_total": {"channel"},
            "forwarded_chars_total": {"channel"},
            "replaced_chars_total": {"channel"},
            "withheld_chars_total": {"channel"},
            "held_chars_bucket": {"le"},
            "held_chars_count": set(),
            "hold_seconds_bucket": {"le"},
            "overhead_seconds_bucket": {"le"},
            "ttft_seconds_bucket": {"le"},
            "streams_active": set(),
            "upstream_up": {"upstream"},
            "upstream_errors_total": {"upstream", "kind"},
            "unknown_events_total": {"path"},
        }.items():
            found = metrics.labels(f"portcullis_{name}")
            assert found, name
            assert all(each.keys() == labels for each in found), name
        assert metrics.value("portcullis_ttft_seconds_count") >= 3
        assert metrics.value("portcullis_overhead_seconds_count") > 0
        assert metrics.value("portcullis_held_chars_count") > 0
        assert metrics.value("portcullis_unknown_events_total", path="/v1/chat/completions") >= 1


async def test_overflows_are_counted() -> None:
    rule = Rule(id="r", words=("x" * 64,))
    play = sending(stream("x" * 40))
    async with before(play, rules=(rule,), max_hold=16, on_overflow=Overflow.RELEASE) as (gateway, _):
        assert (await gateway.stream()).content() == "x" * 40
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_overflows_total", policy="default") == 24
        metrics.assert_covered()


def label_values(metrics: Metrics) -> set[str]:
    return {
        value
        for family in metrics.families
        for sample in family.samples
        for name, value in sample.labels.items()
        if name != "le"
    }


async def test_label_values_come_from_the_configuration() -> None:
    async with before(play, keys=(CLIENT_KEY,)) as (gateway, _):
        await some_traffic(gateway)
        before_more = label_values(await gateway.metrics())
        for number in range(5):
            await gateway.client.get(f"/v1/made-up-{number}", headers=KEY)
            await gateway.client.get(f"/v1/models/made-up-{number}", headers=KEY)
            await gateway.post(question(user=f"u{number}") | {"model": f"model-{number}"}, KEY)
        assert label_values(await gateway.metrics()) == before_more


async def test_one_line_for_each_request_and_no_text_in_it() -> None:
    async with before(play, keys=(CLIENT_KEY,)) as (gateway, _):
        count = await some_traffic(gateway)
        lines = await gateway.logged(count)
        assert len({line["request_id"] for line in lines}) == count
        assert all(line["event"] == "request" for line in lines)
        by_outcome = [line["outcome"] for line in lines]
        assert by_outcome[:5] == ["redacted", "redacted", "redacted", "blocked", "blocked"]
        assert lines[0]["scanned"] == lines[0]["forwarded"] + lines[0]["replaced"] + lines[0]["withheld"]
        assert lines[0]["matches"] == {"password": 1}
        exposed = gateway.log.getvalue() + (await gateway.metrics()).text
        for text in (PASSWORD, BLOCKED_WORD, "dragon", "oldemort", "detonator", CLIENT_KEY, UPSTREAM_KEY, "hello"):
            assert text.lower() not in exposed.lower(), text


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_stream_of_another_request_is_not_counted_twice(streamed: bool) -> None:
    async with before(play) as (gateway, _):
        for _ in range(3):
            await gateway.ask(stream=streamed)
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_requests_total") == 3
        assert metrics.value("portcullis_matches_total", rule="password") == 3
        await gateway.logged(3)
