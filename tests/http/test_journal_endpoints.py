"""The journal of every endpoint: what was found there, no text, and no answer where it is required and fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.endpoints import BODIES, COUNT_TOKENS, NATIVE, SPEAKS, STREAMED, answering
from tests.support.gateway import before
from tests.support.journalled import HMAC_KEY, hmac_of, journal_at, journalled

# Written into the prompt and the answer; the last is nothing that a rule finds.
TEXTS = ("A dragon, 12MON", "KEYS, xyzzy.")
NEVER = ("monkeys", "voldemort", "dragon", "xyzzy", HMAC_KEY)
STORED = "/v1/responses/resp_1"


async def ask(gateway: Any, path: str, **fields: Any) -> Any:
    if path == STORED:
        return await gateway.client.get(path, params=fields)
    body = {**BODIES[path], "note": "xyzzy", **fields}
    return await gateway.client.post(path, json=body)


@SPEAKS
async def test_no_text_reaches_the_journal_the_log_or_the_metrics(settings: Any, tmp_path: Path) -> None:
    native = settings is NATIVE
    paths = [path for path in BODIES if native or path != COUNT_TOKENS]
    asked = [(path, {}) for path in paths] + [(path, {"stream": True}) for path in STREAMED]
    asked += [(path, {"model": "gpt-12MONKEYS"}) for path in paths]
    async with before(answering(TEXTS), journal=journal_at(tmp_path), **settings) as (gateway, _):
        for path, fields in asked:
            assert (await ask(gateway, path, **fields)).status_code == 200, path
        matches, _ = await journalled(tmp_path, len(asked))
        written = (tmp_path / "journal.jsonl").read_text() + gateway.log.getvalue() + (await gateway.metrics()).text
    assert {line["hmac"] for line in matches} == set(map(hmac_of, ("12monkeys", "voldemort", "dragon")))
    for text in NEVER:
        assert text.lower() not in written.lower()


@SPEAKS
async def test_no_answer_without_a_required_journal(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").mkdir()
    async with before(answering(TEXTS), journal=journal_at(tmp_path, required=True), **settings) as (gateway, upstream):
        for path in (*BODIES, STORED):
            for fields in ({}, {"stream": "true"}):
                answer = await ask(gateway, path, **fields)
                assert answer.status_code == 503 and "monkeys" not in answer.text.lower(), path
        assert upstream.calls == []
