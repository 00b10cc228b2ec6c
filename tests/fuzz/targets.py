"""All targets by name, and the inputs that are kept for each."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz import answers, readers, texts
from tests.fuzz.target import Target

CORPUS = Path(__file__).parent / "corpus"  # corpus/TARGET/NAME: an input that once found something
TARGETS: dict[str, Target] = {**readers.TARGETS, **answers.TARGETS, **texts.TARGETS}


def findings(name: str) -> list[Path]:
    return sorted((CORPUS / name).glob("*"))
