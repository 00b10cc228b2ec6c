"""A model that knows nothing chooses among three words, letter by letter.

The constraint is an alternation. Its machine is printed as tables have it: what may come in each state, and where that
leads; `*` ends the word.
"""

import string

import numpy as np

from gateway.decode.compiled import ENDED, precompile
from gateway.decode.generate import generate
from gateway.decode.guide import Guide, choice
from gateway.decode.vocabulary import Vocabulary

END = len(string.ascii_letters)
vocabulary = Vocabulary([*(letter.encode() for letter in string.ascii_letters), None], end=[END])


def indifferent(prefixes):
    return np.full((len(prefixes), len(vocabulary)), -np.log(len(vocabulary)))


machine = precompile(Guide(choice("hot", "cold", "hotel"), vocabulary))
for state in range(len(machine.tables.accepting)):
    for token in machine.allowed(state).tolist():
        letter = "*" if token == END else string.ascii_letters[token]
        target = machine.advance(state, token)
        print(f"({state}, {letter!r}) -> {'end' if target == ENDED else target}")

for seed in range(8):
    print(generate(indifferent, [], vocabulary, constrain=machine, seed=seed).text)
