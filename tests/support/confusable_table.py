"""Makes the table of `gateway.censor.confusables` from Unicode's data, as the package `confusable-homoglyphs` has it:

python -m tests.support.confusable_table confusable_homoglyphs/confusables.json
"""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path

SMALL_CAPITAL = "LATIN LETTER SMALL CAPITAL "
CHAIN = 3  # a character may look like one that looks like one
Listed = dict[str, list[dict[str, str]]]


def table(listed: Listed) -> dict[str, str]:
    """By letters and digits of ASCII, what looks like them and is neither ASCII, nor made of a letter and marks, nor a
    compatibility form, nor a digit."""
    by_target: dict[str, str] = {}
    for char in map(chr, range(0x80, sys.maxunicode + 1)):
        forms = {unicodedata.normalize(form, char) for form in ("NFC", "NFD", "NFKC")}
        if unicodedata.digit(char, None) is None and forms == {char}:
            target = _target(char, listed, CHAIN)
            if target == "rn":
                target = "m"  # as whose form it is listed: ASCII's own letters stay apart
            if target == "l" and unicodedata.category(char) == "Lu":
                target = "I"
            if target:
                by_target[target] = by_target.get(target, "") + char
    return dict(sorted(by_target.items()))


def _target(char: str, listed: Listed, steps: int) -> str:
    """The letters of ASCII that a character looks like; of a Latin letter with a stroke or hook, the letter."""
    name = unicodedata.name(char, "")
    if name.startswith(SMALL_CAPITAL) and len(name) == len(SMALL_CAPITAL) + 1:
        return name[-1].lower()
    for other in listed.get(char, ()) if steps else ():
        text = unicodedata.normalize("NFD", other["c"])
        plain = "".join(each for each in text if not unicodedata.combining(each))
        if plain.isascii() and plain.isalnum():
            whole = plain == text or "LATIN" in name
            return plain if whole and (len(plain) == 1 or " LETTER " in name or " LIGATURE " in name) else ""
        if len(text) == 1 and (target := _target(text, listed, steps - 1)):
            return target
    return ""


def main() -> None:
    """Print the lines of the table."""
    for target, chars in table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))).items():
        codes = [f"{ord(char):X}" for char in chars]
        print(f'    "{target}": "{" ".join(codes)}",')


if __name__ == "__main__":
    main()
