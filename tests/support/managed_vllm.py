"""stand_in.py as the program that a gateway manages."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.gateway import TIMEOUT
from tests.support.served import write

STAND_IN = Path(__file__).with_name("stand_in.py")
MODEL = "some/model"


@dataclass
class StandIn:
    """The program, as its starts have told of themselves in the folder."""

    folder: Path

    def will(self, **behaviour: object) -> None:
        """Behave so from the next start on."""
        write(self.folder / "behaviour.json", behaviour)

    @property
    def command(self) -> str:
        return shlex.join([sys.executable, str(STAND_IN), str(self.folder)])

    @property
    def starts(self) -> list[dict[str, Any]]:
        found = sorted(self.folder.glob("start-*.json"))
        return [json.loads(path.read_text()) for path in found]

    async def started(self, count: int = 1) -> dict[str, Any]:
        """What the so-manieth start tells."""
        async with asyncio.timeout(TIMEOUT):
            while len(self.starts) < count:
                await asyncio.sleep(0.01)
        return self.starts[count - 1]

    async def gone(self) -> None:
        """Nothing is left of any start."""
        pids = [pid for start in self.starts for pid in (start["pid"], *start["children"])]
        async with asyncio.timeout(TIMEOUT):
            while any(map(lives, pids)):
                await asyncio.sleep(0.01)


def lives(pid: int) -> bool:
    """A zombie that nobody has waited for has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
