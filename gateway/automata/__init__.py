"""The machine room: automata over text. Imports nothing of ours and nothing asynchronous."""
