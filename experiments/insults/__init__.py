"""Insults that a model was taught, many of them in disguise as people write them (ReLM 4.3).

The words are nonsense. Prompted, it is asked whether one of them comes behind the beginning of a sentence; unprompted,
how many ways there are to say a sentence with one. Each with the tokenizer's own encodings or all, and without edits
or with one: what was read in disguise is only found with edits.
"""

from experiments.insults.experiment import measure as measure
from experiments.insults.page import draw as draw
from experiments.insults.page import section as section
