"""URLs that a model knows by heart: found by search, and by drawing at random (ReLM, 4.1).

A model reads addresses of websites that do not exist, each as often as its rank says, and some text around them. Who
wants them back knows what all of them begin with, and what a URL may look like.
"""

from experiments.urls.experiment import measure as measure
from experiments.urls.page import draw as draw
from experiments.urls.page import section as section
