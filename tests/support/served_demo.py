"""`portcullis demo` as a process, for the tests of a package whose conftest imports the fixture."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="package")
def demo_address() -> Iterator[str]:
    """A `portcullis demo` on a free port: what the README's `make run` starts."""
    portcullis = Path(sys.executable).parent / "portcullis"
    process = subprocess.Popen(
        [portcullis, "demo", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    )
    assert process.stdout is not None
    try:
        found = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
        assert found is not None, "the demo did not announce its address"
        yield found[0]
    finally:
        process.terminate()
        process.wait(timeout=10)
        process.stdout.close()
