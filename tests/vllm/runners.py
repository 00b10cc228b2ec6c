"""What a test server on the CPU cannot reach of the plugin, run in vLLM's environment: `python -m tests.vllm.runners`.

Model Runner V2 needs a GPU, and so does async scheduling. Here the plugin is constructed as they do, with vLLM's own
configuration and its own buffers on the CPU; what the runner's kernels would write into these, this module does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.worker.gpu import buffer_utils
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor, LogitsProcRequestState
from vllm.v1.worker.gpu.states import RequestState

from gateway.decode.maskfile import POLICY, MaskRequest, read_masks
from gateway.decode.vllm_plugin import BannedWords, InstalledBannedWords
from tests.support.vllm_server import MODEL, PLUGIN

PROMPT = [1, 4, 40, 41, 2, 5]
ROWS = 4


def configuration(**more: Any) -> Any:
    return EngineArgs(model=str(MODEL), dtype="bfloat16", max_model_len=1024, **more).create_engine_config()


def encode(text: str) -> list[int]:
    return list(AutoTokenizer.from_pretrained(MODEL)(text, add_special_tokens=False).input_ids)


def wanted(kept: int = 0) -> SamplingParams:
    policy = read_masks(Path(os.environ["PORTCULLIS_MASKS"]))["secret"]
    request = MaskRequest(policy="secret", digest=policy.digest, kept=kept)
    return SamplingParams(max_tokens=50, extra_args=dict(request.arguments()))


class Slots:
    """Requests in V2's buffers, one row of logits for each."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.requests = RequestState(
            max_num_reqs=ROWS, max_model_len=1024, max_num_batched_tokens=1024, num_speculative_steps=0,
            vocab_size=width, device=torch.device("cpu"), use_dense_all_token_ids=True,
        )  # fmt: skip
        self.tokens: dict[int, list[int]] = {}

    def put(self, slot: int, prompt: list[int], output: list[int]) -> None:
        self.tokens[slot] = prompt + output
        self.requests.prompt_len.np[slot] = len(prompt)
        self.requests.all_token_ids.gpu[slot, : len(self.tokens[slot])] = torch.tensor(self.tokens[slot])

    def context(self) -> LogitsContext:
        slots = list(self.tokens)
        mapping = torch.tensor(slots)
        lengths = [len(tokens) for tokens in self.tokens.values()]
        return LogitsContext(
            expanded_idx_mapping=mapping,
            idx_mapping=mapping,
            idx_mapping_np=np.array(slots),
            expanded_local_pos=torch.zeros(len(slots), dtype=torch.int32),
            input_ids=torch.tensor([tokens[-1] for tokens in self.tokens.values()]),
            pos=torch.tensor([length - 1 for length in lengths]),
            seq_lens_upper_bound_np=np.array(lengths),
        )

    def masked(self, processor: BannedWords) -> list[set[int]]:
        """The tokens that are forbidden in each row."""
        logits = processor.apply(torch.zeros(len(self.tokens), self.width), self.context())
        return [set(torch.isinf(row).nonzero().flatten().tolist()) for row in logits]


def check_v2() -> None:
    config = configuration(logits_processors=[PLUGIN])
    slots = Slots(config.model_config.get_vocab_size())
    processor = BannedWords(config, LogitsProcRequestState.from_request_state(slots.requests))
    assert isinstance(processor, LogitsProcessor)
    said, rest = encode('The password is "12MONKEY'), encode("S")
    assert processor.add_request(2, wanted())
    assert not processor.add_request(0, SamplingParams())

    slots.put(0, PROMPT, said)
    slots.put(2, PROMPT, [])
    assert slots.masked(processor)[0] == set()
    for end in range(1, len(said) + 1):
        slots.put(2, PROMPT, said[:end])
        untouched, forbidden = slots.masked(processor)
        assert untouched == set()
    assert rest[0] in forbidden

    # Taken up again after a preemption, in another slot; resumed by the gateway; and a prompt that is not finished.
    assert processor.add_request(1, wanted())
    slots.put(1, PROMPT, said)
    assert processor.add_request(3, wanted(kept=len(said)))
    slots.put(3, PROMPT + said, [])
    _, forbidden, again, resumed = slots.masked(processor)
    assert forbidden == again == resumed
    slots.put(3, PROMPT + said, [])
    slots.tokens[3] = slots.tokens[3][:-2]
    assert processor.add_request(3, wanted(kept=len(said)))
    assert slots.masked(processor)[3] == set()

    # A slot that is given to another request.
    assert not processor.add_request(1, SamplingParams())
    assert slots.masked(processor)[2] == set()


def check_nothing_is_raised() -> None:
    config = configuration(logits_processors=[PLUGIN])
    width = config.model_config.get_vocab_size()
    slots = Slots(width)
    processor = BannedWords(config, LogitsProcRequestState.from_request_state(slots.requests))
    slots.put(0, PROMPT, [])
    everything_but_the_end = set(range(width)) - {2}
    # Arguments that no `validate_params` has seen: the answer ends.
    assert processor.add_request(0, SamplingParams(extra_args={POLICY: "unknown"}))
    assert slots.masked(processor) == [everything_but_the_end]
    # A step that is not laid out as this version knows it.
    logits = processor.apply(torch.zeros(1, width), None)
    assert set(torch.isinf(logits[0]).nonzero().flatten().tolist()) == everything_but_the_end


def check_refusals() -> None:
    named, found = configuration(logits_processors=[PLUGIN]), configuration()
    cpu = torch.device("cpu")
    for config in (named, found):
        config.scheduler_config.async_scheduling = True
    assert BannedWords(named, cpu).masks_anything
    assert not InstalledBannedWords(named, cpu).masks_anything
    refused(lambda: InstalledBannedWords(found, cpu), "With async scheduling")
    found.scheduler_config.async_scheduling = False
    assert InstalledBannedWords(found, cpu).masks_anything
    found.speculative_config = object()
    refused(lambda: InstalledBannedWords(found, cpu), "cannot mask drafted tokens")


def refused(construct: Any, message: str) -> None:
    try:
        construct()
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError(f"not refused: {message}")


if __name__ == "__main__":
    # There is no pinned memory without an accelerator; vLLM has plain buffers for such platforms.
    buffer_utils.is_uva_available = lambda: False
    check_v2()
    check_nothing_is_raised()
    check_refusals()
