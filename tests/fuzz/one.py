"""`python -m tests.fuzz.one TARGET [options of libFuzzer]`: one target until its time is over or it finds something."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["gateway"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    _, name, *options = sys.argv
    target = TARGETS[name]
    atheris.Setup([sys.argv[0], f"-max_len={target.longest}", *options], target.run)
    atheris.Fuzz()


main()
