"""What an upstream answers to /v1/embeddings."""

from __future__ import annotations

import base64
import struct
from typing import Any

from tests.support.upstream import MODEL, Json

PATH = "/v1/embeddings"
USAGE = {"prompt_tokens": 3, "total_tokens": 3}
VECTOR = [0.25, -0.5, 0.0, 1.0, 0.4111111111111111]  # the last one has the digits of a card number


def encoded(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def embedded(*vectors: Any, **more: Any) -> Json:
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    return {"object": "list", "data": data, "model": MODEL, "usage": USAGE, **more}
