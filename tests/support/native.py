"""The parts in C, built from their sources as they are now: what an installation has may be older, or missing."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gateway
from gateway.automata.literals import WALK_IN_PYTHON, LiteralMachine
from gateway.automata.pattern_states import UNDECIDED
from gateway.censor import passing, scanner

BYTES_PATH = "gateway.guard._bytes_path"
WALK, SCANNER = "gateway.automata._walk", "gateway.censor._scanner"
# `CFLAGS="-g -fsanitize=address,undefined"`, with the sanitizer's library preloaded, looks closer.
FLAGS = ("-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", *shlex.split(os.environ.get("CFLAGS", "")))


@cache
def native_module(name: str) -> Any:
    """The module of this name, such as `gateway.guard._bytes_path`; None where there is no compiler."""
    if (compiler := shutil.which("cc")) is None:
        return None
    last = name.rpartition(".")[2]
    source = Path(gateway.__file__).parents[1] / f"{name.replace('.', '/')}.c"
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / f"{last}.so"
        include = f"-I{sysconfig.get_path('include')}"
        subprocess.run([compiler, *FLAGS, include, str(source), "-o", str(library)], check=True)
        loader = ExtensionFileLoader(last, str(library))
        spec = spec_from_loader(last, loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
    return module


@contextmanager
def stepping(native: bool) -> Iterator[None]:
    """Automata are stepped by the modules in C, as they are now, or by what is in Python."""
    walk, (over_words, over_patterns, scan_quickly) = WALK_IN_PYTHON, scanner.IN_PYTHON
    if native:
        walks, steps = native_module(WALK), native_module(SCANNER)
        walk = walks.method_of(LiteralMachine)
        scan_quickly = steps.method_of(scanner.Scanner, UNDECIDED, LiteralMachine, walks.entry)
        over_words, over_patterns = steps.over_words, steps.over_patterns
    with (
        patch.object(LiteralMachine, "walk", walk),
        patch.object(scanner.Scanner, "scan_quickly", scan_quickly),
        patch.object(scanner, "over_words", over_words),
        patch.multiple(passing, over_words=over_words, over_patterns=over_patterns),
    ):
        yield


def native_bytes_path() -> Any:
    """That of `gateway.guard._bytes_path`; None where there is no compiler."""
    return getattr(native_module(BYTES_PATH), "BytesPath", None)
