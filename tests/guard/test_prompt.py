"""What clients send: fields refused or taken out, prompts censored."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.guard.channels import ChannelCounts, ChannelText
from gateway.guard.prompt import (
    MAX_STEP,
    STEP_OF_A_TEXT,
    BadRequest,
    ChatRequest,
    apply_request_table,
    guard_prompt,
    guarding_prompt,
    read_request,
)
from gateway.policy.model import Action, Channel, Direction, Mode, Policy
from gateway.wire.chat import CHAT
from gateway.wire.json import MAX_VALUES
from gateway.wire.media import MIN_PAYLOAD
from tests.support.guard_client import WORD, policy, rule
from tests.support.prompts import guarded

SEEN = "[REDACTED]"
BOTH = frozenset({Direction.INPUT, Direction.OUTPUT})
INPUT = frozenset({Direction.INPUT})
ONLY_INPUT = policy(rule(apply_to=INPUT))


def test_every_text_of_a_prompt_is_censored() -> None:
    def message(word: str) -> dict[str, Any]:
        return {
            "role": "user",
            "name": word,
            "content": [
                {"type": "text", "text": f"a {word} b"},
                {"type": "image_url", "image_url": {"url": f"data:{word}"}},
                {"type": "input_audio", "input_audio": {"data": word}},
                {"type": "file", "file": {"file_data": word}},
                "odd",
            ],
            "tool_calls": [
                {"id": word, "type": "function", "function": {"name": word, "arguments": json.dumps({word: word})}}
            ],
            "new": {word: [word]},
        }

    more = {"role": "tool", "tool_call_id": "x", "content": 12}
    body, _ = guarded(policy(rule(WORD, "12", apply_to=BOTH)), message(WORD), more, prediction={"content": WORD})
    assert body == {
        "messages": [message(SEEN), {"role": "tool", "tool_call_id": "x", "content": SEEN}],
        "prediction": {"content": SEEN},
    }


def test_a_prompt_can_be_blocked() -> None:
    block = policy(rule(action=Action.BLOCK, apply_to=BOTH))
    image = {"type": "image_url", "image_url": {"url": "u"}}
    for message in ({"content": [image, {"text": WORD}]}, {"content": "a", "new": {WORD: 1}}, {"name": WORD},
                    {"tool_calls": [{"function": {"arguments": f'["{WORD}"'}}]}):  # fmt: skip
        body, rule_id = guarded(block, {"content": "a"}, message)
        assert rule_id == "r"
        assert body["messages"][1].get("content") in (None, "a", [image, {"text": WORD}])
    assert guarded(block, {"role": "user"}, prediction={"content": WORD})[1] == "r"
    assert guarded(block, {"role": "user"}, prediction=[WORD])[1] is None


def test_an_observed_prompt_is_not_changed() -> None:
    message = {
        "role": "user",
        "content": WORD,
        WORD: "\ud83d",
        "tool_calls": [{"function": {"arguments": '"\\u0031"'}}],
    }
    body, blocked = guarded(policy(rule(apply_to=BOTH, action=Action.BLOCK), mode=Mode.OBSERVE), dict(message))
    assert body["messages"] == [message] and blocked is None


def test_roles_are_no_text() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "a user"}]}
    body, _ = guarded(policy(rule("user", "text", apply_to=BOTH)), message)
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": f"a {SEEN}"}]}]


def test_prompts_that_no_rule_looks_at_are_not_read() -> None:
    body = {"messages": [{"content": WORD}], "user": WORD}
    assert guard_prompt(body, compile_policy(policy())) == (None, None, None, None)
    assert body == {"messages": [{"content": WORD}], "user": WORD}


GOOD = {"model": "m", "messages": [{"role": "user", "content": "a"}]}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "a"}, "messages"),
        ({"messages": [{}, 5]}, "messages[1]"),
        ({"stream": "yes"}, "stream"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": True}, "n"),
        ({"n": 1.5}, "n"),
        ({"prediction": "a"}, "prediction"),
        ({"prediction": [{"content": "a"}]}, "prediction"),
    ],
)
def test_bad_fields_are_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_request({**GOOD, **change}, CHAT)
    assert caught.value.param == param and f"`{param}`" in str(caught.value)


def test_what_is_read_of_a_request() -> None:
    assert read_request(GOOD, CHAT) == ChatRequest("m", False, 1)
    assert read_request({**GOOD, "stream": True, "n": 3}, CHAT) == ChatRequest("m", True, 3)
    with pytest.raises(BadRequest):
        read_request([GOOD], CHAT)


@pytest.mark.parametrize("field", ["vllm_xargs", "chat_template"])
def test_fields_that_lead_past_the_censor_are_refused(field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        apply_request_table({field: "x"}, compile_policy(policy()))
    assert caught.value.param == field
    apply_request_table({field: None}, compile_policy(policy()))
    apply_request_table({field: "x"}, compile_policy(policy(mode=Mode.OBSERVE)))
    apply_request_table({field: "x"}, compile_policy(Policy(name="p")))
    with pytest.raises(BadRequest) as caught:
        apply_request_table({field: "x"}, compile_policy(ONLY_INPUT))
    assert caught.value.param == field


def test_fields_that_lead_past_the_censor_are_taken_out() -> None:
    fields = {
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "prompt_logprobs": 1,
        "kv_transfer_params": {},
        "ec_transfer_params": {},
    }
    body = {**GOOD, **fields, "modalities": ["text"]}
    apply_request_table(body, compile_policy(policy()))
    assert body == {**GOOD, "modalities": ["text"]}
    asked = {**GOOD, **fields, "modalities": ["text", "audio"]}
    apply_request_table(asked, compile_policy(ONLY_INPUT))
    assert asked == {**GOOD, "modalities": ["text", "audio"]}
    unread = {**GOOD, **fields}
    apply_request_table(unread, compile_policy(Policy(name="p")))
    assert unread == {**GOOD, **fields}
    with pytest.raises(BadRequest) as caught:
        apply_request_table({"modalities": ["text", "audio"]}, compile_policy(policy()))
    assert caught.value.param == "modalities"


def test_what_is_too_deep_is_refused_and_costs_little() -> None:
    deep: Any = "12MONKEYS"
    for _ in range(100):
        deep = {"a": [deep]}
    body = {"model": "m", "messages": [{"role": "user", "content": "x", "custom": deep}]}
    refusal = guard_prompt(body, compile_policy(ONLY_INPUT)).refusal
    assert refusal is not None
    assert refusal.param == "messages"
    assert "64 deep" in str(refusal)


# -- very many texts ---------------------------------------------------------------------------------------------------


def test_d26_a_text_in_which_nothing_is_found_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Channel] = []
    opens = ChannelCounts.open

    def noting(self: ChannelCounts, channel: Channel, *more: Any) -> ChannelText:
        opened.append(channel)
        return opens(self, channel, *more)

    monkeypatch.setattr(ChannelCounts, "open", noting)
    many = ["ab"] * 1000
    body, _ = guarded(ONLY_INPUT, {"content": [{"type": "text", "text": text} for text in [*many, WORD]]}, new=many)
    assert opened == [Channel.CONTENT]
    assert body["messages"][0]["content"][-1]["text"] == SEEN


def test_d26_texts_that_pass_are_counted() -> None:
    _, fact, _, _ = guard_prompt({"messages": [{"content": "abc"}], "x": ["de", "f"]}, compile_policy(ONLY_INPUT))
    assert fact is not None
    assert {each.channel: (each.scanned, each.forwarded) for each in fact.channels} == {
        Channel.CONTENT: (3, 3),
        Channel.OTHER: (4, 4),  # the name of the field is a text, too
    }


def test_d26_a_long_text_is_scanned_in_steps() -> None:
    text = "x" * (3 * MAX_STEP - 4) + WORD
    body = {"messages": [{"content": text}]}
    steps = list(guarding_prompt(body, compile_policy(ONLY_INPUT)))
    assert len(steps) == 4
    assert sum(steps) == len(text) + 4 * STEP_OF_A_TEXT
    assert body["messages"][0]["content"] == text.replace(WORD, SEEN)


def test_d26_scanning_that_is_given_up_leaves_the_media_where_they_were() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    body = {"messages": [{"content": [image, {"type": "text", "text": WORD}]}]}
    steps = guarding_prompt(body, compile_policy(ONLY_INPUT))
    next(steps)
    steps.close()
    assert body["messages"][0]["content"][0] == image


def test_d26_arguments_have_no_more_values_than_a_body() -> None:
    def calls(*arguments: str) -> dict[str, Any]:
        return {"tool_calls": [{"function": {"arguments": text}} for text in arguments]}

    block = policy(rule(apply_to=INPUT, action=Action.BLOCK))
    some = f'["{WORD}"{",1" * (MAX_VALUES // 2 - 1)}]'
    fits = {"messages": [calls(some, some)]}
    assert guard_prompt(fits, compile_policy(block)).refusal is None
    past = {
        "messages": [calls("[" + "1," * (MAX_VALUES // 2 - 1) + "1]"), calls("[" + "1," * (MAX_VALUES // 2) + "1]")]
    }
    refusal = guard_prompt(past, compile_policy(ONLY_INPUT)).refusal
    assert refusal is not None
    assert str(refusal) == f"The arguments of all tool calls have more than {MAX_VALUES} values."
    assert refusal.param == "messages"
    prose = {"messages": [calls('["' + ",,,[" * MAX_VALUES + f' {WORD}"]')]}
    assert guard_prompt(prose, compile_policy(block)).rule is not None, "what is within strings is no value"


# -- names in other letters --------------------------------------------------------------------------------------------

MISSPELLED: dict[str, tuple[dict[str, Any], str]] = {
    "content": ({"Content": WORD}, "content"),
    "a long s": ({"rea\u017foning": WORD}, "reasoning"),
    "capitals": ({"REFUSAL": WORD}, "refusal"),
    "calls": ({"Tool_Calls": [{"function": {"arguments": "{}"}}]}, "tool_calls"),
    "calls with a long s": ({"tool_call\u017f": []}, "tool_calls"),
    "function": ({"tool_calls": [{"Function": {"arguments": "{}"}}]}, "function"),
    "arguments": ({"tool_calls": [{"function": {"Arguments": '"\\u0031"'}}]}, "arguments"),
    "arguments with a long s": ({"tool_calls": [{"function": {"argument\u017f": "{}"}}]}, "arguments"),
    "name": ({"tool_calls": [{"function": {"NAME": "f"}}]}, "name"),
    "custom": ({"tool_calls": [{"cu\u017ftom": {"input": "x"}}]}, "custom"),
    "input": ({"tool_calls": [{"custom": {"Input": "x"}}]}, "input"),
    "function_call": ({"function_call": {"Arguments": "{}"}}, "arguments"),
    "transcript": ({"audio": {"Transcript": "x"}}, "transcript"),
    "a part's text": ({"content": [{"type": "text", "Text": "x"}]}, "text"),
    "a part's type": ({"content": [{"Type": "text", "text": "x"}]}, "type"),
    "a part of a part": ({"content": [{"type": "tool_result", "content": [{"Text": "x"}]}]}, "text"),
}
SPELLED_BY_ANYBODY: dict[str, dict[str, Any]] = {
    "an unknown field": {"metadata": {"Content": "x", "Name": "y"}},
    "arguments of a call": {"tool_calls": [{"function": {"arguments": {"Name": "x"}}}]},
    "input of a part": {"content": [{"type": "tool_use", "input": {"Name": "x", "Content": "y"}}]},
    "another name": {"Contents": "x", "my_name": "y"},
}
ONLY_CONTENT = policy(rule(apply_to=INPUT, channels=frozenset({Channel.CONTENT})))


@pytest.mark.parametrize("under", [ONLY_INPUT, ONLY_CONTENT], ids=["all", "content"])
@pytest.mark.parametrize(("message", "name"), MISSPELLED.values(), ids=MISSPELLED)
def test_d25_a_name_in_other_letters_is_refused(message: dict[str, Any], name: str, under: Policy) -> None:
    for body in ({"messages": [{"content": "a"}, message]}, {"messages": [{"content": "a"}], "prediction": message}):
        refusal = guard_prompt(body, compile_policy(under)).refusal
        assert refusal is not None
        assert str(refusal) == f"The name of a message's field must be spelled `{name}`."
        assert refusal.param == "messages"


@pytest.mark.parametrize("message", SPELLED_BY_ANYBODY.values(), ids=SPELLED_BY_ANYBODY)
def test_d25_names_that_are_no_protocols_are_anybodys(message: dict[str, Any]) -> None:
    assert guarded(ONLY_INPUT, dict(message))[0]["messages"] == [message]


def test_d25_what_is_only_observed_is_not_refused() -> None:
    observed = policy(rule(apply_to=INPUT), mode=Mode.OBSERVE)
    assert guarded(observed, {"Content": WORD})[0]["messages"] == [{"Content": WORD}]


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("me\u017f\u017fage\u017f", "messages"),
        ("Tools", "tools"),
        ("tool_choi\u0063E", "tool_choice"),
        ("FUNCTIONS", "functions"),
        ("respon\u017fe_format", "response_format"),
        ("return_to\u212aen_ids", "return_token_ids"),
        ("vllm_xarg\u017f", "vllm_xargs"),
        ("\u017ftream", "stream"),
    ],
)
def test_d25_a_field_of_the_request_in_other_letters_is_refused(field: str, name: str) -> None:
    body = {"model": "m", "messages": [{"content": "a"}], field: [WORD]}
    with pytest.raises(BadRequest, match=f"`{name}`") as refused:
        read_request(body, CHAT)
    assert refused.value.param == name


def test_d25_tools_are_named_in_any_letters() -> None:
    names = policy(rule(apply_to=INPUT, channels=frozenset({Channel.TOOL_NAMES})))
    body, _ = guarded(names, {"content": WORD}, tools=[{"type": "function", "Function": {"Name": WORD, "x": WORD}}])
    assert body["tools"] == [{"type": "function", "Function": {"Name": SEEN, "x": WORD}}]


# -- media and what only looks like them -------------------------------------------------------------------------------

# Base64 in which the word can be read.
SOUND = (WORD + "+++" + "/" * 4) * 4
PICTURE = f"data:image/png;base64,{SOUND}"
assert len(SOUND) % 4 == 0 and len(SOUND) >= MIN_PAYLOAD


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


MEDIA: dict[str, dict[str, Any]] = {
    "image_url": {"content": [{"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}]},
    "image_url, as a string": {"content": [{"type": "image_url", "image_url": PICTURE}]},
    "video_url": {"content": [{"type": "video_url", "video_url": {"url": PICTURE.replace("image/png", "video/mp4")}}]},
    "audio_url": {"content": [{"type": "audio_url", "audio_url": {"url": PICTURE.replace("image", "audio")}}]},
    "input_audio": {"content": [{"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}}]},
    "file": {"content": [{"type": "file", "file": {"file_data": PICTURE.replace("image/png", "application/pdf")}}]},
    "image": {"content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": SOUND}}]},
    "document": {"content": [{"type": "document", "source": {"type": "base64", "data": SOUND}}]},
    "audio": {"content": "x", "audio": {"id": "a", "data": SOUND}},
    "images": {"content": "x", "images": [SOUND, {"type": "image_url", "image_url": {"url": PICTURE}}]},
}
# What stands for HERE is text.
TEXT_BESIDE_MEDIA: dict[str, dict[str, Any]] = {
    "a file in a text": {"content": [{"type": "text", "text": "hi", "file": "HERE"}]},
    "media's fields in a text": {"content": [{"type": "text", "text": "hi", "image_url": {"url": "HERE"}}]},
    "an address": {"content": [{"type": "image_url", "image_url": {"url": "https://example.org/HERE.png"}}]},
    "a description": {"content": [{"type": "image_url", "image_url": {"url": PICTURE, "alt": "HERE"}}]},
    "a file's name": {"content": [{"type": "file", "file": {"file_data": SOUND, "filename": "HERE"}}]},
    "a file that is no base64": {"content": [{"type": "file", "file": {"file_data": "HERE"}}]},
    "a transcript": {"content": [{"type": "input_audio", "input_audio": {"data": SOUND, "transcript": "HERE"}}]},
    "a transcript of one's own": {"audio": {"id": "a", "data": SOUND, "transcript": "HERE"}},
    "too short": {"content": [{"type": "input_audio", "input_audio": {"data": "HERE"}}]},
    "a title": {"content": [{"type": "document", "source": {"data": SOUND}, "title": "HERE"}]},
    "a plain document": {"content": [{"type": "document", "source": {"type": "text", "data": "HERE"}}]},
    "an odd head": {"content": [{"type": "image_url", "image_url": {"url": "data:image/png;x=HERE;base64,AAAA"}}]},
    "another part": {"content": [{"type": "new", "url": "HERE", "data": "HERE"}]},
}
ENVELOPES: dict[str, Callable[[str], str]] = {
    "plain text": lambda text: f"data:text/plain;charset=utf-8;base64,{encoded(text)}",
    "a file without a type": lambda text: encoded(text + " and much more that makes it longer than a short word"),
    "svg": lambda text: f"data:image/svg+xml;base64,{encoded(f'<svg><text>{text}</text></svg>')}",
    "a name": lambda text: f"data:text/plain;name={text};base64,{encoded('x')}",
    "json": lambda text: f"data:application/json;base64,{encoded(text)}",
}


@pytest.mark.parametrize("message", MEDIA.values(), ids=MEDIA)
def test_e2_media_are_never_altered(message: dict[str, Any]) -> None:
    assert WORD in json.dumps(message)
    body, _ = guarded(ONLY_INPUT, json.loads(json.dumps(message)))
    assert body["messages"] == [message]


@pytest.mark.parametrize("message", TEXT_BESIDE_MEDIA.values(), ids=TEXT_BESIDE_MEDIA)
def test_e3_what_stands_beside_media_is_text(message: dict[str, Any]) -> None:
    written = json.dumps(message)
    body, _ = guarded(ONLY_INPUT, json.loads(written.replace("HERE", WORD)))
    assert body["messages"] == [json.loads(written.replace("HERE", SEEN))]


@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=ENVELOPES)
def test_e3_text_in_a_payload_is_decoded_and_scanned(envelope: Callable[[str], str]) -> None:
    def message(text: str) -> dict[str, Any]:
        return {"content": [{"type": "file", "file": {"file_data": envelope(text)}}]}

    assert guarded(ONLY_INPUT, message(WORD))[0]["messages"] == [message(SEEN)]
    assert guarded(ONLY_INPUT, message("harmless"))[0]["messages"] == [message("harmless")], "as it was"
    block = policy(rule(action=Action.BLOCK, apply_to=INPUT, channels=frozenset({Channel.CONTENT})))
    body, blocked = guarded(block, message(WORD))
    assert blocked == "r"
    assert body["messages"] == [message(WORD)], "put back"
    observed = policy(rule(apply_to=INPUT), mode=Mode.OBSERVE)
    assert guarded(observed, message(WORD))[0]["messages"] == [message(WORD)]


@pytest.mark.parametrize("written", [f"data:text/plain,{WORD}", "data:,12%4DONKEYS", f"data:image/svg+xml,{WORD}"])
def test_e3_percent_encoded_text_is_decoded_and_scanned(written: str) -> None:
    body, _ = guarded(ONLY_INPUT, {"content": [{"type": "image_url", "image_url": {"url": written}}]})
    url = body["messages"][0]["content"][0]["image_url"]["url"]
    assert url == f"{written.partition(',')[0]},%5BREDACTED%5D"


def test_d25_a_payload_under_a_name_in_other_letters() -> None:
    part = {"type": "image_url", "image_url": {"URL": f"data:text/plain;base64,{encoded(WORD)}"}}
    body, _ = guarded(ONLY_INPUT, {"content": [part], "Image\u017f": [f"data:text/plain;base64,{encoded(WORD)}"]})
    assert encoded(WORD) not in json.dumps(body)
    assert json.dumps(body).count(encoded(SEEN)) == 2
