"""Portcullis: a streaming guardrail proxy for LLM APIs.

A rule is compiled once into an automaton and enforced on the stream, character by character. A request goes

    client ─► proxy.downstream ─► proxy.routes ─► proxy.admission ─► proxy.relay ─► proxy.upstreams ─► http1 ─► model

and a chunk comes back in one callback of the event loop; `proxy.relay` has the slow path for whatever does not fit:

    model ─► http1 ─► proxy.hotpath ─► guard.answer ─► wire.sse ─► guard.fast_path ─► guard.channels ─► censor
    client ◄──────── proxy.hotpath ◄── guard.answer ◄────────────────────────────────────────────────────┘

Chat and text completions are guarded as chunks of choices (`guard.chat`), Responses and Messages as typed events
(`guard.events`). A dialect of `wire.dialects` says where its texts are; over an upstream that speaks only chat,
`wire.translation` makes the request and writes the answer.

Each line imports only from those below it:

    cli                             the commands
    doctor                          diagnoses a running gateway
    serving                         processes, workers, reload, a managed vLLM
    app, scan, audit                the composition root; `portcullis scan`; the audit of a model
    proxy, demo                     sockets and requests; the demo model
    guard, limits, journal, http1   bytes in, commands out; rate limits; decisions on disk; the HTTP client
    config                          a configuration with every check
    decode                          masks, guides and rollback while a vLLM writes
    censor, wire, observe           rules over texts; events and dialects; facts, metrics, log, traces
    automata, policy, files         words and patterns; the configuration as frozen data; private files

`streaming` has `censor_stream`, for programs that need only the censor. Requests and chunks file by file:
docs/architecture.md.
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
