"""No decoder that clients use reads an event that ours does not, whatever the stream and the reads.

`tests/clients/test_event_readers.py` has those of Node.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.support.event_readers import BOM, READERS, TWICE_ENCODED, cut, hostile_stream, missing, ours
from tests.support.examples import examples


@pytest.mark.parametrize("name", READERS)
def test_no_other_decoder_reads_more(name: str) -> None:
    for seed in range(examples(2000)):
        rng = Random(seed)
        stream = hostile_stream(rng)
        pieces = cut(rng, stream)
        assert ours(pieces) == ours([stream]), seed
        assert missing(stream, ours(pieces), READERS[name](pieces)) is None, (seed, stream)


@pytest.mark.parametrize("mark", [BOM, TWICE_ENCODED, BOM + TWICE_ENCODED, BOM + BOM])
@pytest.mark.parametrize("before", [b"", b"data: x\n\n", b"data: x\r\n"])
def test_marks_at_the_beginning_of_a_line_are_skipped_under_every_cut(mark: bytes, before: bytes) -> None:
    stream = before + mark + b"data: y" + mark + b"\n\n"
    wanted = ours([before + b"data: y" + mark + b"\n\n"])
    for at in range(len(stream)):
        assert ours([stream[:at], stream[at:]]) == wanted
    assert ours([stream[at : at + 1] for at in range(len(stream))]) == wanted


def test_what_is_missing_is_found() -> None:
    assert missing(b"", [("a", ""), ("c", "")], [("a", ""), ("b", "")]) == "('b', '')"
    assert missing(b"", [("a", ""), ("b", "")], [("b", ""), ("a", "")]) == "('a', '')"
    assert missing(BOM, [("a\nb", "")], [("a", ""), ("b", "")]) is None
