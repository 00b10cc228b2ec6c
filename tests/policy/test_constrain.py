"""`constrain` in a configuration: what is read, what is refused and where, which upstreams may serve it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway import cli
from gateway.config import warnings
from gateway.policy.model import Config, Conflict, Constrain, Language, Violation
from tests.support.policies import SECRET, read, refused, text_of

STEERED = "{u: {type: vllm, base_url: 'http://127.0.0.1:8000/v1'}}"
OTHER = "{u: {base_url: 'http://127.0.0.1:8000/v1'}}"


def with_constrain(constrain: str, upstreams: str = STEERED, more: str = "") -> str:
    return text_of(upstreams=upstreams, policies=f"{{p: {{constrain: {constrain}{more}}}}}")


def config(constrain: str, upstreams: str = STEERED, more: str = "") -> Config:
    return read(with_constrain(constrain, upstreams, more), {"S": SECRET})


@pytest.mark.parametrize(
    ("written", "language", "texts"),
    [
        (r"regex: '[A-Z][a-z]+ \d{4}'", Language.REGEX, (r"[A-Z][a-z]+ \d{4}",)),
        ("regex: '${S}[0-9]'", Language.REGEX, (f"{SECRET}[0-9]",)),
        ('choice: [no, "yes", "${S}"]', Language.CHOICE, None),
        ('choice: ["no", "yes", "${S}"]', Language.CHOICE, ("no", "yes", SECRET)),
        ("grammar: 'start: \"a\"'", Language.GRAMMAR, ('start: "a"',)),
        (r"regex: '([0-9]*)?\.?[0-9]*'", Language.REGEX, (r"([0-9]*)?\.?[0-9]*",)),
        ('choice: ["no", ""]', Language.CHOICE, ("no", "")),
    ],
)
def test_read(written: str, language: Language, texts: tuple[str, ...] | None) -> None:
    if texts is None:
        refused(with_constrain(f"{{{written}}}"), "policies.p.constrain.choice[0]", "quote it", {"S": SECRET})
        return
    assert config(f"{{{written}}}").policies["p"].constrain == Constrain(language=language, texts=texts)


def test_a_schema_is_read_as_json() -> None:
    schema = {
        "type": "object",
        "properties": {"née": {"type": ["integer", "null"], "maximum": 1.5e3}, "ok": {"enum": ["yes", True, None]}},
        "required": ["née"],
    }
    constrain = config(f"{{json_schema: {json.dumps(schema)}}}").policies["p"].constrain
    assert constrain is not None and constrain.language is Language.JSON_SCHEMA
    assert json.loads(constrain.texts[0]) == schema


def test_what_becomes_of_violations_and_conflicts() -> None:
    options = "on_conflict: reject, on_violation: flag, require: false"
    constrain = config(f"{{regex: a, {options}}}", OTHER).policies["p"].constrain
    assert constrain == Constrain(
        language=Language.REGEX,
        texts=("a",),
        on_conflict=Conflict.REJECT,
        on_violation=Violation.FLAG,
        require=False,
    )


@pytest.mark.parametrize(
    ("constrain", "path", "reason"),
    [
        ("{}", "", "needs exactly one of regex, choice, json_schema, grammar; it has none of them"),
        ("{regex: a, choice: [b]}", "", "it has regex and choice"),
        ("{regex: a, on_violation: redact}", ".on_violation", "block"),
        ("{regex: a, backend: guidance}", ".backend", "unknown key"),
        ("{regex: ''}", ".regex", ""),
        ("{regex: 'a{0}'}", ".regex", "no text of at least one character"),
        (r"{regex: '\bword'}", ".regex", r"\b and \B cannot be passed to a model"),
        ("{regex: 'ab(?=c)'}", ".regex", "name what may stand there as a part of the match (at position 2)"),
        (r"{regex: '\w{50}'}", ".regex", "ranges of characters, and 30000 are allowed"),
        ("{regex: '(${S}'}", ".regex", "the group has no end"),
        ("{choice: []}", ".choice", ""),
        ("{choice: [a, a]}", ".choice[1]", "an option that is not listed already"),
        ('{choice: [""]}', ".choice", "no text of at least one character"),
        ('{choice: [a, "", ""]}', ".choice[2]", "an option that is not listed already"),
        ("{json_schema: 'x'}", ".json_schema", "a JSON schema, which is a mapping"),
        ("{json_schema: {type: frob}}", ".json_schema", "llguidance refuses it"),
        ("{json_schema: {type: '${S}'}}", ".json_schema", "Invalid type: …"),
        ("{json_schema: {type: array, uniqueItems: true}}", ".json_schema", 'Unimplemented keys: ["uniqueItems"]'),
        ("{grammar: 'start: ${S}'}", ".grammar", 'unknown name: "…" (line 1)'),
        ("{grammar: 'root ::= \"a\"'}", ".grammar", "llguidance refuses it"),
        ("{grammar: 'start: /a+?/'}", ".grammar", "lazy quantifiers mean nothing here"),
    ],
)
def test_refused_with_its_place(constrain: str, path: str, reason: str) -> None:
    text = with_constrain(constrain)
    refused(text, f"policies.p.constrain{path}", reason, {"S": SECRET})


def test_only_an_upstream_that_holds_the_model_to_it_may_serve_it() -> None:
    refused(
        with_constrain("{regex: a}", OTHER), "policies.p.constrain", "cannot hold a model to it: make it type: vllm"
    )
    checked = config("{regex: a, require: false}", OTHER)
    assert [each for each in warnings(checked) if "checked against its constraint" in each]
    assert warnings(config("{regex: a}")) == ()


def test_not_beside_rollback() -> None:
    text = with_constrain("{regex: a}", more=", rules: [{id: r, words: [x], action: rollback}]")
    refused(text, "policies.p.constrain", "cannot be combined with rules of action: rollback")


def test_the_check_prints_a_line_about_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(with_constrain("{choice: [yes please, 'no']}"))
    assert cli.main(["check", str(file)]) == 0
    line = "  constrain: choice of 2 texts of 2 to 10 characters; on_conflict policy, on_violation block, require true"
    assert line in capsys.readouterr().out.splitlines()
    file.write_text(with_constrain(r"{regex: '\bword'}"))
    assert cli.main(["check", str(file)]) == 2
    assert "policies.p.constrain.regex: \\b and \\B cannot be passed to a model" in capsys.readouterr().err
