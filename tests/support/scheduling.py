"""Which worker of pytest-xdist takes which file of tests."""

from __future__ import annotations

from functools import cached_property
from pathlib import PurePath

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# What is in these folders starts processes, takes longest and waits most.
WAITING = ("serving", "loadtest", "cli")


class ScheduleOfTwoQueues(LoadFileScheduling):
    """`--dist loadfile`, but the files that mostly wait are for every third worker, until there are no others for it:
    side by side they would leave the processors idle, and last of all, too."""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {test: number for number, test in enumerate(self.collection)}

    def _assign_work_unit(self, node: WorkerController) -> None:
        waits = int(node.gateway.id.removeprefix("gw")) % 3 == 0
        suited = (file for file in self.workqueue if (PurePath(file).parent.name in WAITING) is waits)
        file = next(suited, next(iter(self.workqueue)))
        tests = self.assigned_work.setdefault(node, {})[file] = self.workqueue.pop(file)
        node.send_runtest_some([self._numbers[test] for test, done in tests.items() if not done])
