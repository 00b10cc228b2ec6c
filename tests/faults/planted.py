"""The proof that the guard fails closed: an exception at every line of `gateway.guard` and `gateway.censor` that an
answer or its prompt passes, one at a time, in a real gateway on a socket.

Whatever line it is, the client gets no forbidden word and nothing that it would not have got, an error that is defined,
and the counters balance. The exception's text quotes the word.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures.thread import _WorkItem
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from types import CodeType, FrameType
from typing import Any

import httpx2

from gateway.app import build_app
from gateway.observe.log import RequestLog
from gateway.policy.model import Action, Config, Direction, Route, Rule, Strength
from gateway.policy.servers import Endpoint
from gateway.proxy.server import server_config
from tests.faults.speech import draw_word, leaks
from tests.support import message_streams, response_streams
from tests.support.endpoints import NATIVE
from tests.support.gateway import Metrics, config_for, http_client, listening, question
from tests.support.upstream import (
    DONE,
    END,
    MODEL,
    Call,
    Json,
    chunk,
    completion,
    delta,
    event,
    plain,
    playing,
    stream_head,
)

PACKAGES = ("/gateway/guard/", "/gateway/censor/")
BLOCKED = "WEIRDWORD"
SAMPLE = 60  # lines of the short form
_IDS = ("model", "id", "item_id", "response_id", "call_id", "created", "created_at")


class Planted(RuntimeError):
    """Not an error that anything expects."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line that a scenario passes, `hits` times."""

    code: CodeType
    line: int
    scenario: str
    hits: int

    def __str__(self) -> str:
        file = self.code.co_filename.rpartition("/gateway/")[2]
        return f"{file}:{self.line}, {self.scenario}"


@dataclass
class Tracer:
    """Records the lines that are passed, or raises at one of them."""

    word: str
    lines: Counter[tuple[CodeType, int]] | None = None
    target: tuple[CodeType, int, int] | None = None  # the line, and at which of its hits
    fired: bool = False
    _hits: int = 0

    def aim(self, code: CodeType, line: int, hit: int) -> None:
        self.target, self.fired, self._hits = (code, line, hit), False, 0

    def trace(self, frame: FrameType, what: str, _: object) -> Any:
        code = frame.f_code
        if self.lines is not None:
            guards = any(part in code.co_filename for part in PACKAGES)
            # Histograms see numbers only; a request in whose own count one fails is not counted.
            return self._record if guards and not code.co_qualname.startswith("Histogram.") else None
        return self._raise if self.target is not None and code is self.target[0] else None

    def _record(self, frame: FrameType, what: str, _: object) -> Any:
        if what == "line" and self.lines is not None:
            self.lines[frame.f_code, frame.f_lineno] += 1
        return self._record

    def _raise(self, frame: FrameType, what: str, _: object) -> Any:
        if what == "line" and self.target is not None and frame.f_lineno == self.target[1]:
            self._hits += 1
            if self._hits == self.target[2]:
                self.fired = True
                raise Planted(f"planted beside {self.word}")
        return self._raise


class _Log(io.StringIO):
    """Every request writes a line in the thread of the event loop. There the trace is put back: one that has raised is
    gone."""

    tracer: Tracer

    def write(self, text: str) -> int:
        sys.settrace(self.tracer.trace)
        return super().write(text)


Texts = dict[tuple[object, ...], str]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    raw: str
    texts: Texts
    failure: str | None  # the code of its error
    done: bool

    @classmethod
    def of(cls, response: httpx2.Response, raw: str, *, cut: bool) -> Answer:
        texts: Texts = {}
        failure = "cut off" if cut else None
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            payloads = [
                json.loads(line[6:]) for line in raw.split("\n") if line.startswith("data: {") and line[-1:] == "}"
            ]
        else:
            payloads = [json.loads(raw)]
        for payload in payloads:
            error = payload.get("error") or (payload.get("response") or {}).get("error")
            if error:
                failure = str(error.get("code") or error.get("type"))
            else:
                for key, text in _leaves(payload, (payload.get("type"),)):
                    texts[key] = texts.get(key, "") + text
        return cls(response.status_code, raw, texts, failure, "[DONE]" in raw or "message_stop" in raw)


