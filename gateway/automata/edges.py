"""Which characters words are made of, as far as `whole_word` is concerned (semantics rule 12)."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

# Scripts written without spaces, whose words have no edges to test; Hangul joins its particles to words.
CJK_RANGES = (
    (0x1100, 0x11FF), (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x3035), (0x3038, 0x303C),
    (0x3041, 0x3096), (0x3099, 0x309A), (0x309D, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x30FF), (0x3105, 0x312F),
    (0x3131, 0x318E),
    (0x31A0, 0x31BF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA960, 0xA97C), (0xAC00, 0xD7FB),
    (0xF900, 0xFAFF), (0xFF66, 0xFFDC), (0x1AFF0, 0x1B16F), (0x20000, 0x3FFFD),
)  # fmt: skip
# What sets a word off without being beside it: Markdown's emphasis, which is also a letter of programs' names.
EMPHASIS = "_"
MAX_CHARS = 4096


def is_cjk(char: str) -> bool:
    code = ord(char)
    return code >= 0x1100 and any(low <= code <= high for low, high in CJK_RANGES)


@lru_cache(MAX_CHARS)
def is_word_char(char: str) -> bool:
    """What must not stand beside a whole word: alphanumeric, a mark, or `_`. Not so characters of scripts without
    spaces, superscripts and subscripts, and marks that enclose what they stand behind, as keycaps do."""
    if char == EMPHASIS:
        return True
    return (char.isalnum() or unicodedata.category(char) in ("Mn", "Mc")) and not (is_cjk(char) or is_raised(char))


def is_raised(char: str) -> bool:
    """A superscript or subscript: a footnote's mark, no part of the word beside it."""
    return char > "\x7f" and unicodedata.decomposition(char).startswith(("<super>", "<sub>"))
