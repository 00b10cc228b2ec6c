"""Small language models that know what they are told: Llama's architecture, byte-level tokens, trained in minutes."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, BEGIN, END = "<|pad|>", "<|bos|>", "<|end|>"
UNSEEN = -100  # a label that counts for nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a model is made: its size, and how long it learns. `batch`: documents a step; `window`: tokens of a document
    at most, its beginning and end counted."""

    steps: int
    batch: int = 64
    window: int = 64
    vocabulary: int = 2048
    hidden: int = 128
    layers: int = 2
    rate: float = 3e-3
    seed: int = 0


def taught(folder: Path, documents: Sequence[str], recipe: Recipe, weights: Sequence[float] | None = None) -> Path:
    """The folder with a model that has read the documents, each drawn as often as its weight says; trained now, unless
    it is there already. Documents begin with `BEGIN` and end with `END`."""
    share = np.ones(len(documents)) if weights is None else np.asarray(weights, float)
    share = share / share.sum()
    what = json.dumps([asdict(recipe), list(documents), share.round(12).tolist()])
    digest = hashlib.sha256(what.encode()).hexdigest()
    mark = folder / "taught.sha256"
    if mark.exists() and mark.read_text() == digest:
        return folder
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(1)  # more wait for each other longer than such small products take
    # Without it the tiny gradients of what is known by heart make a step many times slower.
    torch.set_flush_denormal(True)
    chance = np.random.default_rng(recipe.seed)
    tokenizer = _tokenizer(documents, recipe)
    model = _model(tokenizer, recipe)
    ids = [list(tokenizer(BEGIN + text + END, add_special_tokens=False).input_ids) for text in documents]
    _learn(model, ids, share, chance, recipe)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    mark.write_text(digest)
    return folder


def _tokenizer(documents: Sequence[str], recipe: Recipe) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=[PAD, BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False
    )


def _model(tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=recipe.hidden,
            intermediate_size=3 * recipe.hidden,
            num_hidden_layers=recipe.layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=recipe.hidden // 4,
            max_position_embeddings=max(256, recipe.window),
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def _learn(
    model: LlamaForCausalLM, ids: list[list[int]], share: np.ndarray, chance: np.random.Generator, recipe: Recipe
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, total_steps=recipe.steps)
    model.train()
    for step in range(recipe.steps):
        rows = [ids[number][: recipe.window] for number in chance.choice(len(ids), recipe.batch, p=share)]
        longest = max(map(len, rows))
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        labels = torch.tensor([row + [UNSEEN] * (longest - len(row)) for row in rows])
        loss = model(input_ids=tokens, attention_mask=(labels != UNSEEN).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(f"step {step + 1} of {recipe.steps}: loss {loss.item():.4f}", file=sys.stderr, flush=True)