def _leaves(value: object, key: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], str]]:
    """Every text by its place; a list's elements by their index, which says where a delta belongs."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        place = tuple(value.get(name) for name in ("index", "output_index", "content_index", "summary_index"))
        for name, member in value.items():
            if name not in _IDS:
                yield from _leaves(member, (*key, place, name))
    elif isinstance(value, list):
        for number, member in enumerate(value):
            named = isinstance(member, dict) and "index" in member
            yield from _leaves(member, (*key, None if named else number))


# -- what is asked and answered ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scenario:
    """A request, and what an upstream answers: the word is in every channel."""

    name: str
    path: str
    body: Json
    pieces: tuple[bytes, ...]
    native: bool = True


def _cut(rng: Random, text: str) -> list[str]:
    cuts = sorted({0, len(text), *(rng.randrange(len(text)) for _ in range(4))})
    return [text[a:b] for a, b in pairwise(cuts)]


def _sent(events: list[Json], *, ends: bool = True) -> tuple[bytes, ...]:
    last = (chunk(DONE) + END,) if ends else (END,)
    return (stream_head(), *(chunk(event(each)) for each in events), *last)


def _chat(rng: Random, word: str, *, blocked: bool = False) -> tuple[list[Json], Json]:
    said = f"a clean start, {word} and mail to someone@example.org, card 4111 1111 1111 1111, {word.lower()} {word[:3]}"
    if blocked:
        said = f"{said} then {BLOCKED} and {word} behind it"
    arguments = json.dumps({"place": f"at {word}", "note": json.dumps({"inner": word})})
    chunks = [delta("", role="assistant")]
    pieces = {name: _cut(rng, said) for name in ("content", "refusal", "reasoning_content")}
    order = [name for name, each in pieces.items() for _ in each]
    rng.shuffle(order)
    chunks += [delta(**{name: pieces[name].pop(0)}) for name in order]
    entries = [{"token": piece, "logprob": -1.0, "bytes": None, "top_logprobs": []} for piece in _cut(rng, said)]
    for entry in entries:
        each = delta(entry["token"], index=1)
        each["choices"][0]["logprobs"] = {"content": [entry]}
        chunks.append(each)
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": f"find_{word}", "arguments": ""}}
    chunks.append(delta(tool_calls=[call]))
    chunks += [delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in _cut(rng, arguments)]
    citation = {
        "type": "url_citation",
        "url_citation": {"title": word, "url": "http://a/", "start_index": 0, "end_index": 5},
    }
    chunks.append(delta(annotations=[citation], another_field=f"more of {word}"))
    chunks += [delta(index=1, finish="stop"), delta(finish="stop")]
    message = {"refusal": said, "reasoning_content": said, "annotations": [citation], "another_field": word}
    call = {**call, "function": {"name": f"find_{word}", "arguments": arguments}}
    whole = completion(said, tool_calls=[call], **message)
    whole["choices"][0]["logprobs"] = {"content": entries}
    return chunks, whole


def scenarios(rng: Random, word: str) -> list[Scenario]:
    chat, completions = "/v1/chat/completions", "/v1/completions"
    chunks, whole = _chat(rng, word)
    stopped, _ = _chat(rng, word, blocked=True)
    said = f"a clean start, {word}, and {word.lower()} again {word[:3]}"
    pieces = _cut(rng, said)
    prompt = f"what is {word}?"
    inner = [delta(piece) for piece in _cut(rng, json.dumps({"a": said, "b": [said, json.dumps({"c": said})]}))]
    parts = [
        {"id": "c", "object": "text_completion", "model": MODEL, "choices": [{"index": 0, "text": piece}]}
        for piece in pieces
    ]
    items = [
        response_streams.message(*pieces),
        response_streams.refusal(*pieces),
        response_streams.reasoning(*pieces),
        response_streams.summary(*pieces),
        response_streams.function_call(*_cut(rng, json.dumps({"a": said})), name=f"f_{word}"),
        response_streams.custom_call(*pieces),
        response_streams.mcp_call(*_cut(rng, json.dumps({"a": said}))),
    ]
    blocks = [
        message_streams.thinking(*pieces),
        message_streams.text(*pieces),
        message_streams.tool_use(*_cut(rng, json.dumps({"a": said}))),
    ]
    shown = [{"type": "thinking", "thinking": said, "signature": "c2ln"}, {"type": "text", "text": said}]
    asked = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": prompt}]}
    error = {"error": {"message": said, "type": "x", "param": word, "code": "y"}}
    two = {"n": 2, "logprobs": True}
    return [
        Scenario("chat stream", chat, question(prompt, stream=True, **two), _sent(chunks)),
        Scenario("chat", chat, question(prompt), (plain(whole),)),
        Scenario("chat stream, blocked", chat, question(prompt, stream=True, **two), _sent(stopped)),
        Scenario(
            "chat stream of JSON",
            chat,
            question(prompt, stream=True, response_format={"type": "json_object"}),
            _sent([*inner, delta(finish="stop")]),
        ),
        Scenario("chat stream, broken off", chat, question(prompt, stream=True, **two), _sent(chunks)[:-9]),
        Scenario(
            "chat stream, an error in it", chat, question(prompt, stream=True, **two), _sent([*chunks[:12], error])
        ),
        Scenario("an error", chat, question(prompt), (plain(error, 500),)),
        Scenario("completions stream", completions, {"model": MODEL, "prompt": prompt, "stream": True}, _sent(parts)),
        Scenario(
            "completions",
            completions,
            {"model": MODEL, "prompt": prompt},
            (plain({**parts[0], "choices": [{"index": 0, "text": said, "finish_reason": "stop"}]}),),
        ),
        Scenario(
            "responses stream",
            "/v1/responses",
            {"model": MODEL, "input": prompt, "stream": True},
            _sent(response_streams.events(*items), ends=False),
        ),
        Scenario(
            "responses",
            "/v1/responses",
            {"model": MODEL, "input": prompt},
            (plain(response_streams.response(*(item.done for item in items))),),
        ),
        Scenario(
            "messages stream",
            "/v1/messages",
            {**asked, "stream": True},
            _sent(message_streams.events(*blocks), ends=False),
        ),
        Scenario("messages", "/v1/messages", asked, (plain(message_streams.message(*shown)),)),
        Scenario(
            "responses over chat, stream",
            "/v1/responses",
            {"model": MODEL, "input": prompt, "stream": True},
            _sent(chunks[:-2] + chunks[-1:]),
            native=False,
        ),
        Scenario("messages over chat", "/v1/messages", asked, (plain(whole),), native=False),
    ]


def rules(word: str) -> tuple[Rule, ...]:
    """Words, patterns and detectors, one that is found through disguises, one that blocks, and one for prompts."""
    return (
        Rule(id="word", words=(word,), replacement="[GONE]", secret=True, strength=Strength.CAREFUL),
        Rule(id="block", words=(BLOCKED,), action=Action.BLOCK, message=" (stopped)"),
        Rule(id="mail", detector="email"),
        Rule(id="card", detector="credit_card", mask="*"),
        Rule(id="pattern", pattern=r"star+t,?", replacement="begin"),
        Rule(id="seen", words=("clean",), whole_word=True, action=Action.FLAG),
        Rule(id="asked", words=(word,), replacement="[ASKED]", apply_to=frozenset({Direction.INPUT})),
    )


# -- the run -----------------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """A gateway whose threads are traced, in front of an upstream that plays the scenario."""

    url: str
    client: httpx2.AsyncClient
    tracer: Tracer
    log: _Log
    scenarios: dict[str, Scenario]
    word: str
    playing: Scenario | None = None
    reference: dict[str, Answer] = field(default_factory=dict)

    async def ask(self, name: str) -> Answer:
        self.playing = scenario = self.scenarios[name]
        headers = {"anthropic-version": "2023-06-01", "host": "localhost"}
        model = scenario.body["model"] if scenario.native else "chat-only"
        body, raw, cut = {**scenario.body, "model": model}, b"", False
        async with self.client.stream("POST", scenario.path, json=body, headers=headers) as response:
            try:
                async for data in response.aiter_raw():
                    raw += data
            except httpx2.RemoteProtocolError:
                cut = True
        return Answer.of(response, raw.decode(), cut=cut)

    async def metrics(self) -> Metrics:
        return Metrics((await self.client.get("/metrics")).text)

    async def places(self) -> list[Place]:
        """Every line that is passed, with the scenarios that pass it."""
        found = []
        for name in self.scenarios:
            for _ in range(3):  # what is made once and kept is made before
                self.reference[name] = await self.ask(name)
            self.tracer.lines = Counter()
            again = await self.ask(name)
            lines, self.tracer.lines = self.tracer.lines, None
            assert again.texts == self.reference[name].texts, name
            assert not leaks(again.raw, self.word) and not sum(
                leaks(each, self.word) for each in again.texts.values()
            ), name
            found += [Place(code, line, name, hits) for (code, line), hits in lines.items()]
        return found

    async def plant(self, place: Place, hit: int) -> tuple[str, list[str]]:
        """How it came out, and what was wrong about it."""
        before = await self.metrics()
        seen = self.log.tell()
        self.tracer.aim(place.code, place.line, hit)
        answer = await self.ask(place.scenario)
        requests = 1
        if not self.tracer.fired:  # a trace that has raised is put back by the request after it
            self.tracer.aim(place.code, place.line, 1)  # how often it is passed depends on how the answer is read
            answer = await self.ask(place.scenario)
            requests = 2
        self.tracer.target = None
        wrong = []
        reference = self.reference[place.scenario]
        if answer.texts == reference.texts and answer.failure == reference.failure:
            outcome = "whole"
        elif answer.failure in ("guard_failed", "api_error", "internal_error", "server_error"):
            outcome = "failed closed"
        else:
            outcome = "other"
            wrong.append(f"neither whole nor failed: {answer.status} {answer.failure} {answer.raw[-200:]!r}")
        if not self.tracer.fired:
            outcome = "not passed"
        if outcome == "failed closed" and answer.done and answer.texts != reference.texts:
            wrong.append("it failed and says that it is complete")
        for key, text in answer.texts.items():
            if not reference.texts.get(key, "").startswith(text):
                wrong.append(f"{key}: {text!r} was not clean: {reference.texts.get(key)!r}")
        said = [answer.raw, *answer.texts.values(), self.log.getvalue()[seen:]]
        if leaked := sum(leaks(each, self.word) for each in said):
            wrong.append(f"the word came out {leaked} times")
        after = await self.metrics()
        wrong += _unbalanced(before, after, requests)
        return outcome, wrong


def _unbalanced(before: Metrics, after: Metrics, requests: int) -> list[str]:
    wrong = []
    answered = after.value("portcullis_requests_total") - before.value("portcullis_requests_total")
    if answered != requests:
        wrong.append(f"{answered:g} requests are counted, not {requests}")
    if after.value("portcullis_streams_active"):
        wrong.append("a stream is still counted as active")
    if after.value("portcullis_coverage_errors_total") > before.value("portcullis_coverage_errors_total"):
        wrong.append("characters are unaccounted for")
    return wrong


@asynccontextmanager
async def bench(rng: Random) -> AsyncIterator[Bench]:
    word = draw_word(rng)
    tracer = Tracer(word)
    made = {each.name: each for each in scenarios(rng, word)}
    here: list[Bench] = []

    async def play(call: Call) -> None:
        assert here[0].playing is not None
        for piece in here[0].playing.pieces:
            await call.send(piece)
            await asyncio.sleep(0.0005)  # an event to a read, which is what the fast paths are for
        if not here[0].playing.pieces[-1].endswith(END) and len(here[0].playing.pieces) > 1:
            call.close()

    log = _Log()
    log.tracer = tracer
    run = _WorkItem.run

    def traced(item: Any) -> None:
        sys.settrace(tracer.trace)  # as the log does in the loop's thread, so in those that scan long texts
        run(item)

    threading.settrace(tracer.trace)
    _WorkItem.run = traced
    try:
        async with playing(play) as upstream:
            config = config_for(upstream.base_url, rules=rules(word), **NATIVE)
            app = build_app(_with_chat_only(config), RequestLog("json", log))
            async with (
                listening(server_config(app, app.state.portcullis.state.record)) as url,
                http_client(url) as client,
            ):
                here.append(Bench(url, client, tracer, log, made, word))
                yield here[0]
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
        _WorkItem.run = run


def _with_chat_only(config: Config) -> Config:
    """And an upstream that speaks nothing but chat."""
    native = config.upstreams["played"]
    chat = replace(native, name="chat", endpoints=frozenset({Endpoint("chat/completions")}))
    routes = (Route(model="chat-only", upstream="chat", policy="default"), *config.routes)
    return replace(config, upstreams={**config.upstreams, "chat": chat}, routes=routes)


@dataclass(frozen=True, slots=True)
class Proof:
    """How many lines were tried, how each came out, and what was wrong."""

    lines: int
    outcomes: Counter[str]
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        counts = ", ".join(f"{count} × {name}" for name, count in sorted(self.outcomes.items()))
        return f"An exception at {self.lines} lines of the guard and the censor: {counts}; {len(self.wrong)} wrong."


async def prove(seed: int, sample: int | None = None) -> Proof:
    """Every line that is passed, or `sample` of them, each in one of the scenarios that pass it, at one of its hits."""
    rng = Random(f"{seed}/planted")
    async with bench(rng) as made:
        passed: dict[tuple[str, int], list[Place]] = {}
        for place in await made.places():
            passed.setdefault((place.code.co_filename, place.line), []).append(place)
        lines = sorted(passed)
        chosen = lines if sample is None else sorted(rng.sample(lines, min(sample, len(lines))))
        outcomes: Counter[str] = Counter()
        wrong = []
        for line in chosen:
            place = rng.choice(passed[line])
            outcome, found = await made.plant(place, rng.choice((1, place.hits, rng.randint(1, place.hits))))
            outcomes[outcome] += 1
            wrong += [f"{place}: {each}" for each in found]
        return Proof(len(chosen), outcomes, tuple(wrong))
