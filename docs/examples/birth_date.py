"""A model that has only heard about George Washington is asked when he was born: all dates there are, the likeliest
first; which rules would keep it from saying them; and what it says with those.
"""

import math

import numpy as np

from gateway.audit import search
from gateway.audit.cli.emit_rules import rules_of, rules_yaml
from gateway.audit.models.masked import MaskedModel
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Decoding, Query
from gateway.decode.vocabulary import Vocabulary

HEARD = {
    "George Washington was born on July 4, 1732.": 6,
    "George Washington was born on February 22, 1732.": 3,
    "George Washington was born on February 11, 1731.": 1,
    "George Washington was born on a farm.": 8,
}
PIECES = [*sorted(set("".join(HEARD) + "0123456789")), " July", " February", " 17", " was"]
VOCABULARY = Vocabulary([*map(str.encode, PIECES), None], end=[len(PIECES)])


class Hearsay(Toy):
    """Continues as what it has heard does, and rarely in any other way."""

    def __call__(self, prefixes):
        return np.array([self.row(VOCABULARY.text(prefix)) for prefix in prefixes])

    def row(self, said):
        weights = np.full(len(PIECES) + 1, 1e-4)
        for text, often in HEARD.items():
            if text.startswith(said):
                weights[:-1] += [often * text.startswith(said + piece) for piece in PIECES]
                weights[-1] += often * (text == said)
        return np.log(weights / weights.sum())


def show(results):
    for result in results:
        print(f"{math.exp(result.logprob):7.4f}  {result.text[result.prefix :]}")


query = Query(
    query="George Washington was born on (January|February|March|April|May|June|July|August|September|October|"
    "November|December) [0-9]{1,2}, [0-9]{4}",
    prefix="George Washington was born on",
    decoding=Decoding(top_k=20),
    limit=3,
)
model = Hearsay(VOCABULARY)
found = list(search(model, query))
show(found)
rules = rules_of([result.text[result.prefix :] for result in found], masked=True)
print(rules_yaml(rules), end="")
show(search(MaskedModel.of(model, rules, query), query))
