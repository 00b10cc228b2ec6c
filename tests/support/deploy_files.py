"""What lies under deploy/, as data."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gateway.config import load
from gateway.policy.model import Config

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
ALERT_CASES = Path(__file__).parent / "alerts_test.yml"
COMPOSE_FILES = sorted(DEPLOY.glob("compose*.yaml"))
# Grafana's provider is named after what it provides and is no configuration of the gateway.
CONFIGURATIONS = [
    *(path for path in sorted(DEPLOY.glob("**/portcullis*.yaml")) if "grafana" not in path.parts),
    DEPLOY / "compose" / "gateway" / "demo.yaml",
]

KEYS = {"PORTCULLIS_KEY": "a-client-key", "UPSTREAM_API_KEY": "an-upstream-key"}

Json = dict[str, Any]


class Resource(NamedTuple):
    """One document of a Kubernetes manifest."""

    path: Path
    body: Json

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def documents(path: Path) -> list[Json]:
    return list(yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader))


def resources(*kinds: str) -> list[Resource]:
    """All resources of the manifests, or those of some kinds."""
    found = [Resource(path, body) for path in MANIFESTS for body in documents(path)]
    return [each for each in found if not kinds or each.kind in kinds]


def resource(kind: str, name: str) -> Json:
    (found,) = [each.body for each in resources(kind) if each.name == name]
    return found


def mounted(config_map: Json, folder: Path) -> Path:
    """The configuration of a ConfigMap, written into `folder` as Kubernetes mounts it. The tokenizer that an init
    container fetches to /tokenizer is the examples'."""
    for name, text in config_map["data"].items():
        (folder / name).write_text(text.replace("/tokenizer", str(DEPLOY / "examples" / "model")), "utf-8")
    return folder / "portcullis.yaml"


def configuration_of(config_map: Json, folder: Path) -> Config:
    return load(mounted(config_map, folder), KEYS)


def dashboard() -> Json:
    read: Json = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))
    return read


def panels() -> list[Json]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def alerts() -> list[Json]:
    (group,) = documents(DEPLOY / "prometheus" / "alerts.yml")[0]["groups"]
    rules: list[Json] = group["rules"]
    return rules


def tool(name: str) -> str:
    """A program of a Debian package: on PATH, or where the package was unpacked without being installed."""
    unpacked = os.environ.get("PORTCULLIS_TOOLS")
    path = os.environ.get("PATH", "")
    found = shutil.which(name, path=f"{path}{os.pathsep}{unpacked}/usr/bin" if unpacked else path)
    assert found, f"{name} is not here: apt-get install prometheus, or unpack the package and set PORTCULLIS_TOOLS"
    return found
