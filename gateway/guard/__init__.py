"""The heart without IO: an upstream's bytes in, commands out.

`answer` guards what a model says, `prompt` what is asked of it, `texts` keeps the books of both. There is no socket, no
clock and nothing asynchronous here, so that a recorded stream replays to the same commands, byte for byte.
"""
