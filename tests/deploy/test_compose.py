"""The compose files: valid by the specification's schema, hardened, and in step with what they mount."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import ConfigError, load
from tests.support.deploy_files import COMPOSE_FILES, DEPLOY, KEYS, Json, documents
from tests.support.served_demo import demo_address

__all__ = ["demo_address"]

SCHEMA = ["--builtin-schema", "vendor.compose-spec"]
TIMEOUT = 60  # seconds; ends a hang
UNITS = {"s": 1, "m": 60}


def services(name: str) -> dict[str, Json]:
    found: dict[str, Json] = documents(DEPLOY / name)[0]["services"]
    return found


STACK, WITH_VLLM = services("compose.yaml"), services("compose.vllm.yaml")
ALL = {**STACK, "vllm": WITH_VLLM["vllm"]}


def judged(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", *SCHEMA, str(path)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=TIMEOUT)


def seconds(duration: str) -> int:
    return int(duration[:-1]) * UNITS[duration[-1]]


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.name)
def test_the_specifications_schema_accepts_it(path: Path) -> None:
    done = judged(path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_would_see_a_slip(tmp_path: Path) -> None:
    misspelt = {"services": {"gateway": {**STACK["gateway"], "readonly": True}}}
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(misspelt), "utf-8")
    done = judged(tmp_path / "compose.yaml")
    assert done.returncode == 1
    assert "readonly" in done.stdout


@pytest.mark.parametrize("name", ALL)
def test_every_service_is_hardened_and_bounded(name: str) -> None:
    service = ALL[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    # vLLM compiles and caches as it starts; it runs behind the gateway and publishes no port.
    assert service.get("read_only", False) == (name != "vllm")
    assert re.search(r":v?\d+\.\d+\.\d+\}?$", service["image"]), "the image has no exact version"
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), "TLS and the open network are a terminator's task"


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"gateway"}))
def test_every_service_has_a_health_check(name: str) -> None:
    """The gateway's own is in the image."""
    check = ALL[name]["healthcheck"]
    if ALL[name].get("profiles") == ["demo"]:
        assert check == {"disable": True}
        return
    assert check["test"][0] == "CMD"
    assert seconds(check["timeout"]) < seconds(check["interval"])


@pytest.mark.parametrize("name", ALL)
def test_what_is_mounted_from_here_exists(name: str) -> None:
    for volume in ALL[name].get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith("."):
            assert (DEPLOY / source).exists(), source
            assert volume.endswith(":ro"), f"{source} can be written by the container"


VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?P<rule>:?[-?])?(?P<rest>[^}]*)\}")


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.name)
def test_e10_no_variable_has_to_be_set(path: Path) -> None:
    """A variable without a default, or with `:?`, would stop `docker compose up`, or be empty."""
    found = list(VARIABLE.finditer(path.read_text("utf-8")))
    assert found
    assert [each[0] for each in found if each["rule"] != ":-"] == []


def test_the_example_of_an_environment_names_every_variable() -> None:
    used = {each["name"] for path in COMPOSE_FILES for each in VARIABLE.finditer(path.read_text("utf-8"))}
    example = (DEPLOY / ".env.example").read_text("utf-8")
    assert re.findall(r"^# (\w+)=", example, re.MULTILINE) and used == set(
        re.findall(r"^# (\w+)=", example, re.MULTILINE)
    )
    assert not re.search(r"^[^#\n]", example, re.MULTILINE), "a copy would change the demo"


@pytest.mark.services
def test_the_visitor_of_the_demo_asks_it(demo_address: str) -> None:
    (mount,) = STACK["visitor"]["volumes"]
    script = DEPLOY / mount.split(":")[0]
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, env={"GATEWAY_URL": demo_address}, stdout=subprocess.PIPE, text=True) as visitor:
        assert visitor.stdout is not None
        assert re.fullmatch(r"plainly 200 \d+ bytes\n", visitor.stdout.readline())
        visitor.kill()


def test_e10_with_nothing_set_the_demo_runs() -> None:
    def unset(text: str) -> str:
        return VARIABLE.sub(lambda found: found["rest"], text)

    *command, path = map(unset, STACK["gateway"]["command"])
    assert command == ["serve", "--config"]
    (mount,) = STACK["gateway"]["volumes"]
    source, target, _ = mount.split(":")
    set_by_compose = {name: unset(value) for name, value in STACK["gateway"]["environment"].items()}
    config = load(DEPLOY / source / Path(path).relative_to(target), set_by_compose)
    assert [upstream.type for upstream in config.upstreams.values()] == ["demo"]
    assert config.auth.open_to_all
    assert config.listen.admin is not None
    (secret,) = documents(DEPLOY / "compose.yaml")[0]["secrets"].values()
    assert (DEPLOY / unset(secret["file"])).read_text("utf-8").strip()
    with pytest.raises(ConfigError, match="is empty; set it"):
        load(DEPLOY / source / "portcullis.yaml", set_by_compose)


@pytest.mark.parametrize("name", ["demo.yaml", "portcullis.yaml", "portcullis.vllm.yaml"])
def test_the_drain_fits_the_grace_period(name: str) -> None:
    listen = load(DEPLOY / "compose" / "gateway" / name, KEYS).listen
    assert listen.drain_timeout < seconds(STACK["gateway"]["stop_grace_period"])
    (option,) = [each for each in WITH_VLLM["vllm"]["command"] if each.startswith("--shutdown-timeout=")]
    assert listen.drain_timeout < int(option.partition("=")[2]) < seconds(WITH_VLLM["vllm"]["stop_grace_period"])


def test_the_overlay_runs_its_own_configuration_on_the_first_ones_mount() -> None:
    (mount,) = STACK["gateway"]["volumes"]
    source, target, _ = mount.split(":")
    named = Path(WITH_VLLM["gateway"]["command"][-1])
    assert (DEPLOY / source / named.relative_to(target)).exists()


def test_prometheus_and_grafana_find_what_they_read() -> None:
    admin = load(DEPLOY / "compose" / "gateway" / "portcullis.yaml", KEYS).listen.admin
    assert admin is not None
    (job,) = documents(DEPLOY / "prometheus" / "prometheus.yml")[0]["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"gateway:{admin.port}"]}]
    (source,) = documents(DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yaml")[0]["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = documents(DEPLOY / "grafana" / "provisioning" / "dashboards" / "portcullis.yaml")[0]["providers"]
    mounts = {volume.split(":")[1]: volume.split(":")[0] for volume in STACK["grafana"]["volumes"]}
    assert mounts[f"{provider['options']['path']}/dashboard.json"] == "./grafana/dashboard.json"
    assert {"/etc/grafana/provisioning/datasources", "/etc/grafana/provisioning/dashboards"} < mounts.keys()


def test_no_secret_is_written_down() -> None:
    for name, service in ALL.items():
        environment: dict[str, Any] = service.get("environment", {})
        for variable, value in environment.items():
            if re.search("KEY|TOKEN|PASSWORD|SECRET", variable):
                assert value.startswith(("${", "/run/secrets/")), f"{name}: {variable}"
