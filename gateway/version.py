"""The version, the distribution's name, and how its optional parts are installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"

# Both are needed to send traces: the SDK alone has no exporter.
TELEMETRY = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

# The command and the project are called portcullis. On the package index that name is another project's.
DISTRIBUTION = "portcullis-gateway"


def is_installed(*modules: str) -> bool:
    """Whether all of them could be imported, by their full names."""
    try:
        return all(map(find_spec, modules))
    except ModuleNotFoundError:  # a parent package of one of them
        return False


def unknown_versions() -> Iterator[str]:
    """Packages that are installed in a later version than this one was made for. Those that an upper bound is given
    for are used from the inside."""
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # it runs from its files
        return
    for name, bound in filter(None, map(_bounded, required)):
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:  # of an extra
            continue
        if _numbers(installed) >= _numbers(bound):
            yield f"{name} {installed} is installed, and this version was made for those before {bound}"


def _bounded(requirement: str) -> tuple[str, str] | None:
    """The name of `NAME<BOUND,… ; …` and its upper bound; None if it has none."""
    name, bound = re.match(r"[\w.-]+", requirement), re.search(r"<([0-9.]+)", requirement.partition(";")[0])
    return (name[0], bound[1]) if name and bound else None


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)]


def install_hint(extra: str = "") -> str:
    """The command that installs the distribution with `extra`, or without: from the package index, or from the checkout
    that this code runs from."""
    what = DISTRIBUTION if not _is_checkout(Path(__file__).parent) else "."
    option = "-e " if what == "." else ""
    return f"pip install {option}'{what}[{extra}]'" if extra else f"pip install {option}{what}"


def missing_part(extra: str) -> str:
    """The error message where the optional part `extra` cannot be imported."""
    return f"needs an optional dependency: {install_hint(extra)}"


def _is_checkout(package: Path) -> bool:
    """Whether pyproject.toml, which is not installed, is beside the package."""
    return package.with_name("pyproject.toml").is_file()
