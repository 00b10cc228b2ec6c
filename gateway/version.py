"""The one place that states the version, the distribution's name, and how optional parts of it are installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"

# What traces are sent with: the SDK alone cannot.
TELEMETRY = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

# The command and the project are called portcullis. On the package index that name is another project's.
DISTRIBUTION = "portcullis-gateway"


def is_installed(*modules: str) -> bool:
    """Whether all of them could be imported, by their full names."""
    try:
        return all(map(find_spec, modules))
    except ModuleNotFoundError:  # what one of them is a part of
        return False


def install_hint(extra: str = "") -> str:
    """The command that installs the optional part `extra`, or the distribution alone: from the package index, or, where
    this code runs from a checkout, in its folder."""
    what = DISTRIBUTION if not _is_checkout(Path(__file__).parent) else "."
    option = "-e " if what == "." else ""
    return f"pip install {option}'{what}[{extra}]'" if extra else f"pip install {option}{what}"


def missing_part(extra: str) -> str:
    """What to say, and to do, where the optional part `extra` cannot be imported."""
    return f"needs a part that is not here: {install_hint(extra)}"


def _is_checkout(package: Path) -> bool:
    """Whether the folder of a package has the project's file beside it, which is not installed with it."""
    return package.with_name("pyproject.toml").is_file()
