"""An HTTP/1.1 client for long streamed responses. Depends on httpx2, whose exceptions it raises, and httptools only.

It offers pooled keep-alive connections with a bound and fair waiting, TLS, timeouts for connecting, writing, the first
byte and each read, bounded heads and buffers, back-pressure to the socket, one retry of GET and HEAD on a stale
connection, and errors by true cause. It has no HTTP/2, redirects, cookies or proxies, and sends no body in pieces.

httpx2's own transport spends most of its time per read between layers. Here a read is one protocol callback, one parser
call, and one future or (`ResponseStream.pump`) one call of the consumer; no read has a task, timer or lock of its own.

    transport   encodes requests and sends them (`HTTP1Transport.send`)
    pool        connections by origin
    connection  a socket and its flow control
    exchange    one request and response on a connection: timeouts, failures, reuse
    response    parser callbacks → head and body parts
    stream      the consumer's side of a response body
"""

from gateway.http1.connection import Origin
from gateway.http1.pool import DescriptorsExhausted, HandshakeFailed
from gateway.http1.response import StreamLimits
from gateway.http1.stream import Response, ResponseStream
from gateway.http1.transport import HeadStart, HTTP1Transport, StaleConnection, origin_of

__all__ = [
    "DescriptorsExhausted",
    "HTTP1Transport",
    "HandshakeFailed",
    "HeadStart",
    "Origin",
    "Response",
    "ResponseStream",
    "StaleConnection",
    "StreamLimits",
    "origin_of",
]
