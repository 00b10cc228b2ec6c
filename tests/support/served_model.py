"""vLLM's API in front of a toy model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np

from gateway.audit.models.toy import Toy
from tests.support.fake_gateway import Json
from tests.support.naive_search import vocabulary_of

VOCABULARY = vocabulary_of("a", "b", "c", " ", "ab", "bc", "é", b"\xc3", b"\xa9")


@dataclass
class Served:
    """vLLM's API in front of a toy. `most`: how many tokens it tells; `tells`: it knows `logprob_token_ids`. Answers of
    `first` come before its own: a status with a body, or None for a connection that is closed."""

    toy: Toy
    most: int = 20
    tells: bool = True
    first: list[tuple[int, bytes] | None] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    url: str = ""

    def play(self, path: str, body: Json) -> tuple[int, bytes] | None:
        self.bodies.append(body)
        if self.first:
            return self.first.pop(0)
        if path == "/tokenize":
            text = body["prompt"] if "prompt" in body else "".join(each["content"] for each in body["messages"])
            return 200, json.dumps({"tokens": self.toy.encode(text)}).encode()
        assert path == "/v1/completions" and body["max_tokens"] == 1 and body["return_tokens_as_token_ids"]
        if body["logprobs"] > self.most and not (self.tells and body.get("logprob_token_ids")):
            message = f"Requested sample logprobs of {body['logprobs']}, which is greater than max allowed: {self.most}"
            return 400, json.dumps({"error": {"message": message, "code": 400}}).encode()
        return 200, json.dumps(self.completion(body)).encode()

    def completion(self, body: Json) -> Json:
        choices = [self.choice(number, tokens, body) for number, tokens in enumerate(body["prompt"])]
        return {"object": "text_completion", "choices": choices[::-1]}

    def choice(self, number: int, tokens: list[int], body: Json) -> Json:
        row = self.toy([tokens])[0]
        asked = body.get("logprob_token_ids") if self.tells else None
        told = asked or np.argsort(-row)[: body["logprobs"]].tolist()
        # What was sampled is told, too, however unlikely.
        shown = {f"token_id:{token}": float(row[token]) for token in [*told, len(row) - 1]}
        return {"index": number, "text": "?", "logprobs": {"top_logprobs": [shown]}}
