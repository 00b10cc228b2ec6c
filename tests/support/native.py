"""The part in C, built from its source as it is now: what an installation has may be older, or missing."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import gateway.guard.bytes_path as pure

SOURCE = Path(pure.__file__).with_name("_bytes_path.c")
# `CFLAGS="-g -fsanitize=address,undefined"`, with the sanitizer's library preloaded, looks closer.
FLAGS = ("-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", *shlex.split(os.environ.get("CFLAGS", "")))


@cache
def native_module() -> Any:
    """It; None where there is no compiler."""
    if (compiler := shutil.which("cc")) is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "_bytes_path.so"
        include = f"-I{sysconfig.get_path('include')}"
        subprocess.run([compiler, *FLAGS, include, str(SOURCE), "-o", str(library)], check=True)
        loader = ExtensionFileLoader("_bytes_path", str(library))
        spec = spec_from_loader("_bytes_path", loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
    return module


def native_bytes_path() -> Any:
    """Its `BytesPath`; None where there is no compiler."""
    return getattr(native_module(), "BytesPath", None)
