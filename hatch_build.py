"""Builds the parts in C with the compiler of the machine, where there is one; without it the wheel is pure Python.

The README that an index shows has the repository in front of its links: beside the package there are no other pages.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.tags import sys_tags

SOURCES = "gateway/*/_*.c"
LIBRARY = ".abi3.so"  # only the stable ABI of Python 3.11 is used
SWITCH = "PORTCULLIS_NATIVE"  # "0": without it; "1": an error where it cannot be built


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text("utf-8")
        pages = f"{metadata['urls']['Repository']}/blob/main/"
        text = re.sub(r"\]\((?!https?:|#)", f"]({pages}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class NativeBuildHook(BuildHookInterface[Any]):
    """For wheels, those of editable installations included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root, wanted = Path(self.root), os.environ.get(SWITCH)
        sources = sorted(root.glob(SOURCES))
        for source in sources:
            source.with_suffix(LIBRARY).unlink(missing_ok=True)
        if wanted == "0" or sys.platform == "win32":
            return
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        flags = ["-O2", "-fPIC", "-fvisibility=hidden", "-shared", f"-I{sysconfig.get_path('include')}"]
        if sys.platform == "darwin":
            flags += ["-undefined", "dynamic_lookup"]
        for source in sources:
            library = source.with_suffix(LIBRARY)
            try:
                subprocess.run([*compiler, *flags, str(source), "-o", str(library)], check=True)  # noqa: S603 - our own source
            except (OSError, subprocess.CalledProcessError) as error:
                if wanted:
                    raise
                library.unlink(missing_ok=True)
                self.app.display_warning(f"{source} was not built, what is in Python takes its place: {error}")
                continue
            build_data["pure_python"] = False
            build_data["artifacts"].append(f"/{library.relative_to(root)}")
            build_data["tag"] = f"cp311-abi3-{next(sys_tags()).platform}"
