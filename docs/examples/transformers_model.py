"""Any model of transformers as a model here: `python transformers_model.py FOLDER "some prompt"`.

The model answers the prompt twice, the second time without the words that it may not say. Needs torch and transformers.
"""

import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gateway.decode.generate import Rollback, generate
from gateway.decode.vocabulary import read_vocabulary
from gateway.policy.model import Rule


def transformers_model(folder):
    """A model and its tokenizer. Every call reads whole prefixes; a cache is what a server is for."""
    network = AutoModelForCausalLM.from_pretrained(folder).eval()

    def model(prefixes):
        rows = []
        with torch.inference_mode():
            for prefix in prefixes:
                logits = network(torch.tensor([list(prefix)])).logits[0, -1]
                rows.append(torch.log_softmax(logits.double(), -1).numpy())
        return np.array(rows)

    return model, AutoTokenizer.from_pretrained(folder), network.config.vocab_size


if __name__ == "__main__":
    folder, prompt = sys.argv[1:]
    model, tokenizer, size = transformers_model(folder)
    vocabulary = read_vocabulary(tokenizer, size=size)
    tokens = tokenizer(prompt)["input_ids"]
    rollback = Rollback((Rule(id="words", words=("talk", "listen")),))
    print(generate(model, tokens, vocabulary, max_tokens=40).text)
    print(generate(model, tokens, vocabulary, max_tokens=40, rollback=rollback).text)
