"""The heart without IO: an upstream's bytes in, commands out.

`answer` guards what a model says, `prompt` what is asked of it, `texts` keeps the books of both, and `pseudonyms` what
the model sees in place of a prompt's values. There is no socket, no clock and nothing asynchronous here, so that a
recorded stream replays to the same commands, byte for byte.
"""
