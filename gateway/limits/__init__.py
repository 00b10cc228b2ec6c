"""Limits for each client key: requests a minute, tokens a minute, streams at the same time.

    bucket      one token bucket, pure
    account     a key's buckets and streams, and what a request may have of them, pure
    decision    the answer, its headers, and what every limiter offers
    memory      limits of one process
    shared      of the worker processes of one gateway, in a directory
    redis       of several gateways, in Redis

`shared` needs a Unix system and `redis` an optional package, so whoever wants one of them imports it from there.
"""

from gateway.limits.decision import Decision, Gauge, Limiter, headers
from gateway.limits.memory import MemoryLimiter

__all__ = ["Decision", "Gauge", "Limiter", "MemoryLimiter", "headers"]
