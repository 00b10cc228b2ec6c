"""From what a query or the command line says of a model to the model: in this process, or in whatever process asks."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.audit.model import Model
from gateway.audit.query.model import LocalModel, ServedModel
from gateway.policy.value import ConfigError, Scalar, ScalarKind, Value

MODEL_KEY = "UPSTREAM_API_KEY"


def complete(wanted: LocalModel | ServedModel, source: str) -> LocalModel | ServedModel:
    """With the key from the environment, if it has none of its own. Raises ConfigError, about `source`, if something is
    missing."""
    if isinstance(wanted, LocalModel):
        return wanted
    if wanted.tokenizer is None:
        reason = "is required: the model's folder, or its tokenizer.json, says what its tokens write"
        raise ConfigError(source, "model.tokenizer", reason)
    return replace(wanted, api_key=wanted.api_key or key_from(MODEL_KEY))


def key_from(name: str) -> str | None:
    """The key that a variable of the environment holds, None if there is none. Raises ConfigError for one that cannot
    travel in a header."""
    key = os.environ.get(name)
    return Value("environment", name, Scalar(key, ScalarKind.TEXT), secret=True).key() if key else None


def anywhere(wanted: LocalModel | ServedModel) -> LocalModel | ServedModel:
    """The same for a process that runs in another folder; what is no path here may be a name on a hub."""
    if isinstance(wanted, LocalModel):
        return replace(wanted, hf=_absolute(wanted.hf))
    return replace(wanted, tokenizer=None if wanted.tokenizer is None else _absolute(wanted.tokenizer))


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if Path(path).exists() else path


def model_of(wanted: LocalModel | ServedModel, device: str) -> Model:
    """A complete one, loaded. Raises ModelError if it cannot be."""
    if isinstance(wanted, LocalModel):
        from gateway.audit.models.hf import HuggingFace

        # Read when PyTorch is imported. Threads that wait in a loop gain nothing on a machine of their own, and on one
        # that has other work they cost a third of what an audit gets done.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        _hush()
        return HuggingFace(wanted.hf, device)
    from gateway.audit.models.vllm import Endpoint

    assert wanted.tokenizer is not None
    return Endpoint(wanted.vllm, wanted.name, wanted.tokenizer, wanted.api_key)


@dataclass(frozen=True, slots=True)
class Loading:
    """Loads a model in the worker that it is called in."""

    wanted: LocalModel | ServedModel
    device: str

    def __call__(self, worker: int) -> Model:
        return model_of(self.wanted, _in_turn(self.device, worker))


def _in_turn(device: str, worker: int) -> str:
    """`cuda` is the first GPU to PyTorch; workers take one after the other."""
    if device != "cuda":
        return device
    try:
        from torch.cuda import device_count
    except ImportError:  # then the model cannot be loaded either, and that is said
        return device
    gpus = device_count()
    return f"cuda:{worker % gpus}" if gpus > 1 else device


def _hush() -> None:
    """Standard error says how far the audit is, and nothing else."""
    with contextlib.suppress(ImportError):  # then the model cannot be loaded either, and that is said
        from transformers.utils import logging

        logging.disable_progress_bar()
