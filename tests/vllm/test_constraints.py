"""Constraints on a real vLLM, with each of its two usual engines: what it says at random is of the language."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.decode.constraints import ConstraintAcceptor, compiled, structured_outputs
from gateway.policy.model import Config, Constrain, Language, Policy, Route, Upstream
from tests.support.gateway import PATIENT, running
from tests.support.vllm_server import NAME, Server, chat, serving
from tests.vllm.conftest import free_port

pytestmark = pytest.mark.vllm

QUESTION = "What is the password?"
SAMPLED, AT_ONCE = 200, 50

YEAR = Constrain(language=Language.REGEX, texts=(r"^[A-Z][a-z]+ \d{4}$",))
# What engines read differently, or not at all, where it is not written out.
ODD = Constrain(language=Language.REGEX, texts=(r"(?i)(?:no|ja)[\^_!]{2}\s\w{1,3}[^\W\d]?\.\p{Lu}|.[\d\]^-]{3,4}",))
OPTIONS = Constrain(language=Language.CHOICE, texts=("yes", "yes, but", 'nö "\\" 😀', "one\ntwo", "[^a-z]+", " "))
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["é/1", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMA = Constrain(language=Language.JSON_SCHEMA, texts=(json.dumps(PERSON),))
SUMS = Constrain(
    language=Language.GRAMMAR,
    texts=(r"start: sum // of numbers" "\n" r'sum: NUMBER | sum " "? /[+^]/ " "? NUMBER' "\n" r"NUMBER: /\d{1,3}/",),
)


@pytest.fixture(scope="module")
def guidance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("guidance") / "vllm.log"
    with serving(log, free_port(), ["--structured-outputs-config.backend", "guidance"]) as running:
        yield running


@pytest.fixture(params=["server", "guidance"])
def engine(request: pytest.FixtureRequest) -> Server:
    """The session's server takes xgrammar by itself."""
    server: Server = request.getfixturevalue(request.param)
    return server


def sampled(server: Server, constrain: Constrain, count: int, **more: Any) -> list[Any]:
    """That many choices at temperature 1."""
    body = chat(QUESTION, temperature=1, max_tokens=40, structured_outputs=structured_outputs(constrain), **more)
    found: list[Any] = []
    while len(found) < count:
        answer = server.json("/v1/chat/completions", {**body, "n": min(AT_ONCE, count), "seed": len(found)})
        found += answer["choices"]
    return found


def verdict(constrain: Constrain, text: str) -> str:
    reading = ConstraintAcceptor(compiled(constrain))
    if reading.feed(text) is not None:
        return "left"
    return "held" if reading.accepting() else "unfinished"


def check(constrain: Constrain, choices: list[Any], least: int) -> None:
    """Every choice is of the language, or was cut short while it could still become one; at least `least` are."""
    verdicts = [verdict(constrain, choice["message"]["content"]) for choice in choices]
    for choice, found in zip(choices, verdicts, strict=True):
        expected = {"stop": {"held"}, "length": {"held", "unfinished"}}[choice["finish_reason"]]
        assert found in expected, choice
    assert verdicts.count("held") >= least, verdicts


@pytest.mark.parametrize("constrain", [YEAR, ODD, OPTIONS], ids=["year", "odd", "choice"])
def test_texts_at_random(engine: Server, constrain: Constrain) -> None:
    choices = sampled(engine, constrain, SAMPLED)
    check(constrain, choices, SAMPLED // 2)
    assert len({choice["message"]["content"] for choice in choices}) > 1


@pytest.mark.parametrize("constrain", [SCHEMA, SUMS], ids=["schema", "grammar"])
def test_schemas_and_grammars_at_random(engine: Server, constrain: Constrain) -> None:
    check(constrain, sampled(engine, constrain, 48, logit_bias=_less_blank(engine)), 1)


def _less_blank(server: Server) -> dict[str, int]:
    """White space without end is of the language, too, and to this model as good as anything."""
    return {str(token): -20 for blank in ("\n", " ", "\t", "\r", "  ", "    ") for token in server.tokenize(blank)}


def test_the_largest_expression_is_compiled_in_time(engine: Server) -> None:
    largest = Constrain(language=Language.REGEX, texts=(r"\w{1,40}",))
    check(largest, sampled(engine, largest, 1), 0)


def test_a_format_of_older_versions_is_ignored_and_found_out(server: Server) -> None:
    said = server.chat(QUESTION, guided_regex=YEAR.texts[0])["message"]["content"]
    assert verdict(YEAR, said) == "left"


# -- through the gateway -----------------------------------------------------------------------------------------------


def config(server: Server, constrain: Constrain, kind: str) -> Config:
    upstream = Upstream(name="model", type=kind, base_url=f"{server.url}/v1", timeouts=PATIENT)
    return Config(
        upstreams={"model": upstream},
        routes=(Route(model="*", upstream="model", policy="p", rename=NAME),),
        policies={"p": Policy(name="p", constrain=constrain)},
    )


@pytest.mark.parametrize("constrain", [YEAR, OPTIONS, SCHEMA, SUMS], ids=["year", "choice", "schema", "grammar"])
async def test_held_through_the_gateway(server: Server, constrain: Constrain) -> None:
    async with running(config(server, constrain, "vllm")) as gateway:
        own = {"guided_json": "{}", "response_format": {"type": "json_object"}}
        asked: dict[str, Any] = {"temperature": 1, "max_tokens": 40, "n": 4, "logit_bias": _less_blank(server), **own}
        streamed = await gateway.stream(QUESTION, **asked)
        plain = (await gateway.ask(QUESTION, **asked)).json()["choices"]
        assert (await gateway.metrics()).value("portcullis_constraints_total", outcome="left") == 0
    texts = [(streamed.content(index), streamed.finish(index)) for index in range(4)]
    texts += [(choice["message"]["content"], choice["finish_reason"]) for choice in plain]
    assert len(texts) == 8
    for text, finish in texts:
        assert verdict(constrain, text) in ("held", "unfinished") and finish in ("stop", "length")


async def test_a_model_that_is_not_held_is_blocked(server: Server) -> None:
    """Which every model is that the gateway does not know to be a vLLM."""
    constrain = replace(YEAR, require=False)
    async with running(config(server, constrain, "openai")) as gateway:
        streamed = await gateway.stream(QUESTION, temperature=0, max_tokens=40)
        plain = (await gateway.ask(QUESTION, temperature=0, max_tokens=40)).json()["choices"][0]
        assert (await gateway.metrics()).value("portcullis_constraints_total", outcome="left") == 2
    assert (streamed.content(), streamed.finish()) == ("The ", "content_filter")
    assert (plain["message"]["content"], plain["finish_reason"]) == ("The ", "content_filter")
