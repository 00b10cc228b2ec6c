"""The soak without a gateway: what it takes for growth, for faults, and for another request."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from loadtest.soak import BATCHES, ROWS, Soaked, faults_of


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_no_two_requests_are_alike_in_any_value(row: object) -> None:
    heads, bodies = zip(*(row.request.split(b"\r\n\r\n") for _ in range(2)), strict=True)  # type: ignore[attr-defined]
    values = [{str(value) for name, value in json.loads(body).items() if name != "stream"} for body in bodies]
    assert not values[0] & values[1]
    for name in (b"User-Agent", b"Authorization", b"x-request-id", b"traceparent"):
        lines = {line for head in heads for line in head.split(b"\r\n") if line.startswith(name + b":")}
        assert len(lines) == 2


def test_the_slope_is_in_bytes_a_request() -> None:
    row = replace(ROWS[0], requests=100)
    grown = Soaked(row, tuple(10**6 + 5000 * batch for batch in range(BATCHES)), 1.0)
    assert grown.slope == pytest.approx(50) and grown.grows
    assert not Soaked(row, tuple(10**6 + 500 * batch for batch in range(BATCHES)), 1.0).grows
    assert Soaked(row, (7,) * BATCHES, 1.0).slope == 0
    assert str(Soaked(row, (2**20,) * BATCHES, 1.0)) == "| short requests | 5,000 | 1 | 1.0 | 1.0 | 0.00 |"


def test_what_is_wrong_at_the_end() -> None:
    well = {"portcullis_streams_active": 0.0, 'portcullis_requests_total{path="/v1/chat/completions"}': 9.0}
    assert faults_of(well, well) == []
    assert len(faults_of(well, {**well, 'portcullis_requests_total{path="/new"}': 1.0})) == 1
    assert len(faults_of(well, {**well, "portcullis_streams_active": 1.0})) == 1
    lost = {'portcullis_coverage_errors_total{channel="content"}': 1.0}
    assert len(faults_of({**well, **lost}, {**well, **lost})) == 1
