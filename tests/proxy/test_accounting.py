"""The record of a request: it is closed once, and one rule names the outcome of refused and answered requests."""

from __future__ import annotations

import pytest

from gateway.observe.facts import Fact, RequestFinished, TextScanned
from gateway.proxy.accounting import (
    CLIENT_IDLE,
    CLIENT_LEFT,
    GUARD_DEFECT,
    NOT_JOURNALLED,
    SERVER_STOPS,
    RequestRecord,
    not_journalled,
)
from gateway.proxy.errors import client_error

BLOCKED_TEXT = TextScanned("default", "input", blocked_by="stop")


def opened() -> tuple[RequestRecord, list[Fact]]:
    facts: list[Fact] = []
    return RequestRecord("req_1", "/v1/chat/completions", facts.append), facts


@pytest.mark.parametrize(
    ("error", "blocked", "outcome"),
    [
        (None, False, "ok"),
        (None, True, "blocked"),  # an answer that a rule stopped
        ("content_filter", True, "blocked"),  # a prompt that a rule refused
        ("invalid_api_key", False, "failed"),
        ("rollback_unsupported", True, "failed"),
        (GUARD_DEFECT, True, "failed"),
        (NOT_JOURNALLED, True, "failed"),
        (CLIENT_LEFT, True, "cancelled"),
        (CLIENT_IDLE, False, "cancelled"),
        (SERVER_STOPS, False, "cancelled"),
    ],
)
def test_an_outcome_follows_from_the_error_and_the_texts(error: str | None, blocked: bool, outcome: str) -> None:
    record, facts = opened()
    record.error = error
    if blocked:
        record.scanned.append(BLOCKED_TEXT)
    record.close(200)
    finished = facts[-1]
    assert isinstance(finished, RequestFinished)
    assert (finished.outcome, finished.error) == (outcome, error)


def test_it_is_reported_and_its_slot_released_once() -> None:
    record, facts = opened()
    released: list[bool] = []
    record.release_slot = lambda: released.append(True)
    record.scanned.append(BLOCKED_TEXT)
    record.close(0)
    record.close(200)
    assert [type(fact) for fact in facts] == [TextScanned, RequestFinished]
    assert isinstance(facts[-1], RequestFinished) and facts[-1].status == 499
    assert released == [True]


async def test_a_refusal_closes_it_and_an_abandoned_one_is_not_reported() -> None:
    record, facts = opened()
    assert (await record.refuse(client_error(404, "No.", "model_not_found"))).status == 404
    (finished,) = facts
    assert isinstance(finished, RequestFinished)
    assert (finished.status, finished.error, finished.upstream, finished.route) == (
        404,
        "model_not_found",
        "none",
        "none",
    )
    record, facts = opened()
    released: list[bool] = []
    record.release_slot = lambda: released.append(True)
    await record.abandon()
    assert (facts, released) == ([], [True])


async def test_where_the_journal_fails_that_is_the_refusal() -> None:
    class Failing:
        async def committed(self, entries: object) -> bool:
            return False

    record, facts = opened()
    record.journal, record.journal_required = Failing(), True  # type: ignore[assignment]
    record.scanned.append(BLOCKED_TEXT)
    refused = await record.refuse(client_error(400, "No.", "content_filter"))
    assert (refused.status, refused.kind) == (503, not_journalled().kind)
    (finished,) = facts
    assert isinstance(finished, RequestFinished)
    assert (finished.status, finished.outcome, finished.error) == (503, "failed", NOT_JOURNALLED)
