"""Content that passes a reader of its JSON unread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.inner_texts import Piece
from gateway.wire.fences import ContentReader


def described(piece: Piece | None) -> object:
    return piece and (piece._replace(steps=()), [type(step) for step in piece.steps])


@given(st.lists(st.text(alphabet=' \n{[`"1ajson', max_size=8), max_size=4))
def test_what_passes_has_nothing_to_be_read(pieces: list[str]) -> None:
    quick, reader = ContentReader(), ContentReader()
    for piece in pieces:
        if not quick.passes(piece):
            break
        assert reader.read(piece, 0, len(piece)) == Piece(len(piece)) and reader.idle and quick.idle
    for char in "".join(pieces):
        assert quick.idle == reader.idle
        assert described(quick.read(char, 0, 1)) == described(reader.read(char, 0, 1))


@pytest.mark.parametrize(
    ("text", "passes"), [("It is", True), (" 1{", True), (" ", False), (" [", False), ("a`", False)]
)
def test_text_passes_but_for_json_and_backticks(text: str, passes: bool) -> None:
    assert ContentReader().passes(text) is passes
