"""Limits for each client key: requests a minute, tokens a minute, streams at the same time.

    decision    token buckets, a key's buckets and streams, the decision about a request and its headers, pure; and the
                protocol of limiters
    memory      limits of one process
    shared      of the worker processes of one gateway, in a directory
    redis       of several gateways, in Redis

`shared` needs a Unix system and `redis` an optional package, so neither is imported here.
"""

from gateway.limits.decision import Decision, Gauge, Limiter, headers
from gateway.limits.memory import MemoryLimiter

__all__ = ["Decision", "Gauge", "Limiter", "MemoryLimiter", "headers"]
