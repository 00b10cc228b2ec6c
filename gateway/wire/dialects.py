"""Every dialect. To add one, write its file and list it here: its endpoint follows from its `path`."""

from __future__ import annotations

from gateway.wire.chat import CHAT
from gateway.wire.completions import COMPLETIONS
from gateway.wire.embeddings import EMBEDDINGS
from gateway.wire.messages import COUNT_TOKENS, MESSAGES
from gateway.wire.responses import RESPONSES

DIALECTS = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)  # of answers that a model writes
SERVED = (*DIALECTS, EMBEDDINGS, COUNT_TOKENS)
