"""A Dockerfile as data, and its steps performed in a folder, since an image can only be built by a container engine.

Each stage gets a clean virtual environment in place of its base image, and a folder in place of its root. Absolute
paths below `PLACES` are taken to lie in that folder; the folder's own path is the same in every stage, because
installed scripts name it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

PLACES = ("/build", "/opt/portcullis", "/etc/portcullis")
TIMEOUT = 300  # seconds for one step; packages are downloaded
_PLACE = re.compile(rf"(?<![\w./-])(?={'|'.join(PLACES)})")
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


class Instruction(NamedTuple):
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The exec form's list, or the words of the shell form."""
        return list(json.loads(self.text)) if self.text.startswith("[") else shlex.split(self.text)


def read(path: Path) -> list[Instruction]:
    """The instructions in order, continued lines joined, comments left out."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.strip() and not line.startswith("#")]
    found = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        name, _, text = line.partition(" ")
        found.append(Instruction(name, text.strip()))
    return found


@dataclass
class Stages:
    """Performs instructions. `context` is what a build would be given, `home` an empty folder."""

    context: Path
    home: Path
    environ: dict[str, str] = field(default_factory=dict)
    entry: list[str] = field(default_factory=list)
    default: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    directory: Path = Path()
    arguments: dict[str, str] = field(default_factory=dict)
    _finished: dict[str, Path] = field(default_factory=dict)
    _stage: str = ""

    @property
    def root(self) -> Path:
        return self.home / "root"

    def perform(self, instruction: Instruction) -> None:
        if step := getattr(self, f"_{instruction.name.lower()}", None):
            step(instruction)

    def inside(self, text: str) -> str:
        return _PLACE.sub(str(self.root), text)

    def run(self, command: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
        """A command as the image would run it."""
        command = [self.inside(word) for word in command]
        program = shutil.which(command[0], path=self.environ["PATH"])
        assert program, f"{command[0]} is not in the image"
        return subprocess.run(
            [program, *command[1:]],
            cwd=self.directory,
            env=self.environ | extra,
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT,
        )

    def _from(self, instruction: Instruction) -> None:
        if self._stage:
            self.root.rename(self.home / self._stage)
            self._finished[self._stage] = self.home / self._stage
        _, _, name = instruction.text.partition(" AS ")
        self._stage = name or "last"
        self.root.mkdir()
        self.directory = self.root
        base = self.home / f"base-of-{self._stage}"
        venv.create(base, with_pip=True, symlinks=True)
        kept = {name: os.environ[name] for name in os.environ if name.lower().startswith(("pip_", "http", "no_proxy"))}
        self.environ = {**kept, "PATH": f"{base / 'bin'}:/usr/bin:/bin", "HOME": str(self.home)}

    def _arg(self, instruction: Instruction) -> None:
        name, _, value = instruction.text.partition("=")
        self.arguments[name] = value

    def _workdir(self, instruction: Instruction) -> None:
        self.directory = Path(self.inside(instruction.text))
        self.directory.mkdir(parents=True, exist_ok=True)

    def _copy(self, instruction: Instruction) -> None:
        *sources, target = instruction.words
        origin = self.context
        if sources[0].startswith("--from="):
            origin = self._finished[sources.pop(0).removeprefix("--from=")]
        into = self.directory / self.inside(target)
        for source in sources:
            path = origin / source.lstrip("/")
            if path.is_dir():
                ignored = shutil.ignore_patterns("__pycache__") if origin == self.context else None
                shutil.copytree(path, into, symlinks=True, ignore=ignored)
            else:
                to = into / path.name if target.endswith("/") else into
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, to)

    def _run(self, instruction: Instruction) -> None:
        if instruction.text.startswith("apt-get "):
            return  # this machine's own compiler takes the place of what is installed
        done = self.run(["sh", "-c", self._filled(instruction.text)])
        assert done.returncode == 0, f"RUN {instruction.text}\n{done.stdout}{done.stderr}"

    def _env(self, instruction: Instruction) -> None:
        for word in instruction.words:
            name, _, value = word.partition("=")
            self.environ[name] = self.inside(self._filled(value))

    def _healthcheck(self, instruction: Instruction) -> None:
        self.health = json.loads(instruction.text.partition(" CMD ")[2])

    def _entrypoint(self, instruction: Instruction) -> None:
        self.entry = instruction.words

    def _cmd(self, instruction: Instruction) -> None:
        self.default = instruction.words

    def _filled(self, text: str) -> str:
        known = self.environ | self.arguments
        return _VARIABLE.sub(lambda found: known[found[1] or found[2]], text)
