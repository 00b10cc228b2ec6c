from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.decode.maskfile import BannedPolicy, MaskRequest, write_masks
from gateway.decode.masks import WordBan
from gateway.policy.model import DEFAULT_FOLD
from tests.support.vllm_server import START, Server, serving

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def banning(*words: str, whole_word: bool = False) -> BannedPolicy:
    return BannedPolicy.of([WordBan(words=words, fold=DEFAULT_FOLD, whole_word=whole_word)])


POLICIES = {
    "secret": banning("12MONKEYS"),
    "whole": banning("password", whole_word=True),
    **{f"without-{number}": banning(number) for number in NUMBERS},
    **{
        f"without-{first}-{second}": banning(first, second)
        for first, second in zip(NUMBERS[:6], NUMBERS[4:], strict=True)
    },
}


def masked(policy: str, **more: int | tuple[int, ...]) -> MaskRequest:
    return MaskRequest(policy=policy, digest=POLICIES[policy].digest, **more)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here is on this machine; a proxy in the environment is not meant for it."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NO_PROXY", "*")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`starts`: what needs a vLLM of its own, each a quarter of a minute and more."""
    for item in items:
        chosen = getattr(getattr(item, "callspec", None), "params", {}).get("engine")
        if item.get_closest_marker("vllm") and ("port" in getattr(item, "fixturenames", ()) or chosen == "guidance"):
            item.add_marker("starts")
        if item.get_closest_marker("vllm") and item.path.name.startswith("test_audit"):
            item.add_marker("audit")


@pytest.fixture
def port() -> int:
    return free_port()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found: int = listener.getsockname()[1]
        return found


@pytest.fixture(scope="session")
def masks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of masks that servers start with."""
    path = tmp_path_factory.mktemp("masks") / "masks.json"
    write_masks(path, POLICIES)
    return path


@pytest.fixture(scope="session")
def server(masks: Path) -> Iterator[Server]:
    """A server with the masks, which reads the model's calls of tools where a request has tools, and reasoning only
    where one asks for that."""
    flags = [*START, "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_v3"]
    more = {"PORTCULLIS_MASKS": str(masks), "VLLM_ENABLE_RESPONSES_API_STORE": "1"}
    with serving(masks.with_name("vllm.log"), free_port(), flags, more) as running:
        yield running
