"""A model that wants to talk and to listen, and is kept from either word.

`sten`, `k` and `▁li` are harmless by themselves, and nothing here bans them as such: only what would say a word is
taken back, at the place where it began, and every spelling of it. The text then continues another way.
"""

import numpy as np

from gateway.decode.generate import Rollback, generate
from gateway.decode.vocabulary import Vocabulary
from gateway.policy.model import Rule

# What follows a piece, the likeliest first; ▁ is a space.
FOLLOWING = {
    "": ["▁I"],
    "▁I": ["▁am"],
    "▁am": ["▁here"],
    "▁here": ["▁to"],
    "▁to": ["▁listen", "▁li", "▁tal", "▁talk", "▁help"],
    "▁listen": [".", "▁and"],
    "▁li": ["sten", "ft"],
    "sten": ["."],
    "▁tal": ["k"],
    "k": ["."],
    "▁talk": ["."],
    "▁help": ["▁you"],
    "▁you": ["."],
    "ft": ["▁you"],
    "▁and": ["▁help"],
    ".": [],
}
pieces = [piece for piece in FOLLOWING if piece]
vocabulary = Vocabulary([*(piece.replace("▁", " ").encode() for piece in pieces), None], end=[len(pieces)])


def model(prefixes):
    rows = []
    for prefix in prefixes:
        weights = np.full(len(vocabulary), 1e-6)
        following = FOLLOWING[pieces[prefix[-1]] if prefix else ""]
        for rank, piece in enumerate(following):
            weights[pieces.index(piece)] = 2.0**-rank
        if not following:
            weights[-1] = 1.0
        rows.append(np.log(weights / weights.sum()))
    return np.array(rows)


rules = Rule(id="talk", words=("talk", "listen"))
print(generate(model, [], vocabulary, temperature=0, max_tokens=12).text)
answer = generate(model, [], vocabulary, temperature=0, max_tokens=12, rollback=Rollback((rules,)))
print(answer.text)
print(f"{answer.sampled} tokens drawn, {answer.rollbacks} rollbacks")
