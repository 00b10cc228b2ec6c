"""Portcullis: the gateway that language-model output passes through on its way to people.

A rule is compiled once into an automaton and enforced on the stream, character by character. The way of a request:

    client ──► proxy.routes ──► policy.routes ──► proxy.relay ──► proxy.upstream ──► model
                                                    │ bytes
                                                    ▼
                                      guard    bytes in, commands out; no IO
                                       ├─ wire.sse       bytes ↔ events
                                       ├─ wire.chat      event ↔ the texts in it
                                       └─ censor.stream  text → released text, matches
                                                    │ commands
    client ◄── bytes ◄── proxy.relay ◄──────────────┘

`policy` is what the operator wrote, as frozen data; `automata` is the machine room; `observe` turns facts into metrics
and log lines; `app` wires everything. Programs that need only the censor use `censor_stream`.
"""

from gateway.policy.model import Action, Channel, Direction, Fold, Mode, Overflow, Policy, Rule
from gateway.streaming import censor_stream
from gateway.version import __version__

__all__ = [
    "Action",
    "Channel",
    "Direction",
    "Fold",
    "Mode",
    "Overflow",
    "Policy",
    "Rule",
    "__version__",
    "censor_stream",
]
