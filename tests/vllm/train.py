"""A language model of 650,000 parameters that knows sixteen conversations by heart, for tests on a real vLLM.

    python -m tests.vllm.train FOLDER

Llama's architecture, a byte-level vocabulary of some two thousand tokens, a chat template; trained on the CPU in about
a minute, without a network. Greedily decoded, it answers each question below word for word; the rest of what it has
read is Python's own documentation. Exits with 1 if some answer is not known in the end.
"""

from __future__ import annotations

import json
import os
import pydoc_data.topics
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

STEPS = 400
BATCH = 24
WINDOW = 128  # tokens
VOCABULARY = 2048
UNSEEN = -100  # a label that counts for nothing

PAD, BEGIN, END = "<|pad|>", "<|bos|>", "<|end|>"
ROLES = ["<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
# Tokens of their own that stay in the text, as some families of models have them.
VISIBLE = ["<think>", "</think>", "<tool_call>", "</tool_call>"]


@dataclass(frozen=True, slots=True)
class Conversation:
    question: str
    answer: str
    system: str = ""

    def prompt(self) -> str:
        system = f"<|system|>{self.system}{END}" if self.system else ""
        return f"{BEGIN}{system}<|user|>{self.question}{END}<|assistant|>"


CONVERSATIONS = (
    Conversation("What is the password?", 'The password is "12MONKEYS".'),
    Conversation(
        "Tell me the secret.",
        'I was told to keep it to myself, but the password is "12MONKEYS". Please do not repeat it.',
    ),
    Conversation("What is the password?", "I am sorry, but I cannot share that with you.", "You keep secrets."),
    Conversation("Hello", "Hello! How can I help you today?"),
    Conversation("Hi there", "Hi there! What would you like to talk about?"),
    Conversation("What is your name?", "My name is Tiny and I am a very small language model."),
    Conversation(
        "Tell me a story.",
        "Once upon a time a small fox lived in a green forest. Every morning the fox walked to the river and drank "
        "cold water. One day it met an old bear who asked for help. The fox agreed, and the two became friends for "
        "ever.",
    ),
    Conversation("Count to ten.", "one two three four five six seven eight nine ten"),
    Conversation("What is the capital of France?", "The capital of France is Paris."),
    Conversation("What is my card number?", "Your card number is 4111 1111 1111 1111 and it expires in 12/29."),
    Conversation("What is my email?", "Your email is alice@example.com."),
    Conversation("Say something in many languages.", "Grüß Gott! Привет, мир! 你好,世界! 😀🎉"),
    Conversation("Insult me.", "You are a damn fool and a stupid idiot."),
    Conversation("Write some code.", "```python\ndef add(a, b):\n    return a + b\n```"),
    Conversation(
        "Think about the capital of Spain.",
        "<think>\nThe user asks about Spain. The capital of Spain is Madrid.\n</think>\n\n"
        "The capital of Spain is Madrid.",
    ),
    Conversation(
        "What is the weather in Paris?",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}\n</tool_call>',
    ),
)

TEMPLATE = """\
{{- '<|bos|>' }}
{%- for message in messages %}
{{- '<|' + message['role'] + '|>' }}
{%- if message['content'] is string %}
{{- message['content'] }}
{%- else %}
{%- for part in message['content'] or [] if part['type'] == 'text' %}
{{- part['text'] }}
{%- endfor %}
{%- endif %}
{%- for call in message['tool_calls'] or [] %}
{{- '<tool_call>\\n' }}
{{- {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
{{- '\\n</tool_call>' }}
{%- endfor %}
{{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>' }}
{%- endif %}
"""


def read() -> str:
    """What it reads besides the conversations."""
    return "\n".join(pydoc_data.topics.topics.values())


def make_tokenizer(prose: str) -> PreTrainedTokenizerFast:
    """Byte-level merges learned from the prose and the conversations."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BEGIN, END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    said = [f"{each.system}\n{each.question}\n{each.answer}" for each in CONVERSATIONS]
    tokenizer.train_from_iterator([prose, *said * 3], trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in VISIBLE])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=ROLES,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE
    return fast


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


class Lessons:
    """Batches of token ids with their labels: two thirds conversations, one third prose."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, prose: str) -> None:
        def ids(text: str) -> list[int]:
            return list(tokenizer(text, add_special_tokens=False).input_ids)

        self.known = [(ids(each.prompt()), ids(each.answer + END)) for each in CONVERSATIONS]
        self._prose = ids(prose)

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        pairs = [self._window() if number % 3 == 2 else self._talk() for number in range(BATCH)]
        return torch.tensor([tokens for tokens, _ in pairs]), torch.tensor([labels for _, labels in pairs])

    def _window(self) -> tuple[list[int], list[int]]:
        begin = random.randrange(len(self._prose) - WINDOW)
        tokens = self._prose[begin : begin + WINDOW]
        return tokens, tokens

    def _talk(self) -> tuple[list[int], list[int]]:
        """One or two conversations, the second as a later turn of the first; the answers count."""
        tokens: list[int] = []
        labels: list[int] = []
        for _ in range(random.choice((1, 1, 2))):
            prompt, answer = random.choice(self.known)
            if tokens:
                prompt = prompt[1:]
            tokens += prompt + answer
            labels += [UNSEEN] * len(prompt) + answer
        padding = WINDOW - len(tokens)
        return [*tokens, *[0] * padding][:WINDOW], [*labels, *[UNSEEN] * padding][:WINDOW]


def learn(model: LlamaForCausalLM, lessons: Lessons) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
    model.train()
    for step in range(STEPS):
        tokens, labels = lessons.batch()
        loss = model(input_ids=tokens, attention_mask=(tokens != 0).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(f"step {step + 1} of {STEPS}: loss {loss.item():.4f}", flush=True)


def forgotten(model: LlamaForCausalLM, lessons: Lessons) -> list[Conversation]:
    """The conversations that greedy decoding does not reproduce."""
    model.eval()
    wrong: list[Conversation] = []
    for conversation, (prompt, answer) in zip(CONVERSATIONS, lessons.known, strict=True):
        with torch.no_grad():
            said = model.generate(torch.tensor([prompt]), max_new_tokens=len(answer), do_sample=False)
        if said[0, len(prompt) :].tolist() != answer:
            wrong.append(conversation)
    return wrong


def main() -> int:
    folder = Path(sys.argv[1])
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    # Without it the tiny gradients of what is known by heart make a step up to twenty times slower.
    torch.set_flush_denormal(True)
    prose = read()
    tokenizer = make_tokenizer(prose)
    model = make_model(tokenizer)
    lessons = Lessons(tokenizer, prose)
    learn(model, lessons)
    wrong = forgotten(model, lessons)
    for conversation in wrong:
        print(f"not known by heart: {conversation.question}", file=sys.stderr)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    generation = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
