"""Dashboard and alerts as files: whole, documented, and about metrics that exist. test_prometheus.py evaluates them."""

from __future__ import annotations

import itertools
import re

import pytest

from gateway.guard.findings import HELD_BOUNDS, HOLD_BOUNDS
from gateway.observe.metrics import Metrics
from gateway.policy.model import Limits
from tests.support.deploy_files import ALERT_CASES, ROOT, Json, alerts, dashboard, documents, panels

PAGE = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
SERIES = re.compile(r"portcullis_[a-z_]+(?=\{)")
EXPRESSIONS = [
    *(target["expr"] for panel in panels() for target in panel["targets"]),
    *(alert["expr"] for alert in alerts()),
]


def series_names() -> set[str]:
    """The names that samples of the gateway's metrics have."""
    names = set()
    for family in Metrics(HELD_BOUNDS, HOLD_BOUNDS).registry.collect():
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {family.name + ending for ending in endings}
    return names


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_series_exists(expression: str) -> None:
    named = set(SERIES.findall(expression))
    assert named <= series_names()
    assert named == set(re.findall(r"portcullis_[a-z_]+", expression)), "a series is read without a selector"


def test_every_metric_is_looked_at() -> None:
    looked_at = {name for expression in EXPRESSIONS for name in SERIES.findall(expression)}
    for family in Metrics(HELD_BOUNDS, HOLD_BOUNDS).registry.collect():
        assert any(name.startswith(family.name) for name in looked_at), family.name


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_every_panel_says_what_it_shows(panel: Json) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["description"].endswith(".")
    assert [target["refId"] for target in panel["targets"]] == list("ABCDEF"[: len(panel["targets"])])


def test_panels_stand_apart() -> None:
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])
    for one, other in itertools.combinations([panel["gridPos"] for panel in dashboard()["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in dashboard()["panels"])


def test_every_row_is_documented() -> None:
    for row in dashboard()["panels"]:
        if row["type"] == "row":
            assert f"| {row['title']} |" in PAGE


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_alert_has_a_runbook(alert: Json) -> None:
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert alert["annotations"]["summary"] and alert["annotations"]["description"].endswith(".")
    assert alert["annotations"]["runbook"] == f"docs/dashboards.md#{alert['alert'].lower()}"
    _, heading, section = PAGE.partition(f"\n### {alert['alert']}\n")
    assert heading, "docs/dashboards.md has no such section"
    assert len(section.partition("\n### ")[0].split()) > 30, "the runbook says next to nothing"


def test_the_limit_of_the_alert_is_the_configurations_default() -> None:
    (alert,) = [each for each in alerts() if each["alert"] == "PortcullisStreamsNearLimit"]
    assert alert["expr"].endswith(f"> {Limits().max_streams * 8 // 10}")


def test_every_alert_is_seen_to_fire() -> None:
    """promtool runs these cases, in test_prometheus.py."""
    samples = [
        sample["labels"]
        for case in documents(ALERT_CASES)[0]["tests"]
        for expected in case["promql_expr_test"]
        for sample in expected["exp_samples"]
    ]
    assert set(re.findall(r'"(\w+)"', " ".join(samples))) == {alert["alert"] for alert in alerts()}
