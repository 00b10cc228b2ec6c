"""The Helm chart, rendered by Helm itself as the library `helm-python-sdk`, which `make services` installs.

`python -m tests.support.chart` (`make chart`) writes `deploy/kubernetes` again: what the chart makes of the files in
`deploy/chart/values`, for whoever has no Helm.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.deploy_files import DEPLOY, Json

CHART = DEPLOY / "chart"
VALUES = {path.stem: path for path in sorted((CHART / "values").glob("*.yaml"))}
RELEASES = {"gateway": "portcullis", "sidecar": "chat-app", "vllm": "vllm"}
HEADER = "# Made of deploy/chart with deploy/chart/values/{name}.yaml: `make chart`. Change those.\n"
# The dashboard and the alerts are files already.
WITHOUT_COPIES = {"rules": {"enabled": False}, "dashboard": {"enabled": False}}


def values(name: str) -> Json:
    read: Json = yaml.safe_load(VALUES[name].read_text("utf-8"))
    return read


def render(values: Json, release: str = "gate", chart: Path = CHART) -> dict[str, str]:
    """Template → text, of those that made something. Raises the library's errors."""
    from helm_python.chart import Chart

    with Chart.load(chart) as loaded:
        rendered = loaded.render(values, name=release, namespace="default")
    return {name: text for name, text in rendered.items() if name.endswith(".yaml") and text.strip()}


def lint(values: Json) -> list[Json]:
    """What `helm lint --strict` finds, but that the chart has no icon."""
    from helm_python.chart import lint

    found: Any = lint(CHART, values, strict=True, namespace="default", kube_version="v1.30.0")
    return [each for each in found["messages"] if each["error"] != "icon is recommended"]


def manifests() -> dict[Path, str]:
    """The files of `deploy/kubernetes` that are made of the chart."""
    files = {}
    for name, release in RELEASES.items():
        given = values(name)
        rendered = render({**given, "metrics": {**given["metrics"], **WITHOUT_COPIES}}, release)
        parts = [HEADER.format(name=name), *(f"---\n{text.strip()}\n" for _, text in sorted(rendered.items()))]
        files[DEPLOY / "kubernetes" / f"{name}.yaml"] = "".join(parts)
    return files


if __name__ == "__main__":
    for path, text in manifests().items():
        path.write_text(text, "utf-8")
