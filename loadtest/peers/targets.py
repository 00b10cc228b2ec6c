"""Each gateway of the comparison: the packages of its environment, its configuration, its command."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest import process, targets
from loadtest.dialects import MODEL
from loadtest.request_upstream import PROSE
from loadtest.script import FORBIDDEN, listed_words

KEY = "sk-bench"
ENVIRONMENTS = Path(".peers")  # below the checkout's root


@dataclass(frozen=True, slots=True)
class Peer:
    """`packages` are installed with pip into an environment of its own; `words` of its list, None without a guard.
    `streams`: as many at once at most, where no more of them come through."""

    name: str
    family: str
    packages: tuple[str, ...] = ()
    words: int | None = None
    streams: int | None = None

    @property
    def environment(self) -> Path:
        return ENVIRONMENTS.absolute() / self.family

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"


LITELLM = ("litellm[proxy]==1.106.2",)
NEMO = ("nemoguardrails[server]==0.24.1", "langchain-openai")
PEERS = (
    Peer("direct", "ours"),
    Peer("bytecopy", "ours"),
    Peer("nginx", "ours"),
    Peer("portcullis-10", "ours", words=10),
    Peer("portcullis-1000", "ours", words=1000),
    Peer("litellm", "litellm", LITELLM),
    Peer("litellm-10", "litellm", LITELLM, words=10),
    # Each chunk takes some 24 ms of CPU: of forty streams none has an event within two minutes.
    Peer("litellm-1000", "litellm", LITELLM, words=1000, streams=2),
    Peer("nemo-10", "nemo", NEMO, words=10),
    Peer("nemo-1000", "nemo", NEMO, words=1000),
)


def install(peer: Peer) -> None:
    """Make the peer's environment, unless it is there. Raises `NotInstalledError` with pip's last line."""
    ready = peer.environment / "ready"
    if not peer.packages or ready.exists():
        return
    venv.create(peer.environment, with_pip=True)
    command = [str(peer.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise targets.NotInstalledError(done.stderr.strip().rpartition("\n")[2])
    ready.touch()


def version_of(peer: Peer) -> str:
    """The version of the first of its packages."""
    if not peer.packages:
        return ""
    name = peer.packages[0].partition("[")[0]
    code = f"from importlib.metadata import version; print(version({name!r}))"
    return subprocess.run([peer.python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


@contextlib.contextmanager
def running(peer: Peer, upstream_port: int, cores: frozenset[int]) -> Iterator[targets.Running]:
    """Raises what `targets.running` raises, and `NotInstalledError`."""
    if peer.family == "ours":
        with targets.running(peer.name, PROSE, upstream_port, cores) as started:
            yield started
        return
    install(peer)
    with tempfile.TemporaryDirectory(prefix="portcullis-peers-") as temporary:
        directory, port = Path(temporary), targets.free_port()
        words = () if peer.words is None else (FORBIDDEN, *listed_words(PROSE, peer.words - 1))
        command = {"litellm": _litellm, "nemo": _nemo}[peer.family](peer, directory, port, upstream_port, words)
        started_process = process.start(command, cores=cores, log=directory / "log", directory=directory)
        try:
            path = {"litellm": "/health/liveliness", "nemo": "/v1/rails/configs"}[peer.family]
            targets.wait_until_ready(peer.name, started_process, port, path, directory / "log")
            yield targets.Running(port, started_process.pid, peer.words is not None, directory)
        finally:
            process.stop(started_process)


def _litellm(peer: Peer, directory: Path, port: int, upstream_port: int, words: Sequence[str]) -> list[str]:
    base = f"http://127.0.0.1:{upstream_port}/v1"
    model = {"model_name": MODEL, "litellm_params": {"model": f"openai/{MODEL}", "api_base": base, "api_key": "none"}}
    # It refuses to start without a key; with one it needs no database.
    configuration: dict[str, object] = {"model_list": [model], "general_settings": {"master_key": KEY}}
    if words:
        blocked = [{"keyword": word, "action": "MASK"} for word in words]
        params = {"guardrail": "litellm_content_filter", "mode": "post_call", "default_on": True}
        rail = {"guardrail_name": "words", "litellm_params": {**params, "blocked_words": blocked}}
        configuration["guardrails"] = [rail]
    (directory / "config.yaml").write_text(json.dumps(configuration), encoding="utf-8")  # JSON is YAML
    return [str(peer.environment / "bin" / "litellm"), "--config", "config.yaml", "--port", str(port)]


def _nemo(peer: Peer, directory: Path, port: int, upstream_port: int, words: Sequence[str]) -> list[str]:
    """Its own rail for regular expressions, over its default blocks of 200 tokens with 50 of context; nothing is shown
    before the rail has run."""
    folder = directory / "configurations" / "words"
    folder.mkdir(parents=True)
    parameters = {"base_url": f"http://127.0.0.1:{upstream_port}/v1", "api_key": "none"}
    streaming = {"enabled": True, "chunk_size": 200, "context_size": 50, "stream_first": False}
    configuration = {
        "models": [{"type": "main", "engine": "openai", "model": MODEL, "parameters": parameters}],
        "rails": {
            "config": {"regex_detection": {"output": {"patterns": [f"(?i){word}" for word in words]}}},
            "output": {"flows": ["regex check output"], "streaming": streaming},
        },
    }
    (folder / "config.yml").write_text(json.dumps(configuration), encoding="utf-8")
    serve = ["server", "--config", str(folder.parent), "--port", str(port), "--default-config-id", "words"]
    return [str(peer.environment / "bin" / "nemoguardrails"), *serve]
