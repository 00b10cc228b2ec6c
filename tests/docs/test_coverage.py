"""The samples of docs/coverage.md reach every field that the code's own tables name, with the outcome they say."""

from __future__ import annotations

import pytest

from gateway.wire.dialect import Dialect
from gateway.wire.dialects import SERVED
from tests.docs import coverage
from tests.docs.scanned import DROPPED, REFUSED

_DIALECTS = pytest.mark.parametrize("dialect", SERVED, ids=lambda dialect: dialect.endpoint)


def outcomes_below(found: coverage.Rows, name: str) -> set[str]:
    return {
        outcome for row, outcomes in found.items() if name in row.replace("[", ".").split(".") for outcome in outcomes
    }


@_DIALECTS
def test_fields_of_requests(dialect: Dialect) -> None:
    found = coverage.requests(dialect)
    for names, outcome in ((dialect.refused, REFUSED), (dialect.dropped, DROPPED)):
        assert {name: outcomes_below(found, name) for name in names} == {name: {outcome} for name in names}
    assert [name for name in dialect.prompt_fields if not outcomes_below(found, name)] == []


@_DIALECTS
def test_texts_of_answers(dialect: Dialect) -> None:
    if dialect.events is not None:
        rows = [*coverage.answers(dialect), *coverage.events(dialect)]
        missing = [
            (text.part, text.name)
            for text in dialect.events.fields
            if not any(
                (f"{text.part}]" in row and text.name in row)
                or row == f"{text.part}: {text.name} (base64)"
                or f"{text.part}.transcript.delta" in row
                for row in rows
            )
        ]
        assert missing == []
