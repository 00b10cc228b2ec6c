"""What a target is, and how its bytes are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """`run` takes any bytes and raises where something is wrong; a fuzzer begins with `seeds`."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    longest: int = 2048  # bytes of an input


def headed(data: bytes) -> tuple[int, int, bytes]:
    """The first two bytes choose, the rest is what is read."""
    padded = data[:2].ljust(2, b"\0")
    return padded[0], padded[1], data[2:]


def seeds(*bodies: bytes, choices: Iterable[int] = (0, 1)) -> tuple[bytes, ...]:
    """Each body with each choice, cut into pieces of two sizes."""
    return tuple(bytes((choice, size)) + body for body in bodies for choice in choices for size in (0, 6))


def pieces(data: bytes, size: int) -> list[bytes]:
    """Equal pieces of 1 to 32 bytes."""
    size = 1 + size % 32
    return [data[at : at + size] for at in range(0, len(data), size)]
