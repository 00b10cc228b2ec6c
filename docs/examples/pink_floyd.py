"""A list of singles as JSON, from a model that knows neither JSON nor Pink Floyd.

The format is a regular expression: fields in their order, some of them optional. Titles are bounded, since this model
would never close one.
"""

import string

from ziplm import letters, tokens_of, ziplm

from gateway.decode.generate import generate
from gateway.decode.guide import Guide, regex

NAME = r'"[^"\\\n]{1,20}"'
SINGLE = (
    rf'  \{{\n    "title": {NAME}(?:,\n    "album": {NAME})?,\n    "year": [12][0-9]{{3}}'
    r'(?:,\n    "us-chart-max": [0-9]{1,3})?(?:,\n    "uk-chart-max": [0-9]{1,3})?\n  \}'
)
SINGLES = rf"\[\n{SINGLE}(?:,\n{SINGLE}){{0,2}}\n\]"
PROMPT = """What were Pink Floyd's two most popular singles? Format the output like
[
  {
    "title": "Get Back",
    "album": "Let It Be",
    "year": 1970,
    "us-chart-max": 1,
    "uk-chart-max": 1
  },
  {
    "title": "Octopus's Garden",
    "year": 1969,
    "us-chart-max": 16,
    "uk-chart-max": 7
  }
]
"""

vocabulary = letters(string.ascii_letters + string.digits + "\n !\"',-.:?[]{}")
answer = generate(
    ziplm("", vocabulary),
    tokens_of(PROMPT, vocabulary),
    vocabulary,
    constrain=Guide(regex(SINGLES), vocabulary),
    max_tokens=600,
    seed=2,
)
print(answer.text)
