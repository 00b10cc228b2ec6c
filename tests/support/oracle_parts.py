"""A naive reading of the text parts of one message."""

from __future__ import annotations


def replaced(parts: list[str], words: list[str], replacement: str) -> list[str]:
    """What comes out of parts: each cluster of occurrences in the whole is replaced in the part in which it begins."""
    whole = "".join(parts)
    begins = [sum(map(len, parts[:at])) for at in range(len(parts))]
    spans = sorted((at, at + len(word)) for word in words for at in range(len(whole)) if whole[at:].startswith(word))
    out = [""] * len(parts)
    at = 0
    while at < len(whole):
        part = max(number for number, begin in enumerate(begins) if begin <= at)
        end = next((end for start, end in spans if start == at), None)
        if end is None:
            out[part] += whole[at]
            at += 1
            continue
        while more := [over for start, over in spans if start < end < over]:
            end = max(more)
        out[part] += replacement
        at = end
    return out
