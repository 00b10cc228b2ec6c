"""Every expression of dashboard and alerts, evaluated by a real Prometheus on what a real gateway has served."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.deploy_files import ALERT_CASES, DEPLOY, Json, alerts, dashboard, panels, tool
from tests.support.stack import TIMEOUT, Prometheus, eventually, stack

pytestmark = pytest.mark.services

RULES = DEPLOY / "prometheus" / "alerts.yml"
WINDOW = "10s"  # many scrapes; what Grafana puts in place of $__rate_interval is four
# Series that only a defect makes appear, so that nothing stands on the left of the alert's comparison.
OF_DEFECTS = {"PortcullisCoverageErrors", "PortcullisGuardFailures"}
COMPARISON = re.compile(r" [<>] [\d.]+")


@pytest.fixture(scope="module", params=[1, 2], ids=["one-worker", "two-workers"])
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with stack(tmp_path_factory.mktemp("stack"), request.param) as found:
        yield found


def as_grafana_asks(expression: str) -> str:
    return expression.replace("$__rate_interval", WINDOW).replace("$instance", ".*")


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_every_panel_shows_something(panel: Json, prometheus: Prometheus) -> None:
    for target in panel["targets"]:
        expression = as_grafana_asks(target["expr"])
        eventually(partial(prometheus.numbers, expression), expression)


def test_the_annotations_and_variables_find_something(prometheus: Prometheus) -> None:
    (annotation,) = dashboard()["annotations"]["list"]
    assert prometheus.query(as_grafana_asks(annotation["expr"])) is not None
    (variable,) = [each for each in dashboard()["templating"]["list"] if each["type"] == "query"]
    asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
    assert asked
    assert all(asked[2] in each["metric"] for each in eventually(partial(prometheus.query, asked[1]), asked[1]))


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_alert_has_something_to_judge(alert: Json, prometheus: Prometheus) -> None:
    prometheus.query(alert["expr"])
    if alert["alert"] not in OF_DEFECTS:
        judged = COMPARISON.split(alert["expr"])[0]
        # Of `increase(x) > 0 or (...)` the first part is whole; of `(a / b > 1)` it is not.
        assert judged.count("(") == judged.count(")"), judged
        eventually(partial(prometheus.numbers, judged), judged)


def test_prometheus_evaluates_the_rules_itself(prometheus: Prometheus) -> None:
    rules = eventually(lambda: evaluated(prometheus), "every rule is evaluated")
    assert {name: rule.get("lastError") for name, rule in rules.items() if rule["health"] != "ok"} == {}
    # One upstream is dead and a broken file was refused.
    eventually(lambda: prometheus.rules()["PortcullisUpstreamDown"]["state"] == "pending", "an upstream is down")
    eventually(lambda: prometheus.rules()["PortcullisReloadFailing"]["state"] == "firing", "a reload failed")
    rules = prometheus.rules()
    assert {rules[name]["state"] for name in (*OF_DEFECTS, "PortcullisNoReadyWorker")} == {"inactive"}


def evaluated(prometheus: Prometheus) -> dict[str, Json] | None:
    rules = prometheus.rules()
    return rules if all(rule["health"] != "unknown" for rule in rules.values()) else None


@pytest.mark.parametrize(
    "arguments",
    [("check", "rules", RULES), ("check", "config", RULES.with_name("prometheus.yml")), ("test", "rules", ALERT_CASES)],
    ids=lambda arguments: " ".join(map(str, arguments[:2])),
)
def test_promtool_accepts(arguments: tuple[str, str, Path]) -> None:
    done = subprocess.run([tool("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
