"""The embedded upstream: a small Gandalf game behind OpenAI's API, without a network and without a model.

It guards a password as badly as a language model does: the player's words decide in which way it leaks (`gandalf`), and
every way splits the password over tokens (`tokens`). Around the game it behaves as OpenAI's server does, so that a
program written for that runs: it calls tools and fills in JSON schemas (`tools`, `schemas`), gives several choices, log
probabilities and embeddings, and refuses what is no valid request (`requests`). The same request gets the same answer.

`server` is the application; it speaks `/chat/completions`, `/completions`, `/embeddings` and `/models`. The
configuration that stands in front of it where there is no file is in `gandalf`, too.
"""
