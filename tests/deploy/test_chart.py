"""The Helm chart: its values by their schema; rendered by Helm as a library, what comes out by that of Kubernetes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from gateway import cli
from gateway.version import __version__
from tests.support.chart import CHART, RELEASES, VALUES, lint, manifests, render, values
from tests.support.deploy_files import DEPLOY, KEYS, Json, documents, mounted

OF_OPERATORS = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}  # Kubernetes has no schema for them
SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text("utf-8"))
PAGE = DEPLOY.parent / "docs" / "deploy.md"
DEFAULTS: Json = documents(CHART / "values.yaml")[0]
OLDEST, NEWEST = "1.30", "1.37"


def changed(name: str, **changes: Any) -> Json:
    """A values file with some keys merged into it, as a second `-f` would."""

    def merge(old: Any, new: Any) -> Any:
        if not (isinstance(old, dict) and isinstance(new, dict)):
            return new
        return {**old, **{key: merge(old.get(key), value) for key, value in new.items()}}

    merged: Json = merge(values(name), changes)
    return merged


def test_values_files_and_releases_are_the_same() -> None:
    assert VALUES.keys() == RELEASES.keys()


@pytest.mark.parametrize("name", VALUES)
def test_the_values_schema_accepts_a_file(name: str) -> None:
    jsonschema.validate(values(name), SCHEMA)


def test_the_values_schema_knows_exactly_the_values_that_there_are() -> None:
    def compare(schema: Json, default: Any, path: str) -> None:
        if schema.get("additionalProperties") is False:
            assert schema["properties"].keys() - {"global"} == default.keys(), path
            for key, value in default.items():
                compare(schema["properties"][key], value, f"{path}.{key}")

    compare(SCHEMA, DEFAULTS, "values")


@pytest.mark.parametrize(
    "slip",
    [
        {"imgae": {}},
        {"kind": "daemon"},
        {"listen": {"readyWhen": "never"}},
        {"config": {"listen": {"port": 1}}},
        {"kind": "sidecar", "app": {"image": ""}},
        {"kind": "vllm", "vllm": {"model": ""}},
        {"image": {"digest": "sha256:abc"}},
    ],
    ids=str,
)
def test_the_values_schema_would_see_a_slip(slip: Json) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed("gateway", **slip), SCHEMA)


def test_the_chart_has_the_version_of_the_program() -> None:
    (chart,) = documents(CHART / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_plugin_has_one_set_of_versions() -> None:
    wanted = [each for each in DEFAULTS["vllm"]["pluginPackages"] if "==" in each]
    assert len(wanted) == 2
    lock = (DEPLOY / "requirements.lock").read_text("utf-8")
    derived = (DEPLOY / "vllm" / "Dockerfile").read_text("utf-8")
    assert [each for each in wanted if f"{each} " not in lock or each not in derived] == []
    tag = DEFAULTS["vllm"]["image"].partition(":")[2]
    assert f"ARG VLLM_TAG={tag}\n" in derived and f"ARG VERSION={__version__}\n" in derived


def test_what_it_ships_of_alerts_and_dashboard_is_no_copy() -> None:
    for path in (CHART / "files").iterdir():
        assert path.is_symlink() and path.resolve().is_relative_to(DEPLOY)


# -- rendered by Helm --------------------------------------------------------------------------------------------------

ALL = {"metrics": {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True}, "dashboard": {"enabled": True}}}
CASES = {
    **{name: values(name) for name in VALUES},
    "everything": changed("gateway", **ALL, podLabels={"a": "b"}, podAnnotations={"a": "b"}, nodeSelector={"a": "b"})
    | {
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "high",
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
    },
    "nothing": changed(
        "gateway",
        autoscaling={"enabled": False},
        disruptionBudget={"enabled": False},
        networkPolicy={"enabled": False},
        serviceAccount={"create": False},
        topologySpread=False,
        secret={"keys": []},
        config={"auth": "none"},
        metrics={"serviceMonitor": {"enabled": False}, "rules": {"enabled": False}, "dashboard": {"enabled": False}},
    ),
    "keda": changed("vllm", autoscaling={"by": "keda"}),
    "balancer": changed("gateway", service={"type": "LoadBalancer", "annotations": {"a": "b"}}),
    "masks in the image": changed("vllm", vllm={"plugin": "image"}),
    "no rollback": changed("vllm", vllm={"rollback": False}),
    "only rollback": changed("vllm", vllm={"masks": False}),
    "a stored model": changed("vllm", vllm={"models": {"persistentVolumeClaim": {"claimName": "models"}}}),
    "injected": changed("sidecar", kind="injected", **ALL),
}


def resources(given: Json) -> Iterator[Json]:
    for text in render(given).values():
        yield from (body for body in yaml.load_all(text, yaml.CSafeLoader) if body)


@pytest.mark.services
@pytest.mark.parametrize("name", CASES)
def test_kubernetes_accepts_what_helm_makes(name: str) -> None:
    assert lint(CASES[name]) == []
    made = list(resources(CASES[name]))
    names = [(each["kind"], each["metadata"]["name"]) for each in made]
    assert names and len(set(names)) == len(names)
    for each in made:
        if each["kind"] not in OF_OPERATORS:
            for version in (OLDEST, NEWEST):
                kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.services
@pytest.mark.parametrize("name", CASES)
def test_the_gateway_accepts_the_configuration(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    (config,) = [each for each in resources(CASES[name]) if "portcullis.yaml" in each.get("data", {})]
    assert cli.main(["check", str(mounted(config, tmp_path))]) == 0


@pytest.mark.services
def test_the_plain_manifests_are_made_of_it() -> None:
    for path, text in manifests().items():
        assert path.read_text("utf-8") == text, f"{path.name}: run `make chart`"


@pytest.mark.services
def test_alerts_and_dashboard_arrive_as_they_are() -> None:
    made = {(each["kind"], each["metadata"]["name"]): each for each in resources(CASES["everything"])}
    assert made["PrometheusRule", "gate"]["spec"] == documents(DEPLOY / "prometheus" / "alerts.yml")[0]
    shown = json.loads(made["ConfigMap", "gate-dashboard"]["data"]["portcullis.json"])
    assert shown == json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))


@pytest.mark.services
def test_a_change_that_needs_a_restart_makes_new_pods() -> None:
    def checksum(given: Json) -> str:
        (deployment,) = [each for each in resources(given) if each["kind"] == "Deployment"]
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["portcullis/checksum"])

    rules = {"config": {"policies": {"default": {"max_hold": 2048}}}}
    assert checksum(changed("gateway", **rules)) == checksum(values("gateway"))  # is reloaded
    assert checksum(changed("gateway", listen={"drainTimeout": 60})) != checksum(values("gateway"))
    assert checksum(changed("gateway", config={"redis": "redis://r"})) != checksum(values("gateway"))
    assert checksum(changed("vllm", **rules)) != checksum(values("vllm"))  # vLLM reads its words at the start


@pytest.mark.services
def test_another_chart_puts_the_gateway_into_its_own_pods(tmp_path: Path) -> None:
    """As docs/deploy.md has it."""
    shutil.copytree(CHART, tmp_path / "charts" / "portcullis")
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: own, version: 1.0.0}")
    (tmp_path / "templates").mkdir()
    (block,) = re.findall(r"```text\n(apiVersion: apps/v1.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "templates" / "deployment.yaml").write_text(block)
    made = render({"portcullis": CASES["injected"]}, "own", tmp_path)
    deployment = yaml.safe_load(made["own/templates/deployment.yaml"])
    kubernetes_validate.validate(deployment, NEWEST, strict=True)
    pod = deployment["spec"]["template"]["spec"]
    assert [container["name"] for container in pod["initContainers"]] == ["portcullis"]
    config = yaml.safe_load(made["own/charts/portcullis/templates/configmap.yaml"])
    assert {"name": config["metadata"]["name"]} in [volume.get("configMap") for volume in pod["volumes"]]
    assert not [name for name in made if "charts/portcullis/templates/deployment" in name]
