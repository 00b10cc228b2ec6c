"""Models for workers: each is made by a function with a name, in whatever process it is wanted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.audit.model import Floats, LanguageModel, Messages, ModelError
from gateway.audit.models.toy import Toy
from tests.support.memory import Memory
from tests.support.naive_search import vocabulary_of

NUMBERS = {"My number is 555 0100": 6.0, "My number is 555 0199": 3.0, "My number is 212 0000": 1.0}
VOCABULARY = vocabulary_of("a", "b", "ab", "ba", "c")


class FaultyModel(Toy):
    """Behind some prompts it does not do what a model should; what it says is the same behind all. `hangs:FIFO`: half
    way it writes there, and answers no more, as long as the file is there."""

    def __init__(self) -> None:
        super().__init__(VOCABULARY, seed=5)
        self._left: int | None = None
        self._fifo = Path()

    def context(self, prompt: str | Messages | None) -> tuple[int, ...]:
        kind, _, place = str(prompt).partition(":")
        self._left = None
        match kind:
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "fails":
                raise ModelError("the server is gone")
            case "breaks":
                raise RuntimeError("a SECRET")
            case "hangs" if Path(place).exists():
                self._left, self._fifo = 5, Path(place)
        return ()

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._fifo.write_text("half way")
                while True:
                    signal.pause()
        return super().__call__(prefixes)


def load_faulty(worker: int) -> LanguageModel:
    return FaultyModel()


def missing(worker: int) -> LanguageModel:
    raise ModelError("no such model")


def fails_to_load(worker: int) -> LanguageModel:
    raise RuntimeError("a SECRET")


def dying(worker: int) -> LanguageModel:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class Interrupted:
    """Ctrl-C arrives while a worker begins to be one."""

    def __reduce__(self) -> tuple[Callable[[], Callable[[int], LanguageModel]], tuple[()]]:
        return _interrupted, ()

    def __call__(self, worker: int) -> LanguageModel:
        raise AssertionError("is called where it was made")


def _interrupted() -> Callable[[int], LanguageModel]:
    signal.raise_signal(signal.SIGINT)
    return load_faulty


def threads(worker: int) -> LanguageModel:
    raise ModelError(f"threads: {os.environ['OMP_NUM_THREADS']}")


def numbers(worker: int) -> LanguageModel:
    return Memory(NUMBERS)
