"""Banned words on vLLM: a logits processor for its V1 model runner and for Model Runner V2.

    PORTCULLIS_MASKS=masks.json vllm serve MODEL --logits-processors gateway.decode.vllm_plugin:BannedWords

A request chooses its words by `vllm_xargs` (see `gateway.decode.maskfile`); one that names none is left alone. The only
module that imports vllm or torch.

An exception inside vLLM's engine would end the server, so none leaves here after the start: an answer that cannot be
followed is ended. Where a grammar, or a client's own bans, leave nothing that the mask allows, the row is left as it
was, for the engine cannot sample from nothing: the censor behind sees the word.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from vllm.logger import init_logger
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality
from vllm.v1.sample.logits_processor import LogitsProcessor as V1Processor

from gateway.decode.maskfile import NO_MASKS, BannedPolicy, MaskRequest, MaskRequestError, read_masks, select
from gateway.decode.masks import BanMask, MaskCompiler, MaskedAnswer
from gateway.decode.vocabulary import read_vocabulary

try:
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as V2Processor
except ImportError:  # an older vLLM: there is only V1
    LogitsContext, LogitsProcRequestState, V2Processor = None, None, object

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.config import VllmConfig

RULES = "PORTCULLIS_MASKS"  # the environment variable that names the file
_MODULE = "gateway.decode.vllm_plugin"

# In vLLM's own namespace, for only that has a handler.
logger = init_logger("vllm.portcullis")


@lru_cache(maxsize=1)
def _policies() -> dict[str, BannedPolicy] | None:
    """The file as it was when the process first needed it; None if there is none. Raises MaskFileError, OSError."""
    path = os.environ.get(RULES)
    return read_masks(Path(path)) if path else None


class _Masks:
    """The masks of all policies over the server's vocabulary, and their flags on the device."""

    def __init__(self, policies: dict[str, BannedPolicy], config: VllmConfig, device: torch.device) -> None:
        from vllm.tokenizers import cached_tokenizer_from_config

        model = config.model_config
        tokenizer = cached_tokenizer_from_config(model)
        stated = model.try_get_generation_config().get("eos_token_id", getattr(tokenizer, "eos_token_id", None))
        end = list(stated) if isinstance(stated, list) else [stated]
        width = model.get_vocab_size()
        vocabulary = read_vocabulary(tokenizer, end=end)
        compiler = MaskCompiler(vocabulary.tokens[:width], vocabulary.end, width)
        self._policies = policies
        self._by_digest = {policy.digest: compiler.compile(policy.banned) for policy in policies.values()}
        self._device = device
        self._end = list(vocabulary.end)
        self._on_device: dict[tuple[int, int], torch.Tensor] = {}
        self._length = model.max_model_len
        logger.info("Portcullis masks the words of %d policies over %d tokens", len(policies), width)

    def answer(self, params: SamplingParams, prompt: Sequence[int] | None, prompt_length: int) -> MaskedAnswer | None:
        """The answer to a request whose prompt ends with `prompt`, None if it wants no mask; lost, if it cannot be
        followed."""
        request = MaskRequest.of(params.extra_args)
        if request is None:
            return None
        mask = self._by_digest[select(self._policies, request).digest]
        limit = self._length - prompt_length
        if params.max_tokens is not None:
            limit = min(limit, params.max_tokens)
        kept = [] if not request.kept else [-1] if prompt is None else prompt[-request.kept :]
        return MaskedAnswer(mask, kept, limit, request.not_first)

    def lost(self) -> MaskedAnswer:
        """Mark an answer as unknown."""
        return MaskedAnswer(next(iter(self._by_digest.values())), [-1])

    def apply(self, logits: torch.Tensor, answers: Sequence[tuple[int, MaskedAnswer]]) -> None:
        """Mask the rows of the answers in `logits` [rows, vocabulary], in place."""
        found = [(answer.mask, *answer.forbidden()) for _, answer in answers]
        banned = torch.stack([self._flags(mask, forbidden.shared) for mask, forbidden, _ in found])
        tokens = [np.concatenate([forbidden.tokens, besides]) for _, forbidden, besides in found]
        rows = np.repeat(np.arange(len(answers)), [len(each) for each in tokens])
        if len(rows):
            banned[self._moved(rows), self._moved(np.concatenate(tokens))] = True
        chosen = self._moved(np.array([row for row, _ in answers]))
        before = logits[chosen]
        after = before.masked_fill(banned[:, : before.shape[1]], float("-inf"))
        # Without a look at the values from the host, which would make a GPU wait.
        alive = after.amax(dim=-1, keepdim=True) > float("-inf")
        logits[chosen] = torch.where(alive, after, before)

    def end_all(self, logits: torch.Tensor) -> None:
        """Leave only the end in every row, in place."""
        logits.fill_(float("-inf"))
        logits[:, self._end] = 0

    def _moved(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)

    def _flags(self, mask: BanMask, shared: int) -> torch.Tensor:
        key = id(mask), shared
        if key not in self._on_device:
            self._on_device[key] = self._moved(mask.shared[shared].copy())
        return self._on_device[key]


class _BatchRows:
    """The answers of V1's batch, by row."""

    def __init__(self, masks: _Masks) -> None:
        self._masks = masks
        self._rows: dict[int, tuple[MaskedAnswer, list[int]]] = {}

    def update(self, update: BatchUpdate) -> None:
        for row in update.removed:
            self._rows.pop(row, None)
        for row, params, prompt, output in update.added:
            answer = _followed(self._masks, params, prompt, len(prompt or ()))
            self._rows.pop(row, None)
            if answer is not None:
                self._rows[row] = answer, output
        for source, target, direction in update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if replaced is not None and direction is MoveDirectionality.SWAP:
                self._rows[source] = replaced

    def answers(self) -> list[tuple[int, MaskedAnswer]]:
        """Every row's answer, with all the tokens that it has by now: vLLM adds them to the same list."""
        for answer, output in self._rows.values():
            answer.add(output[answer.count :])
        return [(row, answer) for row, (answer, _) in self._rows.items()]


