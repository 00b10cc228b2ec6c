"""No decoder of Node's clients reads an event that ours does not; `tests/wire/test_sse_readers.py` has Python's."""

from __future__ import annotations

import base64
import json
from random import Random

import pytest

from tests.clients.conftest import NODE, NODE_CLIENTS, run_program
from tests.support.event_readers import cut, hostile_stream, missing, ours
from tests.support.examples import examples

pytestmark = pytest.mark.clients


@pytest.mark.usefixtures("node_installed")
async def test_no_decoder_of_node_reads_more() -> None:
    streams = [cut(rng, hostile_stream(rng)) for rng in map(Random, range(examples(4000)))]
    asked = json.dumps([[base64.b64encode(piece).decode() for piece in stream] for stream in streams])
    printed = json.loads(await run_program(NODE, NODE_CLIENTS / "event_readers.mjs", asked=asked.encode()))
    assert set(printed) == {"openai", "anthropic", "eventsource-parser", "eventsource-parser, piped"}
    for name, found in printed.items():
        for pieces, events in zip(streams, found, strict=True):
            others = [(data, event) for data, event in events if data]
            assert missing(b"".join(pieces), ours(pieces), others) is None, (name, pieces)
