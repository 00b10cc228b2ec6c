"""The scenario file: the shipped one loads, and every mistake in one is named."""

from pathlib import Path

import pytest

from loadtest.dialects import WAYS
from loadtest.scenario import SCENARIOS, Guard, ScenarioError, load
from loadtest.targets import gateway_configuration

GOOD = {
    "name": '"s"',
    "streams": "2",
    "rate": "50",
    "tokens": "100",
    "text": '"prose"',
    "planted": "2",
    "redactions": "2",
    "baselines": '["direct"]',
    "words": "[10]",
}
LIMITS = SCENARIOS.read_text(encoding="utf-8").partition("[limits]")[2]


def write(path: Path, **changes: str | None) -> Path:
    rows = [f"{key} = {value}" for key, value in {**GOOD, **changes}.items() if value is not None]
    path.write_text("\n".join(["[[scenario]]", *rows, "[limits]", LIMITS]), encoding="utf-8")
    return path


def test_the_shipped_scenarios_load() -> None:
    scenarios, limits = load()
    assert [scenario.streams for scenario in scenarios if scenario.name.startswith("paced")] == [200, 400]
    assert scenarios[0].targets == (
        "direct",
        "bytecopy",
        "nginx",
        "portcullis-10",
        "portcullis-1000",
        "portcullis-100000",
    )
    assert limits.cpu_vs_nginx == 3.0


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("streams", "0", "streams"),
        ("streams", "true", "streams"),
        ("streams", "5000", "at most"),
        ("rate", "1.5", "rate"),
        ("tokens", None, "missing"),
        ("text", '"poem"', "'poem'"),
        ("planted", "-1", "planted"),
        ("planted", "50", "600 tokens"),
        ("redactions", '"two"', "redactions"),
        ("baselines", '["squid"]', "squid"),
        ("words", "[0]", "words"),
        ("dialects", '["latin"]', "latin"),
        ("wrods", "[10]", "unknown key"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, key: str, value: str | None, part: str) -> None:
    with pytest.raises(ScenarioError, match=rf"scenario\[0\]\.{key}.*") as caught:
        load(write(tmp_path / "s.toml", **{key: value}))
    assert part in str(caught.value)


def test_limits_must_be_complete(tmp_path: Path) -> None:
    path = write(tmp_path / "s.toml")
    path.write_text(path.read_text(encoding="utf-8").replace("cpu_vs_nginx", "cpu_vs_apache"), encoding="utf-8")
    with pytest.raises(ScenarioError, match="limits"):
        load(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"absent\.toml"):
        load(tmp_path / "absent.toml")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("patterns", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_target_is_read_from_its_name(workers: int, patterns: bool, way: str) -> None:
    guard = Guard(10, workers, patterns, way)
    assert Guard.of(guard.name) == guard


def test_an_upstream_of_what_is_translated_speaks_only_chat() -> None:
    spoken = {
        way: gateway_configuration(1, 2, Guard(10, way=way))["upstreams"]["paced"]["endpoints"]  # type: ignore[index]
        for way in WAYS
    }
    assert spoken == {
        "chat": ["chat/completions"],
        "responses": ["chat/completions", "responses"],
        "messages": ["chat/completions", "messages"],
        "responses-over-chat": ["chat/completions"],
        "messages-over-chat": ["chat/completions"],
    }


def test_streams_are_shared_out_by_target_or_by_worker() -> None:
    by_target, by_worker = (one for one in load()[0] if one.name.startswith("workers"))
    assert by_target.spans(by_target.targets) == [range(200), range(200, 400)]
    assert by_worker.spans(by_worker.targets) == [range(134), range(134, 402)]
    assert by_worker.spans(["bytecopy", "portcullis-1000-x2"]) == [range(134), range(134, 402)]
