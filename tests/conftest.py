"""How all tests run."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from prometheus_client import values

from tests.support.native import SCANNER, native_module, stepping

# What a test checks is not how long the machine takes; it may be busy with other tests.
settings.register_profile("untimed", deadline=None)
# What decides whether a change lands asks the same examples each time; others are tried by hand and each night.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "untimed"))

# What a shell has ignored, in the background and under nohup, every process that a test starts would ignore, too. What
# is caught here is as usual there.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

# Tests make many objects and hardly any garbage that has to be looked for: the usual thresholds cost a tenth of all.
gc.set_threshold(10_000, 20, 20)
gc.disable()  # until all is collected

SLOWEST = 15  # files whose time is printed


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.support.scheduling import ScheduleOfTwoQueues  # only the process that distributes needs it

    return ScheduleOfTwoQueues(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The files that took longest, so that a slow test is seen when it comes."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > SLOWEST:
        terminalreporter.section(f"slowest {SLOWEST} files")
        for path, took in seconds.most_common(SLOWEST):
            terminalreporter.write_line(f"{took:6.1f} s  {path}")


def pytest_collection_finish() -> None:
    """What the collection of thousands of tests has made stays; `gc.collect()` in a test need not go through it."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _own_values() -> Iterator[None]:
    """Metrics that workers share are switched on for a whole process."""
    before = values.ValueClass
    yield
    values.ValueClass = before


@pytest.fixture(scope="module", params=(False, True), ids=("Python", "C"))
def steps(request: pytest.FixtureRequest) -> Iterator[None]:
    """Automata are stepped in Python, and by the modules in C."""
    if request.param and native_module(SCANNER) is None:
        pytest.skip("there is no compiler")
    with stepping(request.param):
        yield
