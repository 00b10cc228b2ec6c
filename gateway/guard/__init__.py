"""The guard, without IO: an upstream's bytes in, commands out.

`prompt` guards requests (`fields`, `constrained`), `answer` answers: `chat` chunk by chunk, `fast_path` for most
of a stream, `choice` with its `tool_calls`, `metadata` around it. `channels` scans and counts each text, as JSON in
`guardedjson`; `pseudonyms` are placeholders for a prompt's values. There is no socket, no clock and nothing
asynchronous here, so that a recorded stream replays to the same commands, byte for byte.
"""
