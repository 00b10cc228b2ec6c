"""Loads the model that a query or the command line names, in this process or in a worker."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.audit.model import LanguageModel
from gateway.audit.query.model import LocalModel, ServedModel
from gateway.policy.errors import ConfigError
from gateway.policy.value import key_from

MODEL_KEY = "UPSTREAM_API_KEY"


def with_credentials(spec: LocalModel | ServedModel, source: str) -> LocalModel | ServedModel:
    """The model with the key from the environment if it has none. Raises ConfigError, about `source`, if something is
    missing."""
    if isinstance(spec, LocalModel):
        return spec
    if spec.tokenizer is None:
        reason = "is required: the model's folder, or its tokenizer.json, says what its tokens write"
        raise ConfigError(source, "model.tokenizer", reason)
    return replace(spec, api_key=spec.api_key or key_from(os.environ, MODEL_KEY))


def with_absolute_paths(spec: LocalModel | ServedModel) -> LocalModel | ServedModel:
    """The model with absolute paths, for a process in another folder; other names may be on a hub."""
    if isinstance(spec, LocalModel):
        return replace(spec, hf=_absolute(spec.hf))
    return replace(spec, tokenizer=None if spec.tokenizer is None else _absolute(spec.tokenizer))


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if Path(path).exists() else path


def model_of(spec: LocalModel | ServedModel, device: str) -> LanguageModel:
    """Load a model with its credentials. Raises ModelError."""
    if isinstance(spec, LocalModel):
        from gateway.audit.models.hf import HuggingFace

        # Read when PyTorch is imported. Threads that wait in a loop gain nothing on a machine of their own, and on one
        # that has other work they cost a third of what an audit gets done.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        _disable_progress_bars()
        return HuggingFace(spec.hf, device)
    from gateway.audit.models.vllm import VllmModel

    assert spec.tokenizer is not None
    return VllmModel(spec.vllm, spec.name, spec.tokenizer, spec.api_key)


@dataclass(frozen=True, slots=True)
class ModelLoader:
    """Loads a model in the worker that calls it."""

    spec: LocalModel | ServedModel
    device: str

    def __call__(self, worker: int) -> LanguageModel:
        return model_of(self.spec, _device_of(self.device, worker))


def _device_of(device: str, worker: int) -> str:
    """The device of a worker: with `cuda` one GPU after the other, where PyTorch would always take the first."""
    if device != "cuda":
        return device
    try:
        from torch.cuda import device_count
    except ImportError:  # loading the model fails then, too, and reports it
        return device
    gpus = device_count()
    return f"cuda:{worker % gpus}" if gpus > 1 else device


def _disable_progress_bars() -> None:
    """Standard error is for the audit's own progress."""
    with contextlib.suppress(ImportError):  # loading the model fails then, too, and reports it
        from transformers.utils import logging

        logging.disable_progress_bar()