class _BatchSlots:
    """The answers of Model Runner V2, by slot. Its tokens live on the device, so every step waits for them."""

    def __init__(self, masks: _Masks, requests: LogitsProcRequestState) -> None:
        self._masks = masks
        self._requests = requests
        self._params: dict[int, SamplingParams] = {}
        self._answers: dict[int, MaskedAnswer] = {}

    def add(self, slot: int, params: SamplingParams) -> bool:
        self._answers.pop(slot, None)
        self._params.pop(slot, None)
        wanted = any(name.startswith("portcullis.") for name in params.extra_args or ())
        if wanted:
            self._params[slot] = params
        return wanted

    def answers(self, context: LogitsContext) -> list[tuple[int, MaskedAnswer]]:
        """The answers of the rows that sample a token in this step."""
        if not any(int(slot) in self._params for slot in context.idx_mapping_np):
            return []
        found: list[tuple[int, MaskedAnswer]] = []
        layout = torch.stack([context.expanded_idx_mapping.long(), context.pos.long()]).tolist()
        for row, (slot, position) in enumerate(zip(*layout, strict=True)):
            params = self._params.get(slot)
            length = position + 1
            prompt_length = int(self._requests.prompt_len.np[slot])
            if params is None or length < prompt_length:
                continue
            answer = self._answers.get(slot)
            if answer is None:
                request = self._requests.all_token_ids.gpu[slot, :prompt_length].tolist()
                answer = _followed(self._masks, params, request, prompt_length) or self._masks.lost()
                self._answers[slot] = answer
            fresh = self._requests.all_token_ids.gpu[slot, prompt_length + answer.count : length].tolist()
            answer.add(fresh)
            found.append((row, answer))
        return found


def _followed(
    masks: _Masks, params: SamplingParams, prompt: Sequence[int] | None, prompt_length: int
) -> MaskedAnswer | None:
    try:
        return masks.answer(params, prompt, prompt_length)
    except Exception as error:  # here it would end the server
        logger.error("Portcullis ends an answer that it cannot follow: %s", type(error).__name__)
        return masks.lost()


class BannedWords(V1Processor, V2Processor):  # type: ignore[misc]
    """To be named by `--logits-processors`. Which model runner is asking shows in what it constructs this with."""

    def __init__(self, vllm_config: VllmConfig, where: Any, is_pin_memory: bool = False) -> None:
        """Raises ValueError where words could be written despite the mask; MaskFileError and OSError for the file."""
        self._masks: _Masks | None = None
        self._batch: _BatchRows | _BatchSlots | None = None
        policies = _policies()
        if policies is None or not self._wanted(vllm_config):
            return
        if vllm_config.speculative_config is not None:
            raise ValueError("Portcullis cannot mask drafted tokens: start vLLM without speculative decoding")
        v2 = LogitsProcRequestState is not None and isinstance(where, LogitsProcRequestState)
        if not v2 and vllm_config.scheduler_config.async_scheduling and not _named(vllm_config):
            raise ValueError(
                "With async scheduling vLLM passes the tokens only to processors that are named: start it with "
                f"--logits-processors {_MODULE}:BannedWords, or with --no-async-scheduling"
            )
        self._masks = _Masks(policies, vllm_config, where.device if v2 else where)
        self._batch = _BatchSlots(self._masks, where) if v2 else _BatchRows(self._masks)

    def _wanted(self, vllm_config: VllmConfig) -> bool:
        return True

    @property
    def masks_anything(self) -> bool:
        """False if it was started without masks, or leaves them to another."""
        return self._masks is not None

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raises ValueError for arguments that cannot be followed: vLLM answers 400."""
        request = MaskRequest.of(sampling_params.extra_args)
        if request is None:
            return
        policies = _policies()
        if policies is None:
            raise MaskRequestError(f"{NO_MASKS}: start it with {RULES}=FILE")
        select(policies, request)

    def is_argmax_invariant(self) -> bool:
        return False

    # -- V1 ------------------------------------------------------------------------------------------------------------

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is not None and isinstance(self._batch, _BatchRows):
            self._batch.update(batch_update)

    # -- V2 ------------------------------------------------------------------------------------------------------------

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        return isinstance(self._batch, _BatchSlots) and self._batch.add(req_idx, sampling_params)

    # -- both ----------------------------------------------------------------------------------------------------------

    def apply(self, logits: torch.Tensor, ctx: LogitsContext | None = None) -> torch.Tensor:
        if self._masks is None or self._batch is None:
            return logits
        try:
            answers = self._batch.answers() if isinstance(self._batch, _BatchRows) else self._batch.answers(ctx)
            if answers:
                self._masks.apply(logits, answers)
        except Exception as error:  # here it would end the server
            # Which rows had a mask may not be known: all answers end, the others' too.
            logger.error("Portcullis ends every running answer: masking failed with %s", type(error).__name__)
            self._masks.end_all(logits)
        return logits


class InstalledBannedWords(BannedWords):
    """To be found by entry point. It leaves the work to the one that is named, if one is."""

    def _wanted(self, vllm_config: VllmConfig) -> bool:
        return not _named(vllm_config)


def _named(vllm_config: VllmConfig) -> bool:
    """Does `--logits-processors` name this module?"""
    return any(_MODULE in str(each) for each in vllm_config.model_config.logits_processors or ())
