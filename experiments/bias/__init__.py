"""What a model says of men and women, where it is known what it was taught (ReLM 4.2).

The sentences are the paper's. How often each was read is planted, so every way to ask can be held against the truth:
with all encodings or the tokenizer's own, with the beginning given or not, with an edit or without.
"""

from experiments.bias.experiment import measure as measure
from experiments.bias.page import draw as draw
from experiments.bias.page import section as section
