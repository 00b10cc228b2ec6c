"""An answer that is told again: what the client sees of it, what is asked again, and that it ends."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.automata.vocabulary import Vocabulary
from gateway.censor.compile import compile_policy
from gateway.censor.stream import Censor
from gateway.decode.rollback import Caps
from gateway.guard.findings import Finding
from gateway.policy.model import Action, Channel, Direction, Exhausted, Policy, Rule
from gateway.proxy.steering import rollback as rollback_module
from gateway.proxy.steering.resume import answer_limits, first_request, resumed_request
from gateway.proxy.steering.rollback import RollbackParams, RollbackStream, UnreadableAnswer
from gateway.wire.chat import CHAT
from gateway.wire.completions import COMPLETIONS
from tests.support import decode_routes as routes
from tests.support.examples import examples
from tests.support.scripted_model import PROMPT, ScriptedModel, Step, insisting, vocabulary_of

Json = dict[str, Any]
BAD = Rule(id="bad", words=("bad",), action=Action.ROLLBACK)


@dataclass
class Told:
    """What came out of an answer."""

    events: list[Json] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    passed: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(map(_text, self.events))

    @property
    def reason(self) -> str | None:
        return next((r for e in self.events for c in e["choices"] if (r := c.get("finish_reason"))), None)

    @property
    def usage(self) -> Json:
        return dict(next(event["usage"] for event in self.events if "usage" in event))


def _text(event: Json) -> str:
    return "".join(c["delta"].get("content") or "" if "delta" in c else c["text"] for c in event["choices"])


def policy_of(*rules: Rule) -> Policy:
    return Policy(name="p", rules=rules)


def tell(
    model: ScriptedModel,
    *rules: Rule,
    chat: bool = True,
    caps: Caps | None = None,
    maskable: frozenset[str] = frozenset(),
    context_length: int | None = 1000,
    **asked: Any,
) -> Told:
    """Let the model answer; further requests are made as the gateway makes them."""
    program = compile_policy(policy_of(*(rules or (BAD,)))).stops
    assert program is not None
    body = {"model": "scripted", "stream": True, "stream_options": {"include_usage": True}, **asked}
    if not chat:
        body["prompt"] = list(PROMPT)
    said = answer_limits(body, True)
    params = RollbackParams(
        policy="p",
        program=program,
        vocabulary=model.vocabulary,
        shape=(CHAT if chat else COMPLETIONS).content,
        deterministic=said.deterministic,
        max_tokens=said.max_tokens,
        stops=said.stops,
        include_stop=said.include_stop,
        server_bans=model.masks,
        maskable=maskable,
        include_usage=said.include_usage,
        caps=caps or Caps(),
    )
    told = Told()
    rollback = RollbackStream(params, told.findings.append)
    rollback.context_length = context_length
    path, request = "/v1/chat/completions" if chat else "/v1/completions", first_request(body, True)
    while True:
        for event in model.events(path, request):
            told.events += rollback.feed(event)
            if rollback.resume is not None or rollback.done:
                break
        told.outcomes += [fact.outcome for fact in rollback.facts]
        rollback.facts.clear()
        resume, rollback.resume = rollback.resume, None
        if resume is None:
            break
        path, request = "/v1/completions", resumed_request(body, resume, None)
        if model.masks and resume.banned:
            del request["logit_bias"]
            request["vllm_xargs"] = {"portcullis.not_first": list(resume.banned)}
    told.events += rollback.finish()
    return told


# -- one match ---------------------------------------------------------------------------------------------------------

WORDS = vocabulary_of("a", " b", "ad", " good", " day", "!", " ba", "d")
END = 8


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("merge", [1, 2, 3, 9])
def test_it_goes_another_way(merge: int, chat: bool, masks: bool) -> None:
    model = ScriptedModel(WORDS, insisting(0, 1, 2, 5, otherwise=[3], end=END), merge=merge, masks=masks)
    told = tell(model, chat=chat)
    assert told.text == "a good"
    assert told.reason == "stop"
    assert told.outcomes == ["resampled", "banned"]
    assert [(each.rule, each.action, each.offset, each.length) for each in told.findings] == [
        ("bad", Action.ROLLBACK, 2, 3)
    ] * 2
    assert told.usage == {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
        "portcullis": {"rollbacks": 2, "discarded_tokens": sum(_discarded(model))},
    }


def _discarded(model: ScriptedModel) -> list[int]:
    """Of both tellings that were cut off: at least the two tokens of the word, and what came in the same event."""
    seen = [min(5, -(-3 // model.merge) * model.merge)]
    seen.append(min(5, 1 + -(-2 // model.merge) * model.merge))
    return [tokens - 1 for tokens in seen]


def test_what_is_asked_again() -> None:
    model = ScriptedModel(WORDS, insisting(0, 1, 2, otherwise=[3], end=END))
    tell(model, temperature=0.5, seed=7, max_tokens=20, min_tokens=3, top_p=0.9, stop=["x"], logprobs=True)
    (first, _), *others = model.requests
    assert first == "/v1/chat/completions"
    assert [path for path, _ in others] == ["/v1/completions"] * 3
    resampled, one, on = (body for _, body in others)
    same = {"model": "scripted", "temperature": 0.5, "top_p": 0.9, "stream": True, "return_token_ids": True}
    same |= {"add_special_tokens": False}
    assert resampled == {**same, "prompt": [*PROMPT, 0], "max_tokens": 19, "min_tokens": 2, "seed": 8}
    assert one == {**same, "prompt": [*PROMPT, 0], "max_tokens": 1, "seed": 9, "logit_bias": {"1": -100}}
    assert on == {**same, "prompt": [*PROMPT, 0, 3], "max_tokens": 18, "min_tokens": 1, "seed": 9}


def test_at_temperature_0_nothing_is_drawn_again() -> None:
    told = tell(ScriptedModel(WORDS, insisting(0, 1, 2, otherwise=[3], end=END)), temperature=0)
    assert (told.text, told.outcomes) == ("a good", ["banned"])


def test_what_is_drawn_again_may_be_good() -> None:
    def choose(step: Step) -> int:
        first = insisting(0, 1, 2, end=END)
        return first(step) if step.seed == 1 else insisting(0, 3, 4, end=END)(step)

    model = ScriptedModel(WORDS, choose)
    told = tell(model, seed=1)
    assert (told.text, told.outcomes, len(model.requests)) == ("a good day", ["resampled"], 2)


def test_an_answer_without_a_match_is_as_it_was() -> None:
    model = ScriptedModel(WORDS, insisting(0, 3, 4, 5, end=END))
    told = tell(model)
    assert (told.text, told.reason, told.outcomes) == ("a good day!", "stop", [])
    assert told.usage["completion_tokens"] == 5
    assert told.usage["portcullis"] == {"rollbacks": 0, "discarded_tokens": 0}


def test_text_is_held_to_the_start_of_a_token() -> None:
    """The word could begin at the second character of ` b`, so its first waits, too."""
    told = tell(ScriptedModel(WORDS, insisting(0, 1, 5, 4, end=END)))
    assert [text for event in told.events if (text := _text(event))] == ["a", " b!", " day"]
    told = tell(ScriptedModel(WORDS, insisting(0, 1, 0, 1, 5, end=END)))
    assert [text for event in told.events if (text := _text(event))] == ["a", " ba", " b!"]


# -- ends --------------------------------------------------------------------------------------------------------------


def test_a_word_that_the_last_token_completes_does_not_leave() -> None:
    told = tell(ScriptedModel(WORDS, insisting(0, 1, 2, otherwise=[3], end=END)), max_tokens=3)
    assert told.text == "a good"
    model = ScriptedModel(WORDS, insisting(0, 1, 2, 5, otherwise=[3], end=END))
    told = tell(model, replace(BAD, whole_word=True), max_tokens=3)
    assert told.text == "a good"
    assert "bad" not in told.text


def test_a_whole_word_at_the_end_of_the_text() -> None:
    told = tell(ScriptedModel(WORDS, insisting(0, 1, 2, otherwise=[3], end=END)), replace(BAD, whole_word=True))
    assert (told.text, told.outcomes) == ("a good", ["resampled", "banned"])


def test_max_tokens_is_of_the_whole_answer() -> None:
    model = ScriptedModel(WORDS, insisting(0, 3, 1, 2, otherwise=[5, 5, 5], end=END), masks=True)
    told = tell(model, max_tokens=4)
    assert told.usage["completion_tokens"] <= 4
    assert told.text == "a good!"
    endless = ScriptedModel(
        WORDS, lambda step: next(t for t in (6, 7, 5) if t not in step.forbidden and _fits(step, t))
    )
    told = tell(endless, max_tokens=5)
    assert told.usage["completion_tokens"] == 5
    assert told.reason == "length"


def _fits(step: Step, token: int) -> bool:
    return token == 7 if step.said[-1:] == (6,) else token != 7


@pytest.mark.parametrize("shown", [False, True])
def test_stop_strings_hold_across_what_is_asked_again(shown: bool) -> None:
    """` day!` is the stop: it comes in tokens of which some stood before the answer was cut."""
    wants = {(): 3, (3,): 1, (3, 1): 2, (3, 4): 5, (3, 4, 5): 0}

    def choose(step: Step) -> int:
        token = wants.get(step.said, END)
        return 4 if token in step.forbidden else token

    model = ScriptedModel(WORDS, choose)
    told = tell(model, stop=[" day!"], include_stop_str_in_output=shown)
    assert told.outcomes == ["resampled", "banned"]
    assert told.text == (" good day!" if shown else " good")
    assert told.reason == "stop"
    assert all("stop" not in body for _, body in model.requests[1:])


# -- exhaustion --------------------------------------------------------------------------------------------------------


def test_a_model_that_says_nothing_else_ends_within_the_caps() -> None:
    """Whatever is forbidden, another spelling of the word comes."""
    spellings = vocabulary_of("b", "ba", "bad", "B", "BA", "Bad", "a", "d", "ad", "A", "AD")
    end = len(spellings) - 1
    ways = {b"": (0, 1, 2, 3, 4, 5), b"b": (6, 8, 9, 10), b"ba": (7,)}

    def choose(step: Step) -> int:
        text = b"".join(spellings.tokens[token] or b"" for token in step.said).lower()
        left = [token for token in ways.get(text, ()) if token not in step.forbidden]
        return left[0] if left else end

    for masks in (False, True):
        model = ScriptedModel(spellings, choose, masks=masks)
        told = tell(model, caps=Caps(per_position=3, per_answer=5))
        assert told.outcomes == ["resampled", "banned", "banned", "exhausted"]
        assert told.text.lower() == "bad"  # which the guard behind replaces
        assert len(model.requests) <= 1 + 2 * 3
        told = tell(ScriptedModel(spellings, choose, masks=masks))
        assert told.text == ""
        assert len(told.outcomes) <= 8


def test_a_mask_takes_over() -> None:
    model = ScriptedModel(WORDS, insisting(0, 1, 2, end=END))
    told = tell(model, caps=Caps(per_position=0), maskable=frozenset({"bad"}))
    # This model does not follow it, and the guard has the word.
    assert told.outcomes == ["masked", "exhausted"]
    assert told.text == "a bad"


def test_without_room_it_is_exhausted() -> None:
    told = tell(ScriptedModel(WORDS, insisting(0, 1, 2, end=END)), context_length=None)
    assert (told.text, told.outcomes) == ("a bad", ["exhausted"])


def test_a_block_is_the_guards() -> None:
    block = Rule(id="day", words=("day",), action=Action.BLOCK)
    told = tell(ScriptedModel(WORDS, insisting(0, 4, 1, 2, end=END)), BAD, block)
    assert (told.text, told.outcomes) == ("a day bad", [])


def test_at_one_character_the_block_wins() -> None:
    block = Rule(id="b", words=("ad",), action=Action.BLOCK)
    told = tell(ScriptedModel(WORDS, insisting(0, 1, 2, end=END)), BAD, block)
    assert (told.text, told.outcomes) == ("a bad", [])


# -- upstreams that do not tell what is needed -------------------------------------------------------------------------


def test_without_token_ids_everything_passes() -> None:
    told = tell(ScriptedModel(WORDS, insisting(0, 1, 2, 5, end=END), tells_ids=False))
    assert told.text == "a bad!"
    assert told.outcomes == ["unreadable"]


def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollback_module, "MAX_TEXT", 8)
    told = tell(ScriptedModel(WORDS, insisting(*[0] * 20, 1, 2, end=END)))
    assert (told.text, told.outcomes) == ("a" * 20 + " bad", ["unreadable"])  # the guard behind sees it


def test_another_tokenizer_is_noticed() -> None:
    model = ScriptedModel(vocabulary_of("a", " B", "AD", " good"), insisting(0, 1, 2, 3, end=4))
    model.vocabulary, spoken = WORDS, model.vocabulary
    events = list(ScriptedModel(spoken, model.choose).events("/v1/chat/completions", {}))
    model.events = lambda path, body: iter(events)  # type: ignore[method-assign]
    told = tell(model)
    assert told.text == "a BAD good"
    assert told.outcomes == ["unreadable"]


def test_thoughts_before_the_text() -> None:
    """What a model thinks has tokens of its own, and a mark behind it that nobody tells."""
    vocabulary = vocabulary_of("hm", "</t>", "a", " ba", "d", " good")
    model = ScriptedModel(vocabulary, insisting(0, 1, 2, 3, 4, otherwise=[5], end=6))
    original = model.events

    def events(path: str, body: Json) -> Any:
        for event in original(path, body):
            choice = event["choices"][0] if event["choices"] else {}
            if choice.get("token_ids") == [0]:
                choice["delta"] = {"reasoning": "hm"}
            if choice.get("token_ids") == [1]:
                choice["delta"] = {"content": ""}
            yield event

    model.events = events  # type: ignore[method-assign]
    told = tell(model)
    assert told.text == "a good"
    assert model.requests[1][1]["prompt"] == [*PROMPT, 0, 1, 2]


# -- every way to spell, to cut and to draw ----------------------------------------------------------------------------


@pytest.mark.parametrize("merge", [1, 3])
def test_no_spelling_of_the_seed_gets_through(merge: int) -> None:
    pieces = list(routes.TOKENS)
    vocabulary = vocabulary_of(*map(routes.token_bytes, pieces))
    rules = Rule(id="words", words=tuple(routes.BANNED), action=Action.ROLLBACK)
    end = len(vocabulary) - 1
    for route in (*routes.ROUTES, *routes.LEAKS):
        wants = tuple(pieces.index(piece) for piece in route)
        told = tell(ScriptedModel(vocabulary, insisting(*wants, end=end), merge=merge, masks=True), rules)
        assert not any(word in told.text.casefold() for word in routes.BANNED), route
        assert told.outcomes


PIECES = ("b", "a", "d", "ba", "ad", " ", "c", "é".encode()[:1], "é".encode()[1:], "€", b"b\xe2\x82", b"\xac", "dé")
RULES = st.lists(
    st.sampled_from(
        [
            BAD,
            replace(BAD, whole_word=True),
            Rule(id="p", pattern=r"\bb\w+", action=Action.ROLLBACK),
            Rule(id="q", pattern="a[^b]d|cc", action=Action.ROLLBACK, exhausted=Exhausted.BLOCK),
            Rule(id="e", words=("€", "éd"), action=Action.ROLLBACK),
            Rule(id="r", words=("dc",)),
            Rule(id="s", words=("c d", "cb"), action=Action.BLOCK),
        ]
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda rule: rule.id,
).filter(lambda rules: any(rule.action is Action.ROLLBACK for rule in rules))


@settings(max_examples=examples(400), deadline=None)
@given(rules=RULES, seed=st.integers(0, 2**32), merge=st.integers(1, 4), masks=st.booleans(), chat=st.booleans())
def test_nothing_that_rolls_back_is_left(rules: list[Rule], seed: int, merge: int, masks: bool, chat: bool) -> None:
    vocabulary = Vocabulary([p.encode() if isinstance(p, str) else p for p in PIECES] + [None], end=[len(PIECES)])

    def choose(step: Step) -> int:
        chance = random.Random(f"{seed} {step.seed} {step.said}")
        if len(step.said) > 25:
            return len(PIECES)
        return chance.choice([token for token in range(len(PIECES)) if token not in step.forbidden])

    model = ScriptedModel(vocabulary, choose, merge=merge, masks=masks)
    told = tell(model, *rules, chat=chat, seed=0, max_tokens=20)
    if "unreadable" in told.outcomes:
        return
    kept = Censor(
        compile_policy(policy_of(*(replace(r, action=Action.FLAG) for r in rules))).program(
            Direction.OUTPUT, Channel.CONTENT
        )
    )
    kept.feed(told.text)
    kept.finish()
    actions = {rule.id: rule.action for rule in rules}
    blocked = min((m.start for m in kept.matches if actions[m.rule] is Action.BLOCK), default=None)
    left = [m for m in kept.matches if actions[m.rule] is Action.ROLLBACK and (blocked is None or m.end < blocked)]
    assert not left or "exhausted" in told.outcomes
    if blocked is None:
        assert told.usage["completion_tokens"] <= 20
    assert len(model.requests) <= 1 + 2 * len(told.outcomes)
    # The same text, however it was cut.
    assert (
        told.text == tell(ScriptedModel(vocabulary, choose, masks=masks), *rules, chat=chat, seed=0, max_tokens=20).text
    )


# -- events of any shape -----------------------------------------------------------------------------------------------

_scalars = (
    st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(["", "bad", "b", "ad", "stop", "length", "é"])
)
_anything = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["content", "text", "x"]), inner),
    max_leaves=5,
)
_events = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": _scalars,
            "prompt_token_ids": st.lists(st.integers(-1, 9), max_size=3) | _anything,
            "usage": _anything,
            "choices": st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "index": _scalars,
                        "delta": st.fixed_dictionaries({}, optional={"content": _scalars, "reasoning": _scalars})
                        | _anything,
                        "text": _scalars,
                        "token_ids": st.lists(st.integers(-1, 12), max_size=3) | _anything,
                        "prompt_token_ids": _anything,
                        "finish_reason": _scalars,
                        "stop_reason": _anything,
                    },
                )
                | _anything,
                max_size=2,
            )
            | _anything,
        },
    ),
    max_size=8,
)


@settings(max_examples=examples(500))
@given(events=_events, chat=st.booleans(), stops=st.sampled_from([(), ("d",), ("ad", "x")]))
def test_whatever_an_upstream_sends(events: list[Json], chat: bool, stops: tuple[str, ...]) -> None:
    program = compile_policy(policy_of(BAD)).stops
    assert program is not None
    params = RollbackParams(
        policy="p", program=program, vocabulary=WORDS, deterministic=False,
        shape=(CHAT if chat else COMPLETIONS).content,
        max_tokens=9, stops=stops, include_usage=True,
    )  # fmt: skip
    rollback = RollbackStream(params)
    try:
        for event in events:
            for told in rollback.feed(event):
                json.dumps(told)
            rollback.resume = None
        rollback.finish()
    except UnreadableAnswer:
        return
