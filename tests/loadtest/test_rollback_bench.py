"""The arithmetic of the bench of rollback, without a model: which words are chosen, what is counted, what is judged."""

import dataclasses
import json
from pathlib import Path

import pytest

from gateway.config import load
from gateway.policy.model import Action, Exhausted
from loadtest import rollback_bench
from loadtest.report import verdict_lines
from loadtest.rollback_bench import (
    NEVER,
    REPLACEMENT,
    Answer,
    Rung,
    Said,
    Tally,
    choose,
    configuration,
    main,
    table,
    tokens_in,
    verdicts,
)
from loadtest.verdicts import Figure

JUDGED = Rung("answers", 0.05)


def answered(text: str, completion_tokens: int, **portcullis: int) -> dict[str, object]:
    usage = {"prompt_tokens": 3, "completion_tokens": completion_tokens}
    return {
        "choices": [{"message": {"role": "assistant", "content": text}}],
        "usage": {**usage, "portcullis": portcullis} if portcullis else usage,
    }


def test_what_an_answer_says_of_itself() -> None:
    assert Answer.of(answered("a", 5)) == Answer("a", delivered=5)
    told = Answer.of(answered("a", 5, discarded_tokens=2, rollbacks=1))
    assert told == Answer("a", delivered=5, discarded=2, rollbacks=1)


def test_what_a_tool_call_leaves_of_the_text() -> None:
    document = {"choices": [{"message": {"content": None}}], "usage": {"completion_tokens": 1}}
    assert Answer.of(document).text == ""


def test_answers_are_counted() -> None:
    answers = [
        Answer("as it was", 10),
        Answer("rolled back twice", 12, discarded=5, rollbacks=2),
        Answer(f"rolled back, then {REPLACEMENT}", 8, discarded=3, rollbacks=1),
        Answer("Talk that came out", 10),
    ]
    tally = Tally.of(JUDGED, ["talk", "back-talk"], answers, made=50)
    assert (tally.answers, tally.hit, tally.rollbacks, tally.given_up, tally.leaked) == (4, 2, 3, 1, 1)
    assert (tally.delivered, tally.discarded, tally.spent, tally.made) == (40, 8, 48, 50)
    assert (tally.hit_rate, tally.ratio) == (0.5, 1.2)
    shown = " ".join(table([tally]).splitlines()[1].split())
    assert shown == "5% of answers 4 50.0% 3 7.50% 40 8 48 1.200 1.250 1"


def test_words_are_whole_words_whatever_their_case() -> None:
    assert Answer("Talk, talk-talk: stalk", 9).words == {"talk": 3, "stalk": 1}


WELL = Tally(JUDGED, answers=100, hit=5, rollbacks=6, delivered=1000, discarded=90, made=1095, given_up=0, leaked=0)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({}, ""),
        ({"leaked": 1}, "answers-5: a forbidden word in 1 answers"),
        ({"rollbacks": 0}, "answers-5: 5 answers were hit and none was rolled back"),
        ({"made": 1089}, "answers-5: 1090 tokens are said to be spent, of 1089 that were made"),
        (
            {"rung": Rung("answers", 0.0)},
            "answers-0: 5 answers hit, 90 tokens discarded by a word never said",
        ),
    ],
)
def test_what_cannot_be_right(changed: dict[str, object], fault: str) -> None:
    assert dataclasses.replace(WELL, **changed).fault == fault  # type: ignore[arg-type]


def test_the_limit_is_for_five_of_a_hundred_answers() -> None:
    spent, made = verdicts([WELL, dataclasses.replace(WELL, rung=Rung("tokens", 0.05), discarded=900)])
    assert (spent.figure, spent.holds) == (Figure(1.09, 1.09, 1.09), True)
    assert (made.figure, made.holds) == (Figure(1.095, 1.095, 1.095), True)
    over, made = verdicts([dataclasses.replace(WELL, discarded=101, made=1102)])
    assert (over.holds, made.holds) == (False, False)
    assert verdict_lines([over]) == (
        "OVER          tokens spent / delivered where 5% of answers are hit (here 5.0%): 1.10 (limit 1.1)"
    )


@pytest.mark.parametrize("changed", [{"rollbacks": 0}, {"hit": 2}, {"hit": 11}])
def test_what_was_not_measured_does_not_hold(changed: dict[str, int]) -> None:
    found = verdicts([dataclasses.replace(WELL, **changed)])  # type: ignore[arg-type]
    assert [verdict.holds for verdict in found] == [None, None]


def test_words_come_up_as_often_as_planned() -> None:
    common = [Answer("the fox and the bear", 5)] * 80
    rare = [*[Answer("the river", 2)] * 15, *[Answer("snow 4711", 2)] * 4, Answer("Spain", 2)]
    said = Said.of([*common, *rare])
    assert said.tokens == 440
    assert said.in_answers(("river", "snow")) == 0.19
    assert said.in_tokens(("the", "snow")) == 179 / 440
    assert choose(said, Rung("answers", 0.0)) == (NEVER,)
    assert choose(said, Rung("answers", 0.2)) == ("river", "snow", "spain")
    assert choose(said, Rung("answers", 0.05)) == ("snow", "spain")
    assert choose(said, Rung("answers", 0.001)) == (NEVER,)
    assert choose(said, Rung("tokens", 15 / 440)) == ("river",)


def test_the_configuration_rolls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(rollback_bench, "MODEL", tmp_path)
    written = configuration(8080, "http://127.0.0.1:8000/v1", {"answers-5": ["no", "snow"]})
    path = tmp_path / "portcullis.yaml"
    path.write_text(json.dumps(written), encoding="utf-8")
    config = load(path)
    [rule] = config.policies["answers-5"].rules
    assert rule.words == ("no", "snow") and rule.whole_word
    assert (rule.action, rule.exhausted, rule.replacement) == (Action.ROLLBACK, Exhausted.REDACT, REPLACEMENT)
    [route] = config.routes
    assert (route.model, route.policy, route.rename) == ("answers-5", "answers-5", "tiny")


def test_the_engines_own_count() -> None:
    line = 'vllm:generation_tokens_total{engine="%d",model_name="tiny"} %s\n'
    metrics = line % (0, "12.0") + line % (1, "1.5e+06") + 'vllm:generation_tokens_created{engine="0"} 1.7e+09\n'
    assert tokens_in("# HELP vllm:generation_tokens_total Tokens.\n" + metrics) == 1_500_012


def test_without_a_vllm_there_is_nothing_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rollback_bench, "PYTHON", tmp_path / "absent")
    assert main([]) == 2
    assert "make vllm-test" in capsys.readouterr().err
