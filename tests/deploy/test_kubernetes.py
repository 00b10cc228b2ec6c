"""The Kubernetes manifests, which are made of the chart: valid by the schemas, whole among themselves, and in step with
the configuration inside."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from copy import deepcopy
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gateway.config import ConfigError, parse
from gateway.guard.findings import HELD_BOUNDS, HOLD_BOUNDS
from gateway.observe.metrics import Metrics
from gateway.proxy.upstreams.client import PROBE_TIMEOUT
from gateway.serving.vllm.command_line import MASKS as RULES
from gateway.version import __version__
from tests.support.deploy_files import DEPLOY, ROOT, Json, Resource, configuration_of, documents, resource, resources

OLDEST, NEWEST = "1.30", "1.37"
OPERATORS_OWN = {"ServiceMonitor"}  # of the Prometheus operator; Kubernetes has no schema for it
INSTALL_TIMEOUT = 300  # seconds: it downloads packages
NODE = Path(__file__).parent / "node"

BUILT_IN = [each for each in resources() if each.kind not in OPERATORS_OWN]
DEPLOYMENTS = resources("Deployment")


def pod_of(deployment: Json) -> Json:
    spec: Json = deployment["spec"]["template"]["spec"]
    return spec


def of_application(deployment: Json) -> bool:
    return any(container["name"] == "app" for container in containers(deployment))


def pod_labels(deployment: Json) -> dict[str, str]:
    labels: dict[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
    return labels


def containers(deployment: Json) -> list[Json]:
    pod = pod_of(deployment)
    return [*pod.get("initContainers", []), *pod["containers"]]


def gateway_of(deployment: Json) -> Json:
    (found,) = [each for each in containers(deployment) if each["name"] == "portcullis"]
    return found


def port_names(deployment: Json) -> set[str]:
    return {port["name"] for container in containers(deployment) for port in container.get("ports", [])}


def config_map_of(deployment: Json) -> Json:
    (name,) = [volume["configMap"]["name"] for volume in pod_of(deployment)["volumes"] if "configMap" in volume]
    return resource("ConfigMap", name)


def matching(selector: dict[str, str]) -> list[Json]:
    return [each.body for each in DEPLOYMENTS if selector.items() <= pod_labels(each.body).items()]


# -- by the schemas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("each", BUILT_IN, ids=str)
def test_the_schema_of_its_kind_accepts_it(each: Resource, version: str) -> None:
    kubernetes_validate.validate(each.body, version, strict=True)


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_the_schema_would_see_a_slip(each: Resource) -> None:
    misspelt = deepcopy(each.body)
    gateway_of(misspelt)["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readinesProbe"):
        kubernetes_validate.validate(misspelt, NEWEST, strict=True)


@pytest.mark.services
async def test_the_operators_schema_accepts_service_monitor_and_alerts() -> None:
    monitor, *_ = resources("ServiceMonitor")
    await node("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
    assert await node("node", "check.mjs", stdin=json.dumps(monitor.body)) == 0
    broken = deepcopy(monitor.body)
    broken["spec"]["endpoints"][0]["port"] = 9090
    assert await node("node", "check.mjs", stdin=json.dumps(broken)) == 1
    alerts = documents(DEPLOY / "prometheus" / "alerts.yml")[0]
    rule = {
        "apiVersion": monitor.body["apiVersion"],
        "kind": "PrometheusRule",
        "metadata": {"name": "r"},
        "spec": alerts,
    }
    assert await node("node", "check.mjs", stdin=json.dumps(rule)) == 0
    broken = {**rule, "spec": {"groups": [{"rules": []}]}}
    assert await node("node", "check.mjs", stdin=json.dumps(broken)) == 1


async def node(program: str, *arguments: str, stdin: str = "") -> int | None:
    found = shutil.which(program)
    assert found, f"{program} is not here: install nodejs and npm"
    process = await asyncio.create_subprocess_exec(found, *arguments, cwd=NODE, stdin=asyncio.subprocess.PIPE)
    await asyncio.wait_for(process.communicate(stdin.encode()), INSTALL_TIMEOUT)
    return process.returncode


# -- among themselves --------------------------------------------------------------------------------------------------


def test_every_kind_is_there() -> None:
    assert {each.kind for each in resources()} == {
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Secret",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    }


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_each_deployment_has_a_service_a_budget_a_policy_and_an_autoscaler(each: Resource) -> None:
    assert each.body["spec"]["selector"]["matchLabels"].items() <= pod_labels(each.body).items()
    budgets = resources("PodDisruptionBudget")
    selectors = {
        "Service": [service.body["spec"]["selector"] for service in resources("Service")],
        "PodDisruptionBudget": [budget.body["spec"]["selector"]["matchLabels"] for budget in budgets],
        "NetworkPolicy": [policy.body["spec"]["podSelector"]["matchLabels"] for policy in resources("NetworkPolicy")],
    }
    for kind, found in selectors.items():
        assert [selector for selector in found if selector.items() <= pod_labels(each.body).items()], kind
    assert each.name in {hpa.body["spec"]["scaleTargetRef"]["name"] for hpa in resources("HorizontalPodAutoscaler")}
    assert "replicas" not in each.body["spec"], "the autoscaler and the manifest would take turns"


@pytest.mark.parametrize("each", resources("Service"), ids=str)
def test_services_lead_to_ports_that_exist(each: Resource) -> None:
    (deployment,) = matching(each.body["spec"]["selector"])
    assert {port["targetPort"] for port in each.body["spec"]["ports"]} <= port_names(deployment)


@pytest.mark.parametrize("each", resources("NetworkPolicy"), ids=str)
def test_network_policies_name_ports_that_exist(each: Resource) -> None:
    (deployment,) = matching(each.body["spec"]["podSelector"]["matchLabels"])
    rules = {port["port"]: rule.get("from") for rule in each.body["spec"]["ingress"] for port in rule["ports"]}
    assert rules.keys() <= port_names(deployment)
    assert rules["metrics"], "the admin port asks for no key and is open to everybody"


@pytest.mark.parametrize("service", resources("Service"), ids=str)
def test_a_service_monitor_finds_each_service(service: Resource) -> None:
    (monitor,) = [each.body for each in resources("ServiceMonitor") if each.name == service.name]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service.body["metadata"]["labels"].items()
    names = {port["name"] for port in service.body["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= names


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_secrets_and_volumes_exist(each: Resource) -> None:
    volumes = {volume["name"] for volume in pod_of(each.body)["volumes"]}
    for container in containers(each.body):
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
        for variable in container.get("env", []):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                assert reference["key"] in resource("Secret", reference["name"])["stringData"]


# -- the gateway in them -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_the_gateway_may_do_nothing_that_it_need_not(each: Resource) -> None:
    pod, gateway = pod_of(each.body), gateway_of(each.body)
    allowed = {**pod["securityContext"], **gateway["securityContext"]}
    assert allowed["runAsNonRoot"] and allowed["runAsUser"] > 0
    assert allowed["readOnlyRootFilesystem"] and not allowed["allowPrivilegeEscalation"]
    assert allowed["capabilities"] == {"drop": ["ALL"]}
    assert allowed["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert gateway["resources"]["limits"]["memory"] and "cpu" not in gateway["resources"]["limits"]


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_changes_of_the_config_map_arrive(each: Resource) -> None:
    """A `subPath` mount would never change."""
    (mount,) = [m for m in gateway_of(each.body)["volumeMounts"] if m["mountPath"] == "/etc/portcullis"]
    assert "subPath" not in mount


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_the_grace_period_covers_the_drain(each: Resource, tmp_path: Path) -> None:
    drain = configuration_of(config_map_of(each.body), tmp_path).listen.drain_timeout
    pod = pod_of(each.body)
    pauses = [pause_before_stop(container) for container in pod["containers"]]
    assert max(pauses) + drain + 10 <= pod["terminationGracePeriodSeconds"]
    if gateway_of(each.body) in pod["containers"]:
        others = [c for c in pod["containers"] if c["name"] != "portcullis"]
        assert all(pause_before_stop(other) > pause_before_stop(gateway_of(each.body)) > 0 for other in others)
    else:
        # A sidecar ends after the application, which may take as long for its own answers.
        assert max(pauses) + 2 * drain < pod["terminationGracePeriodSeconds"]


def pause_before_stop(container: Json) -> int:
    seconds: int = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    return seconds


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_probes_ask_the_admin_port(each: Resource, tmp_path: Path) -> None:
    admin = configuration_of(config_map_of(each.body), tmp_path).listen.admin
    assert admin is not None and admin.host == "0.0.0.0"
    gateway = gateway_of(each.body)
    (port,) = [port["name"] for port in gateway["ports"] if port["containerPort"] == admin.port]
    asked = {name: gateway[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {get["port"] for get in asked.values()} == {port}
    assert [get["path"] for get in asked.values()] == ["/healthz", "/readyz", "/healthz"]


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_readiness_follows_no_provider(each: Resource, tmp_path: Path) -> None:
    """A model server in the same pod is another matter."""
    listen = configuration_of(config_map_of(each.body), tmp_path).listen
    assert (listen.ready_when == "always") is (each.name != "vllm")
    assert (listen.host == "127.0.0.1") is of_application(each.body)


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_pods_are_spread_over_nodes(each: Resource) -> None:
    pod = pod_of(each.body)
    for spread in pod["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"].items() <= pod_labels(each.body).items()
    assert pod["serviceAccountName"] in {account.name for account in resources("ServiceAccount")}


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_e10_readiness_is_waited_for_as_long_as_it_takes(each: Resource) -> None:
    """A probe of the upstreams and, behind it, a canary."""
    assert gateway_of(each.body)["readinessProbe"]["timeoutSeconds"] > 2 * PROBE_TIMEOUT


@pytest.mark.parametrize("each", resources("HorizontalPodAutoscaler"), ids=str)
def test_autoscalers_follow_streams_below_the_limit(each: Resource, tmp_path: Path) -> None:
    (metric,) = each.body["spec"]["metrics"]
    gauges = {family.name for family in Metrics(HELD_BOUNDS, HOLD_BOUNDS).registry.collect() if family.type == "gauge"}
    assert metric["pods"]["metric"]["name"] in gauges
    deployment = resource("Deployment", each.body["spec"]["scaleTargetRef"]["name"])
    limit = configuration_of(config_map_of(deployment), tmp_path).limits.max_streams
    assert int(metric["pods"]["target"]["averageValue"]) < limit


def test_the_vllm_container_is_reached_through_the_gateway_only() -> None:
    (vllm,) = [c for c in containers(resource("Deployment", "vllm")) if c["name"] == "vllm"]
    assert "--host=127.0.0.1" in vllm["args"]
    assert "ports" not in vllm


def test_vllm_gets_the_words_of_the_gateway_beside_it() -> None:
    named = {container["name"]: container for container in containers(resource("Deployment", "vllm"))}
    vllm, masks, plugin = named["vllm"], named["masks"], named["plugin"]
    written = masks["args"][masks["args"].index("--out") + 1]
    assert {"name": RULES, "value": written} in vllm["env"]
    assert {"name": "PYTHONPATH", "value": "/plugin"} in vllm["env"]
    assert "--logits-processors=gateway.decode.vllm_plugin:BannedWords" in vllm["args"]
    # The file is for its owner only, and without capabilities root cannot read what is another's.
    assert masks["securityContext"]["runAsUser"] == vllm["securityContext"]["runAsUser"]
    assert masks["image"] == named["portcullis"]["image"]
    for container, needed in ((vllm, {"masks", "plugin"}), (masks, {"masks"}), (plugin, {"plugin"})):
        assert needed <= {mount["name"] for mount in container["volumeMounts"]}


@pytest.mark.services
def test_the_plugin_finds_what_it_imports_beside_vllm() -> None:
    """It is installed without dependencies: vLLM has the others."""
    imported = "gateway.decode.masks, gateway.decode.maskfile, gateway.decode.vocabulary"
    script = f"import sys, {imported}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=True)
    modules = packages_distributions()
    needed = {canonicalize_name(modules[name][0]) for name in done.stdout.split() if name in modules}
    pins = (ROOT / "tests" / "vllm" / "requirements.txt").read_text("utf-8").splitlines()
    with_vllm = {canonicalize_name(Requirement(line).name) for line in pins if line and not line.startswith("#")}
    (plugin,) = [c for c in containers(resource("Deployment", "vllm")) if c["name"] == "plugin"]
    given = {canonicalize_name(name): version for name, version in (word.split("==") for word in plugin["args"])}
    assert given["portcullis-gateway"] == __version__
    assert needed - {"setuptools", "cython"} <= with_vllm | given.keys()
    assert given.keys() - {"portcullis-gateway"} <= needed


@pytest.mark.parametrize("each", DEPLOYMENTS, ids=str)
def test_a_secret_that_was_not_replaced_stops_the_gateway(each: Resource) -> None:
    placeholders: dict[str, Any] = resource("Secret", "portcullis")["stringData"]
    text = config_map_of(each.body)["data"]["portcullis.yaml"]
    text = yaml.safe_dump({**yaml.safe_load(text), "policies": {"default": {}}})
    with pytest.raises(ConfigError, match="space"):
        parse(text, "F", Path(), placeholders)
