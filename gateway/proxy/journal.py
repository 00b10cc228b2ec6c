"""One request's part of the journal."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.guard.texts import Finding
from gateway.journal.entries import Entry, RequestEntry
from gateway.journal.writer import JournalWriter
from gateway.observe.facts import RequestFinished


@dataclass(frozen=True, slots=True)
class RequestJournal:
    """`required`: without it no answer may end."""

    writer: JournalWriter
    required: bool
    request_id: str
    key: str
    route: str
    policy: str

    async def commit(self, findings: Iterable[Finding]) -> bool:
        """Write what was found; False if the configuration requires it to be written and it could not be."""
        entries = self._entries(findings)
        if not self.required:
            self.writer.write(entries)
            return True
        return await self.writer.committed(entries)

    def close(self, fact: RequestFinished, findings: Iterable[Finding]) -> None:
        """Write what is left to say of a request that has ended."""
        request = RequestEntry(
            time=time.time(),
            request_id=fact.request_id,
            key_name=self.key,
            route=fact.route,
            policy=fact.policy,
            upstream=fact.upstream,
            status=fact.status,
            outcome=fact.outcome,
            stream=fact.stream,
            duration=fact.duration,
        )
        self.writer.write([*self._entries(findings), request])

    def _entries(self, findings: Iterable[Finding]) -> list[Entry]:
        now = time.time()
        return [
            Entry(
                time=now,
                request_id=self.request_id,
                key_name=self.key,
                route=self.route,
                policy=self.policy,
                direction=found.direction,
                rule=found.rule,
                action=found.action,
                channel=found.channel,
                choice=found.choice,
                offset=found.offset,
                length=found.length,
                seen=found.seen,
            )
            for found in findings
        ]
