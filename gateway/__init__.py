"""Portcullis: the gateway that language-model output passes through on its way to people."""

from gateway.version import __version__

__all__ = ["__version__"]
