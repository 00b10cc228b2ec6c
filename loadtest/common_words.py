"""Writes gateway/censor/common_words.txt: words that end answers without being anybody's secret.

    python -m loadtest.common_words

Those that come often in what every installation of Python says and in the messages of installed programs in German and
French, in letters only and not as a name, and the words of everyday things in everyday_words.txt, on which people build
passwords and which such texts do not have.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from loadtest.word_hits import ROOT, english, messages

WORDS = ROOT / "gateway" / "censor" / "common_words.txt"
EVERYDAY = Path(__file__).with_name("everyday_words.txt")
# A word stands between blanks and signs, not in a path or an identifier.
_WORD = re.compile(r"(?<![\w./\\%$@-])[^\W\d_]{2,20}(?![\w/\\%$@(=-])")
LEAST, MOST = 6, {"en": 3000, "de": 1500, "fr": 1500}  # how often a word comes, and how many are kept


def frequent(texts: Iterable[str], most: int) -> set[str]:
    """The most frequent words; what is seldom written small, as a name, is none but in German."""
    counted = Counter(word for text in texts for word in _WORD.findall(text))
    return {word.casefold() for word, times in counted.most_common(most) if times >= LEAST}


def main() -> int:
    found = set(EVERYDAY.read_text("utf-8").split())
    found |= {word for word in frequent(english(), MOST["en"]) if word.isascii()}
    found |= frequent(messages("de"), MOST["de"]) | frequent(messages("fr"), MOST["fr"])
    lines = textwrap.wrap(" ".join(sorted(found)), 120, break_long_words=False, break_on_hyphens=False)
    WORDS.write_text("\n".join([*lines, ""]), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
